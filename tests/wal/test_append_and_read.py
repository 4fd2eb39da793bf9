"""What goes into a log comes out of it: equal, in order, once, from any offset."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ottermq.wal import Record, Store
from ottermq.wal.errors import CorruptData, Deleted, InvalidArgument, OutOfRange
from tests.wal.stores import append, flush, numbered, numbers, offsets, put, small, values

# Longer than a record of the WAL may be (512 KiB, then it is cut into parts), than a batch
# should be (256 KiB), than a whole WAL file of these tests (1 MiB).
LARGE = [300 << 10, 600 << 10, (1 << 20) + 1, 5 << 20]


@pytest.mark.parametrize(
    "record",
    [
        Record(b"value", b"key", timestamp=1_700_000_000_123),
        Record(None, None, timestamp=0),
        Record(b"", b"", timestamp=1),
        Record(None, b"a tombstone", timestamp=2),
        Record(b"v", headers=((b"a", b"1"), (b"a", b""), (b"", None)), timestamp=3),
        Record(b"v", headers=tuple((b"h%d" % n, b"%d" % n) for n in range(40)), timestamp=4),
        Record(bytes(range(256)) * 5, timestamp=(1 << 62)),
    ],
    ids=["plain", "nulls", "empty", "tombstone", "headers", "many headers", "far future"],
)
def test_a_record_comes_back_as_it_was_given(store: Store, record: Record) -> None:
    log = store.create("orders")
    put(store, log, [record])
    [hot] = log.records()
    flush(store)
    [written] = log.records()
    for found in (hot, written):
        assert (found.value, found.key, found.timestamp) == (
            record.value,
            record.key,
            record.timestamp,
        )
        assert tuple(found.headers) == tuple(record.headers)
        assert found.offset == 0


def test_offsets_count_from_zero_and_go_on(store: Store) -> None:
    log = store.create("orders")
    firsts = [log.append(numbered(count)).first_offset for count in (1, 3, 1, 7)]
    assert firsts == [0, 1, 4, 5]
    assert log.stat().next_offset == 12


def test_many_records_in_one_batch_and_many_batches(store: Store) -> None:
    log = store.create("orders")
    put(store, log, numbered(5000, size=40))
    for first in range(5000, 5500):
        done = append(log, numbered(1, first))
    store.wait(done.seq)
    assert numbers(log) == list(range(5500))
    flush(store)
    assert numbers(log) == list(range(5500))
    assert offsets(log) == list(range(5500))


@pytest.mark.parametrize("size", LARGE)
def test_a_large_record_comes_back_whole(store: Store, size: int) -> None:
    log = store.create("orders")
    body = (b"%08d" % size) * (size // 8)
    put(store, log, [Record(b"before")])
    put(store, log, [Record(body)])
    put(store, log, [Record(b"after")])
    assert values(log) == [b"before", body, b"after"]
    flush(store)
    assert values(log) == [b"before", body, b"after"]


def test_a_batch_of_many_large_records_comes_back_whole(store: Store) -> None:
    log = store.create("orders")
    bodies: list[bytes | None] = [b"%04d" % n * (50 << 10) for n in range(12)]
    put(store, log, [Record(body) for body in bodies])
    assert values(log) == bodies
    flush(store)
    assert values(log) == bodies


@pytest.mark.parametrize("written", [False, True], ids=["hot", "in a segment"])
def test_a_read_starts_with_the_batch_that_holds_the_offset(store: Store, written: bool) -> None:
    log = store.create("orders")
    for first in (0, 10, 20):
        put(store, log, numbered(10, first))
    if written:
        flush(store)
    for offset in range(30):
        batch = log.read(offset)[0]
        assert (batch.base_offset, batch.last_offset) == (offset // 10 * 10, offset // 10 * 10 + 9)
        assert numbers(log, offset) == list(range(offset, 30))


@pytest.mark.parametrize("written", [False, True], ids=["hot", "in a segment"])
def test_max_bytes_cuts_between_batches_and_gives_at_least_one(store: Store, written: bool) -> None:
    log = store.create("orders")
    for n in range(6):
        put(store, log, numbered(1, n, size=1000))
    if written:
        flush(store)
    size = len(log.read(0, max_bytes=1)[0].data)
    for wanted in range(1, 6):
        assert len(log.read(0, max_bytes=size * wanted)) == wanted
        assert len(log.read(0, max_bytes=size * wanted + size - 1)) == wanted
    assert len(log.read(0, max_bytes=0)) == 1


@pytest.mark.parametrize("written", [False, True], ids=["hot", "in a segment"])
def test_a_read_stops_at_the_end_it_is_given(store: Store, written: bool) -> None:
    log = store.create("orders")
    for n in range(6):
        put(store, log, numbered(1, n))
    if written:
        flush(store)
    assert [batch.base_offset for batch in log.read(1, end=4)] == [1, 2, 3]
    assert log.read(4, end=4) == []


def test_nothing_is_there_yet_at_the_end_and_nothing_past_it(store: Store) -> None:
    log = store.create("orders")
    assert log.read(0) == []
    put(store, log, numbered(3))
    assert log.read(3) == []
    for wrong in (4, -1, 1 << 62):
        with pytest.raises(OutOfRange):
            log.read(wrong)


def test_what_was_waited_for_can_be_read_at_once(store: Store) -> None:
    """The first append of a log leases its offsets: they may be seen once the lease is on disk,
    and that is no later than the record itself."""
    for n in range(50):
        log = store.create(f"q{n}")
        put(store, log, numbered(1))
        assert numbers(log) == [0], f"log {n}"
        stat = log.stat()
        assert stat.readable_end == stat.high_watermark == stat.next_offset == 1
        assert log.acquire(1) == [0]


def test_the_high_watermark_waits_for_the_disk_and_queues_do_not(data: Path) -> None:
    half_a_second = small(batch_max_wait_us=500_000)
    with Store.open(data, half_a_second) as store:
        log = store.create("orders")
        put(store, log, numbered(2))
        pending = log.append(numbered(3, 2))
        stat = log.stat()
        assert store.durable_seq < pending.seq
        assert (stat.high_watermark, stat.readable_end) == (2, 5)
        assert [b.base_offset for b in log.read(0, end=stat.high_watermark)] == [0]
        assert numbers(log) == [0, 1, 2, 3, 4]
        store.wait(pending.seq)
        assert log.stat().high_watermark == 5


def test_a_foreign_batch_gets_its_place_and_keeps_the_rest(store: Store) -> None:
    source, target = store.create("source"), store.create("target")
    put(store, source, [Record(b"a", b"k", ((b"h", b"1"),), 7), Record(b"b", timestamp=9)])
    put(store, target, numbered(5))
    target.bump_epoch()
    [sent] = source.read(0)
    done = target.append_raw(sent.data)
    store.wait(done.seq)
    assert done.first_offset == 5
    [kept] = target.read(5)
    assert (kept.base_offset, kept.last_offset, kept.leader_epoch) == (5, 6, 1)
    assert kept.crc == sent.crc and kept.data[16:] == sent.data[16:]
    assert [r.value for r in kept.records()] == [b"a", b"b"]


def test_a_foreign_batch_that_is_damaged_is_refused(store: Store) -> None:
    log = store.create("orders")
    put(store, log, [Record(b"hello")])
    [batch] = log.read(0)
    for position in (16, 21, 40, len(batch.data) - 1):
        damaged = bytearray(batch.data)
        damaged[position] ^= 1
        with pytest.raises((CorruptData, InvalidArgument)):
            log.append_raw(bytes(damaged))
    for cut in (0, 11, 60, len(batch.data) - 1):
        with pytest.raises((CorruptData, InvalidArgument)):
            log.append_raw(batch.data[:cut])
    with pytest.raises((CorruptData, InvalidArgument)):
        log.append_raw(batch.data * 2)
    assert log.stat().next_offset == 1


def test_an_empty_append_is_refused(store: Store) -> None:
    log = store.create("orders")
    with pytest.raises(InvalidArgument):
        log.append([])
    assert log.stat().next_offset == 0


def test_a_log_that_is_gone_says_so(store: Store) -> None:
    log = store.create("orders")
    put(store, log, numbered(1))
    store.delete(log)
    for use in (
        lambda: log.append(numbered(1)),
        lambda: log.read(0),
        lambda: log.stat(),
        lambda: log.cursor(),
        lambda: log.acquire(1),
        lambda: log.segments(),
        lambda: log.find_time(0),
        lambda: log.trim(0),
        lambda: store.fanout([log], numbered(1)),
        lambda: store.delete(log),
    ):
        with pytest.raises(Deleted):
            use()


def test_a_log_whose_store_is_closed_says_so(data: Path) -> None:
    store = Store.open(data, small())
    log = store.create("orders")
    store.close()
    for use in (lambda: log.append(numbered(1)), lambda: log.read(0), lambda: log.stat()):
        with pytest.raises(Deleted):
            use()
    store.close()  # twice does no harm


def test_appends_from_many_threads_take_turns(store: Store) -> None:
    log = store.create("orders")

    def publish(thread: int) -> list[int]:
        taken = []
        for n in range(200):
            done = append(log, [Record(b"%d" % (thread * 1000 + n))] * 2)
            taken += [done.first_offset, done.first_offset + 1]
        store.wait(done.seq)
        return taken

    with ThreadPoolExecutor(4) as pool:
        taken = list(pool.map(publish, range(4)))
    assert sorted(offset for each in taken for offset in each) == list(range(1600))
    found = numbers(log)
    for thread, mine in enumerate(taken):
        assert [found[offset] for offset in mine] == [
            thread * 1000 + n for n in range(200) for _ in range(2)
        ]
