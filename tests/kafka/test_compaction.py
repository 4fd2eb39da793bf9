"""When a compacted topic is compacted, and that its configs decide what stays."""

from dataclasses import replace
from errno import ENOSPC
from pathlib import Path
from unittest.mock import patch

import pytest

from ottermq.kafka.compaction import Compactor, look
from ottermq.kafka.configs import TOPIC_CONFIGS
from ottermq.storage.topic_retention import LONG_MAX
from ottermq.wal import Log, Record
from ottermq.wal.log import SegmentStat
from tests.kafka.broker_harness import Harness, open_harness
from tests.wal.stores import small

DEFAULTS = {name: config.default for name, config in TOPIC_CONFIGS.items()}
FILLER = b"." * 8000
OPTIONS = small(segment_size=64 << 10)


def segment(base: int, size: int = 100, time: int = 1000, *, sealed: bool = True) -> SegmentStat:
    return SegmentStat(base, base + 10, size, time, time + 9, sealed, False)


SEGMENTS = [segment(0), segment(10), segment(20), segment(30, sealed=False)]


def test_what_is_new_must_be_half_of_all() -> None:
    assert look(SEGMENTS, 0, DEFAULTS, 2000).is_worth
    assert not look(SEGMENTS, 20, DEFAULTS, 2000).is_worth
    assert look(SEGMENTS, 20, DEFAULTS | {"min.cleanable.dirty.ratio": "0.3"}, 2000).is_worth
    assert not look(SEGMENTS, 30, DEFAULTS | {"min.cleanable.dirty.ratio": "0"}, 2000).is_worth


def test_the_active_segment_stays_out_of_reach() -> None:
    assert look(SEGMENTS, 0, DEFAULTS, 2000).end == 30


def test_young_records_stay_out_of_reach() -> None:
    segments = [segment(0, time=1000), segment(10, time=5000)]
    assert look(segments, 0, DEFAULTS | {"min.compaction.lag.ms": "2000"}, 5500).end == 10


def test_what_has_waited_too_long_is_taken_however_little_it_is() -> None:
    values = DEFAULTS | {"max.compaction.lag.ms": "500"}
    assert look(SEGMENTS, 20, values, 1501).is_worth
    assert not look(SEGMENTS, 20, values, 1400).is_worth
    assert DEFAULTS["max.compaction.lag.ms"] == str(LONG_MAX)


async def fill(harness: Harness, log: Log, records: list[Record]) -> None:
    """Sealed, and before the recovery point."""
    for record in [*records, *(Record(FILLER, key=b"filler") for _ in range(10))]:
        done = log.append([record])
        await harness.store.wait_durable(done.seq)
    harness.store.checkpoint()


def keys(log: Log) -> list[bytes | None]:
    return [record.key for record in log.records() if record.key != b"filler"]


@pytest.mark.parametrize("policy, left", [("compact", 3), ("compact,delete", 3), ("delete", 24)])
async def test_a_topic_is_compacted_if_its_policy_says_so(
    tmp_path: Path, policy: str, left: int
) -> None:
    async with open_harness(tmp_path / "data", OPTIONS) as harness:
        configs = {"cleanup.policy": policy, "segment.bytes": str(64 << 10)}
        topic = await harness.topics.create("keys", 2, configs)
        log = topic.partitions[1].log
        await fill(harness, log, [Record(FILLER, key=b"k%d" % (n % 3)) for n in range(24)])
        compactor = Compactor(harness.db, harness.store, harness.configs)
        await compactor.look_at_all()
        assert len(keys(log)) == left


async def test_a_legal_hold_keeps_a_topic_from_being_compacted(tmp_path: Path) -> None:
    async with open_harness(tmp_path / "data", OPTIONS) as harness:
        configs = {"cleanup.policy": "compact", "segment.bytes": str(64 << 10)}
        topic = await harness.topics.create("keys", 1, configs | {"legal.hold": "true"})
        log = topic.partitions[0].log
        await fill(harness, log, [Record(FILLER, key=b"k%d" % (n % 3)) for n in range(24)])
        compactor = Compactor(harness.db, harness.store, harness.configs)
        await compactor.look_at_all()
        assert len(keys(log)) == 24
        await harness.configs.set(topic, configs)
        await compactor.look_at_all()
        assert len(keys(log)) == 3


async def test_tombstones_go_when_their_time_is_over(tmp_path: Path) -> None:
    async with open_harness(tmp_path / "data", OPTIONS) as harness:
        configs = {"cleanup.policy": "compact", "delete.retention.ms": "0"}
        configs["segment.bytes"] = str(64 << 10)
        log = (await harness.topics.create("keys", configs=configs)).partitions[0].log
        compactor = Compactor(harness.db, harness.store, harness.configs)
        await fill(harness, log, [Record(FILLER, key=b"k"), Record(None, key=b"k")])
        await compactor.look_at_all()
        assert keys(log) == [b"k"]  # for whoever reads along: once at least
        await fill(harness, log, [])
        await compactor.look_at_all()
        assert keys(log) == []


async def test_a_restart_knows_how_far_it_came(tmp_path: Path) -> None:
    async with open_harness(tmp_path / "data", OPTIONS) as harness:
        configs = {"cleanup.policy": "compact", "segment.bytes": str(64 << 10)}
        log = (await harness.topics.create("keys", configs=configs)).partitions[0].log
        await fill(harness, log, [Record(FILLER, key=b"k") for _ in range(12)])
        await Compactor(harness.db, harness.store, harness.configs).look_at_all()
        await harness.topics.create("gone", configs=configs)
        [(id, up_to)] = harness.db.read("SELECT * FROM kafka_cleaned")
        assert (id, up_to > 8) == (log.id, True)
    async with open_harness(tmp_path / "data", OPTIONS) as harness:
        compactor = Compactor(harness.db, harness.store, harness.configs)
        assert compactor._cleaned == {id: up_to}
        await harness.topics.delete("keys")
    async with open_harness(tmp_path / "data", replace(OPTIONS)) as harness:
        assert Compactor(harness.db, harness.store, harness.configs)._cleaned == {}
        assert harness.db.read("SELECT * FROM kafka_cleaned") == []


async def test_a_disk_that_is_full_ends_no_broker(tmp_path: Path) -> None:
    async with open_harness(tmp_path / "data", OPTIONS) as harness:
        configs = {"cleanup.policy": "compact", "segment.bytes": str(64 << 10)}
        log = (await harness.topics.create("keys", configs=configs)).partitions[0].log
        await fill(harness, log, [Record(FILLER, key=b"k") for _ in range(12)])
        compactor = Compactor(harness.db, harness.store, harness.configs)
        with patch("os.write", side_effect=OSError(ENOSPC, "no space left")):
            await compactor.look_at_all()
        assert len(keys(log)) == 12
        await compactor.look_at_all()
        assert len(keys(log)) == 1
