"""AMQP readers and Kafka's transactions: only what was committed is given out, and in order."""

from pathlib import Path

import pytest

from ottermq.engine.types import QueueFlags, StreamStart
from ottermq.wal import Log
from tests.engine.plane import Client, Plane
from tests.wal.producing import batch

KINDS = pytest.mark.parametrize(
    "flags", [QueueFlags(0), QueueFlags.STREAM], ids=["queue", "stream"]
)


def write(plane: Plane, log: Log, producer: int, sequence: int, value: bytes) -> None:
    log.enlist(producer, 0)
    done = log.append_raw(batch(producer, sequence, transactional=True, value=value))
    plane.store.wait(done.seq)


def plain(plane: Plane, log: Log, value: bytes) -> None:
    plane.store.wait(log.append_raw(batch(-1, -1, epoch=-1, value=value)).seq)


def end(plane: Plane, log: Log, producer: int, *, commit: bool) -> None:
    plane.store.wait(log.mark(producer, 0, commit=commit).seq)


def reader(plane: Plane) -> Client:
    client = plane.client()
    client.consume("t", prefetch=1000, start=StreamStart.FIRST)
    return client


def bodies(client: Client, count: int) -> list[bytes]:
    got = [message.body for message in client.messages(count)]
    assert client.is_quiet()
    return got


@KINDS
def test_readers_wait_for_the_end_of_a_transaction(plane: Plane, flags: QueueFlags) -> None:
    plane.queue("t", flags=flags)
    [log] = plane.logs["t"]
    plain(plane, log, b"before")
    write(plane, log, 7, 0, b"inside")
    plain(plane, log, b"behind")
    client = reader(plane)
    assert bodies(client, 1) == [b"before"]
    end(plane, log, 7, commit=True)
    assert bodies(client, 2) == [b"inside", b"behind"]


@KINDS
def test_what_was_aborted_is_given_to_nobody(plane: Plane, flags: QueueFlags) -> None:
    plane.queue("t", flags=flags)
    [log] = plane.logs["t"]
    write(plane, log, 7, 0, b"never")
    write(plane, log, 8, 0, b"other")
    plain(plane, log, b"plain")
    write(plane, log, 7, 1, b"never")
    end(plane, log, 7, commit=False)
    write(plane, log, 7, 2, b"again")
    end(plane, log, 8, commit=True)
    end(plane, log, 7, commit=True)
    client = reader(plane)
    assert bodies(client, 3) == [b"other", b"plain", b"again"]


def test_a_get_finds_nothing_rather_than_wait(plane: Plane) -> None:
    plane.queue("t")
    [log] = plane.logs["t"]
    write(plane, log, 7, 0, b"inside")
    client = plane.client()
    assert client.get("t") is None
    end(plane, log, 7, commit=True)
    got = client.get("t")
    assert got is not None
    assert got.body == b"inside"


def test_an_open_transaction_is_not_dropped_from_a_full_queue(plane: Plane) -> None:
    plane.queue("t", max_length=1)
    [log] = plane.logs["t"]
    for sequence in range(3):
        write(plane, log, 7, sequence, b"%d" % sequence)
    client = plane.client()
    assert client.get("t") is None
    end(plane, log, 7, commit=True)
    got = client.get("t")
    assert got is not None
    assert got.body == b"2"


@KINDS
def test_a_restart_keeps_what_was_open_and_what_was_aborted(
    tmp_path: Path, flags: QueueFlags
) -> None:
    first = Plane(tmp_path / "again")
    first.queue("t", flags=flags)
    [log] = first.logs["t"]
    write(first, log, 7, 0, b"aborted")
    end(first, log, 7, commit=False)
    plain(first, log, b"plain")
    write(first, log, 8, 0, b"open")
    first.close()
    second = Plane(tmp_path / "again")
    try:
        second.queue("t", flags=flags)
        [log] = second.logs["t"]
        client = reader(second)
        assert bodies(client, 1) == [b"plain"]
        end(second, log, 8, commit=True)
        assert bodies(client, 1) == [b"open"]
    finally:
        second.close()


@KINDS
def test_aborted_records_in_a_segment_are_passed_over_too(plane: Plane, flags: QueueFlags) -> None:
    plane.queue("t", flags=flags)
    [log] = plane.logs["t"]
    for sequence in range(50):
        write(plane, log, 7, sequence, b"never")
    end(plane, log, 7, commit=False)
    plain(plane, log, b"plain")
    plane.store.checkpoint()
    assert log.stat().hot_batches == 0
    assert bodies(reader(plane), 1) == [b"plain"]
