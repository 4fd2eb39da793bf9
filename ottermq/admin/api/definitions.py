"""Definitions out and in: the whole broker's, or a vhost's. For administrators."""

from collections.abc import Callable
from email.message import Message
from email.parser import BytesParser
from typing import Any

import trio

from ottermq.admin.api.call import DONE, Call, Json, bad_request, parse_json
from ottermq.admin.api.router import Route, Rule
from ottermq.admin.messages import Answer
from ottermq.definitions.acts import Acts
from ottermq.definitions.apply import apply
from ottermq.definitions.export import tell, tell_vhost
from ottermq.definitions.parse import read
from ottermq.definitions.records import Definitions, DefinitionsError

LARGEST = 32 << 20  # bytes
OF_A_VHOST = ("parameters", "policies", "queues", "exchanges", "bindings")
OF_THE_BROKER = ("users", "vhosts", "permissions", "topic_permissions", "global_parameters")


def out(call: Call) -> Answer:
    context = call.context
    version = context.config().admin.rabbitmq_version
    return _file(call, tell(context.topology, context.auth, version))


def out_of_vhost(call: Call) -> Answer:
    host = call.context.topology.vhosts[call.vhost]
    version = call.context.config().admin.rabbitmq_version
    return _file(call, tell_vhost(host, call.context.auth, version))


def _file(call: Call, told: Json) -> Answer:
    name = call.fields.get("download")
    if not name:
        return Answer(body=told)
    plain = "".join(char for char in name if char.isascii() and (char.isalnum() or char in "-_."))
    return Answer(body=told, headers={"Content-Disposition": f'attachment; filename="{plain}"'})


async def load(call: Call) -> Answer:
    return await _load(call, "definitions", read)


async def load_into_vhost(call: Call) -> Answer:
    return await _load(call, call.vhost, lambda whole: read(_placed(whole, call.vhost)))


async def _load(call: Call, what: str, reading: Callable[[Any], Definitions]) -> Answer:
    """What is there stays; nothing is taken back, as no file of ours brought it."""
    context = call.context
    raw = _uploaded(call) if "multipart" in call.headers.get("content-type", "") else call.raw
    try:
        found = await trio.to_thread.run_sync(lambda: reading(parse_json(raw)))
        await apply(
            found,
            context.topology,
            context.auth,
            context.queues,
            Acts(call.peer, call.user.name),
            takes_back=False,
        )
    except DefinitionsError as error:
        raise bad_request(error.shown()) from None
    call.audit("definitions.import", what)
    return DONE


def _placed(whole: Any, vhost: str) -> Any:
    """Definitions of one vhost don't name it; they may be another's, too."""
    if not isinstance(whole, dict):
        return whole
    found = {name: value for name, value in whole.items() if name not in OF_THE_BROKER}
    for section in OF_A_VHOST:
        listed = found.get(section)
        if isinstance(listed, list):
            found[section] = [
                {**each, "vhost": vhost} if isinstance(each, dict) else each for each in listed
            ]
    return found


def _uploaded(call: Call) -> bytes:
    """The field `file` of a form, as browsers send it."""
    head = f"Content-Type: {call.headers['content-type']}\r\n\r\n".encode("latin-1", "replace")
    form = BytesParser().parsebytes(head + call.raw)
    for field in form.get_payload() if form.is_multipart() else ():
        if isinstance(field, Message) and field.get_param("name", header="content-disposition") in (
            "file",
            "definitions",
        ):
            content = field.get_payload(decode=True)
            return content if isinstance(content, bytes) else b""
    raise bad_request("the form has no field named file")


ONLY = Rule.ADMINISTRATOR
ROUTES = (
    Route("definitions", ONLY, get=out, post=load, most=LARGEST),
    Route("definitions/{vhost}", ONLY, get=out_of_vhost, post=load_into_vhost, most=LARGEST),
)
