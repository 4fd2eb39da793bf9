"""The life of a store that the power is taken from, somewhere: python -m tests.wal.power_loss_child

    seed life steps end [direct] [slow]

`life` counts from 0: a later one opens what the one before left behind. `end` is close (a clean
stop) or exit (the process just ends: what it wrote stays, what it held is gone). `direct`: the WAL
is written past the page cache. `slow`: its syncs take a while and the checkpoint's even longer, so
that more happens meanwhile.

The WAL is small (1 MiB files, 4 MiB in all) and so are segments and hot tail: in a few hundred
steps there are checkpoints, recycled WAL files, rolled, trimmed and rewritten segments, fan-outs
and transactions of all sizes over a dozen logs.
"""

import os
import random
import sys
from dataclasses import replace
from pathlib import Path

from ottermq.wal import Log, Options, Store
from ottermq.wal.store import DirectIO
from tests.faults.rules import Faults, Op
from tests.wal.crash_journal import CrashJournal, options_of

LIFE = 1_000_000  # numbers a life may use
LOGS = {
    **{f"orders-{i}": "queue" for i in range(7)},
    "audit": "kept",
    "events": "stream",
    "clicks": "stream",
    "metrics": "async",
    "quiet": "queue",  # written to now and then: it has little but its lease
}
BACKLOG = 200  # unsettled records of a log above which its consumer hurries

OPTIONS = Options(
    wal_file_size=1 << 20,
    wal_max_size=4 << 20,
    batch_max_size=1 << 20,
    hot_buffer_size=1 << 20,
    mmap_cache_size=8 << 20,
    open_files=16,
    checkpoint_interval_ms=0,
    recovery_threads=1,
    direct_io=DirectIO.OFF,
    log=options_of("queue"),
)


class Life:
    def __init__(self, store: Store, seed: int, life: int) -> None:
        self.rng = random.Random(f"{seed}/{life}")
        self.store = store
        self.journal = CrashJournal(store, first_number=life * LIFE)
        self.made = 0
        self.life = life

    @property
    def logs(self) -> list[Log]:
        return [log for log in self.store if log.name != "quiet"]

    def queues(self) -> list[Log]:
        return [log for log in self.logs if self.kind_of(log) in ("queue", "kept")]

    def kind_of(self, log: Log) -> str:
        return LOGS.get(log.name, "queue")

    def begin(self) -> None:
        for log in self.store:
            self.journal.take_over(log, self.kind_of(log))
        for name, kind in LOGS.items():
            if ("/", name) not in self.store:
                self.journal.create(name, kind)

    def step(self) -> None:
        steps = {
            self.publish: 30,
            self.publish_transient: 6,
            self.fan_out: 6,
            self.transact: 6,
            self.transact_at_length: 1,
            self.consume: 25,
            self.give_back: 3,
            self.replay: 5,
            self.purge: 2,
            self.trim: 3,
            self.truncate: 1,
            self.make_queue: 1,
            self.drop_queue: 1,
            self.say_little: 2,
            self.journal.confirm: 10,
            self.store.checkpoint: 1,
        }
        [act] = self.rng.choices(list(steps), list(steps.values()))
        act()

    # -- what may happen

    def sizes(self) -> list[int]:
        most = self.rng.choice((100, 1_000, 4_000))
        return [self.rng.randint(20, most) for _ in range(self.rng.randint(1, 8))]

    def publish(self) -> None:
        for _ in range(self.rng.randint(1, 4)):
            self.journal.append(self.rng.choice(self.logs), self.sizes())
        if self.rng.random() < 0.1:
            self.journal.append(self.rng.choice(self.logs), [self.rng.randint(20_000, 200_000)])
        self.sometimes_confirm()

    def publish_transient(self) -> None:
        self.journal.append_unlogged(self.rng.choice(self.logs), self.sizes())

    def fan_out(self) -> None:
        self.journal.fanout(self.rng.sample(self.logs, self.rng.randint(2, 5)), self.sizes())
        self.sometimes_confirm()

    def transact(self) -> None:
        targets = self.rng.sample(self.logs, self.rng.randint(1, 3))
        sources = [log for log in self.queues() if self.journal.in_flight.get(log.id)]
        self.journal.transaction(
            [(log, self.sizes()) for log in targets],
            [(log, self.rng.choice(self.journal.in_flight[log.id])) for log in sources[:2]],
        )
        self.journal.confirm()

    def transact_at_length(self) -> None:
        """Longer than a WAL file."""
        one, other = self.rng.sample(self.queues(), 2)
        self.journal.transaction([(one, [90_000] * 7), (other, [120_000] * 6)], [])
        self.journal.confirm()
        for log in (one, other):
            self.journal.confirm()
            self.drain(log, 20)

    def consume(self) -> None:
        log = self.rng.choice(self.queues())
        hurry = log.cursor().ready_count > BACKLOG
        self.drain(log, BACKLOG if hurry else self.rng.randint(1, 12))
        self.sometimes_confirm()

    def drain(self, log: Log, most: int) -> None:
        self.journal.take(log, most)
        flying = self.journal.in_flight.get(log.id, [])
        count = self.rng.randint(0, len(flying)) if len(flying) < 30 else len(flying) - 5
        self.journal.settle(log, sorted(self.rng.sample(flying, count)))

    def give_back(self) -> None:
        flying = [log for log in self.queues() if self.journal.in_flight.get(log.id)]
        if flying:
            log = self.rng.choice(flying)
            self.journal.give_back(log, self.rng.choice(self.journal.in_flight[log.id]))

    def replay(self) -> None:
        log = self.rng.choice(self.logs)
        stat = log.stat()
        self.journal.read(log, self.rng.randint(stat.start_offset, stat.next_offset))

    def purge(self) -> None:
        self.journal.purge(self.rng.choice(self.queues()))
        self.sometimes_confirm()

    def trim(self) -> None:
        log = self.rng.choice(self.logs)
        stat = log.stat()
        span = stat.next_offset - stat.start_offset
        self.journal.trim(log, stat.start_offset + self.rng.randint(0, span))
        self.sometimes_confirm()

    def truncate(self) -> None:
        log = self.store.get(self.rng.choice(("clicks", "orders-0")))
        stat = log.stat()
        reach = min(stat.next_offset - stat.start_offset, 40)
        offset = stat.next_offset - self.rng.randint(0, reach)
        for batch in log.read(offset)[:1]:  # batches go whole: at their borders is where to cut
            if batch.base_offset >= stat.start_offset:
                self.journal.truncate(log, batch.base_offset)

    def make_queue(self) -> None:
        """One that is used at once, before its first lease can be on disk."""
        self.made += 1
        log = self.journal.create(f"extra-{self.life}-{self.made}")
        self.journal.append_unlogged(log, [30])
        self.journal.take(log, 1)

    def drop_queue(self) -> None:
        extras = [log for log in self.logs if log.name not in LOGS]
        if extras:
            log = self.rng.choice(extras)
            self.journal.confirm()
            self.journal.delete(log)
            if self.rng.random() < 0.5:  # the same name, and nothing of what was
                self.journal.append(self.journal.create(log.name), self.sizes())

    def say_little(self) -> None:
        quiet = self.store.get("quiet")
        self.journal.append_unlogged(quiet, [30])
        self.journal.take(quiet, 1)

    def sometimes_confirm(self) -> None:
        if self.rng.random() < 0.5:
            self.journal.confirm()


def main(seed: int, life: int, steps: int, end: str, *flags: str) -> None:
    direct = DirectIO.ON if "direct" in flags else DirectIO.OFF
    if "slow" in flags:
        faults = Faults.from_environment()
        faults.delay(Op.FDATASYNC, "wal/*.wal", seconds=0.002)
        faults.delay(Op.FSYNC, "checkpoint.tmp", seconds=0.03)
    root = Path(os.environ["OTTERMQ_SHIM_ROOT"])
    store = Store.open(root, replace(OPTIONS, direct_io=direct))
    lived = Life(store, seed, life)
    lived.begin()
    for _ in range(steps):
        lived.step()
    if end == "exit":
        os._exit(0)
    lived.journal.confirm()
    store.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
