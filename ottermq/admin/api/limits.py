"""Limits of vhosts and of users."""

from ottermq.admin.api.call import DONE, Call, Json, bad_request, existing, not_found
from ottermq.admin.api.listing import listing
from ottermq.admin.api.router import Route, Rule
from ottermq.admin.api.vhosts import entered
from ottermq.admin.messages import Answer


def _name(row: Json) -> str:
    return str(row.get("vhost") or row.get("user"))


async def _listed(call: Call, rows: list[Json]) -> Answer:
    return await listing(call, [each for each in rows if each["value"]], lambda each: each, _name)


def _of_vhost(call: Call, name: str) -> Json:
    return {"vhost": name, "value": call.context.auth.limits.of_vhost(name)}


def _of_user(call: Call, name: str) -> Json:
    return {"user": name, "value": call.context.auth.limits.of_user(name)}


async def of_vhosts(call: Call) -> Answer:
    return await _listed(call, [_of_vhost(call, name) for name in entered(call)])


async def of_vhost(call: Call) -> Answer:
    return await _listed(call, [_of_vhost(call, call.vhost)])


async def of_users(call: Call) -> Answer:
    """One's own, or all."""
    users = call.context.auth.users.all() if call.sees_all else [call.user]
    return await _listed(call, [_of_user(call, user.name) for user in users])


async def of_user(call: Call) -> Answer:
    """Other users' are there for those who see all."""
    name = call.path["user"]
    if not call.sees_all and name != call.user.name:
        raise not_found()
    user = existing(call.context.auth.users.get(name))
    return await _listed(call, [_of_user(call, user.name)])


async def put_for_vhost(call: Call) -> Answer:
    name, limit = call.vhost, call.path["name"]
    await call.context.auth.limits.set_vhost(name, limit, call.body().number("value"))
    call.audit("limit.set", name, limit=limit)
    return DONE


async def put_for_user(call: Call) -> Answer:
    name, limit = call.path["user"], call.path["name"]
    if call.context.auth.users.get(name) is None:
        raise bad_request(f"no user '{name}'")
    await call.context.auth.limits.set_user(name, limit, call.body().number("value"))
    call.audit("limit.set", name, limit=limit)
    return DONE


async def delete_for_vhost(call: Call) -> Answer:
    name, limit = call.vhost, call.path["name"]
    await call.context.auth.limits.clear_one("vhost", name, limit)
    call.audit("limit.clear", name, limit=limit)
    return DONE


async def delete_for_user(call: Call) -> Answer:
    user = existing(call.context.auth.users.get(call.path["user"]))
    limit = call.path["name"]
    await call.context.auth.limits.clear_one("user", user.name, limit)
    call.audit("limit.clear", user.name, limit=limit)
    return DONE


ONLY = Rule.ADMINISTRATOR
ROUTES = (
    Route("vhost-limits", get=of_vhosts),
    Route("vhost-limits/{vhost}", get=of_vhost),
    Route("vhost-limits/{vhost}/{name}", ONLY, put=put_for_vhost, delete=delete_for_vhost),
    Route("user-limits", get=of_users),
    Route("user-limits/{user}", get=of_user),
    Route("user-limits/{user}/{name}", ONLY, put=put_for_user, delete=delete_for_user),
)
