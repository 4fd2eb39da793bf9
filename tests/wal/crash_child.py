"""A busy store that waits to be killed: publishers, a consumer, transactions, checkpoints, all at
once, and a line through a pipe for all that the store has answered for.

    confirmed LOG FIRST COUNT NUMBER     records NUMBER, NUMBER + 1 ... lie at FIRST ...
    settling LOG FIRST LAST              may be settled from now on
    settled LOG FIRST LAST               is settled, on disk
    trimming LOG OFFSET, trimmed LOG OFFSET
    together NUMBER                      is in both logs of a transaction

A line is one write, so it is there as a whole or not at all. Numbers grow with each log, and a
record's content follows from its number: what is found needs no list to be checked against.
"""

import itertools
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from ottermq.wal import Log, LogFlags, Options, Record, Store
from ottermq.wal.errors import Full

QUEUES = ("orders", "mails", "mixed")
STREAMS = ("left", "right", "third")  # fan-outs go to all, transactions to the first two


def content(number: int) -> bytes:
    """The number, and as much more as it says: mostly little, now and then a lot."""
    size = 200_000 if number % 97 == 0 else number % 13 * 40
    return b"%d;" % number + b"%x" % (number * 2654435761) * (size // 8)


def number_of(record: Record) -> int:
    """What `content` was made of; AssertionError when it is something else."""
    assert record.value is not None
    number = int(record.value.partition(b";")[0])
    assert record.value == content(number), f"record {number} is spoilt"
    return number


class Life:
    def __init__(self, store: Store, say: Callable[[str], None], seed: int) -> None:
        self.store = store
        self.say = say
        self.seed = seed
        # Numbers of a new life start above all that an earlier one can have used.
        self.numbers = {name: itertools.count(seed * 1_000_000) for name in (*QUEUES, "streams")}
        self.logs: dict[str, Log] = {}
        for name in (*QUEUES, *STREAMS):
            flags = LogFlags.NO_CURSOR if name in STREAMS else LogFlags(0)
            new = ("/", name) not in store
            self.logs[name] = store.create(name, flags=flags) if new else store.get(name)

    def publish(self, name: str, chance: random.Random) -> None:
        count = chance.choice([1, 1, 1, 5, 20])
        numbers = [next(self.numbers[name]) for _ in range(count)]
        unlogged = name == "mixed" and chance.random() < 0.5
        done = self.logs[name].append([Record(content(n)) for n in numbers], unlogged=unlogged)
        if unlogged:
            return  # nothing is promised, nothing is said
        self.store.wait(done.seq)
        self.say(f"confirmed {name} {done.first_offset} {count} {numbers[0]}")

    def consume(self, name: str, chance: random.Random) -> None:
        log = self.logs[name]
        taken = log.acquire(chance.randrange(1, 30))
        if not taken:
            return
        for offset in chance.sample(taken, len(taken) // 3):
            log.give_back(offset)
            taken.remove(offset)
        if not taken:
            return
        first, last = taken[0], taken[len(taken) // 2]
        if last - first > 1000:  # the offsets that a crash has skipped lie between
            last = first
        self.say(f"settling {name} {first} {last}")
        _, seq = log.settle(first, last)
        if chance.random() < 0.5:
            self.store.wait(seq)
            self.say(f"settled {name} {first} {last}")
        if chance.random() < 0.1:
            floor = log.cursor().floor
            self.say(f"trimming {name} {floor}")
            self.store.wait(log.trim(floor))
            self.say(f"trimmed {name} {floor}")

    def stream(self, chance: random.Random) -> None:
        number = next(self.numbers["streams"])
        record = Record(content(number))
        if chance.random() < 0.5:
            logs = [self.logs[name] for name in STREAMS]
            done = self.store.fanout(logs, [record])
            self.store.wait(done[0].seq)
        else:
            work = self.store.transaction()
            for name in STREAMS[:2]:
                work.append(self.logs[name], [record])
            self.store.wait(work.commit())
            self.say(f"together {number}")

    def checkpoint(self, chance: random.Random) -> None:
        threading.Event().wait(chance.random() / 20)
        self.store.checkpoint()

    def run(self, work: Callable[[random.Random], None]) -> None:
        chance = random.Random(f"{self.seed} {work}")
        while True:
            try:
                work(chance)
            except Full:
                self.store.checkpoint()

    def begin(self) -> NoReturn:
        threads: list[Callable[[random.Random], None]] = [self.stream, self.checkpoint]
        for name in QUEUES:
            threads.append(lambda chance, name=name: self.publish(name, chance))  # type: ignore[misc]
            threads.append(lambda chance, name=name: self.consume(name, chance))  # type: ignore[misc]
        for work in threads:
            threading.Thread(target=self.run, args=[work], daemon=True).start()
        self.say("busy")
        while True:
            threading.Event().wait()


def live(data: Path, options: Options, pipe: int, seed: int) -> NoReturn:
    """In a process of its own. If it fails it says so, and waits to be killed all the same."""

    def say(line: str) -> None:
        os.write(pipe, line.encode() + b"\n")

    threading.excepthook = lambda args: say(f"failed {args.exc_value!r}")
    try:
        Life(Store.open(data, options), say, seed).begin()
    except BaseException as error:
        say(f"failed {error!r}")
        while True:
            threading.Event().wait()
