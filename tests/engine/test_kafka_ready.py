"""How many messages of a work queue are ready beside Kafka's transactions: none of an open one,
none of one that was given up, no marker; through restarts and kills."""

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottermq.wal import Log
from tests.engine.plane import Plane
from tests.wal.producing import batch

QUEUE = "t"


@contextmanager
def a_plane(folder: Path) -> Iterator[Plane]:
    plane = Plane(folder)
    try:
        plane.queue(QUEUE)
        yield plane
    finally:
        plane.close()


@contextmanager
def killed(plane: Plane, folder: Path) -> Iterator[Plane]:
    """As it comes back after a kill at this moment."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(plane.store.data, folder, ignore=shutil.ignore_patterns("*.tmp"))
    with a_plane(folder) as again:
        yield again


class Writer:
    """A producer, with what it has written and not ended."""

    def __init__(self, plane: Plane, id: int) -> None:
        self.plane, self.id = plane, id
        self.sequence = 0

    @property
    def log(self) -> Log:
        [log] = self.plane.logs[QUEUE]
        return log

    def write(self, count: int = 1) -> None:
        self.log.enlist(self.id, 0)
        data = batch(self.id, self.sequence, count, transactional=True)
        self.sequence += count
        self.plane.store.wait(self.log.append_raw(data).seq)

    def end(self, *, commit: bool) -> None:
        self.plane.store.wait(self.log.mark(self.id, 0, commit=commit).seq)


def plain(plane: Plane, count: int = 1) -> None:
    [log] = plane.logs[QUEUE]
    plane.store.wait(log.append_raw(batch(-1, -1, count, epoch=-1)).seq)


def test_records_are_ready_once_they_are_committed(plane: Plane) -> None:
    plane.queue(QUEUE)
    one, other = Writer(plane, 1), Writer(plane, 2)
    plain(plane, 2)
    assert plane.ready(QUEUE) == 2
    one.write(10)
    other.write(100)
    plain(plane)
    one.write(10)
    assert plane.ready(QUEUE) == 3
    one.end(commit=True)
    assert plane.ready(QUEUE) == 23
    other.end(commit=False)
    assert plane.ready(QUEUE) == 23
    one.write(5)
    assert plane.ready(QUEUE) == 23
    client = plane.client()
    client.consume(QUEUE, no_ack=True)
    assert len(client.messages(23)) == 23
    assert plane.ready(QUEUE) == 0
    one.end(commit=True)
    assert len(client.messages(5)) == 5


def test_a_get_tells_how_many_are_left(plane: Plane) -> None:
    plane.queue(QUEUE)
    plain(plane, 3)
    Writer(plane, 1).write(7)
    got = plane.client().get(QUEUE)
    assert got is not None and got.method.message_count == 2


def test_what_was_given_up_needs_no_room(plane: Plane) -> None:
    """Its segment can go though no consumer ever came by."""
    plane.queue(QUEUE)
    writer = Writer(plane, 1)
    writer.write(5)
    writer.end(commit=False)
    [log] = plane.logs[QUEUE]
    assert log.cursor().floor == log.stat().next_offset == 6


def test_a_purge_tells_what_was_ready(plane: Plane) -> None:
    plane.queue(QUEUE)
    writer = Writer(plane, 1)
    plain(plane, 3)
    writer.write(4)
    assert plane.engine.purge(plane.queues[QUEUE]).messages == 3
    assert plane.ready(QUEUE) == 0
    writer.write(2)
    writer.end(commit=True)
    assert plane.ready(QUEUE) == 2


@pytest.mark.parametrize("checkpoint_before", range(8))
def test_a_stop_or_a_kill_at_any_step_changes_no_count(
    tmp_path: Path, checkpoint_before: int
) -> None:
    with a_plane(tmp_path / "data") as plane:
        one, other = Writer(plane, 1), Writer(plane, 2)
        steps: list[tuple[Callable[[], object], int]] = [
            (lambda: plain(plane, 2), 2),
            (lambda: one.write(10), 2),
            (lambda: other.write(100), 2),
            (lambda: plain(plane), 3),
            (lambda: one.write(10), 3),
            (lambda: one.end(commit=False), 3),
            (lambda: other.end(commit=True), 103),
        ]
        for number, (step, ready) in enumerate(steps):
            if number == checkpoint_before:
                plane.store.checkpoint()
            step()
            assert plane.ready(QUEUE) == ready
            with killed(plane, tmp_path / "killed") as again:
                assert again.ready(QUEUE) == ready
        one.write(5)
    with a_plane(tmp_path / "data") as plane:
        assert plane.ready(QUEUE) == 103
        Writer(plane, 1).end(commit=True)
        assert plane.ready(QUEUE) == 108


STEPS = ("plain", "write", "write", "end", "take", "purge", "checkpoint", "kill")


@pytest.mark.parametrize("seed", range(6))
def test_at_random_the_count_is_what_was_committed(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with a_plane(tmp_path / "data") as plane:
        client = plane.client()
        writers = [Writer(plane, id) for id in range(3)]
        hidden: dict[int, int] = {}  # records of open transactions
        ready = 0
        for _ in range(60):
            writer, count = rng.choice(writers), rng.randint(1, 5)
            match rng.choice(STEPS):
                case "plain":
                    plain(plane, count)
                    ready += count
                case "write":
                    writer.write(count)
                    hidden[writer.id] = hidden.get(writer.id, 0) + count
                case "end" if writer.id in hidden:
                    commit = rng.random() < 0.5
                    writer.end(commit=commit)
                    ready += hidden.pop(writer.id) * commit
                case "take":
                    if client.get(QUEUE) is not None:
                        ready -= 1
                    else:
                        assert hidden or not ready
                case "purge" if rng.random() < 0.2:
                    assert plane.engine.purge(plane.queues[QUEUE]).messages == ready
                    ready, hidden = 0, dict.fromkeys(hidden, 0)
                case "checkpoint":
                    plane.store.checkpoint()
                case "kill":
                    with killed(plane, tmp_path / "killed") as again:
                        assert again.ready(QUEUE) == ready + plane.unacked(QUEUE)
            assert plane.ready(QUEUE) == ready
