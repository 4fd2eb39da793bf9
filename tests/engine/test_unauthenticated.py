"""Connections that have not logged in, all together."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottermq.engine.events import ConnectionClosed
from ottermq.engine.types import Protocol
from tests.engine.plane import Plane

ALL_MAY_HOLD = 32 << 20


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    plane = Plane(tmp_path, unauthenticated_per_address=0)
    yield plane
    plane.close()


def test_when_unauthenticated_connections_hold_too_much_the_oldest_of_them_go(plane: Plane) -> None:
    half = struct.pack(">ihhih", 16_000, 18, 0, 1, -1) + bytes(15_000)
    silent = [plane.engine.virtual(f"10.0.0.1:{port}", Protocol.KAFKA) for port in range(10)]
    count = ALL_MAY_HOLD // len(half) + 100
    loud = [plane.engine.virtual(f"10.0.0.2:{port}", Protocol.KAFKA) for port in range(count)]
    for conn in loud:
        assert plane.engine.feed(conn, half) == len(half)

    def gone() -> list[int]:
        return [event.conn for event in plane.events_like(ConnectionClosed)]

    plane.wait(lambda: len(gone()) >= 100)
    assert sorted(gone()) == loud[: len(gone())]
    assert len(gone()) < 200 and not set(gone()) & set(silent)
    assert plane.engine.stat().message_bytes < 1 << 20
