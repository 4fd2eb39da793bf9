"""Each kind of event of C has its type in Python, and each type a server that hears it."""

from typing import get_args

from ottermq._core import lib
from ottermq.amqp import server as amqp
from ottermq.engine import events
from ottermq.kafka import server as kafka

KINDS = {name: getattr(lib, name) for name in dir(lib) if name.startswith("OM_EV_")}


def test_the_kinds_of_c_are_numbered_in_order_without_a_gap() -> None:
    assert sorted(KINDS.values()) == list(range(1, len(KINDS) + 1))


def test_every_kind_can_be_read() -> None:
    assert set(events.READERS) == set(KINDS.values())


def test_every_type_is_heard_by_a_server() -> None:
    opened = {events.DecompressWanted}  # where the events are given out
    assert {*amqp.EVENTS, *kafka.EVENTS} | opened == set(get_args(events.Event))
