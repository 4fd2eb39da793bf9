"""Each reason for which a call of Python is refused has a code of its own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottermq._core import ffi, lib
from ottermq.engine.types import Added, Consume, QueueFlags, QueueOptions
from ottermq.wal.errors import InvalidArgument, LogError, error_for
from tests.engine.plane import Client, Plane


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    plane = Plane(tmp_path, consumers_per_channel=2)
    plane.queue("work")
    yield plane
    plane.close()


def consume(plane: Plane, client: Client, tag: bytes, **how: Any) -> Added:
    return plane.engine.add_consumer(client.id, 1, Consume(plane.queues["work"], tag, **how), b"")


def test_why_a_consumer_is_refused(plane: Plane) -> None:
    client, other = plane.client(), plane.client()
    assert consume(plane, client, b"one") is Added.OK
    assert consume(plane, client, b"one") is Added.TAG_IN_USE
    assert consume(plane, other, b"own", exclusive=True) is Added.EXCLUSIVE_USE
    assert consume(plane, client, b"two") is Added.OK
    assert consume(plane, client, b"three") is Added.TOO_MANY
    plane.engine.remove_queue(plane.queues["work"])
    assert consume(plane, other, b"late") is Added.GONE
    assert plane.engine.add_consumer(99, 1, Consume(1, b"c"), b"") is Added.GONE


def test_a_consumer_that_no_rule_refuses_is_an_error(plane: Plane) -> None:
    client = plane.client()
    with pytest.raises(InvalidArgument):
        consume(plane, client, b"x" * 256)
    with pytest.raises(InvalidArgument):
        plane.engine.add_reply_consumer(client.id, 1, b"x" * 256, b"")


def test_a_route_of_before_is_stale_and_one_for_nobody_is_gone(plane: Plane) -> None:
    client = plane.client()
    plane.answering = False
    client.publish(b"x", "key", exchange="ex")
    plane.wait(lambda: plane.asked)
    engine, ids = plane.engine, ffi.new("uint64_t[]", 1)
    old = engine.route_generation
    engine.forget_routes(1, None)

    def answer(conn: int, generation: int) -> int:
        result: int = lib.om_publish_route(engine._engine, conn, 1, ids, 0, 0, generation)
        return result

    assert answer(client.id, old) == lib.OM_E_STALE
    assert answer(99, old) == lib.OM_E_GONE
    assert answer(client.id, engine.route_generation) == lib.OM_OK
    assert answer(client.id, engine.route_generation) == lib.OM_E_GONE


def test_names_and_numbers_in_use_are_not_given_again(plane: Plane) -> None:
    client = plane.client()
    assert lib.om_channel_open(plane.engine._engine, client.id, 1) == lib.OM_E_EXISTS
    assert lib.om_channel_open(plane.engine._engine, client.id, 65536) == lib.OM_E_INVALID
    assert lib.om_channel_open(plane.engine._engine, 99, 1) == lib.OM_E_GONE
    with pytest.raises(InvalidArgument, match="in use"):
        plane.engine.add_queue(
            1, 1, b"other", plane.logs["work"], QueueOptions(flags=QueueFlags(0))
        )


def test_every_code_has_an_exception() -> None:
    codes = [getattr(lib, name) for name in dir(lib) if name.startswith("OM_E_")]
    assert len(codes) >= 23
    assert all(isinstance(error_for(code, "it"), LogError) for code in codes)
