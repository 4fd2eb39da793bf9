"""Refused logins in the log."""

import logging

import pytest

from ottermq.auth import refusals
from ottermq.auth.refusals import Refusals
from ottermq.errors import LoginRefused
from tests.auth.test_login_throttle import Clock

REFUSAL = LoginRefused("PLAIN", "user 'ann' - invalid credentials")


def test_an_address_can_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ottermq")
    clock = Clock()
    told = Refusals(clock)
    for _ in range(1000):
        told.tell("PLAIN", "192.0.2.1", REFUSAL)
    assert len(caplog.messages) == refusals.FREE
    told.tell("PLAIN", "192.0.2.2", REFUSAL)  # another has lines of its own
    assert len(caplog.messages) == refusals.FREE + 1
    clock.now += refusals.INTERVAL
    told.tell("PLAIN", "192.0.2.1", REFUSAL)
    assert caplog.messages[-1].endswith("left_out=990")


def test_the_table_of_addresses_is_bounded() -> None:
    told = Refusals(Clock())
    for number in range(refusals.MOST_ADDRESSES + 10):
        told.tell("PLAIN", f"10.0.{number >> 8}.{number & 255}", REFUSAL)
    assert len(told) == refusals.MOST_ADDRESSES
