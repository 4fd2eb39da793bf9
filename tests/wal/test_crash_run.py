"""The crash run: a busy store is killed with SIGKILL at random, reopened, and held to all that it
answered for; round after round on the same folder."""

import os
import random
import select
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottermq.wal import Log, Options, Store
from tests.wal.crash_child import QUEUES, STREAMS, live, number_of
from tests.wal.stores import die, small

OPTIONS = small(segment_size=64 << 10, hot_buffer_size=1 << 20)


class Run:
    """What the store has answered for, over all lives so far."""

    def __init__(self) -> None:
        self.confirmed: dict[str, dict[int, int]] = defaultdict(dict)  # log: offset: number
        self.settling: dict[str, set[int]] = defaultdict(set)
        self.settled: dict[str, set[int]] = defaultdict(set)
        self.together: set[int] = set()
        self.starts: dict[str, int] = defaultdict(int)
        self.highest: dict[str, int] = defaultdict(lambda: -1)

    def note(self, line: str) -> None:
        what, *words = line.split()
        assert what != "failed", line
        if what == "confirmed":
            name, (first, count, number) = words[0], map(int, words[1:])
            assert first > self.highest[name], "an offset was given twice"
            self.highest[name] = first + count - 1
            self.confirmed[name] |= {first + n: number + n for n in range(count)}
        elif what in ("settling", "settled"):
            name, (first, last) = words[0], map(int, words[1:])
            getattr(self, what)[name] |= set(range(first, last + 1))
        elif what == "trimming":
            self.settling[words[0]] |= {o for o in self.confirmed[words[0]] if o < int(words[1])}
        elif what == "trimmed":
            self.starts[words[0]] = max(self.starts[words[0]], int(words[1]))
        elif what == "together":
            self.together.add(int(words[0]))

    def check(self, store: Store) -> None:
        assert not [r for r in store.reports() if r.kind.name in ("CORRUPT", "WAL_HOLE")]
        for name in QUEUES:
            self.check_queue(name, store.get(name))
        self.check_streams([store.get(name) for name in STREAMS])

    def check_queue(self, name: str, log: Log) -> None:
        found = {record.offset: number_of(record) for record in log.records()}
        assert list(found) == sorted(found)
        assert list(found.values()) == sorted(set(found.values())), "out of order, or twice"
        ready = set(log.acquire(log.cursor().ready_count))
        assert ready <= found.keys(), "given out, and not there"
        assert not ready & self.settled[name], "settled, and given out again"
        assert log.stat().start_offset >= self.starts[name]
        for offset, number in self.confirmed[name].items():
            if offset not in self.settling[name]:
                assert found.get(offset) == number, f"{name} lost {offset}: {number}"
                assert offset in ready, f"{offset} of {name} was not given out"
        assert log.stat().next_offset > self.highest[name]

    def check_streams(self, logs: list[Log]) -> None:
        held = [[number_of(record) for record in log.records()] for log in logs]
        for numbers in held:
            assert numbers == sorted(set(numbers)), "out of order, or twice"
        left, right, third = map(set, held)
        assert left == right, "half a transaction, or a fan-out that reached some"
        assert third <= left and self.together <= left - third

    def empty_streams(self, store: Store) -> None:
        """They have no consumer: now and then somebody has to."""
        for name in STREAMS:
            store.wait(store.get(name).trim(store.get(name).stat().next_offset))
        self.together.clear()


def one_life(data: Path, run: Run, seed: int, chance: random.Random) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        live(data, OPTIONS, writing, seed)
    os.close(writing)
    try:
        killed = time.monotonic() + 60
        for line in lines(reading):
            run.note(line)
            if line == "busy":
                killed = time.monotonic() + chance.uniform(0.005, 0.4)
            if time.monotonic() > killed:
                os.kill(child, signal.SIGKILL)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def lines(pipe: int) -> Iterator[str]:
    """Until the other end is gone. Its own word when there is nothing to hear for a while."""
    rest = b""
    while True:
        if not select.select([pipe], [], [], 0.005)[0]:
            yield "idle"
            continue
        part = os.read(pipe, 1 << 16)
        if not part:
            return
        *whole, rest = (rest + part).split(b"\n")
        yield from (line.decode() for line in whole)


def killed_again_and_again(data: Path, rounds: int, options: Options = OPTIONS) -> None:
    chance = random.Random()
    run = Run()
    for round in range(1, rounds + 1):
        one_life(data, run, round, chance)
        if chance.random() < 0.5:
            die(data, run.check, options)
        else:
            with Store.open(data, options) as store:
                run.check(store)
                if round % 4 == 0:
                    run.empty_streams(store)
    assert all(len(run.confirmed[name]) > rounds for name in QUEUES), "it never got to work"


def test_what_was_confirmed_survives_twenty_kills(data: Path) -> None:
    killed_again_and_again(data, 20)


@pytest.mark.soak
def test_what_was_confirmed_survives_hundreds_of_kills(tmp_path: Path) -> None:
    for number in range(10):
        killed_again_and_again(tmp_path / f"data {number}", 40)
