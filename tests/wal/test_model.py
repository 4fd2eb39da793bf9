"""Random lives of a store against a plain model: every step, every crash, every return.

After each crash the store must be in one state that it was in, no earlier than the last one
confirmed: every confirmed record in order, once and with its content; what was settled, purged,
trimmed, truncated or deleted still so; what was in flight told as given out before; no offset
given twice, none invented.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ottermq.wal import checkpoint
from ottermq.wal.errors import InvalidArgument
from tests.conftest import in_memory
from tests.examples import examples
from tests.wal.model import LogModel, Mismatch, Model, Recovered, after_crash, fits
from tests.wal.remote_store import KINDS, RemoteStore, Spec
from tests.wal.stores import small

# Small segments, for many rolls; a hot tail so small that the writer has to write now and then.
OPTIONS = small(segment_size=2000, hot_buffer_size=64 << 10, recovery_threads=1)

SIZES = st.sampled_from([0, 1, 10, 100, 100, 100, 700, 5000, 70_000, 600_000])
# What a step applies to depends on how a crash went, and hypothesis wants to draw the same again:
# so it draws numbers, and `pick` makes a choice of them.
ANY = st.integers(0, 999)
Appends = list[tuple[int, list[int], bool]]  # which log, the records' sizes, unlogged
APPENDS = st.lists(
    st.tuples(ANY, st.lists(SIZES, min_size=1, max_size=5), st.booleans()), min_size=1, max_size=6
)
T = TypeVar("T")

PLACES = st.floats(0, 1)
DAMAGED = {"CORRUPT", "WAL_HOLE", "UNREADABLE", "FENCED"}
ENDS = [
    "stop", "kill", "quiet", "in appends", "in checkpoint", "in close", "in recovery",
    "torn WAL: cut", "torn WAL: flip", "torn WAL: zero",
    "torn segment: cut", "torn segment: flip", "torn segment: zero",
]  # fmt: skip


def pick(choices: Iterable[T], number: int) -> T:
    there = sorted(set(choices))  # type: ignore[type-var]
    return there[number % len(there)]


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp(prefix="ottermq-model-", dir=in_memory()))
        self.data = self.place / "data"
        self.number = 0
        self.names = 0
        self.model = Model()
        self.history = [self.model]  # since the last confirmed one, that included
        self.shown: dict[str, int] = {}
        self.written: dict[str, int] = {}
        self.handed: dict[str, int] = {}
        self.ids: dict[str, int] = {}
        self.remote = RemoteStore(self.data, OPTIONS)
        self.remote.call("open")

    def teardown(self) -> None:
        self.remote.kill()
        shutil.rmtree(self.place, ignore_errors=True)

    # -- bookkeeping

    def step(self, model: Model) -> None:
        self.model = model
        self.history.append(model)

    def change(self, name: str, log: LogModel) -> None:
        self.step(self.model.with_log(name, log))

    def confirmed(self) -> None:
        self.history = [self.model]

    def look(self) -> None:
        """The store as it is now must be as the model says."""
        seen = self.remote.call("look")
        assert seen.keys() == self.model.logs.keys()
        for name, log in self.model.logs.items():
            found = seen[name]
            assert (found.start, found.next, found.epoch) == (log.start, log.next, log.epoch)
            assert found.cursor == log.cursor(), name
            self.shown[name] = found.readable
            self.written[name] = found.written

    def specs(self, sizes: list[int]) -> list[Spec]:
        self.number += len(sizes)
        return [(self.number - len(sizes) + n, size) for n, size in enumerate(sizes)]

    def log_of(self, number: int, *kinds: str) -> str:
        return pick([n for n, g in self.model.logs.items() if not kinds or g.kind in kinds], number)

    def has(self, *kinds: str) -> bool:
        return any(not kinds or log.kind in kinds for log in self.model.logs.values())

    # -- steps

    @initialize(kinds=st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3))
    def create_some(self, kinds: list[str]) -> None:
        for kind in kinds:
            self.create(kind)

    def create(self, kind: str) -> None:
        self.names += 1
        name = f"{kind} {self.names}"
        self.ids[name] = self.remote.call("create", name, kind)
        # On disk when it returns, beside the WAL: no crash goes back behind it.
        self.model = self.model.with_log(name, LogModel(kind))
        self.history = [model.with_log(name, LogModel(kind)) for model in self.history]
        self.shown[name] = self.written[name] = self.handed[name] = 0

    @rule(appends=APPENDS)
    def append(self, appends: Appends) -> None:
        for which, sizes, unlogged in appends:
            name, specs = self.log_of(which), self.specs(sizes)
            log = self.model.logs[name]
            assert self.remote.call("append", name, specs, unlogged) == log.next
            self.change(name, log.append(specs, not unlogged))
        self.look()

    @rule(
        which=st.lists(ANY, min_size=1, max_size=4),
        sizes=st.lists(SIZES, min_size=1, max_size=3),
    )
    def fan_out(self, which: list[int], sizes: list[int]) -> None:
        names, specs = sorted({self.log_of(n) for n in which}), self.specs(sizes)
        model = self.model
        assert self.remote.call("fanout", names, specs) == [model.logs[n].next for n in names]
        for name in names:
            model = model.with_log(name, model.logs[name].append(specs, True))
        self.step(model)
        self.look()

    @rule(
        adds=st.lists(st.tuples(ANY, st.lists(SIZES, min_size=1, max_size=2)), max_size=3),
        ends=st.lists(st.tuples(ANY, ANY, st.integers(0, 3)), max_size=3),
        commit=st.sampled_from([True, True, False]),
    )
    def transact(
        self,
        adds: list[tuple[int, list[int]]],
        ends: list[tuple[int, int, int]],
        commit: bool,
    ) -> None:
        model = self.model
        appends, settles = [], []
        for which, place, more in ends:
            name = self.log_of(which)
            if flying := self.model.logs[name].in_flight():
                first = pick(flying, place)
                settles.append((name, first, first + more))
                model = model.with_log(name, model.logs[name].settle(first, first + more))
        for which, sizes in adds:
            name, specs = self.log_of(which), self.specs(sizes)
            appends.append((name, specs))
            model = model.with_log(name, model.logs[name].append(specs, True))
        if not appends and not settles:
            return
        self.remote.call("transact", appends, settles, commit)
        if commit:
            self.step(model)
        self.look()

    @precondition(lambda self: self.has("queue", "kept"))
    @rule(which=ANY, most=st.integers(1, 12))
    def acquire(self, which: int, most: int) -> None:
        name = self.log_of(which, "queue", "kept")
        log = self.model.logs[name]
        taken = self.remote.call("acquire", name, most)
        expected = log.ready()[:most]
        if len(self.history) > 1:  # a lease may be under way: what it covers is not shown yet
            expected = expected[: len(taken)]
        assert taken == expected
        self.change(name, log.acquire(taken))
        if taken:
            fresh = self.model.logs[name].next_fresh()
            self.handed[name] = max(self.handed[name], fresh)
        self.look()

    @precondition(lambda self: self.has("queue", "kept"))
    @rule(which=ANY, place=ANY, more=st.integers(0, 5))
    def settle(self, which: int, place: int, more: int) -> None:
        name = self.log_of(which, "queue", "kept")
        log = self.model.logs[name]
        if not log.unsettled():
            return
        first = pick(log.in_flight() or log.unsettled(), place)
        settled = log.settle(first, first + more)
        count = len(log.unsettled()) - len(settled.unsettled())
        assert self.remote.call("settle", name, first, first + more) == count
        self.change(name, settled)
        self.look()

    @precondition(lambda self: self.has("queue", "kept"))
    @rule(which=ANY, place=ANY, counted=st.booleans())
    def give_back(self, which: int, place: int, counted: bool) -> None:
        name = self.log_of(which, "queue", "kept")
        log = self.model.logs[name]
        if not log.in_flight():
            return
        offset = pick(log.in_flight(), place)
        self.remote.call("give_back", name, offset, counted)
        self.change(name, log.give_back(offset, counted))
        self.look()

    @rule(
        what=st.sampled_from(["purge", "trim", "truncate", "raise_epoch", "delete", "add"]),
        which=ANY,
        place=ANY,
    )
    def control(self, what: str, which: int, place: int) -> None:
        getattr(self, what)(which, place)

    def add(self, which: int, _: int) -> None:
        if len(self.model.logs) < 4:
            self.create(pick(KINDS, which))

    def purge(self, which: int, _: int) -> None:
        if not self.has("queue", "kept"):
            return
        name = self.log_of(which, "queue", "kept")
        log = self.model.logs[name]
        assert self.remote.call("purge", name) == len(log.ready())
        self.change(name, log.purge())
        self.look()

    def trim(self, which: int, place: int) -> None:
        name = self.log_of(which)
        log = self.model.logs[name]
        offset = pick({log.start, log.next, *log.entries}, place)
        self.remote.call("trim", name, offset)
        self.change(name, log.trim(offset))
        self.look()

    def truncate(self, which: int, place: int) -> None:
        name = self.log_of(which)
        log = self.model.logs[name]
        there = [o for o in log.entries if log.must_be_there(o)]
        offset = pick({log.start, log.next, *there}, place)
        if offset in there and offset not in log.borders and offset - 1 in there:
            with pytest.raises(InvalidArgument):
                self.remote.call("truncate", name, offset)
            return
        if offset not in log.borders:
            return  # the batch it lies in may be gone with its other records settled
        self.remote.call("truncate", name, offset)
        self.change(name, log.truncate(offset))
        self.confirmed()  # a checkpoint is part of it
        self.look()

    def raise_epoch(self, which: int, _: int) -> None:
        name = self.log_of(which)
        log = self.model.logs[name]
        assert self.remote.call("raise_epoch", name) == log.epoch + 1
        self.change(name, replace(log, epoch=log.epoch + 1))

    def delete(self, which: int, _: int) -> None:
        if len(self.model.logs) < 2:
            return
        name = self.log_of(which)
        self.remote.call("delete", name)
        self.model = self.model.without(name)
        self.confirmed()  # it waits for its record, so all before it is on disk

    @rule(which=ANY, place=ANY)
    def read(self, which: int, place: int) -> None:
        name = self.log_of(which)
        log = self.model.logs[name]
        offset = max(log.start, pick({log.start, log.next, *log.entries}, place))
        found = {o: (k, v, t) for o, k, v, t in self.remote.call("read", name, offset)}
        assert list(found) == sorted(found)
        for each, record in found.items():
            assert fits(log.entries[each], record)
        readable = self.remote.call("look")[name].readable
        for each in log.entries:
            if offset <= each < min(readable, self.shown[name]):
                assert each in found or not log.must_be_there(each, readable)

    @rule()
    def confirm(self) -> None:
        self.remote.call("confirm")
        self.confirmed()
        self.look()
        for name, log in self.model.logs.items():
            assert self.shown[name] == log.next

    @rule()
    def checkpoint(self) -> None:
        self.remote.call("checkpoint")
        self.confirmed()
        self.look()
        assert [self.written[name] for name in self.model.logs] == [
            log.next for log in self.model.logs.values()
        ]

    # -- ends and beginnings

    @rule(how=st.sampled_from(ENDS), appends=APPENDS, delay=st.integers(0, 20), place=PLACES)
    def end(self, how: str, appends: Appends, delay: int, place: float) -> None:
        """And a new beginning."""
        if how == "stop":
            self.stop()
            return
        if how in ("torn WAL: cut", "torn WAL: flip", "torn WAL: zero"):
            self.tear_wal(appends, how.split()[-1], place)
        elif how == "quiet":
            # Nothing is left in the WAL to replay, so the next life makes no checkpoint at once:
            # one more crash, and the two have to be put together.
            self.checkpoint()
        elif how == "in appends":
            for which, sizes, unlogged in appends:
                name, specs = self.log_of(which), self.specs(sizes)
                self.remote.ask("append", name, specs, unlogged)
                self.change(name, self.model.logs[name].append(specs, not unlogged))
        elif how in ("in checkpoint", "in close"):
            self.remote.ask(how.split()[-1])
        if how.startswith("in "):  # asked for, not waited for, and killed a moment later
            time.sleep(delay / 4000)
        self.remote.kill()
        if how in ("torn segment: cut", "torn segment: flip", "torn segment: zero"):
            self.tear_segment(delay, how.split()[-1], place)
        elif how == "in recovery":
            self.remote = RemoteStore(self.data, OPTIONS)
            self.remote.ask("open")
            time.sleep(delay / 2000)
            self.remote.kill()
        self.begin()

    @rule()
    def kill(self) -> None:
        self.remote.kill()
        self.begin()

    def stop(self) -> None:
        self.remote.call("close")
        self.remote.kill()
        self.confirmed()
        # A clean stop wastes nothing: the next offset and the epoch stay.
        exact = {name: (log.next, log.epoch) for name, log in self.model.logs.items()}
        self.written = {name: log.next for name, log in self.model.logs.items()}
        self.begin()
        now = {name: (log.next, log.epoch) for name, log in self.model.logs.items()}
        assert now == exact

    def tear_wal(self, appends: Appends, how: str, place: float) -> None:
        """The last groups reach the disk in part. To know which bytes those are, the WAL is
        looked at before and after; nothing else may have been written meanwhile, because a
        segment gets nothing that isn't synced in the WAL."""
        self.remote.call("confirm")
        self.confirmed()
        before, others = self.wal_bytes(), self.other_files()
        for which, sizes, _ in appends[:3]:
            name, specs = self.log_of(which), self.specs([size % 1000 for size in sizes])
            self.remote.call("append", name, specs, False)
            self.change(name, self.model.logs[name].append(specs, True))
        self.remote.call("confirm")
        self.remote.kill()
        after = self.wal_bytes()
        changed = [path for path in after if after[path] != before.get(path)]
        if others != self.other_files() or before.keys() != after.keys() or len(changed) != 1:
            self.confirmed()
        else:
            [path] = changed
            path.write_bytes(torn(before[path], after[path], how, place))

    def wal_bytes(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in sorted(self.data.glob("wal/*.wal"))}

    def other_files(self) -> dict[Path, tuple[int, int]]:
        files = [*self.data.glob("vhosts/**/*"), *self.data.glob("checkpoint")]
        return {path: (os.stat(path).st_size, os.stat(path).st_mtime_ns) for path in files}

    def tear_segment(self, which: int, how: str, place: float) -> None:
        """Past the recovery point a segment proves nothing: logged records are in the WAL."""
        tails = [(name, *tail) for name in self.model.logs for tail in self.tails(name)]
        if tails:
            name, path, start = pick(tails, which)
            raw = path.read_bytes()
            path.write_bytes(torn(raw[:start], raw, how, place))
            self.written[name] = 0  # unlogged ones have nothing else

    def tails(self, name: str) -> Iterator[tuple[Path, int]]:
        """Its segment files that have bytes past the recovery point, and where those start."""
        saved = checkpoint.load(self.data)
        entry = saved.logs.get(self.ids[name]) if saved else None
        for path in sorted(self.data.glob(f"vhosts/*/queues/*.{self.ids[name]}/*.log")):
            base, start = int(path.stem), 0
            if entry and base < entry.recovery_point:
                start = entry.recovery_position if base == entry.recovery_segment else 1 << 62
            if path.stat().st_size > start:
                yield path, start

    def begin(self) -> None:
        """A new life: which state is it?"""
        self.remote = RemoteStore(self.data, OPTIONS)
        if keep := os.environ.get("OTTERMQ_KEEP"):  # for who has to find out what went wrong
            shutil.rmtree(keep, ignore_errors=True)
            shutil.copytree(self.data, keep)
        self.remote.call("open")
        assert not [text for kind, text in self.remote.call("reports") if kind in DAMAGED]
        self.model = self.find_state(self.recovered())
        self.confirmed()
        self.look()

    def recovered(self) -> dict[str, Recovered]:
        came = {}
        for name, seen in self.remote.call("look").items():
            found = self.remote.call("read", name, seen.start)
            offsets = [offset for offset, *_ in found]
            assert offsets == sorted(set(offsets))
            known = {o for model in self.history for o in model.logs[name].entries} | set(offsets)
            counts = {}
            if seen.cursor is not None:
                counted = sorted(o for o in known if o < seen.next)
                counts = dict(zip(counted, self.remote.call("counts", name, counted), strict=True))
            came[name] = Recovered(seen, {o: (k, v, t) for o, k, v, t in found}, counts)
        return came

    def find_state(self, came: dict[str, Recovered]) -> Model:
        assert came.keys() == self.model.logs.keys()
        refused = []
        for age, candidate in enumerate(reversed(self.history)):
            try:
                return Model(
                    {
                        name: after_crash(
                            log,
                            self.model.logs[name],
                            self.shown[name],
                            self.written[name],
                            self.handed[name],
                            came[name],
                        )
                        for name, log in candidate.logs.items()
                    }
                )
            except Mismatch as error:
                refused.append(f"{age} steps before the end: {error}")
        raise AssertionError("it came back as it never was:\n" + "\n".join(refused))


BLOCK = 4096


def torn(old: bytes, new: bytes, how: str, place: float) -> bytes:
    """Somewhere between the first and the last byte that was written: what came after is as it
    was, or zeros; or one bit of it is wrong, and what came after its block is as it was (a group
    of the WAL starts on a block of its own, and is only written when the one before is synced)."""
    same = next(n for n in range(len(new)) if old[n : n + 1] != new[n : n + 1])
    end = len(new.rstrip(b"\0")) if len(old) == len(new) else len(new)
    at = min(same + int(place * (end - same)), len(new) - 1)
    if how == "flip":
        after = -(-(at + 1) // BLOCK) * BLOCK
        wrong = bytes([new[at] ^ 1 << int(place * 1e6) % 8])
        return new[:at] + wrong + new[at + 1 : after] + old[after:]
    return new[:at] + (old[at:] if how == "cut" else bytes(len(new) - at))


HOW: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "print_blob": True,
}


@pytest.mark.hypothesis
def test_a_store_lives_and_dies_as_its_model() -> None:
    # The same lives each time: whoever changes something else must not meet a new one here.
    how = settings(max_examples=examples(30), stateful_step_count=30, derandomize=True, **HOW)
    run_state_machine_as_test(StoreMachine, settings=how)


@pytest.mark.soak
def test_a_store_lives_and_dies_as_its_model_for_long() -> None:
    how = settings(max_examples=1500, stateful_step_count=60, **HOW)
    run_state_machine_as_test(StoreMachine, settings=how)
