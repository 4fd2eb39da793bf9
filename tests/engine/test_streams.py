"""Streams: each reader has its own place, and nothing is taken away."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from ottermq.engine.types import QueueFlags, StreamStart
from tests.engine.plane import Confirm, Plane


def offsets(plane: Plane, count: int, **how: Any) -> list[tuple[int, bytes]]:
    client = plane.client()
    client.consume("news", prefetch=1000, **how)
    got = client.messages(count)
    assert client.is_quiet()
    return [(m.headers["x-stream-offset"], m.body) for m in got]


def filled(plane: Plane, count: int) -> None:
    plane.queue("news", flags=QueueFlags.STREAM)
    client = plane.client()
    plane.engine.channel_confirm(client.id, 1)
    for number in range(count):
        client.publish(b"%d" % number, "news")
    while client.take(kind=Confirm).tag < count:
        pass


def test_a_reader_starts_where_it_wants(plane: Plane) -> None:
    filled(plane, 10)
    everything = [(number, b"%d" % number) for number in range(10)]
    assert offsets(plane, 10, start=StreamStart.FIRST) == everything
    assert offsets(plane, 3, start=StreamStart.OFFSET, start_value=7) == everything[7:]
    assert offsets(plane, 10, start=StreamStart.TIME, start_value=0) == everything
    assert offsets(plane, 0, start=StreamStart.NEXT) == []
    assert offsets(plane, 0, start=StreamStart.OFFSET, start_value=2**62) == []


def test_credit_is_given_back_by_acks(plane: Plane) -> None:
    filled(plane, 10)
    client = plane.client()
    client.consume("news", prefetch=3, start=StreamStart.FIRST)
    got = client.messages(3)
    assert client.is_quiet()
    client.ack(got[1].tag, multiple=True)
    assert [m.body for m in client.messages(2)] == [b"3", b"4"]
    client.nack(0, multiple=True)
    client.messages(3)
    client.reject(got[2].tag + 5)
    assert client.message().body == b"8"
    assert client.errors == []


def test_basic_get_of_a_stream_is_refused_not_a_crash(plane: Plane) -> None:
    filled(plane, 1)
    client = plane.client()
    assert not plane.engine.get(client.id, 1, plane.queues["news"], True)


@pytest.mark.parametrize("flags", [QueueFlags.STREAM, QueueFlags(0)])
def test_offsets_that_a_crash_used_up_are_passed_over(tmp_path: Path, flags: QueueFlags) -> None:
    if os.fork() == 0:
        plane = Plane(tmp_path)
        plane.queue("news", flags=flags)
        client = plane.client()
        plane.engine.channel_confirm(client.id, 1)
        for number in range(3):
            client.publish(b"%d" % number, "news")
        while client.take(kind=Confirm).tag < 3:
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    os.wait()
    plane = Plane(tmp_path)
    plane.queue("news", flags=flags)
    client = plane.client()
    client.publish(b"3", "news")
    client.consume("news", prefetch=10, start=StreamStart.FIRST)
    assert [m.body for m in client.messages(4)] == [b"0", b"1", b"2", b"3"]
    client.publish(b"4", "news")
    assert client.message().body == b"4"
    plane.close()


def live_and_die(folder: Path, count: int, *, checkpoint: bool) -> None:
    """So many more messages, and a kill."""
    if os.fork() == 0:
        try:
            plane = Plane(folder)
            filled(plane, count)
            if checkpoint:
                plane.store.checkpoint()
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.WIFSIGNALED(os.wait()[1])


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_stream_counts_what_it_holds_and_not_what_crashes_left_out(
    tmp_path: Path, checkpoint: bool
) -> None:
    for _ in range(3):
        live_and_die(tmp_path, 5, checkpoint=checkpoint)
    for total in (15, 17, 19):  # and clean stops leave nothing out
        plane = Plane(tmp_path)
        plane.queue("news", flags=QueueFlags.STREAM)
        assert plane.ready("news") == total
        client = plane.client()
        client.consume("news", prefetch=100, start=StreamStart.FIRST)
        assert len(client.messages(total)) == total
        client.publish(b"one more", "news")
        client.publish(b"and another", "news")
        client.messages(2)
        assert plane.ready("news") == total + 2
        plane.close()


def test_a_trimmed_stream_counts_what_is_left(tmp_path: Path) -> None:
    live_and_die(tmp_path, 5, checkpoint=False)
    plane = Plane(tmp_path)
    filled(plane, 5)
    (log,) = plane.logs["news"]
    offset = log.stat().next_offset - 2
    plane.store.wait(log.trim(3))
    assert plane.ready("news") == 7
    plane.store.wait(log.trim(offset))
    assert plane.ready("news") == 2
    plane.close()
