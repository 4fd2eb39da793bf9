"""Permissions in vhosts, and of topics: administrators' alone."""

from collections.abc import Iterable
from dataclasses import asdict

from ottermq.admin.api.call import CREATED, DONE, Call, Json, bad_request, existing, not_found
from ottermq.admin.api.listing import listing
from ottermq.admin.api.router import Route, Rule
from ottermq.admin.messages import Answer
from ottermq.auth import Permission, TopicPermission

Entry = Permission | TopicPermission


async def _listed(call: Call, entries: Iterable[Entry]) -> Answer:
    ordered = sorted(entries, key=lambda each: (each.vhost, each.user))
    return await listing(call, ordered, lambda each: asdict(each), lambda each: each.user)


async def all_of_them(call: Call) -> Answer:
    return await _listed(call, call.context.auth.permissions.entries())


async def of_user(call: Call) -> Answer:
    user = existing(call.context.auth.users.get(call.path["user"]))
    return await _listed(call, call.context.auth.permissions.entries(user=user.name))


async def of_vhost(call: Call) -> Answer:
    return await _listed(call, call.context.auth.permissions.entries(vhost=call.vhost))


def one(call: Call) -> Json:
    found = call.context.auth.permissions.entries(call.path["user"], call.path["host"])
    if not found:
        raise not_found()
    return asdict(found[0])


def _check_ends(call: Call) -> tuple[str, str]:
    user, vhost = call.path["user"], call.path["host"]
    if vhost not in call.context.topology.vhosts or call.context.auth.users.get(user) is None:
        raise bad_request("vhost_or_user_not_found")
    return user, vhost


async def put(call: Call) -> Answer:
    user, vhost = _check_ends(call)
    body, permissions = call.body(), call.context.auth.permissions
    is_new = not permissions.entries(user, vhost)
    entry = Permission(user, vhost, body.text("configure"), body.text("write"), body.text("read"))
    if await permissions.set(entry):
        call.audit("permission.set", user, vhost=vhost)
    return CREATED if is_new else DONE


async def delete(call: Call) -> Answer:
    user, vhost = call.path["user"], call.path["host"]
    if not await call.context.auth.permissions.clear(user, vhost):
        raise not_found()
    call.audit("permission.clear", user, vhost=vhost)
    return DONE


async def all_topics(call: Call) -> Answer:
    return await _listed(call, call.context.auth.permissions.topic_entries())


async def topics_of_user(call: Call) -> Answer:
    user = existing(call.context.auth.users.get(call.path["user"]))
    return await _listed(call, call.context.auth.permissions.topic_entries(user=user.name))


async def topics_of_vhost(call: Call) -> Answer:
    return await _listed(call, call.context.auth.permissions.topic_entries(vhost=call.vhost))


async def topics(call: Call) -> Answer:
    """Of a user in a vhost, perhaps for one exchange: a list in any case."""
    found = call.context.auth.permissions.topic_entries(call.path["user"], call.path["host"])
    exchange = call.path.get("exchange")
    found = [each for each in found if exchange in (None, each.exchange)]
    if not found:
        raise not_found()
    return await _listed(call, found)


async def put_topic(call: Call) -> Answer:
    user, vhost = _check_ends(call)
    body, permissions = call.body(), call.context.auth.permissions
    exchange = body.text("exchange")
    known = permissions.topic_entries(user, vhost)
    entry = TopicPermission(user, vhost, exchange, body.text("write"), body.text("read"))
    if await permissions.set_topic(entry):
        call.audit("topic_permission.set", user, vhost=vhost, exchange=exchange)
    return DONE if any(each.exchange == exchange for each in known) else CREATED


async def delete_topic(call: Call) -> Answer:
    user, vhost, exchange = call.path["user"], call.path["host"], call.path.get("exchange")
    if not await call.context.auth.permissions.clear_topic(user, vhost, exchange):
        raise not_found()
    call.audit("topic_permission.clear", user, vhost=vhost, exchange=exchange or "*")
    return DONE


ONLY = Rule.ADMINISTRATOR
ROUTES = (
    Route("permissions", ONLY, get=all_of_them),
    Route("permissions/{host}/{user}", ONLY, get=one, put=put, delete=delete),
    Route("users/{user}/permissions", ONLY, get=of_user),
    Route("vhosts/{vhost}/permissions", ONLY, get=of_vhost),
    Route("topic-permissions", ONLY, get=all_topics),
    Route("topic-permissions/{host}/{user}", ONLY, get=topics, put=put_topic, delete=delete_topic),
    Route("topic-permissions/{host}/{user}/{exchange}", ONLY, get=topics, delete=delete_topic),
    Route("users/{user}/topic-permissions", ONLY, get=topics_of_user),
    Route("vhosts/{vhost}/topic-permissions", ONLY, get=topics_of_vhost),
)
