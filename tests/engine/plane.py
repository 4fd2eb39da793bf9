"""The data plane without sockets and without Python's protocol servers, for tests of it alone.

    plane = Plane(folder)                    a store and an engine over it
    plane.queue("work", max_length=3)        a queue, reached by its name on the default exchange
    client = plane.client()                  a connection, open, with channel 1
    client.publish(b"hello", "work")         frames are made, fed, and what comes back is decoded
    assert client.get("work").body == b"hello"

What the server decides is decided by a table here: `routes` tells where an exchange and a key lead.
With `plane.answering = False` such questions gather in `plane.asked`, to be answered late. Nothing
sleeps for luck: `wait` looks again whenever the engine has something to tell.
"""

import select
import struct
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

from pamqp import body as bodies
from pamqp import frame as frames
from pamqp import header
from pamqp.base import Frame
from pamqp.commands import Basic

from ottermq.engine.engine import Engine
from ottermq.engine.events import (
    ConnectionClosed,
    ConnectionHello,
    DeadRouteWanted,
    DecompressWanted,
    Event,
    MethodArrived,
    RouteWanted,
    RuleBroken,
)
from ottermq.engine.types import Consume, EngineOptions, QueueFlags, QueueOptions, RouteFlags
from ottermq.storage.codecs import NotDecompressed, decompress_records
from ottermq.wal import Log, LogFlags, Options, Store
from tests.wal.stores import SMALL

T = TypeVar("T")
Question: TypeAlias = RouteWanted | DeadRouteWanted | DecompressWanted
PATIENCE = 30.0
GREETING = b"AMQP\0\0\x09\x01"
VHOST = 1
PLAIN = QueueFlags(0)


class Message(NamedTuple):
    """A delivery, a get-ok or a return, with its content."""

    method: Any
    properties: Basic.Properties
    body: bytes

    @property
    def tag(self) -> int:
        return int(self.method.delivery_tag)

    @property
    def headers(self) -> dict[str, Any]:
        return dict(self.properties.headers or {})

    @property
    def redelivered(self) -> bool:
        return bool(self.method.redelivered)


class Confirm(NamedTuple):
    good: bool
    tag: int
    multiple: bool


@dataclass
class Inbox:
    """What came on one channel, in its order; content is put together."""

    items: deque[Any] = field(default_factory=deque)
    half: tuple[Any, Any, bytes] | None = None

    def add(self, frame: Any) -> None:
        if isinstance(frame, header.ContentHeader):
            assert self.half is not None
            self.half = (self.half[0], frame, b"")
        elif isinstance(frame, bodies.ContentBody):
            assert self.half is not None
            self.half = (*self.half[:2], self.half[2] + frame.value)
        elif isinstance(frame, Basic.Deliver | Basic.GetOk | Basic.Return):
            self.half = (frame, None, b"")
            return
        elif isinstance(frame, Basic.Ack | Basic.Nack):
            good = isinstance(frame, Basic.Ack)
            self.items.append(Confirm(good, frame.delivery_tag, frame.multiple))
            return
        else:
            self.items.append(frame)
            return
        method, head, body = self.half
        if len(body) == head.body_size:
            self.items.append(Message(method, head.properties, body))
            self.half = None


class Plane:
    def __init__(
        self, folder: Path, options: Options = SMALL, paused: bool = False, **engine: Any
    ) -> None:
        """`paused`: as a broker's start, until `engine.start()` says that all queues stand."""
        self.store = Store.open(folder, options)
        self.engine = Engine(self.store, EngineOptions(**engine))
        if not paused:
            self.engine.start()
        self.queues: dict[str, int] = {}
        self.logs: dict[str, list[Log]] = {}
        self.routes: dict[tuple[str, str], list[str]] = {}
        self.route_flags = RouteFlags.CACHE
        self.clients: dict[int, Client] = {}
        self.events: list[Event] = []
        self.asked: list[Any] = []  # a Question each
        self.answering = True

    def close(self) -> None:
        self.engine.close()
        self.store.close()

    # -- queues

    def queue(self, name: str, lanes: int = 1, flags: QueueFlags = PLAIN, **options: Any) -> int:
        names = [name, *(f"{name}.{lane}" for lane in range(1, lanes))]
        kind = LogFlags.NO_CURSOR if flags & QueueFlags.STREAM else LogFlags(0)
        if ("/", name) in self.store:  # from before a restart
            logs = [self.store.get(each) for each in names]
        else:
            logs = self.store.create_many(names, flags=kind)
        number = self.queues[name] = len(self.queues) + 1
        self.logs[name] = logs
        wanted = QueueOptions(flags=flags | QueueFlags.DURABLE, **options)
        self.engine.add_queue(number, VHOST, name.encode(), logs, wanted)
        return number

    def remove(self, name: str) -> None:
        self.engine.remove_queue(self.queues.pop(name))
        for log in self.logs.pop(name):
            self.store.delete(log)

    def ready(self, name: str) -> int:
        return self.engine.queue_stat(self.queues[name]).ready

    def unacked(self, name: str) -> int:
        return self.engine.queue_stat(self.queues[name]).unacked

    # -- events

    def client(self, channels: int = 1, frame_max: int = 131072) -> "Client":
        return Client(self, channels, frame_max)

    def events_of(self, conn: int) -> list[Event]:
        return [event for event in self.events if getattr(event, "conn", 0) == conn]

    def events_like(self, kind: type[T]) -> list[T]:
        return [event for event in self.events if isinstance(event, kind)]

    def take_events(self) -> None:
        """The events that the engine has by now."""
        for protocol, event in self.engine.events():
            self.events.append(event)
            self._handle(protocol, event)

    def wait(self, wanted: Callable[[], T], seconds: float = PATIENCE) -> T:
        limit = time.monotonic() + seconds
        while True:
            self.take_events()
            for client in list(self.clients.values()):
                client.drain()
            found = wanted()
            if found:
                return found
            if time.monotonic() > limit:
                raise AssertionError("what was waited for did not come")
            select.select([self.engine.event_fd], [], [], 0.02)

    def answer(self, event: Question) -> None:
        """A question about a route, by the table; a batch to be decompressed."""
        if isinstance(event, DecompressWanted):
            records = None
            with suppress(NotDecompressed):
                records = decompress_records(event.codec, event.records)
            self.engine.batch_decompressed(event.log, event.base_offset, records)
            return
        names = self.routes.get((event.exchange.decode(), event.key.decode()), [])
        ids = [self.queues[name] for name in names if name in self.queues]
        generation = self.engine.route_generation
        if isinstance(event, RouteWanted):
            self.engine.may_publish(event.conn, event.exchange, 0, by_event=False)
            self.engine.publish_route(event.conn, event.channel, ids, self.route_flags, generation)
        else:
            self.engine.dead_route(event.queue, ids, self.route_flags, generation)

    def _handle(self, protocol: int, event: Event) -> None:
        match event:
            case RouteWanted() | DeadRouteWanted() | DecompressWanted():
                if self.answering:
                    self.answer(event)
                else:
                    self.asked.append(event)
            case ConnectionHello():
                self.engine.resume(event.conn)
            case RuleBroken() if event.conn in self.clients:
                error = (event.code, event.channel, event.text)
                self.clients[event.conn].errors.append(error)
            case MethodArrived() if event.conn in self.clients:
                self.clients[event.conn].asks(event)
            case ConnectionClosed() if event.conn in self.clients:
                self.clients.pop(event.conn).gone = event.reason


class Client:
    """A connection without a socket."""

    def __init__(self, plane: Plane, channels: int, frame_max: int) -> None:
        self.plane = plane
        self.engine = plane.engine
        self.id = self.engine.virtual("test")
        plane.clients[self.id] = self
        self.inboxes: dict[int, Inbox] = {}
        self.errors: list[tuple[int, int, str]] = []
        self.gone: str | None = None
        self.frame_max = frame_max
        self._input = b""
        self._output = bytearray()
        self.feed(GREETING)
        self.engine.tune(self.id, frame_max, 2047, 0)
        self.engine.open(self.id, VHOST, "guest", 0)  # type: ignore[arg-type]
        self.engine.may_publish(self.id, b"", 0, by_event=False)
        for number in range(1, channels + 1):
            assert self.engine.channel_open(self.id, number)

    # -- bytes

    def feed(self, data: bytes) -> None:
        self._input += data
        self._push()

    def _push(self) -> None:
        while self._input and self.gone is None:
            taken = self.engine.feed(self.id, self._input)
            if taken > 0:
                self._input = self._input[taken:]
            waits = taken <= 0
            self.plane.take_events()
            if waits:
                return

    def drain(self) -> None:
        """Take in whatever has come; send what had to wait."""
        room = bytearray(65536)
        while self.gone is None and (count := self.engine.drain(self.id, room)) > 0:
            self._output += room[:count]
        while len(self._output) >= 7:
            size = 8 + struct.unpack_from(">I", self._output, 3)[0]
            assert size <= self.frame_max
            if len(self._output) < size:
                break
            _, number, frame = frames.unmarshal(bytes(self._output[:size]))
            del self._output[:size]
            self.inboxes.setdefault(number, Inbox()).add(frame)
        self._push()

    def take(self, channel: int = 1, kind: type[T] = object) -> T:  # type: ignore[assignment]
        """The next thing on that channel, which must be of this kind."""
        inbox = self.inboxes.setdefault(channel, Inbox())
        self.plane.wait(lambda: bool(inbox.items))
        item = inbox.items.popleft()
        assert isinstance(item, kind), item
        return item

    def message(self, channel: int = 1) -> Message:
        return self.take(channel, Message)

    def messages(self, count: int, channel: int = 1) -> list[Message]:
        return [self.message(channel) for _ in range(count)]

    def is_quiet(self, channel: int = 1) -> bool:
        """Nothing more has come; asked behind a call, whose tick has pumped all there was."""
        self.plane.take_events()
        self.engine.stat()
        self.drain()
        return not self.inboxes.setdefault(channel, Inbox()).items

    # -- methods

    def publish(
        self, body: bytes, key: str, exchange: str = "", channel: int = 1,
        mandatory: bool = False, **properties: Any,
    ) -> None:  # fmt: skip
        self.feed(content(body, key, exchange, channel, mandatory, **properties))

    def consume(self, queue: str, tag: str = "c", channel: int = 1, **how: Any) -> None:
        consume = Consume(self.plane.queues[queue], tag.encode(), **how)
        assert self.engine.add_consumer(self.id, channel, consume, b"").name == "OK"

    def get(self, queue: str, channel: int = 1, no_ack: bool = False) -> Message | None:
        self.feed(frame(Basic.Get(queue=queue, no_ack=no_ack), channel))
        got: Any = self.take(channel)
        return got if isinstance(got, Message) else None

    def ack(self, tag: int, multiple: bool = False, channel: int = 1) -> None:
        self.feed(frame(Basic.Ack(tag, multiple), channel))

    def nack(
        self, tag: int, multiple: bool = False, requeue: bool = True, channel: int = 1
    ) -> None:
        self.feed(frame(Basic.Nack(tag, multiple, requeue), channel))

    def reject(self, tag: int, requeue: bool = False, channel: int = 1) -> None:
        self.feed(frame(Basic.Reject(tag, requeue), channel))

    def leave(self) -> None:
        self.engine.hang_up(self.id)
        self.plane.wait(lambda: self._is_gone())

    def _is_gone(self) -> bool:
        self.drain()
        self.plane.take_events()
        return self.gone is not None

    def asks(self, event: MethodArrived) -> None:
        """What C hands to Python: only gets come here, as the rest is called directly."""
        method = _method(event)
        if isinstance(method, Basic.Get) and method.queue in self.plane.queues:
            number = self.plane.queues[method.queue]
            self.engine.get(self.id, event.channel, number, method.no_ack)
        else:
            self.errors.append((0, event.channel, "unexpected"))
            self.engine.resume(self.id)


def _method(event: MethodArrived) -> Any:
    head = struct.pack(">BHI", 1, event.channel, len(event.payload))
    return frames.unmarshal(head + event.payload + b"\xce")[2]


def frame(method: Frame, channel: int = 1) -> bytes:
    return frames.marshal(method, channel)


def content(
    body: bytes, key: str, exchange: str = "", channel: int = 1, mandatory: bool = False,
    pieces: int = 1, **properties: Any,
) -> bytes:  # fmt: skip
    """The frames of a publish; the body in so many pieces."""
    publish = Basic.Publish(exchange=exchange, routing_key=key, mandatory=mandatory)
    head = header.ContentHeader(0, len(body), Basic.Properties(delivery_mode=2, **properties))
    parts = [frames.marshal(publish, channel), frames.marshal(head, channel)]
    size = min(-(-len(body) // pieces), 100_000) or 1
    for at in range(0, len(body), size):
        parts.append(frames.marshal(bodies.ContentBody(body[at : at + size]), channel))
    return b"".join(parts)
