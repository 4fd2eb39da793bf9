"""The engine's events and questions: one type per kind, with that kind's fields only.

    om_event, one struct for all kinds ── READERS[kind] ──▶ MethodArrived(conn, channel, payload)

A type is named after what happened; csrc/om_engine.h says how each question is answered.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from ottermq._core import ffi, lib

# -- connections


class ConnectionHello(NamedTuple):
    """A client has sent its protocol header (AMQP) or its first request (Kafka)."""

    conn: int
    peer: str
    local: str = ""  # our address as a Kafka client sees it; "" without a socket


class ConnectionClosed(NamedTuple):
    """Its queues and consumers were let go already."""

    conn: int
    reason: str
    peer: str = ""


class WrongProtocol(NamedTuple):
    conn: int
    peer: str
    received: bytes


class ConnectionRefused(NamedTuple):
    """There are too many."""

    peer: str


class OutputReady(NamedTuple):
    """A connection without a socket has output (Engine.drain)."""

    conn: int


class InputWanted(NamedTuple):
    """A connection without a socket takes input again (Engine.feed)."""

    conn: int


# -- AMQP


class MethodArrived(NamedTuple):
    """One that C doesn't handle."""

    conn: int
    channel: int
    payload: bytes  # class id, method id, arguments


class RuleBroken(NamedTuple):
    """One that C checks: the connection or the channel is to be closed."""

    conn: int
    channel: int
    code: int  # AMQP's reply code
    text: str
    method: int = 0  # class id << 16 | method id


class RouteWanted(NamedTuple):
    """A publish waits: C doesn't know its queues, or whether its user may write there."""

    conn: int
    channel: int
    exchange: bytes
    key: bytes
    properties: bytes  # flags and values


class DeadRouteWanted(NamedTuple):
    """Messages die in a queue, or their delay is over there."""

    queue: int
    exchange: bytes
    key: bytes
    properties: bytes


class QueueIdle(NamedTuple):
    """It lost its last consumer."""

    queue: int


class ConsumerTimedOut(NamedTuple):
    """A delivery was not acked in time."""

    conn: int
    channel: int
    timeout_ms: int


class ConsumerActive(NamedTuple):
    """It is the one that a single active consumer's queue gives to from now on."""

    conn: int
    queue: int
    tag: bytes


class AlarmChanged(NamedTuple):
    """Publishers are held back, for this or for another reason, or may go on."""

    reason: str  # "": over


# -- compressed batches


class DecompressWanted(NamedTuple):
    """An AMQP reader needs a batch that a Kafka producer compressed."""

    log: int
    base_offset: int
    codec: int
    records: bytes


# -- Kafka


class KafkaRequest(NamedTuple):
    """One that C doesn't answer."""

    conn: int
    slot: int
    api: int
    version: int
    payload: bytes  # header and body


class KafkaRightsWanted(NamedTuple):
    """A Produce or Fetch waits: C doesn't know what its client may do with these topics."""

    conn: int
    topics: list[bytes]
    transactional_id: bytes = b""


class KafkaRepackWanted(NamedTuple):
    """A Produce waits: these of its batches can't be appended as they are."""

    conn: int
    batches: bytes


Event: TypeAlias = (
    ConnectionHello
    | ConnectionClosed
    | WrongProtocol
    | ConnectionRefused
    | OutputReady
    | InputWanted
    | MethodArrived
    | RuleBroken
    | RouteWanted
    | DeadRouteWanted
    | QueueIdle
    | ConsumerTimedOut
    | ConsumerActive
    | AlarmChanged
    | DecompressWanted
    | KafkaRequest
    | KafkaRightsWanted
    | KafkaRepackWanted
)


# -- from C


def read(event: Any) -> Event:
    """An om_event's copy, which outlives it."""
    return READERS[event.kind](event)


def _bytes(span: Any) -> bytes:
    size = span.len
    return ffi.buffer(span.data, size)[:] if size > 0 else b""


def _text(span: Any) -> str:
    return _bytes(span).decode(errors="replace")


def _names(span: Any) -> list[bytes]:
    """Each stands behind its length."""
    data, names, at = _bytes(span), [], 0
    while at < len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2])
        names.append(data[at + 2 : end])
        at = end
    return names


READERS: dict[int, Callable[[Any], Event]] = {
    lib.OM_EV_CONN_HELLO: lambda e: ConnectionHello(e.conn, _text(e.text), _text(e.header)),
    lib.OM_EV_CLOSED: lambda e: ConnectionClosed(e.conn, _text(e.text), _text(e.header)),
    lib.OM_EV_BAD_HEADER: lambda e: WrongProtocol(e.conn, _text(e.text), _bytes(e.payload)),
    lib.OM_EV_REFUSED_CONN: lambda e: ConnectionRefused(_text(e.text)),
    lib.OM_EV_OUTPUT: lambda e: OutputReady(e.conn),
    lib.OM_EV_ROOM: lambda e: InputWanted(e.conn),
    lib.OM_EV_METHOD: lambda e: MethodArrived(e.conn, e.channel, _bytes(e.payload)),
    lib.OM_EV_ERROR: lambda e: RuleBroken(e.conn, e.channel, e.code, _text(e.text), e.method),
    lib.OM_EV_ROUTE: lambda e: RouteWanted(
        e.conn, e.channel, _bytes(e.exchange), _bytes(e.key), _bytes(e.header)
    ),
    lib.OM_EV_DEAD_ROUTE: lambda e: DeadRouteWanted(
        e.queue, _bytes(e.exchange), _bytes(e.key), _bytes(e.header)
    ),
    lib.OM_EV_QUEUE_IDLE: lambda e: QueueIdle(e.queue),
    lib.OM_EV_CONSUMER_TIMEOUT: lambda e: ConsumerTimedOut(e.conn, e.channel, e.count),
    lib.OM_EV_ACTIVE: lambda e: ConsumerActive(e.conn, e.queue, _bytes(e.key)),
    lib.OM_EV_ALARM: lambda e: AlarmChanged(_text(e.text)),
    lib.OM_EV_DECOMPRESS: lambda e: DecompressWanted(e.queue, e.count, e.code, _bytes(e.payload)),
    lib.OM_EV_KAFKA_REQUEST: lambda e: KafkaRequest(
        e.conn, e.count, e.code, e.method, _bytes(e.payload)
    ),
    lib.OM_EV_KAFKA_TOPICS: lambda e: KafkaRightsWanted(e.conn, _names(e.key), _bytes(e.header)),
    lib.OM_EV_KAFKA_BATCHES: lambda e: KafkaRepackWanted(e.conn, _bytes(e.payload)),
}
