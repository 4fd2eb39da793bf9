"""Messages published and got by the API: for people and for probes, not for traffic."""

import base64
import binascii
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from pamqp.commands import Basic

from ottermq.admin.api import exchanges, queues
from ottermq.admin.api.call import Body, Call, Json, bad_request
from ottermq.admin.api.internal_client import InternalClient, connected
from ottermq.admin.api.router import Route
from ottermq.definitions.fields import Wrong

LONGEST = 128  # bytes of a header's name
LARGEST = 24 << 20  # bytes of a request: 16 MiB in base64
MOST, MOST_BYTES = 10_000, 16 << 20  # that are got at once
PROPERTIES = tuple(name for name in Basic.Properties.attributes() if name != "cluster_id")
NUMBERS = ("delivery_mode", "priority", "timestamp")
# Mode: how what was got is settled.
SETTLED: dict[str, Callable[[int], Any]] = {
    "ack_requeue_true": lambda tag: Basic.Nack(tag, True, True),
    "reject_requeue_true": lambda tag: Basic.Nack(tag, True, True),
    "ack_requeue_false": lambda tag: Basic.Ack(tag, True),
    "reject_requeue_false": lambda tag: Basic.Nack(tag, True, False),
}
ENCODINGS = ("auto", "base64")


async def publish(call: Call) -> Json:
    body = call.body()
    exchange = exchanges.name_in(call.path["name"])
    key, content = body.text("routing_key"), _payload(body)
    properties = _properties(Body(body.table("properties")))
    async with connected(call) as client:
        await client.select_confirms()
        await client.publish(exchange, key, properties, content)
        first = await client.wait(Basic.Return, Basic.Ack, Basic.Nack)
    return {"routed": isinstance(first, Basic.Ack)}


def _payload(body: Body) -> bytes:
    payload, encoding = body.text("payload"), body.get("payload_encoding", str, "string")
    match encoding:
        case "string":
            return payload.encode()
        case "base64":
            try:
                return base64.b64decode(payload, validate=True)
            except (binascii.Error, ValueError):
                raise bad_request("payload is no base64") from None
        case _:
            raise bad_request(f"payload_encoding is string or base64, not {encoding}")


def _properties(given: Body) -> Basic.Properties:
    """Those that AMQP has; tools send others too."""
    found: dict[str, Any] = {}
    for name in PROPERTIES:
        if given.fields.get(name) is None:
            continue
        if name == "headers":
            found[name] = given.table(name)
            _check_names(found[name])
        elif name in NUMBERS:
            found[name] = given.number(name)
        else:
            found[name] = given.text(name)
    try:
        if "timestamp" in found:
            found["timestamp"] = datetime.fromtimestamp(found["timestamp"], UTC)
        return Basic.Properties(**found)
    except (TypeError, ValueError, OverflowError, OSError) as error:
        raise Wrong(f"properties: {error}") from None


def _check_names(value: Any) -> None:
    """pamqp would cut them."""
    match value:
        case dict():
            for name, each in value.items():
                if len(name.encode()) > LONGEST:
                    raise Wrong(f"the name of a header has {LONGEST} bytes at most")
                _check_names(each)
        case list():
            for each in value:
                _check_names(each)


async def get(call: Call) -> list[Json]:
    """What is requeued says `redelivered` the next time."""
    body = call.body()
    queue = queues.find(call)
    count, mode = body.number("count"), body.text("ackmode")
    encoding = body.text("encoding")
    truncate = body.number("truncate", LARGEST)
    if mode not in SETTLED or encoding not in ENCODINGS:
        raise bad_request(f"ackmode is one of {', '.join(SETTLED)}, encoding auto or base64")
    if not 0 <= count <= MOST or truncate < 0:
        raise bad_request(f"count is a number from 0 to {MOST}, truncate isn't below 0")
    found: list[Json] = []
    async with connected(call) as client:
        size = last = 0
        while len(found) < count and size < MOST_BYTES:
            await client.send(Basic.Get(0, queue.name, False))
            answer = await client.wait(Basic.GetOk, Basic.GetEmpty)
            if isinstance(answer, Basic.GetEmpty):
                break
            found.append(await _told(client, answer, encoding, truncate))
            size, last = size + found[-1]["payload_bytes"], answer.delivery_tag
        if last:
            await client.send(SETTLED[mode](last))
    return found


async def _told(client: InternalClient, got: Basic.GetOk, encoding: str, truncate: int) -> Json:
    properties, content = await client.content()
    kept = content[:truncate]
    try:
        payload, told = kept.decode(), "string"
        if encoding == "base64":
            raise ValueError
    except ValueError:
        payload, told = base64.b64encode(kept).decode(), "base64"
    told_ones = {name: getattr(properties, name) for name in PROPERTIES}
    set_ones = {name: value for name, value in told_ones.items() if value is not None}
    return {
        "payload_bytes": len(content),
        "redelivered": got.redelivered,
        "exchange": got.exchange,
        "routing_key": got.routing_key,
        "message_count": got.message_count,
        "properties": set_ones or [],  # as RabbitMQ writes none
        "payload": payload,
        "payload_encoding": told,
    }


ROUTES = (
    Route("exchanges/{vhost}/{name}/publish", post=publish, most=LARGEST),
    Route("queues/{vhost}/{name}/get", post=get),
)
