"""The audit line: who did which administrative act, from where, and its result.

    2026-11-18T16:12:03.511Z INFO audit act=topic.delete user=alice peer=10.0.0.7:51234
        what=orders result=ok

One line per act, at the info level, whichever protocol it came by; refused acts are logged, too.
Acts are `object.verb`: queue.delete, topic.create, user.password, acl.grant, quota.set.
"""

from ottermq import eventlog

OK = "ok"
NOBODY = "-"  # the client isn't logged in
LONGEST = 256  # characters of a value: names are a client's, and a line should stay one


def record(
    act: str, *, user: str | None, peer: str, what: str, result: str = OK, **details: object
) -> None:
    """result: OK, or why not. details: further fields, such as vhost."""
    fields = {
        "act": act,
        "user": user or NOBODY,
        "peer": peer,
        "what": what,
        "result": result,
        **details,
    }
    eventlog.info("audit", **{name: _short(value) for name, value in fields.items()})


def _short(value: object) -> object:
    if isinstance(value, int | float):
        return value
    value = str(value)
    return value if len(value) <= LONGEST else f"{value[:LONGEST]}…({len(value)} characters)"
