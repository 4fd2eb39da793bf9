"""A log's idempotent producers: what is next, what is a duplicate, what is refused; and that no
restart forgets it."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottermq.wal import Log, LogFlags, ReportKind, Store
from ottermq.wal.errors import Fenced, Refused
from tests.examples import examples
from tests.faults.rules import Op
from tests.faults.shim import recorded
from tests.wal.faulty import Life, command
from tests.wal.producing import (
    INVALID_EPOCH,
    INVALID_RECORD,
    INVALID_STATE,
    OUT_OF_ORDER,
    batch,
)
from tests.wal.stores import small
from tests.wal.test_after_a_kill import killed

TOPIC = LogFlags.NO_CURSOR
LAST = 2**31 - 1


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "data", small()) as store:
        yield store


@pytest.fixture
def log(store: Store) -> Log:
    return store.create("t", flags=TOPIC)


@contextlib.contextmanager
def refused(code: int) -> Iterator[None]:
    with pytest.raises(Refused) as caught:
        yield
    assert caught.value.code == code


def send(log: Log, sequence: int, count: int = 1, *, producer: int = 7, epoch: int = 0) -> int:
    return log.append_raw(batch(producer, sequence, count, epoch=epoch)).first_offset


# -- the rules


def test_a_batch_sent_again_keeps_the_offset_it_got(log: Log) -> None:
    assert [send(log, 0, 3), send(log, 3, 2)] == [0, 3]
    assert send(log, 0, 3) == 0
    assert send(log, 3, 2) == 3
    assert log.stat().next_offset == 5


def test_the_last_five_batches_are_known_again_and_no_older_one(log: Log) -> None:
    for sequence in range(6):
        send(log, sequence)
    assert [send(log, sequence) for sequence in range(1, 6)] == [1, 2, 3, 4, 5]
    with refused(OUT_OF_ORDER):
        send(log, 0)


def test_a_part_of_a_batch_is_no_duplicate(log: Log) -> None:
    send(log, 0, 3)
    with refused(OUT_OF_ORDER):
        send(log, 0, 2)


def test_a_gap_is_refused(log: Log) -> None:
    send(log, 0)
    with refused(OUT_OF_ORDER):
        send(log, 2)
    assert send(log, 1) == 1


def test_a_producer_that_nobody_remembers_may_start_anywhere(log: Log) -> None:
    assert send(log, 41) == 0
    with refused(OUT_OF_ORDER):
        send(log, 41 + 2)


def test_a_new_epoch_starts_at_zero_and_ends_the_old_one(log: Log) -> None:
    send(log, 0)
    send(log, 1)
    with refused(OUT_OF_ORDER):
        send(log, 2, epoch=1)
    assert send(log, 0, epoch=1) == 2
    with refused(INVALID_EPOCH):
        send(log, 2, epoch=0)


def test_sequences_wrap(log: Log) -> None:
    send(log, LAST - 1)
    assert send(log, LAST, 3) == 1  # LAST, 0, 1
    assert send(log, LAST, 3) == 1
    assert send(log, 2) == 4


def test_producers_do_not_mind_each_other(log: Log) -> None:
    for producer in range(100):
        send(log, 0, producer=producer)
    for producer in range(100):
        send(log, 1, producer=producer)
    assert log.stat().next_offset == 200
    assert len(log.producers()) == 100


def test_a_producer_without_sequence_or_epoch_is_no_producer(log: Log) -> None:
    with refused(INVALID_RECORD):
        log.append_raw(batch(7, -1))
    with refused(INVALID_RECORD):
        log.append_raw(batch(7, 0, epoch=-1))
    with refused(INVALID_RECORD):
        log.append_raw(batch(-1, -1, epoch=-1, transactional=True))


def test_a_transaction_that_the_coordinator_does_not_know_is_refused(log: Log) -> None:
    with refused(INVALID_STATE):
        log.append_raw(batch(7, 0, transactional=True))


def test_a_log_without_producers_pays_nothing_for_them(log: Log) -> None:
    before = log.stat().memory
    log.append_raw(batch(-1, -1, epoch=-1))
    assert log.producers() == []
    assert log.stat().memory - before < 500


# -- against a model


@dataclass
class Producer:
    epoch: int = -1
    batches: list[tuple[int, int, int]] = field(default_factory=list)  # first, last, offset


@dataclass
class Model:
    """The same rules, in as few words as possible."""

    next_offset: int = 0
    producers: dict[int, Producer] = field(default_factory=dict)

    def send(self, producer: int, epoch: int, sequence: int, count: int) -> int | str:
        known = self.producers.setdefault(producer, Producer())
        last = (sequence + count - 1) % 2**31
        for first, end, offset in known.batches[-5:]:
            if (epoch, sequence, last) == (known.epoch, first, end):
                return offset
        if epoch < known.epoch:
            return f"error {INVALID_EPOCH}"
        expected = 0
        if known.epoch == -1:
            expected = sequence
        elif known.epoch == epoch and known.batches:
            expected = (known.batches[-1][1] + 1) % 2**31
        if sequence != expected:
            return f"error {OUT_OF_ORDER}"
        if epoch != known.epoch:
            known.epoch, known.batches = epoch, []
        known.batches.append((sequence, last, self.next_offset))
        self.next_offset += count
        return known.batches[-1][2]


SEQUENCES = st.integers(0, 12) | st.integers(LAST - 4, LAST)
SENT = st.tuples(st.integers(1, 2), st.integers(0, 2), SEQUENCES, st.integers(1, 3))
STEPS = st.lists(SENT | st.sampled_from(["next", "checkpoint", "restart"]), max_size=60)


def outcome(log: Log, producer: int, epoch: int, sequence: int, count: int) -> int | str:
    try:
        return send(log, sequence, count, producer=producer, epoch=epoch)
    except Refused as error:
        return f"error {error.code}"


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS)
def test_every_answer_is_the_models(
    steps: list[tuple[int, int, int, int] | str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = tmp_path_factory.mktemp("model") / "data"
    model, sequence = Model(), 0
    store = Store.open(data, small())
    log = store.create("t", flags=TOPIC)
    try:
        for step in steps:
            if step == "checkpoint":
                store.checkpoint()
            elif step == "restart":
                store.close()
                store = Store.open(data, small())
                log = store.get("t")
            elif step == "next":  # a producer that does all right
                assert outcome(log, 9, 0, sequence, 2) == model.send(9, 0, sequence, 2)
                sequence += 2
            else:
                assert not isinstance(step, str)
                assert outcome(log, *step) == model.send(*step)
        assert log.stat().next_offset == model.next_offset
    finally:
        store.close()


# -- after a stop


def test_a_clean_stop_forgets_no_sequence(tmp_path: Path) -> None:
    with Store.open(tmp_path / "data", small()) as store:
        log = store.create("t", flags=TOPIC)
        offsets = [send(log, sequence) for sequence in range(7)]
    with Store.open(tmp_path / "data", small()) as store:
        log = store.get("t")
        assert [send(log, sequence) for sequence in range(2, 7)] == offsets[2:]
        with refused(OUT_OF_ORDER):
            send(log, 8)
        send(log, 7)


@pytest.mark.parametrize("flags", [TOPIC, LogFlags(0)], ids=["topic", "queue"])
def test_a_kill_forgets_no_sequence(tmp_path: Path, flags: LogFlags) -> None:
    """Neither of batches before the checkpoint nor of those behind it; what has a sequence is
    logged, even where its producer doesn't wait for that."""
    with Store.open(tmp_path / "data", small()) as store:
        log = store.create("t", flags=flags)
        for sequence in range(3):
            send(log, sequence)
        store.checkpoint()
        send(log, 3)
        send(log, 4)
        store.wait(log.append_raw(batch(7, 5), unlogged=True).seq)
        with killed(store) as again:
            log = again.get("t")
            assert [send(log, sequence) for sequence in range(1, 6)] == [1, 2, 3, 4, 5]
            with refused(OUT_OF_ORDER):
                send(log, 7)
            send(log, 6)


def test_what_consumers_settled_before_it_was_written_is_no_gap_in_the_sequence(
    tmp_path: Path,
) -> None:
    with Store.open(tmp_path / "data", small()) as store:
        log = store.create("q")
        store.wait(log.append_raw(batch(7, 0, 3)).seq)
        assert log.acquire(10) == [0, 1, 2]
        store.wait(log.settle(0, 2)[1])
        with killed(store) as again:
            assert send(again.get("q"), 0, 3) == 0
        store.checkpoint()
        assert log.stat().size_bytes == 0
        with killed(store, "later") as again:
            assert send(again.get("q"), 0, 3) == 0


def test_truncation_forgets_what_was_cut(store: Store, log: Log) -> None:
    for sequence in range(4):
        send(log, sequence)
    log.truncate(2)
    assert send(log, 0) == 0
    with refused(OUT_OF_ORDER):
        send(log, 3)
    assert send(log, 2) == 2


# -- a fence


def a_step_that_was_refused(life: Life, what: str) -> None:
    store = life.store
    log = store.create("t", flags=TOPIC)
    log.enlist(8, 0)
    log.append_raw(batch(8, 0, transactional=True))
    store.wait(log.append_raw(batch(7, 0)).seq)
    life.faults.fail(Op.FDATASYNC, "wal/*.wal", times=1)
    done = log.append_raw(batch(7, 1)) if what == "batch" else log.mark(8, 0, commit=False)
    with pytest.raises(Fenced):
        store.wait(done.seq)
    life.hear(ReportKind.FENCED)
    store.unfence()
    assert log.aborted(0, 100) == []
    assert log.stat().last_stable == 0
    assert send(log, 0) == 1
    assert send(log, 1) > 2  # another place: what was refused is gone
    store.wait(log.mark(8, 0, commit=True).seq)
    assert log.stat().last_stable == log.stat().next_offset


@pytest.mark.parametrize("what", ["batch", "marker"])
def test_what_a_fence_refused_is_no_duplicate_and_no_end(memory_path: Path, what: str) -> None:
    with recorded(memory_path) as life:
        life.run(command(a_step_that_was_refused, what))
