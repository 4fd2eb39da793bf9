"""Limits: RabbitMQ's numbers and its very words."""

import pytest

from ottermq.auth import User
from ottermq.errors import InvalidRequest, NotAllowed, PreconditionFailed, codes_of
from tests.auth.auth_harness import Memory, new_auth

ANN, BOB = User("ann"), User("bob")


async def test_without_a_limit_there_is_none() -> None:
    limits = new_auth().limits
    for _ in range(1000):
        limits.connection_opened(ANN, "/")
        limits.channel_opened(ANN, 5, 0)
    limits.check_queues("/", "q", 10**9)


async def test_a_vhost_takes_as_many_connections_as_it_may() -> None:
    limits = new_auth().limits
    await limits.set_vhost("/", "max-connections", 2)
    limits.connection_opened(ANN, "/")
    limits.connection_opened(BOB, "/")
    with pytest.raises(NotAllowed) as caught:
        limits.connection_opened(ANN, "/")
    assert str(caught.value) == (
        "access to vhost '/' refused for user 'ann': connection limit (2) is reached"
    )
    assert codes_of(caught.value).amqp == 530
    limits.connection_opened(ANN, "other")
    limits.connection_closed(BOB, "/")
    limits.connection_opened(ANN, "/")


async def test_a_user_has_as_many_connections_as_it_may_in_all_vhosts_together() -> None:
    auth = new_auth()
    await auth.users.put("ann")
    await auth.limits.set_user("ann", "max-connections", 1)
    auth.limits.connection_opened(ANN, "/")
    with pytest.raises(NotAllowed) as caught:
        auth.limits.connection_opened(ANN, "other")
    assert str(caught.value) == (
        "connection refused for user 'ann': user connection limit (1) is reached"
    )
    auth.limits.connection_opened(BOB, "/")


async def test_who_was_refused_is_not_counted() -> None:
    auth = new_auth()
    await auth.users.put("ann")
    await auth.limits.set_user("ann", "max-connections", 0)
    await auth.limits.set_vhost("/", "max-connections", 1)
    with pytest.raises(NotAllowed):
        auth.limits.connection_opened(ANN, "/")
    auth.limits.connection_opened(BOB, "/")


async def test_zero_means_none_and_a_negative_number_no_limit() -> None:
    limits = new_auth().limits
    await limits.set_vhost("/", "max-connections", 0)
    with pytest.raises(NotAllowed):
        limits.connection_opened(ANN, "/")
    await limits.set_vhost("/", "max-connections", -1)
    limits.connection_opened(ANN, "/")


async def test_channels_are_limited_a_connection_and_a_user() -> None:
    auth = new_auth()
    await auth.users.put("ann")
    with pytest.raises(NotAllowed) as caught:
        auth.limits.channel_opened(ANN, 2047, 2047)
    assert str(caught.value) == (
        "number of channels opened (2047) has reached the negotiated channel_max (2047)"
    )
    await auth.limits.set_user("ann", "max-channels", 1)
    auth.limits.channel_opened(ANN, 0, 2047)
    with pytest.raises(NotAllowed) as caught:
        auth.limits.channel_opened(ANN, 0, 2047)
    assert str(caught.value) == (
        "number of channels opened for user 'ann' has reached the maximum allowed user limit of (1)"
    )
    auth.limits.channel_closed(ANN)
    auth.limits.channel_opened(ANN, 0, 2047)


async def test_a_vhost_holds_as_many_queues_as_it_may() -> None:
    limits = new_auth().limits
    await limits.set_vhost("/", "max-queues", 3)
    limits.check_queues("/", "q", 2)
    with pytest.raises(PreconditionFailed) as caught:
        limits.check_queues("/", "q", 3)
    assert str(caught.value) == (
        "cannot declare queue 'q': queue limit in vhost '/' (3) is reached"
    )


async def test_limits_are_there_after_a_restart_until_they_are_cleared() -> None:
    disk = Memory()
    auth = new_auth(disk)
    await auth.users.put("ann")
    await auth.limits.set_user("ann", "max-channels", 7)
    await auth.limits.set_vhost("/", "max-queues", 9)
    again = new_auth(disk)
    assert again.limits.of_user("ann") == {"max-channels": 7}
    assert again.limits.of_vhost("/") == {"max-queues": 9}
    await again.limits.clear_user("ann")
    await again.limits.clear_vhost("/")
    for limits in (again.limits, new_auth(disk).limits):
        assert limits.of_user("ann") == limits.of_vhost("/") == {}


async def test_a_limit_that_is_so_already_is_no_change() -> None:
    disk = Memory()
    limits = new_auth(disk).limits
    await limits.set_vhost("/", "max-queues", 9)
    before = disk.commits
    await limits.set_vhost("/", "max-queues", 9)
    assert disk.commits == before


async def test_a_limit_nobody_knows_is_refused() -> None:
    limits = new_auth().limits
    with pytest.raises(InvalidRequest, match="max-connections or max-queues"):
        await limits.set_vhost("/", "max-everything", 1)


async def test_connections_that_closed_leave_nothing_behind() -> None:
    limits = new_auth().limits
    for number in range(100):
        user = User(f"u{number}")
        limits.connection_opened(user, "/")
        limits.channel_opened(user, 0, 0)
        limits.channel_closed(user)
        limits.connection_closed(user, "/")
    assert not limits._connections and not limits._channels
