"""Users: administrators' alone, as the hashes of passwords are."""

from ottermq.admin.api.call import CREATED, DONE, Call, Json, bad_request, existing
from ottermq.admin.api.listing import listing, shaped
from ottermq.admin.api.router import Route, Rule
from ottermq.admin.messages import Answer
from ottermq.auth import User
from ottermq.definitions.acts import Acts
from ottermq.definitions.apply import put_user
from ottermq.definitions.fields import Item
from ottermq.definitions.parse import user_of
from ottermq.errors import InvalidRequest


def row(call: Call, user: User) -> Json:
    stored = user.secrets.stored
    return {
        "name": user.name,
        "password_hash": stored.hash,
        "hashing_algorithm": stored.algorithm,
        "tags": list(user.tags),
        "limits": call.context.auth.limits.of_user(user.name),
    }


async def all_of_them(call: Call) -> Answer:
    users = call.context.auth.users.all()
    return await listing(call, users, lambda user: row(call, user), lambda user: user.name)


async def without_permissions(call: Call) -> Answer:
    auth = call.context.auth
    users = [user for user in auth.users.all() if not auth.permissions.entries(user.name)]
    return await listing(call, users, lambda user: row(call, user), lambda user: user.name)


def one(call: Call) -> Json:
    return shaped(call, row(call, existing(call.context.auth.users.get(call.path["name"]))))


async def put(call: Call) -> Answer:
    """By a password, or by a hash of one; with neither, the user can only come by certificate."""
    auth, name = call.context.auth, call.path["name"]
    body = call.body()
    if "tags" not in body.fields:
        raise bad_request("tags_not_present")
    if {"password", "password_hash"} <= body.fields.keys():
        raise bad_request("both_password_and_password_hash_are_provided")
    if body.fields.get("password") == "":
        body.fields["password"] = None
    record = user_of(Item({**body.fields, "name": name}))
    before = auth.users.get(name)
    await put_user(auth, record)
    Acts(call.peer, call.user.name).of_user(before, auth.users.existing(name))
    return DONE if before else CREATED


async def delete(call: Call) -> Answer:
    name = call.path["name"]
    existing(call.context.auth.users.get(name))
    await call.context.auth.delete_user(name)
    call.audit("user.delete", name)
    return DONE


async def bulk_delete(call: Call) -> Answer:
    names = call.body().get("users", list)
    users = call.context.auth.users
    for name in names:
        if not isinstance(name, str) or users.get(name) is None:
            raise InvalidRequest(f"no user {name!r}")
    for name in names:
        await call.context.auth.delete_user(name)
        call.audit("user.delete", name)
    return DONE


ROUTES = (
    Route("users", Rule.ADMINISTRATOR, get=all_of_them),
    Route("users/without-permissions", Rule.ADMINISTRATOR, get=without_permissions),
    Route("users/bulk-delete", Rule.ADMINISTRATOR, post=bulk_delete),
    Route("users/{name}", Rule.ADMINISTRATOR, get=one, put=put, delete=delete),
)
