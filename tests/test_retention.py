"""The keeper of retention: what it lets go, what it says, and how little it takes."""

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from ottermq.config import Config, load
from ottermq.storage import retention
from ottermq.wal import Log, LogFlags, LogOptions, Record, Store
from ottermq.wal.retention import Policy
from ottermq.wal.store import DURABLE
from tests.wal.stores import SMALL, put

SEGMENT = LogOptions(segment_size=65536)
NOW = time.time_ns() // 1_000_000
DAY = 86_400_000


def rules(**settings: str) -> Config:
    return load(environ={f"OTTERMQ_WAL__RETENTION__{k.upper()}": v for k, v in settings.items()})


def filled(
    store: Store, name: str = "orders", flags: LogFlags = DURABLE, age: int = 0, segments: int = 4
) -> Log:
    log = store.create(name, flags=flags, options=SEGMENT)
    while len(log.segments()) < segments:
        store.wait(log.append([Record(bytes(8000), timestamp=NOW - age)] * 4).seq)
        store.checkpoint()
    return log


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "data", SMALL) as opened:
        yield opened


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments()]


def test_what_is_settled_goes_and_the_rest_is_there(store: Store) -> None:
    log = filled(store)
    _, second, third, _ = log.segments()
    log.settle(0, third.base_offset + 1)
    retention.trim(log, rules())
    assert bases(log)[0] == third.base_offset
    assert log.stat().start_offset == third.base_offset
    assert log.cursor().floor == third.base_offset + 2
    assert second.next_offset == third.base_offset


def test_a_log_begins_behind_what_was_settled_before_it_came_to_a_segment(store: Store) -> None:
    log = store.create("orders", flags=DURABLE, options=SEGMENT)
    for _ in range(20):
        store.wait(log.append([Record(bytes(8000))]).seq)
    log.settle(0, 9)
    store.checkpoint()
    retention.trim(log, rules(legal_hold="true"))
    assert log.stat().start_offset == 0
    retention.trim(log, rules())
    start = log.stat().start_offset
    assert log.read(start)[0].base_offset == start <= 10
    log.settle(10, 19)
    retention.trim(log, rules())
    kept = log.read(log.stat().start_offset)
    assert log.stat().start_offset == (kept[0].base_offset if kept else 20)


def test_what_is_settled_stays_when_its_floor_is_no_reason_to_go(store: Store) -> None:
    log = filled(store, age=2 * DAY)
    before = bases(log)
    log.settle(0, log.stat().next_offset - 1)
    retention.trim(log, rules(min_offset_based="false"))
    assert bases(log) == before
    retention.trim(log, rules(min_offset_based="false", max_age="1d"))
    assert log.stat().start_offset == log.stat().next_offset


def test_a_stream_keeps_all_until_it_is_too_old(store: Store) -> None:
    log = filled(store, flags=LogFlags.NO_CURSOR, age=2 * DAY)
    retention.trim(log, rules())
    assert len(bases(log)) == 4
    retention.trim(log, rules(max_age="1d"))
    assert bases(log) == []


def test_a_limit_drops_what_nobody_has_settled(store: Store) -> None:
    log = filled(store)
    last = log.segments()[-1]
    retention.trim(log, rules(max_size="64KiB"))
    assert bases(log) == [last.base_offset]
    cursor = log.cursor()
    assert cursor.floor == last.base_offset
    assert cursor.ready_count == last.next_offset - last.base_offset


def test_an_unacked_message_that_a_limit_dropped_can_still_be_acked(store: Store) -> None:
    log = filled(store)
    [taken] = log.acquire(1)
    retention.trim(log, rules(max_size="64KiB"))
    assert log.settle(taken)[0] == 0  # it counts as settled already


def test_rules_by_name_come_first(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("queues: [{match: 'audit.*', retention: {keep_settled: true}}]")
    config = load(file)
    audit, orders = filled(store, "audit.orders"), filled(store)
    for log in (audit, orders):
        log.settle(0, log.stat().next_offset - 1)
        retention.trim(log, config)
    # What was settled before the writer came to it is never written: there may be no active one.
    assert len(bases(audit)) == 4 and len(bases(orders)) <= 1


def test_a_limit_is_told_and_the_rest_only_when_asked_for(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "ottermq")
    log = filled(store)
    first, second, *_ = log.segments()
    log.settle(0, first.next_offset - 1)
    retention.trim(log, rules(max_size="128KiB"))
    told = [(line.levelname, line.getMessage()) for line in caplog.records]
    assert told[0][0] == "DEBUG" and "rule=settled segments=1 first=0" in told[0][1]
    assert (
        told[1][0] == "INFO"
        and f"rule=max_size segments=1 first={second.base_offset}" in told[1][1]
    )


def test_a_log_of_many_segments_is_trimmed_a_handful_at_a_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "AT_A_TIME", 2)
    log = filled(store, age=2 * DAY, segments=5)
    more = [retention.trim(log, rules(max_age="1d")) for _ in range(3)]
    assert more == [True, True, False]
    assert bases(log) == []


async def test_the_keeper_comes_round_and_outlives_a_deleted_log(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, kept = filled(store, "gone", age=2 * DAY), filled(store, "kept", age=2 * DAY)
    trim, rounds, round_again = retention.trim, 0, trio.Event()

    def delete_first(log: Log, config: Config, limit: Policy | None = None) -> bool:
        nonlocal rounds
        if log is gone:
            store.delete(gone)
        else:
            rounds += 1
            if rounds == 2:
                round_again.set()
        return trim(log, config, limit)

    monkeypatch.setattr(retention, "trim", delete_first)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(retention.keep, store, rules(max_age="1d", check_interval="1s"))
            await round_again.wait()
            nursery.cancel_scope.cancel()
    assert bases(kept) == []


async def test_others_get_their_turn_while_it_waits_for_the_engine(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under full load each look at a log waits for a tick, a millisecond without any CPU."""
    for log in store.create_many([f"q{i}" for i in range(50)]):
        log.append([Record(b"x")])
        log.settle(0)
    looks, at_a_time, others = 0, [0], trio.Event()

    def wait_for_a_tick(log: Log, config: Config, limit: Policy | None = None) -> bool:
        nonlocal looks
        looks += 1
        at_a_time[-1] += 1
        time.sleep(0.0012)
        if looks == 50:
            others.set()
        return False

    monkeypatch.setattr(retention, "trim", wait_for_a_tick)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(retention.keep, store, rules())
        while not others.is_set():
            await trio.lowlevel.checkpoint()
            at_a_time.append(0)
        nursery.cancel_scope.cancel()
    assert max(at_a_time) <= 2


def has_segments(folder: Path) -> bool:
    return any(folder.glob("data/vhosts/%2F/queues/*/*.log"))


async def test_it_takes_at_most_a_twentieth_of_a_core(tmp_path: Path) -> None:
    """With many logs to look at and many segments to remove; every thread counts."""
    records = [Record(bytes(8000), timestamp=NOW - 2 * DAY)] * 6
    with Store.open(tmp_path / "data", SMALL) as store:
        logs = store.create_many([f"q{i}" for i in range(100)], options=SEGMENT)
        store.create_many([f"idle{i}" for i in range(3000)])
        for _ in range(5):
            for log in logs:
                put(store, log, records)
                if log.id % 25 == 0:
                    store.checkpoint()
        store.checkpoint()
        segments = sum(len(log.segments()) for log in logs)
        cpu, began = time.process_time(), time.monotonic()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(retention.keep, store, rules(max_age="1d", check_interval="1s"))
            with trio.fail_after(60):
                while has_segments(tmp_path):  # noqa: ASYNC110  (nothing tells of a file's end)
                    await trio.sleep(0.5)
            nursery.cancel_scope.cancel()
        used, took = time.process_time() - cpu, time.monotonic() - began
    assert segments >= 400
    assert used / took < 0.05, f"{used:.3f} s of CPU in {took:.1f} s"
