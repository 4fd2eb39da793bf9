"""One transactional id by itself: what may follow what."""

from dataclasses import replace

import pytest

from ottermq.kafka.errors import Error, KafkaError
from ottermq.kafka.groups.records import Place
from ottermq.kafka.transactions.transaction import LAST_EPOCH, Producer, State, Transaction

ONE, TWO = frozenset({Place("t", 0)}), frozenset({Place("t", 1)})
NONE: frozenset[str] = frozenset()
EMPTY = Transaction("tx", Producer(7, 3), 1000)
ONGOING = EMPTY.joined(ONE, NONE, now=10)


def refusal(step: object) -> Error:
    with pytest.raises(KafkaError) as caught:
        step()  # type: ignore[operator]
    return caught.value.error


def test_the_first_partition_begins_it() -> None:
    assert ONGOING.state is State.ONGOING
    assert (ONGOING.partitions, ONGOING.started_ms) == (ONE, 10)


def test_more_partitions_join_without_another_beginning() -> None:
    more = ONGOING.joined(TWO, frozenset({"g"}), now=20)
    assert (more.partitions, more.groups) == (ONE | TWO, frozenset({"g"}))
    assert (more.started_ms, more.updated_ms) == (10, 20)


def test_what_is_part_of_it_already_changes_nothing() -> None:
    assert ONGOING.joined(ONE, NONE, now=20) is ONGOING


def test_it_ends_as_its_producer_wants() -> None:
    for commit, end in ((True, State.COMPLETE_COMMIT), (False, State.COMPLETE_ABORT)):
        decided = ONGOING.ending(commit, now=20)
        assert decided.is_prepared
        assert decided.commits == commit
        assert decided.partitions == ONE
        done = decided.ended(now=30)
        assert (done.state, done.partitions, done.started_ms) == (end, frozenset(), -1)


def test_an_end_that_is_asked_for_again_is_fine_and_another_one_is_not() -> None:
    done = ONGOING.ending(True, now=20).ended(now=30)
    assert done.ending(True, now=40) is done
    assert refusal(lambda: done.ending(False, now=40)) is Error.INVALID_TXN_STATE


def test_what_has_not_begun_cannot_end() -> None:
    assert refusal(lambda: EMPTY.ending(True, now=1)) is Error.INVALID_TXN_STATE


def test_while_it_is_being_ended_everybody_waits() -> None:
    decided = ONGOING.ending(True, now=20)
    assert refusal(lambda: decided.ending(True, now=30)) is Error.CONCURRENT_TRANSACTIONS
    assert refusal(lambda: decided.ending(False, now=30)) is Error.INVALID_TXN_STATE
    assert refusal(lambda: decided.joined(TWO, NONE, now=30)) is Error.CONCURRENT_TRANSACTIONS


def test_the_next_one_begins_with_nothing() -> None:
    done = ONGOING.ending(True, now=20).ended(now=30)
    assert done.joined(TWO, NONE, now=40).partitions == TWO


def test_only_its_own_producer_may() -> None:
    ONGOING.check(Producer(7, 3))
    assert refusal(lambda: ONGOING.check(Producer(8, 3))) is Error.INVALID_PRODUCER_ID_MAPPING
    for epoch in (2, 4):
        assert refusal(lambda e=epoch: ONGOING.check(Producer(7, e))) is Error.PRODUCER_FENCED


def test_giving_up_fences_its_producer() -> None:
    given_up = ONGOING.given_up(now=20)
    assert (given_up.state, given_up.producer) == (State.PREPARE_ABORT, Producer(7, 4))


def test_who_asks_for_the_next_epoch_must_be_the_last_one_or_begin_anew() -> None:
    renewed = EMPTY.renewed(Producer(7, 4), 3, 1000, now=5)
    renewed.check_renewal(None)
    renewed.check_renewal(Producer(7, 4))
    renewed.check_renewal(Producer(7, 3))
    assert renewed.is_renewed(Producer(7, 3))
    assert not renewed.is_renewed(Producer(7, 4))
    assert refusal(lambda: renewed.check_renewal(Producer(7, 2))) is Error.PRODUCER_FENCED
    assert refusal(lambda: renewed.check_renewal(Producer(6, 4))) is Error.PRODUCER_FENCED


def test_epochs_end_before_the_last_number_which_is_for_fencing() -> None:
    last = replace(EMPTY, producer=Producer(7, LAST_EPOCH))
    assert last.next_epoch() is None
    assert last.joined(ONE, NONE, now=1).given_up(now=2).producer.epoch == 32767


def test_it_is_the_same_after_the_disk() -> None:
    for each in (EMPTY, ONGOING, ONGOING.given_up(now=9), ONGOING.ending(True, 3).ended(now=4)):
        assert Transaction.decode("tx", each.encode()) == each
