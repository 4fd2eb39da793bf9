"""Lines that anybody can cause: refused logins, and ends of connections that said nothing."""

import logging

import pytest

from ottermq.auth import line_limit
from ottermq.auth.before_hello import BeforeHello
from ottermq.auth.line_limit import LineLimit
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
    assert len(caplog.messages) == line_limit.FREE
    told.tell("PLAIN", "192.0.2.2", REFUSAL)  # another has lines of its own
    assert len(caplog.messages) == line_limit.FREE + 1
    clock.now += line_limit.INTERVAL
    told.tell("PLAIN", "192.0.2.1", REFUSAL)
    assert caplog.messages[-1].endswith("left_out=990")


def test_a_refused_login_names_the_user_if_a_name_was_given(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = Refusals(Clock())
    told.tell("PLAIN", "192.0.2.1", REFUSAL, "ann")
    told.tell("PLAIN", "192.0.2.1", REFUSAL, "ann\n2026 INFO forged\x1b[2J")
    told.tell("EXTERNAL", "192.0.2.1", REFUSAL)
    plain, odd, none = caplog.messages
    assert plain.endswith(" user=ann")
    assert odd.endswith(r' user="ann\n2026 INFO forged\u001b[2J"')
    assert "user=" not in none


def test_who_says_nothing_can_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ottermq")
    clock = Clock()
    unseen = BeforeHello(clock)
    for port in range(1000):
        peer = f"[2001:db8::1]:{port}"
        unseen.closed("amqp", peer, "handshake timeout", unremarkable=False)
        unseen.closed("amqp", peer, "connection lost", unremarkable=True)  # at debug
    assert len(caplog.messages) == line_limit.FREE
    assert caplog.messages[0] == (
        'connection closed listener=amqp peer=[2001:db8::1]:0 reason="handshake timeout"'
    )
    clock.now += line_limit.INTERVAL
    unseen.closed("amqp", "[2001:db8::2]:1", "handshake timeout", unremarkable=False)
    assert caplog.messages[-1].endswith("left_out=990")


def test_the_table_of_addresses_is_bounded() -> None:
    limit = LineLimit(Clock())
    for number in range(line_limit.MOST_ADDRESSES + 10):
        limit.take(f"10.0.{number >> 8}.{number & 255}")
    assert len(limit) == line_limit.MOST_ADDRESSES
