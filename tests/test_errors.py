"""Each error has a code for each protocol, and each code is one its protocol knows."""

from collections.abc import Iterator
from http import HTTPStatus

import kafka.errors
import pamqp.exceptions
import pytest

from ottermq import errors
from ottermq.wal import LogError


def offspring(cls: type[Exception]) -> Iterator[type[Exception]]:
    for child in cls.__subclasses__():
        yield child
        yield from offspring(child)


def test_every_error_a_client_can_meet_has_its_codes() -> None:
    """Those the two modules name; what a tool or a test adds on its own stays there."""
    named = {*offspring(errors.OtterError), *offspring(LogError)}
    at_start = {errors.StartupError, *offspring(errors.StartupError)}
    homes = {errors.__name__, LogError.__module__}
    assert {cls for cls in named - at_start if cls.__module__ in homes} == set(errors.CODES)


@pytest.mark.parametrize("codes", errors.CODES.values())
def test_every_code_is_one_its_protocol_knows(codes: errors.Codes) -> None:
    assert codes.amqp in pamqp.exceptions.CLASS_MAPPING
    assert kafka.errors.for_code(codes.kafka).errno == codes.kafka
    assert 400 <= HTTPStatus(codes.http) < 600


def test_an_error_without_codes_of_its_own_has_its_parents() -> None:
    class NoSuchQueue(errors.NotFound):
        pass

    assert errors.codes_of(NoSuchQueue("orders")) == errors.CODES[errors.NotFound]


def test_what_is_none_of_our_errors_is_our_own_mistake() -> None:
    assert errors.codes_of(KeyError("x")) == errors.CODES[errors.InternalError]
