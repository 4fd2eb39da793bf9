"""The classic group protocol, rule by rule."""

import time
from dataclasses import replace

from ottermq.kafka.errors import Error
from ottermq.kafka.groups.group import State
from ottermq.kafka.groups.member import MemberIdentity
from ottermq.kafka.groups.settings import GroupSettings
from tests.kafka.group_harness import AT_ONCE, RANGE, GroupHarness


def test_the_first_member_leads_and_gets_what_it_assigns() -> None:
    harness = GroupHarness()
    joined = harness.join().answer
    assert (joined.error, joined.generation, joined.leader) == (Error.NONE, 1, joined.member_id)
    assert joined.protocol_type == "consumer" and joined.protocol == "range"
    assert joined.members == ((joined.member_id, None, b"topics"),)
    synced = harness.sync(joined.member_id, {joined.member_id: b"all of it"}).answer
    assert (synced.error, synced.assignment) == (Error.NONE, b"all of it")
    assert harness.group.state is State.STABLE


def test_a_member_gets_its_id_before_it_joins() -> None:
    harness = GroupHarness()
    told = harness.join(needs_id=True).answer
    assert told.error is Error.MEMBER_ID_REQUIRED and told.member_id.startswith("c-")
    assert harness.group.state is State.EMPTY
    assert harness.join(told.member_id, needs_id=True).answer.error is Error.NONE


def test_an_id_that_nobody_joins_with_is_forgotten() -> None:
    harness = GroupHarness()
    told = harness.join(needs_id=True).answer
    harness.wait(11)
    assert harness.join(told.member_id).answer.error is Error.UNKNOWN_MEMBER_ID


def test_a_round_waits_for_an_id_that_was_given() -> None:
    harness = GroupHarness()
    [first] = harness.stable()
    promised = harness.join(needs_id=True).answer.member_id
    harness.join()
    again = harness.join(first)
    assert not again.answered
    harness.join(promised)
    assert len(again.answer.members) == 3


def test_a_round_goes_on_when_the_id_that_was_given_is_given_up() -> None:
    harness = GroupHarness()
    [first] = harness.stable()
    promised = harness.join(needs_id=True).answer.member_id
    again = harness.join(first)
    assert not again.answered
    assert harness.group.leave([MemberIdentity(promised)]) == [Error.NONE]
    assert again.answered


def test_a_round_ends_when_all_have_joined() -> None:
    harness = GroupHarness()
    [first] = harness.stable()
    second = harness.join()
    assert not second.answered
    assert harness.heartbeat(first) is Error.REBALANCE_IN_PROGRESS
    led = harness.join(first).answer
    assert led.generation == second.answer.generation == 2
    assert led.leader == second.answer.leader == first
    assert {id for id, _, _ in led.members} == {first, second.answer.member_id}
    assert second.answer.members == ()


def test_who_does_not_join_in_time_is_out() -> None:
    harness = GroupHarness()
    first, second = harness.stable(2)
    third = harness.join()
    harness.join(second)
    for _ in range(11):
        harness.wait(5)
        harness.heartbeat(first, generation=2)  # alive, but busy
    assert not third.answered
    harness.wait(6)
    assert third.answer.generation == 3
    assert third.answer.leader in (second, third.answer.member_id)
    assert harness.heartbeat(first) is Error.UNKNOWN_MEMBER_ID


def test_the_longest_rebalance_time_out_counts() -> None:
    harness = GroupHarness()
    [first] = harness.stable(rebalance_timeout=100.0)
    second = harness.join(rebalance_timeout=20.0)
    for _ in range(11):
        harness.wait(9)
        harness.heartbeat(first)
    assert not second.answered
    harness.wait(2)
    assert second.answered


def test_a_silent_member_is_out_and_the_others_go_on() -> None:
    harness = GroupHarness()
    first, second = harness.stable(2)
    for _ in range(3):
        harness.wait(4)
        harness.heartbeat(first)
    assert harness.group.state is State.PREPARING
    assert harness.heartbeat(second) is Error.UNKNOWN_MEMBER_ID
    assert harness.join(first).answer.generation == 3


def test_a_leader_that_is_gone_is_followed_by_another() -> None:
    harness = GroupHarness()
    first, second = harness.stable(2)
    harness.group.leave([MemberIdentity(first)])
    joined = harness.join(second).answer
    assert joined.leader == second and len(joined.members) == 1


def test_a_waiting_member_is_not_silent() -> None:
    harness = GroupHarness()
    first, second = harness.stable(2, session_timeout=6.0)
    waiting = harness.join(first, protocols=(("range", b"other"),), session_timeout=6.0)
    for _ in range(4):
        harness.wait(5)
        harness.heartbeat(second)
    assert not waiting.answered
    harness.join(second)
    assert waiting.answer.error is Error.NONE


def test_a_new_member_whose_socket_died_does_not_hold_a_round_for_ever() -> None:
    settings = replace(AT_ONCE, new_member_timeout=20.0)
    harness = GroupHarness(settings)
    [first] = harness.stable(rebalance_timeout=1000.0)
    lost = harness.join(rebalance_timeout=1000.0)
    for _ in range(5):
        harness.wait(5)
        harness.heartbeat(first)
    assert lost.answer.error is Error.UNKNOWN_MEMBER_ID
    assert len(harness.join(first).answer.members) == 1


def test_the_first_round_waits_a_little_for_others() -> None:
    harness = GroupHarness(GroupSettings(initial_rebalance_delay=3))
    first = harness.join()
    harness.wait(2)
    second = harness.join()
    harness.wait(2)
    assert not first.answered  # it grew: another three seconds
    harness.wait(3)
    assert first.answer.generation == second.answer.generation == 1
    assert len(first.answer.members) == 2


def test_it_waits_no_longer_than_a_rebalance_may_take() -> None:
    harness = GroupHarness(GroupSettings(initial_rebalance_delay=3))
    first = harness.join(rebalance_timeout=10.0)
    for _ in range(4):
        harness.wait(2.5)
        harness.join(rebalance_timeout=10.0)
    assert not first.answered
    harness.wait(1)
    assert first.answered


def test_all_leave_while_the_first_round_waits() -> None:
    harness = GroupHarness(GroupSettings(initial_rebalance_delay=3))
    first = harness.join(needs_id=False)
    [member] = harness.group.roster
    harness.group.leave([MemberIdentity(member.id)])
    assert first.answer.error is Error.UNKNOWN_MEMBER_ID
    harness.wait(4)
    assert harness.group.state is State.EMPTY


def test_the_protocol_that_most_like_best_and_all_can_speak_wins() -> None:
    harness = GroupHarness(GroupSettings(initial_rebalance_delay=1))
    tickets = [
        harness.join(protocols=(("sticky", b""), ("range", b"1"), ("mine", b""))),
        harness.join(protocols=(("range", b"2"), ("sticky", b""))),
        harness.join(protocols=(("range", b"3"), ("sticky", b""))),
    ]
    harness.wait(2)
    harness.wait(2)
    assert {ticket.answer.protocol for ticket in tickets} == {"range"}
    leader = next(t.answer for t in tickets if t.answer.members)
    assert [data for _, _, data in leader.members] == [b"1", b"2", b"3"]


def test_who_speaks_nothing_that_the_others_speak_is_refused() -> None:
    harness = GroupHarness()
    harness.stable()
    refused = Error.INCONSISTENT_GROUP_PROTOCOL
    assert harness.join(protocols=(("roundrobin", b""),)).answer.error is refused
    assert harness.join(protocol_type="connect").answer.error is refused
    assert GroupHarness().join(protocols=()).answer.error is refused
    assert GroupHarness().join(protocol_type="").answer.error is refused


def test_a_group_of_connect_workers() -> None:
    harness = GroupHarness()
    joined = harness.join(protocol_type="connect", protocols=(("sessioned", b"url"),)).answer
    assert (joined.protocol_type, joined.protocol) == ("connect", "sessioned")
    synced = harness.sync(
        joined.member_id, {}, protocol_type="connect", protocol="sessioned"
    ).answer
    assert synced.error is Error.NONE and synced.assignment == b""


def test_a_sync_for_another_protocol_is_refused() -> None:
    harness = GroupHarness()
    id = harness.join().answer.member_id
    wrong = Error.INCONSISTENT_GROUP_PROTOCOL
    assert harness.sync(id, protocol="sticky").answer.error is wrong
    assert harness.sync(id, protocol_type="connect").answer.error is wrong


def test_followers_wait_for_the_leaders_assignment_to_be_on_disk() -> None:
    harness = GroupHarness(instant_disk=False)
    first = harness.join().answer.member_id
    second = harness.join()
    harness.join(first)
    follower = second.answer.member_id
    following = harness.sync(follower)
    leading = harness.sync(first, {follower: b"half", first: b"other half", "stranger": b"x"})
    assert not following.answered and not leading.answered
    harness.finish_save()
    assert following.answer.assignment == b"half"
    assert leading.answer.assignment == b"other half"
    assert harness.saved[-1] == (2, {first: b"other half", follower: b"half"})


def test_an_assignment_that_did_not_reach_the_disk_means_another_round() -> None:
    harness = GroupHarness(instant_disk=False)
    id = harness.join().answer.member_id
    synced = harness.sync(id, {id: b"x"})
    harness.finish_save(ok=False)
    assert synced.answer.error is Error.COORDINATOR_NOT_AVAILABLE
    assert harness.group.state is State.PREPARING
    assert harness.join(id).answer.generation == 2


def test_a_member_that_waited_long_for_its_share_is_still_watched_when_it_is_refused() -> None:
    harness = GroupHarness(instant_disk=False)
    id = harness.join(instance_id="a").answer.member_id
    harness.sync(id, {}, instance_id="a")
    harness.wait(30)  # longer than its session
    harness.finish_save(ok=False)
    assert id in harness.group.roster
    harness.wait(100)
    assert harness.group.state is State.EMPTY


def test_somebody_comes_while_the_assignment_is_written() -> None:
    harness = GroupHarness(instant_disk=False)
    id = harness.join().answer.member_id
    synced = harness.sync(id, {id: b"x"})
    harness.join()
    assert synced.answer.error is Error.REBALANCE_IN_PROGRESS
    harness.finish_save()
    assert harness.group.state is State.PREPARING


def test_members_that_never_sync_are_out() -> None:
    harness = GroupHarness()
    first = harness.join(rebalance_timeout=20.0).answer.member_id
    second = harness.join(rebalance_timeout=20.0)
    harness.join(first, rebalance_timeout=20.0)
    synced = harness.sync(first)
    follower = second.answer.member_id
    assert synced.answer.error is Error.NONE
    for _ in range(5):
        harness.wait(4.1)
        harness.heartbeat(first)
        harness.heartbeat(follower)  # lives, but doesn't ask for its share
    assert harness.group.state is State.PREPARING
    assert harness.heartbeat(follower) is Error.UNKNOWN_MEMBER_ID


def test_a_lost_answer_is_told_again() -> None:
    harness = GroupHarness()
    first, second = harness.stable(2)
    assert harness.join(second).answer.generation == 2
    assert harness.group.state is State.STABLE
    assert harness.sync(second).answer.assignment == second.encode()


def test_a_leader_that_joins_again_starts_a_round() -> None:
    harness = GroupHarness()
    first, second = harness.stable(2)
    again = harness.join(first)
    assert not again.answered
    harness.join(second)
    assert again.answer.generation == 3


def test_a_member_with_other_topics_starts_a_round() -> None:
    harness = GroupHarness()
    first, second = harness.stable(2)
    changed = harness.join(second, protocols=(("range", b"more topics"),))
    assert not changed.answered
    members = {id: data for id, _, data in harness.join(first).answer.members}
    assert members[second] == b"more topics"


def test_a_second_try_answers_the_first() -> None:
    harness = GroupHarness()
    first, _ = harness.stable(2)
    one = harness.join(first)
    two = harness.join(first)
    assert one.answer.error is Error.REBALANCE_IN_PROGRESS
    assert not two.answered


def test_strangers_and_yesterdays_members_are_refused() -> None:
    harness = GroupHarness()
    [first] = harness.stable()
    assert harness.heartbeat("nobody") is Error.UNKNOWN_MEMBER_ID
    assert harness.heartbeat(first, generation=0) is Error.ILLEGAL_GENERATION
    assert harness.sync("nobody").answer.error is Error.UNKNOWN_MEMBER_ID
    assert harness.sync(first, generation=7).answer.error is Error.ILLEGAL_GENERATION
    assert harness.join("nobody").answer.error is Error.UNKNOWN_MEMBER_ID
    assert harness.group.leave([MemberIdentity("nobody")]) == [Error.UNKNOWN_MEMBER_ID]


def test_several_leave_at_once() -> None:
    harness = GroupHarness()
    first, second, third = harness.stable(3)
    left = harness.group.leave(
        [
            MemberIdentity(first),
            MemberIdentity("nobody"),
            MemberIdentity(third),
            MemberIdentity(third),
        ]
    )
    assert left == [Error.NONE, Error.UNKNOWN_MEMBER_ID, Error.NONE, Error.NONE]
    assert len(harness.join(second).answer.members) == 1


def test_the_last_one_leaves_an_empty_group_that_begins_again() -> None:
    harness = GroupHarness()
    [first] = harness.stable()
    harness.group.leave([MemberIdentity(first)])
    assert harness.group.state is State.EMPTY
    assert harness.saved[-1] == (2, {})
    assert harness.join(protocol_type="connect").answer.generation == 3


def test_a_group_has_a_largest_size() -> None:
    harness = GroupHarness(replace(AT_ONCE, max_size=2))
    first, second = harness.stable(2)
    assert harness.join().answer.error is Error.GROUP_MAX_SIZE_REACHED
    harness.join(second, protocols=(("range", b"new"),))
    assert harness.join(first).answer.error is Error.NONE


# -- static members


def test_a_static_member_comes_back_to_its_assignment_without_a_round() -> None:
    harness = GroupHarness()
    first = harness.join(instance_id="a").answer.member_id
    assert first.startswith("a-")
    harness.sync(first, {first: b"mine"}, instance_id="a")
    back = harness.join(instance_id="a").answer
    assert back.error is Error.NONE and back.generation == 1 and back.member_id != first
    assert back.skip_assignment and back.members == ((back.member_id, "a", b"topics"),)
    assert harness.group.state is State.STABLE
    assert harness.sync(back.member_id, instance_id="a").answer.assignment == b"mine"
    assert harness.saved[-1] == (1, {back.member_id: b"mine"})


def test_an_older_client_that_comes_back_is_not_told_to_lead() -> None:
    harness = GroupHarness()
    first = harness.join(instance_id="a", may_skip=False).answer.member_id
    harness.sync(first, {first: b"mine"})
    back = harness.join(instance_id="a", may_skip=False).answer
    assert back.leader == first and back.members == () and not back.skip_assignment


def test_the_old_self_of_a_static_member_is_fenced_off() -> None:
    harness = GroupHarness()
    first = harness.join(instance_id="a").answer.member_id
    harness.sync(first, {})
    harness.join(instance_id="a")
    assert harness.heartbeat(first, instance_id="a") is Error.FENCED_INSTANCE_ID
    assert harness.sync(first, instance_id="a").answer.error is Error.FENCED_INSTANCE_ID
    assert harness.join(first, instance_id="a").answer.error is Error.FENCED_INSTANCE_ID
    assert harness.group.leave([MemberIdentity(first, instance_id="a")]) == [
        Error.FENCED_INSTANCE_ID
    ]
    assert harness.group.may_commit(MemberIdentity(first, 1, "a")) is Error.FENCED_INSTANCE_ID
    assert harness.heartbeat(first, instance_id="b") is Error.UNKNOWN_MEMBER_ID


def test_a_static_member_that_waits_is_fenced_when_its_double_joins() -> None:
    harness = GroupHarness()
    [other] = harness.stable()
    waiting = harness.join(instance_id="a")
    double = harness.join(instance_id="a")
    assert waiting.answer.error is Error.FENCED_INSTANCE_ID
    harness.join(other)
    assert double.answer.error is Error.NONE


def test_a_static_member_that_speaks_other_protocols_starts_a_round() -> None:
    harness = GroupHarness()
    first = harness.join(instance_id="a", protocols=(*RANGE, ("sticky", b""))).answer.member_id
    harness.sync(first, {})
    back = harness.join(instance_id="a", protocols=(("sticky", b""),))
    assert back.answer.generation == 2


def test_a_static_member_that_comes_back_during_a_sync_starts_a_round() -> None:
    harness = GroupHarness()
    harness.join(instance_id="a")
    assert harness.group.state is State.COMPLETING
    assert harness.join(instance_id="a").answer.generation == 2


def test_a_static_member_that_is_away_stays_until_its_session_ends() -> None:
    harness = GroupHarness()
    away = harness.join(instance_id="a", session_timeout=100.0).answer.member_id
    second = harness.join()
    harness.join(away, instance_id="a", session_timeout=100.0)
    ids = [away, second.answer.member_id]
    for id in ids:
        harness.sync(id, {})
    third = harness.join(rebalance_timeout=10.0)
    harness.join(ids[1], rebalance_timeout=10.0)
    for _ in range(13):
        harness.wait(4.9)
    assert third.answer.generation == 3
    assert away in harness.group.roster
    assert third.answer.leader != away


def test_an_operator_removes_a_static_member_by_its_instance() -> None:
    harness = GroupHarness()
    harness.join(instance_id="a")
    assert harness.group.leave([MemberIdentity("", instance_id="b")]) == [Error.UNKNOWN_MEMBER_ID]
    assert harness.group.leave([MemberIdentity("", instance_id="a")]) == [Error.NONE]
    assert harness.group.state is State.EMPTY


# -- committing


def test_who_may_commit() -> None:
    harness = GroupHarness()
    stranger = MemberIdentity("")
    assert harness.group.may_commit(stranger) is Error.NONE  # nobody is in the group
    [first] = harness.stable()
    assert harness.group.may_commit(MemberIdentity(first, 1)) is Error.NONE
    assert harness.group.may_commit(stranger) is Error.UNKNOWN_MEMBER_ID
    assert harness.group.may_commit(stranger, transactional=True) is Error.NONE
    assert harness.group.may_commit(MemberIdentity("nobody", 1)) is Error.UNKNOWN_MEMBER_ID
    assert harness.group.may_commit(MemberIdentity(first, 0)) is Error.ILLEGAL_GENERATION
    second = harness.join()
    assert harness.group.may_commit(MemberIdentity(first, 1)) is Error.NONE  # before it joins again
    harness.join(first)
    assert harness.group.may_commit(MemberIdentity(first, 2)) is Error.REBALANCE_IN_PROGRESS
    assert harness.group.may_commit(MemberIdentity(second.answer.member_id, 2), True) is Error.NONE


def test_a_commit_is_as_good_as_a_heartbeat() -> None:
    harness = GroupHarness()
    [first] = harness.stable()
    for _ in range(5):
        harness.wait(8)
        assert harness.group.may_commit(MemberIdentity(first, 1)) is Error.NONE
    assert harness.group.state is State.STABLE


def test_the_cost_of_a_round_grows_with_the_members_and_not_with_their_square() -> None:
    def cost(count: int) -> float:
        harness = GroupHarness(GroupSettings(initial_rebalance_delay=0, max_size=count))
        [first] = harness.stable()
        others = [harness.join() for _ in range(count - 1)]
        harness.join(first)
        ids = [first, *(each.answer.member_id for each in others)]
        began = time.process_time()
        again = [harness.join(id, protocols=(("range", b"other topics"),)) for id in ids]
        spent = time.process_time() - began
        assert all(ticket.answered for ticket in again)
        return spent

    # Four times as many take four times as long; sixteen times it was.
    assert min(cost(4000) for _ in range(3)) < 9 * min(cost(1000) for _ in range(3))
