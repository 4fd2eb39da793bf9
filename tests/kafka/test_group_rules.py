"""The classic group protocol, rule by rule."""

import time
from dataclasses import replace

from ottermq.kafka.errors import Error
from ottermq.kafka.groups.group import State
from ottermq.kafka.groups.member import Who
from ottermq.kafka.groups.settings import GroupSettings
from tests.kafka.hall import AT_ONCE, RANGE, Hall


def test_the_first_member_leads_and_gets_what_it_assigns() -> None:
    hall = Hall()
    joined = hall.join().answer
    assert (joined.error, joined.generation, joined.leader) == (Error.NONE, 1, joined.member_id)
    assert joined.protocol_type == "consumer" and joined.protocol == "range"
    assert joined.members == ((joined.member_id, None, b"topics"),)
    synced = hall.sync(joined.member_id, {joined.member_id: b"all of it"}).answer
    assert (synced.error, synced.assignment) == (Error.NONE, b"all of it")
    assert hall.group.state is State.STABLE


def test_a_member_gets_its_id_before_it_joins() -> None:
    hall = Hall()
    told = hall.join(needs_id=True).answer
    assert told.error is Error.MEMBER_ID_REQUIRED and told.member_id.startswith("c-")
    assert hall.group.state is State.EMPTY
    assert hall.join(told.member_id, needs_id=True).answer.error is Error.NONE


def test_an_id_that_nobody_joins_with_is_forgotten() -> None:
    hall = Hall()
    told = hall.join(needs_id=True).answer
    hall.wait(11)
    assert hall.join(told.member_id).answer.error is Error.UNKNOWN_MEMBER_ID


def test_a_round_waits_for_an_id_that_was_given() -> None:
    hall = Hall()
    [first] = hall.stable()
    promised = hall.join(needs_id=True).answer.member_id
    hall.join()
    again = hall.join(first)
    assert not again.answered
    hall.join(promised)
    assert len(again.answer.members) == 3


def test_a_round_goes_on_when_the_id_that_was_given_is_given_up() -> None:
    hall = Hall()
    [first] = hall.stable()
    promised = hall.join(needs_id=True).answer.member_id
    again = hall.join(first)
    assert not again.answered
    assert hall.group.leave([Who(promised)]) == [Error.NONE]
    assert again.answered


def test_a_round_ends_when_all_have_joined() -> None:
    hall = Hall()
    [first] = hall.stable()
    second = hall.join()
    assert not second.answered
    assert hall.heartbeat(first) is Error.REBALANCE_IN_PROGRESS
    led = hall.join(first).answer
    assert led.generation == second.answer.generation == 2
    assert led.leader == second.answer.leader == first
    assert {id for id, _, _ in led.members} == {first, second.answer.member_id}
    assert second.answer.members == ()


def test_who_does_not_join_in_time_is_out() -> None:
    hall = Hall()
    first, second = hall.stable(2)
    third = hall.join()
    hall.join(second)
    for _ in range(11):
        hall.wait(5)
        hall.heartbeat(first, generation=2)  # alive, but busy
    assert not third.answered
    hall.wait(6)
    assert third.answer.generation == 3
    assert third.answer.leader in (second, third.answer.member_id)
    assert hall.heartbeat(first) is Error.UNKNOWN_MEMBER_ID


def test_the_longest_rebalance_time_out_counts() -> None:
    hall = Hall()
    [first] = hall.stable(rebalance_timeout=100.0)
    second = hall.join(rebalance_timeout=20.0)
    for _ in range(11):
        hall.wait(9)
        hall.heartbeat(first)
    assert not second.answered
    hall.wait(2)
    assert second.answered


def test_a_silent_member_is_out_and_the_others_go_on() -> None:
    hall = Hall()
    first, second = hall.stable(2)
    for _ in range(3):
        hall.wait(4)
        hall.heartbeat(first)
    assert hall.group.state is State.PREPARING
    assert hall.heartbeat(second) is Error.UNKNOWN_MEMBER_ID
    assert hall.join(first).answer.generation == 3


def test_a_leader_that_is_gone_is_followed_by_another() -> None:
    hall = Hall()
    first, second = hall.stable(2)
    hall.group.leave([Who(first)])
    joined = hall.join(second).answer
    assert joined.leader == second and len(joined.members) == 1


def test_a_waiting_member_is_not_silent() -> None:
    hall = Hall()
    first, second = hall.stable(2, session_timeout=6.0)
    waiting = hall.join(first, protocols=(("range", b"other"),), session_timeout=6.0)
    for _ in range(4):
        hall.wait(5)
        hall.heartbeat(second)
    assert not waiting.answered
    hall.join(second)
    assert waiting.answer.error is Error.NONE


def test_a_new_member_whose_socket_died_does_not_hold_a_round_for_ever() -> None:
    settings = replace(AT_ONCE, new_member_timeout=20.0)
    hall = Hall(settings)
    [first] = hall.stable(rebalance_timeout=1000.0)
    lost = hall.join(rebalance_timeout=1000.0)
    for _ in range(5):
        hall.wait(5)
        hall.heartbeat(first)
    assert lost.answer.error is Error.UNKNOWN_MEMBER_ID
    assert len(hall.join(first).answer.members) == 1


def test_the_first_round_waits_a_little_for_others() -> None:
    hall = Hall(GroupSettings(initial_rebalance_delay=3))
    first = hall.join()
    hall.wait(2)
    second = hall.join()
    hall.wait(2)
    assert not first.answered  # it grew: another three seconds
    hall.wait(3)
    assert first.answer.generation == second.answer.generation == 1
    assert len(first.answer.members) == 2


def test_it_waits_no_longer_than_a_rebalance_may_take() -> None:
    hall = Hall(GroupSettings(initial_rebalance_delay=3))
    first = hall.join(rebalance_timeout=10.0)
    for _ in range(4):
        hall.wait(2.5)
        hall.join(rebalance_timeout=10.0)
    assert not first.answered
    hall.wait(1)
    assert first.answered


def test_all_leave_while_the_first_round_waits() -> None:
    hall = Hall(GroupSettings(initial_rebalance_delay=3))
    first = hall.join(needs_id=False)
    [member] = hall.group.roster
    hall.group.leave([Who(member.id)])
    assert first.answer.error is Error.UNKNOWN_MEMBER_ID
    hall.wait(4)
    assert hall.group.state is State.EMPTY


def test_the_protocol_that_most_like_best_and_all_can_speak_wins() -> None:
    hall = Hall(GroupSettings(initial_rebalance_delay=1))
    tickets = [
        hall.join(protocols=(("sticky", b""), ("range", b"1"), ("mine", b""))),
        hall.join(protocols=(("range", b"2"), ("sticky", b""))),
        hall.join(protocols=(("range", b"3"), ("sticky", b""))),
    ]
    hall.wait(2)
    hall.wait(2)
    assert {ticket.answer.protocol for ticket in tickets} == {"range"}
    leader = next(t.answer for t in tickets if t.answer.members)
    assert [data for _, _, data in leader.members] == [b"1", b"2", b"3"]


def test_who_speaks_nothing_that_the_others_speak_is_refused() -> None:
    hall = Hall()
    hall.stable()
    refused = Error.INCONSISTENT_GROUP_PROTOCOL
    assert hall.join(protocols=(("roundrobin", b""),)).answer.error is refused
    assert hall.join(protocol_type="connect").answer.error is refused
    assert Hall().join(protocols=()).answer.error is refused
    assert Hall().join(protocol_type="").answer.error is refused


def test_a_group_of_connect_workers() -> None:
    hall = Hall()
    joined = hall.join(protocol_type="connect", protocols=(("sessioned", b"url"),)).answer
    assert (joined.protocol_type, joined.protocol) == ("connect", "sessioned")
    synced = hall.sync(joined.member_id, {}, protocol_type="connect", protocol="sessioned").answer
    assert synced.error is Error.NONE and synced.assignment == b""


def test_a_sync_for_another_protocol_is_refused() -> None:
    hall = Hall()
    id = hall.join().answer.member_id
    wrong = Error.INCONSISTENT_GROUP_PROTOCOL
    assert hall.sync(id, protocol="sticky").answer.error is wrong
    assert hall.sync(id, protocol_type="connect").answer.error is wrong


def test_followers_wait_for_the_leaders_assignment_to_be_on_disk() -> None:
    hall = Hall(instant_disk=False)
    first = hall.join().answer.member_id
    second = hall.join()
    hall.join(first)
    follower = second.answer.member_id
    following = hall.sync(follower)
    leading = hall.sync(first, {follower: b"half", first: b"other half", "stranger": b"x"})
    assert not following.answered and not leading.answered
    hall.finish_save()
    assert following.answer.assignment == b"half"
    assert leading.answer.assignment == b"other half"
    assert hall.saved[-1] == (2, {first: b"other half", follower: b"half"})


def test_an_assignment_that_did_not_reach_the_disk_means_another_round() -> None:
    hall = Hall(instant_disk=False)
    id = hall.join().answer.member_id
    synced = hall.sync(id, {id: b"x"})
    hall.finish_save(ok=False)
    assert synced.answer.error is Error.COORDINATOR_NOT_AVAILABLE
    assert hall.group.state is State.PREPARING
    assert hall.join(id).answer.generation == 2


def test_a_member_that_waited_long_for_its_share_is_still_watched_when_it_is_refused() -> None:
    hall = Hall(instant_disk=False)
    id = hall.join(instance_id="a").answer.member_id
    hall.sync(id, {}, instance_id="a")
    hall.wait(30)  # longer than its session
    hall.finish_save(ok=False)
    assert id in hall.group.roster
    hall.wait(100)
    assert hall.group.state is State.EMPTY


def test_somebody_comes_while_the_assignment_is_written() -> None:
    hall = Hall(instant_disk=False)
    id = hall.join().answer.member_id
    synced = hall.sync(id, {id: b"x"})
    hall.join()
    assert synced.answer.error is Error.REBALANCE_IN_PROGRESS
    hall.finish_save()
    assert hall.group.state is State.PREPARING


def test_members_that_never_sync_are_out() -> None:
    hall = Hall()
    first = hall.join(rebalance_timeout=20.0).answer.member_id
    second = hall.join(rebalance_timeout=20.0)
    hall.join(first, rebalance_timeout=20.0)
    synced = hall.sync(first)
    follower = second.answer.member_id
    assert synced.answer.error is Error.NONE
    for _ in range(5):
        hall.wait(4.1)
        hall.heartbeat(first)
        hall.heartbeat(follower)  # lives, but doesn't ask for its share
    assert hall.group.state is State.PREPARING
    assert hall.heartbeat(follower) is Error.UNKNOWN_MEMBER_ID


def test_a_lost_answer_is_told_again() -> None:
    hall = Hall()
    first, second = hall.stable(2)
    assert hall.join(second).answer.generation == 2
    assert hall.group.state is State.STABLE
    assert hall.sync(second).answer.assignment == second.encode()


def test_a_leader_that_joins_again_starts_a_round() -> None:
    hall = Hall()
    first, second = hall.stable(2)
    again = hall.join(first)
    assert not again.answered
    hall.join(second)
    assert again.answer.generation == 3


def test_a_member_with_other_topics_starts_a_round() -> None:
    hall = Hall()
    first, second = hall.stable(2)
    changed = hall.join(second, protocols=(("range", b"more topics"),))
    assert not changed.answered
    members = {id: data for id, _, data in hall.join(first).answer.members}
    assert members[second] == b"more topics"


def test_a_second_try_answers_the_first() -> None:
    hall = Hall()
    first, _ = hall.stable(2)
    one = hall.join(first)
    two = hall.join(first)
    assert one.answer.error is Error.REBALANCE_IN_PROGRESS
    assert not two.answered


def test_strangers_and_yesterdays_members_are_refused() -> None:
    hall = Hall()
    [first] = hall.stable()
    assert hall.heartbeat("nobody") is Error.UNKNOWN_MEMBER_ID
    assert hall.heartbeat(first, generation=0) is Error.ILLEGAL_GENERATION
    assert hall.sync("nobody").answer.error is Error.UNKNOWN_MEMBER_ID
    assert hall.sync(first, generation=7).answer.error is Error.ILLEGAL_GENERATION
    assert hall.join("nobody").answer.error is Error.UNKNOWN_MEMBER_ID
    assert hall.group.leave([Who("nobody")]) == [Error.UNKNOWN_MEMBER_ID]


def test_several_leave_at_once() -> None:
    hall = Hall()
    first, second, third = hall.stable(3)
    left = hall.group.leave([Who(first), Who("nobody"), Who(third), Who(third)])
    assert left == [Error.NONE, Error.UNKNOWN_MEMBER_ID, Error.NONE, Error.NONE]
    assert len(hall.join(second).answer.members) == 1


def test_the_last_one_leaves_an_empty_group_that_begins_again() -> None:
    hall = Hall()
    [first] = hall.stable()
    hall.group.leave([Who(first)])
    assert hall.group.state is State.EMPTY
    assert hall.saved[-1] == (2, {})
    assert hall.join(protocol_type="connect").answer.generation == 3


def test_a_group_has_a_largest_size() -> None:
    hall = Hall(replace(AT_ONCE, max_size=2))
    first, second = hall.stable(2)
    assert hall.join().answer.error is Error.GROUP_MAX_SIZE_REACHED
    hall.join(second, protocols=(("range", b"new"),))
    assert hall.join(first).answer.error is Error.NONE


# -- static members


def test_a_static_member_comes_back_to_its_assignment_without_a_round() -> None:
    hall = Hall()
    first = hall.join(instance_id="a").answer.member_id
    assert first.startswith("a-")
    hall.sync(first, {first: b"mine"}, instance_id="a")
    back = hall.join(instance_id="a").answer
    assert back.error is Error.NONE and back.generation == 1 and back.member_id != first
    assert back.skip_assignment and back.members == ((back.member_id, "a", b"topics"),)
    assert hall.group.state is State.STABLE
    assert hall.sync(back.member_id, instance_id="a").answer.assignment == b"mine"
    assert hall.saved[-1] == (1, {back.member_id: b"mine"})


def test_an_older_client_that_comes_back_is_not_told_to_lead() -> None:
    hall = Hall()
    first = hall.join(instance_id="a", may_skip=False).answer.member_id
    hall.sync(first, {first: b"mine"})
    back = hall.join(instance_id="a", may_skip=False).answer
    assert back.leader == first and back.members == () and not back.skip_assignment


def test_the_old_self_of_a_static_member_is_fenced_off() -> None:
    hall = Hall()
    first = hall.join(instance_id="a").answer.member_id
    hall.sync(first, {})
    hall.join(instance_id="a")
    assert hall.heartbeat(first, instance_id="a") is Error.FENCED_INSTANCE_ID
    assert hall.sync(first, instance_id="a").answer.error is Error.FENCED_INSTANCE_ID
    assert hall.join(first, instance_id="a").answer.error is Error.FENCED_INSTANCE_ID
    assert hall.group.leave([Who(first, instance_id="a")]) == [Error.FENCED_INSTANCE_ID]
    assert hall.group.may_commit(Who(first, 1, "a")) is Error.FENCED_INSTANCE_ID
    assert hall.heartbeat(first, instance_id="b") is Error.UNKNOWN_MEMBER_ID


def test_a_static_member_that_waits_is_fenced_when_its_double_joins() -> None:
    hall = Hall()
    [other] = hall.stable()
    waiting = hall.join(instance_id="a")
    double = hall.join(instance_id="a")
    assert waiting.answer.error is Error.FENCED_INSTANCE_ID
    hall.join(other)
    assert double.answer.error is Error.NONE


def test_a_static_member_that_speaks_other_protocols_starts_a_round() -> None:
    hall = Hall()
    first = hall.join(instance_id="a", protocols=(*RANGE, ("sticky", b""))).answer.member_id
    hall.sync(first, {})
    back = hall.join(instance_id="a", protocols=(("sticky", b""),))
    assert back.answer.generation == 2


def test_a_static_member_that_comes_back_during_a_sync_starts_a_round() -> None:
    hall = Hall()
    hall.join(instance_id="a")
    assert hall.group.state is State.COMPLETING
    assert hall.join(instance_id="a").answer.generation == 2


def test_a_static_member_that_is_away_stays_until_its_session_ends() -> None:
    hall = Hall()
    away = hall.join(instance_id="a", session_timeout=100.0).answer.member_id
    second = hall.join()
    hall.join(away, instance_id="a", session_timeout=100.0)
    ids = [away, second.answer.member_id]
    for id in ids:
        hall.sync(id, {})
    third = hall.join(rebalance_timeout=10.0)
    hall.join(ids[1], rebalance_timeout=10.0)
    for _ in range(13):
        hall.wait(4.9)
    assert third.answer.generation == 3
    assert away in hall.group.roster
    assert third.answer.leader != away


def test_an_operator_removes_a_static_member_by_its_instance() -> None:
    hall = Hall()
    hall.join(instance_id="a")
    assert hall.group.leave([Who("", instance_id="b")]) == [Error.UNKNOWN_MEMBER_ID]
    assert hall.group.leave([Who("", instance_id="a")]) == [Error.NONE]
    assert hall.group.state is State.EMPTY


# -- committing


def test_who_may_commit() -> None:
    hall = Hall()
    stranger = Who("")
    assert hall.group.may_commit(stranger) is Error.NONE  # nobody is in the group
    [first] = hall.stable()
    assert hall.group.may_commit(Who(first, 1)) is Error.NONE
    assert hall.group.may_commit(stranger) is Error.UNKNOWN_MEMBER_ID
    assert hall.group.may_commit(stranger, transactional=True) is Error.NONE
    assert hall.group.may_commit(Who("nobody", 1)) is Error.UNKNOWN_MEMBER_ID
    assert hall.group.may_commit(Who(first, 0)) is Error.ILLEGAL_GENERATION
    second = hall.join()
    assert hall.group.may_commit(Who(first, 1)) is Error.NONE  # before it joins again
    hall.join(first)
    assert hall.group.may_commit(Who(first, 2)) is Error.REBALANCE_IN_PROGRESS
    assert hall.group.may_commit(Who(second.answer.member_id, 2), True) is Error.NONE


def test_a_commit_is_as_good_as_a_heartbeat() -> None:
    hall = Hall()
    [first] = hall.stable()
    for _ in range(5):
        hall.wait(8)
        assert hall.group.may_commit(Who(first, 1)) is Error.NONE
    assert hall.group.state is State.STABLE


def test_the_cost_of_a_round_grows_with_the_members_and_not_with_their_square() -> None:
    def cost(count: int) -> float:
        hall = Hall(GroupSettings(initial_rebalance_delay=0, max_size=count))
        [first] = hall.stable()
        others = [hall.join() for _ in range(count - 1)]
        hall.join(first)
        ids = [first, *(each.answer.member_id for each in others)]
        began = time.process_time()
        again = [hall.join(id, protocols=(("range", b"other topics"),)) for id in ids]
        spent = time.process_time() - began
        assert all(ticket.answered for ticket in again)
        return spent

    # Four times as many take four times as long; sixteen times it was.
    assert min(cost(4000) for _ in range(3)) < 9 * min(cost(1000) for _ in range(3))
