"""Permissions: RabbitMQ's rules and its very words."""

import pytest

from ottermq.auth import Permission, TopicPermission
from ottermq.errors import AccessRefused, InvalidRequest, NotAllowed, NotFound, codes_of
from ottermq.patterns import compiled
from tests.auth.auth_harness import Memory, new_auth, with_user


async def test_each_kind_of_access_has_its_own_expression() -> None:
    auth = new_auth()
    user = await with_user(auth, "u", "^own-", "^out$", ".*")
    allows = auth.permissions.allows
    assert allows(user, "/", "configure", "queue", "own-1")
    assert not allows(user, "/", "configure", "queue", "not-own-1")
    assert allows(user, "/", "write", "exchange", "out")
    assert not allows(user, "/", "write", "exchange", "outer")
    assert allows(user, "/", "read", "queue", "anything")


async def test_an_expression_is_searched_for_anywhere_in_the_name() -> None:
    auth = new_auth()
    user = await with_user(auth, "u", "art", "", "")
    assert auth.permissions.allows(user, "/", "configure", "queue", "a party")


async def test_an_empty_expression_allows_only_an_empty_name() -> None:
    auth = new_auth()
    user = await with_user(auth, "u", "", "", "")
    for name in ("a", "amq.default"):
        assert not auth.permissions.allows(user, "/", "read", "queue", name)


async def test_the_default_exchange_is_asked_for_as_amq_default() -> None:
    auth = new_auth()
    user = await with_user(auth, "u", "", r"^amq\.default$", "")
    auth.permissions.check(user, "/", "write", "exchange", "")
    stranger = await with_user(auth, "s", "", "^$", "")
    with pytest.raises(AccessRefused, match="exchange 'amq.default' in vhost '/' refused"):
        auth.permissions.check(stranger, "/", "write", "exchange", "")


async def test_a_refusal_is_in_rabbitmqs_words() -> None:
    auth = new_auth()
    user = await with_user(auth, "u", "", "", "")
    with pytest.raises(AccessRefused) as caught:
        auth.permissions.check(user, "/", "configure", "queue", "q")
    assert str(caught.value) == "configure access to queue 'q' in vhost '/' refused for user 'u'"
    assert codes_of(caught.value).amqp == 403


async def test_a_vhost_without_a_permission_is_refused_and_one_that_is_not_there_too() -> None:
    auth = new_auth()
    user = await with_user(auth, "u", "", "", "")
    auth.permissions.check_vhost(user, "/")
    with pytest.raises(NotAllowed) as caught:
        auth.permissions.check_vhost(user, "x")
    assert str(caught.value) == "access to vhost 'x' refused for user 'u'"
    assert codes_of(caught.value).amqp == 530
    with pytest.raises(NotAllowed) as caught:
        auth.permissions.check_vhost(user, "x", exists=False)
    assert str(caught.value) == "vhost x not found"
    assert not auth.permissions.allows(user, "x", "read", "queue", "q")


async def test_a_topic_without_an_entry_is_free() -> None:
    auth = new_auth()
    user = await with_user(auth, "u", ".*", ".*", ".*")
    assert not auth.permissions.has_topic_permissions(user, "/", "amq.topic")
    auth.permissions.check_topic(user, "/", "amq.topic", "write", "any.key")


async def test_a_topic_permission_narrows_the_routing_keys_of_one_exchange() -> None:
    auth = new_auth()
    user = await with_user(auth, "u", ".*", ".*", ".*")
    await auth.permissions.set_topic(TopicPermission("u", "/", "amq.topic", "^eu\\.", ".*"))
    assert auth.permissions.has_topic_permissions(user, "/", "amq.topic")
    auth.permissions.check_topic(user, "/", "amq.topic", "write", "eu.stock")
    auth.permissions.check_topic(user, "/", "amq.topic", "read", "us.stock")
    auth.permissions.check_topic(user, "/", "other", "write", "us.stock")
    with pytest.raises(AccessRefused) as caught:
        auth.permissions.check_topic(user, "/", "amq.topic", "write", "us.stock")
    assert str(caught.value) == (
        "write access to topic 'us.stock' in exchange topic 'amq.topic' in vhost '/'"
        " refused for user 'u'"
    )


async def test_a_topic_permission_may_name_the_user_and_the_vhost() -> None:
    auth = new_auth()
    await auth.users.put("a.b")
    user = auth.users.existing("a.b")
    await auth.permissions.set_topic(TopicPermission("a.b", "/", "t", r"^{vhost}\.{username}$", ""))
    assert auth.permissions.allows_topic(user, "/", "t", "write", "/.a.b")
    assert not auth.permissions.allows_topic(user, "/", "t", "write", "/.axb")  # no wildcard
    assert not auth.permissions.allows_topic(user, "/", "t", "read", "/.a.b")


@pytest.mark.parametrize("pattern", ["(", "*", "[a", "a{2,1}", "(?P<x>a)(?P<x>b)"])
async def test_what_is_no_expression_is_refused_when_it_is_set(pattern: str) -> None:
    auth = new_auth()
    await auth.users.put("u")
    with pytest.raises(InvalidRequest, match="invalid regular expression"):
        await auth.permissions.set(Permission("u", "/", ".*", pattern, ".*"))
    with pytest.raises(InvalidRequest):
        await auth.permissions.set_topic(TopicPermission("u", "/", "t", pattern, ""))
    assert auth.permissions.entries() == []


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        ("^[[:alpha:]]+$", "orders", True),
        ("^[[:alpha:]]+$", "orders1", False),
        ("^[[:alnum:]_]+\\z", "orders_1", True),
        ("a\\Z", "a\n", True),
        ("a\\z", "a\n", False),
        ("^(?!secret)", "secret.x", False),
        ("^(?i)Orders$".replace("^(?i)", "(?i)^"), "orders", True),
        ("^\\w+$", "größe", False),
        ("\\\\z", "a\\z", True),
        ("^a++b$", "aab", True),
    ],
)
def test_expressions_mean_what_they_mean_to_pcre(pattern: str, name: str, found: bool) -> None:
    assert (compiled(pattern).search(name) is not None) == found


async def test_grants_are_there_after_a_restart() -> None:
    disk = Memory()
    auth = new_auth(disk)
    await with_user(auth, "u", "a", "b", "c")
    await auth.permissions.set_topic(TopicPermission("u", "/", "t", "d", "e"))
    again = new_auth(disk)
    assert again.permissions.entries("u") == [Permission("u", "/", "a", "b", "c")]
    assert again.permissions.topic_entries("u") == [TopicPermission("u", "/", "t", "d", "e")]


async def test_what_was_taken_away_is_gone_now_and_after_a_restart() -> None:
    disk = Memory()
    auth = new_auth(disk)
    user = await with_user(auth, "u", ".*", ".*", ".*")
    await auth.permissions.set_topic(TopicPermission("u", "/", "t", "x", "x"))
    assert await auth.permissions.clear_topic("u", "/")
    assert await auth.permissions.clear("u", "/")
    assert not await auth.permissions.clear("u", "/")
    assert not await auth.permissions.clear_topic("u", "/")
    for now in (auth, new_auth(disk)):
        assert not now.permissions.has_vhost(user, "/")
        assert not now.permissions.has_topic_permissions(user, "/", "t")


async def test_a_user_made_anew_has_none_of_its_old_grants() -> None:
    disk = Memory()
    auth = new_auth(disk)
    await with_user(auth, "u", ".*", ".*", ".*")
    await auth.limits.set_user("u", "max-channels", 1)
    assert await auth.delete_user("u")
    assert not await auth.delete_user("u")
    for now in (auth, new_auth(disk)):
        user = await now.users.put("u")
        assert not now.permissions.has_vhost(user, "/")
        assert now.limits.of_user("u") == {}
        await now.delete_user("u")


async def test_a_vhost_made_anew_begins_without_grants_and_limits() -> None:
    disk = Memory()
    auth = new_auth(disk)
    user = await with_user(auth, "u", ".*", ".*", ".*")
    await auth.limits.set_vhost("/", "max-queues", 0)
    await auth.delete_vhost("/")
    for now in (auth, new_auth(disk)):
        assert not now.permissions.has_vhost(user, "/")
        assert now.limits.of_vhost("/") == {}


async def test_nobody_is_granted_anything_before_they_exist() -> None:
    auth = new_auth()
    with pytest.raises(NotFound, match="no user 'nobody'"):
        await auth.permissions.set(Permission("nobody", "/", "", "", ""))
    with pytest.raises(NotFound):
        await auth.permissions.set_topic(TopicPermission("nobody", "/", "t", "", ""))
    with pytest.raises(NotFound):
        await auth.limits.set_user("nobody", "max-channels", 1)


async def test_every_change_of_a_grant_is_told_once() -> None:
    auth = new_auth()
    told: list[tuple[str | None, str | None]] = []
    await auth.users.put("u")
    auth.on_change(lambda change: told.append((change.user, change.vhost)))
    for _ in range(2):  # the second time nothing changes
        await auth.permissions.set(Permission("u", "v", "", "", ""))
        await auth.permissions.set_topic(TopicPermission("u", "v", "t", "", ""))
    await auth.permissions.clear_topic("u", "v", "t")
    await auth.permissions.clear("u", "v")
    await auth.permissions.clear_vhost("w")
    assert told == [("u", "v")] * 4 + [(None, "w")]
