"""The AMQP server with nothing behind it: an engine that only remembers what it was told.

Events go in as C would send them, frames come out as a client would get them. Topology and users
are the real ones; the logs are not. So a rule is one short test, without a socket or a thread.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import trio
import trio.testing
from pamqp.base import Frame
from pamqp.commands import Channel, Connection

from ottermq._core import lib
from ottermq.amqp.context import AmqpContext
from ottermq.amqp.frames import decode_method, encode_method
from ottermq.amqp.server import AmqpServer
from ottermq.auth import Auth, open_auth, passwords
from ottermq.config.schema import AmqpSettings, AuthSettings
from ottermq.engine.engine import Engine
from ottermq.engine.events import ConnectionClosed, ConnectionHello, Event, MethodArrived
from ottermq.engine.types import (
    Added,
    Consume,
    Consumer,
    Purged,
    QueueOptions,
    QueueStat,
    RouteFlags,
)
from ottermq.queue_runtime import Queues
from ottermq.storage.legal_holds import Holds
from ottermq.topology import MetaDb, Topology, restore
from ottermq.wal import LogOptions
from ottermq.wal.catalog import Statement
from ottermq.wal.errors import Full

CAPABILITIES = {"authentication_failure_close": True, "consumer_cancel_notify": True}


class FakeEngine(Engine):
    """Every call is kept; frames are kept apart, by connection."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.sent: dict[int, bytes] = {}
        self.resumed: dict[int, int] = {}
        self.changed = trio.lowlevel.ParkingLot()  # woken with each answer and each queue that goes
        self.gone: set[int] = set()
        self.stats: dict[int, QueueStat] = {}
        self.options_of: dict[int, QueueOptions] = {}
        self.routes: list[tuple[list[int], RouteFlags]] = []
        self.who_consumes: dict[int, list[Consumer]] = {}
        self.added = Added.OK
        self.purged = 0
        self.full = 0  # so many commits and purges find no room
        self.event_fd = -1
        for name in (
            "stop_listening", "tune", "open", "channel_open", "channel_close", "channel_confirm",
            "channel_limit", "channel_recover", "tx_select", "tx_rollback", "may_publish",
            "forget_routes", "forget_permissions", "touch",
        ):  # fmt: skip
            setattr(self, name, self._recorder(name))

    def _recorder(self, name: str) -> Callable[..., bool]:
        def record(*arguments: Any, **named: Any) -> bool:
            self.calls.append((name, (*arguments, *named.values())))
            return True

        return record

    def called(self, name: str) -> list[tuple[Any, ...]]:
        return [arguments for each, arguments in self.calls if each == name]

    def send(self, conn: int, data: bytes) -> bool:
        self.sent[conn] = self.sent.get(conn, b"") + data
        return True

    def resume(self, conn: int, data: bytes = b"") -> bool:
        self.resumed[conn] = self.resumed.get(conn, 0) + 1
        self.changed.unpark_all()
        return self.send(conn, data)

    def closing(self, conn: int, data: bytes) -> bool:
        self.calls.append(("closing", (conn,)))
        return self.resume(conn, data)

    def hang_up(self, conn: int, data: bytes = b"") -> bool:
        self.gone.add(conn)
        return self.resume(conn, data)

    def add_queue(
        self, queue: int, vhost: int, name: bytes, logs: Sequence[Any], options: QueueOptions
    ) -> None:
        self.calls.append(("add_queue", (queue, name, len(logs))))
        self.options_of[queue] = options

    def set_queue(self, queue: int, options: QueueOptions) -> bool:
        self.options_of[queue] = options
        return True

    def remove_queue(self, queue: int) -> bool:
        self.calls.append(("remove_queue", (queue,)))
        self.changed.unpark_all()
        return True

    def queue_stat(self, queue: int) -> QueueStat:
        return self.stats.get(queue, QueueStat())

    def purge(self, queue: int) -> Purged:
        if self.full:
            self.full -= 1
            raise Full
        return Purged(self.purged, 0)

    def consumers(self, queue: int) -> list[Consumer]:
        return self.who_consumes.get(queue, [])

    def add_consumer(self, conn: int, channel: int, consume: Consume, ok: bytes) -> Added:
        self.calls.append(("add_consumer", (conn, channel, consume)))
        if self.added is Added.OK:
            self.send(conn, ok)
        return self.added

    def add_reply_consumer(self, conn: int, channel: int, tag: bytes, ok: bytes) -> Added:
        self.send(conn, ok)
        return self.added

    def expects_replies(self, address: bytes) -> bool:
        return False

    def cancel_consumer(self, conn: int, channel: int, tag: bytes, ok: bytes) -> bool:
        return False

    def get(self, conn: int, channel: int, queue: int, no_ack: bool) -> bool:
        self.calls.append(("get", (conn, channel, queue, no_ack)))
        return self.resume(conn)

    def tx_commit(self, conn: int, channel: int, ok: bytes) -> int:
        if self.full:
            self.full -= 1
            return int(lib.OM_E_FULL)
        self.send(conn, ok)
        return 0

    def publish_route(
        self, conn: int, channel: int, queues: Sequence[int], flags: RouteFlags, generation: int
    ) -> bool:
        self.routes.append((list(queues), flags))
        return self.resume(conn)

    def dead_route(
        self, queue: int, queues: Sequence[int], flags: RouteFlags, generation: int
    ) -> bool:
        self.routes.append((list(queues), flags))
        return True

    @property
    def route_generation(self) -> int:
        return 0


class FakeLog:
    def __init__(self, name: str, id: int) -> None:
        self.name = name
        self.id = id


class FakeStore:
    """Logs that hold nothing; rows that say which there are."""

    def __init__(self) -> None:
        self.logs: dict[tuple[str, str], FakeLog] = {}
        self.waiting = self

    async def wait_moved(self) -> None:
        await trio.lowlevel.checkpoint()

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self.logs

    def create_many(self, names: Sequence[str], *, vhost: str, flags: Any) -> list[FakeLog]:
        return self.reserve(names, vhost=vhost, flags=flags)[0]

    def reserve(
        self, names: Sequence[str], *, vhost: str, flags: Any
    ) -> tuple[list[FakeLog], list[Statement]]:
        made = [self.logs.setdefault((vhost, name), FakeLog(name, 1 << 63)) for name in names]
        return made, []

    def named(self, logs: Sequence[FakeLog]) -> None:
        pass

    def get(self, name: str, vhost: str) -> FakeLog:
        return self.logs[vhost, name]

    def free_name(self, log: FakeLog) -> None:
        self.logs = {key: each for key, each in self.logs.items() if each is not log}

    def take_name(self, log: FakeLog) -> None:
        self.logs["/", log.name] = log

    def discard(self, log: FakeLog) -> tuple[int, list[Statement]]:
        self.free_name(log)
        return 0, []

    def set_options(self, log: FakeLog, options: LogOptions) -> None:
        pass


class Closed(Exception):
    """The server closed the channel or the connection."""

    def __init__(self, close: Channel.Close | Connection.Close) -> None:
        super().__init__(close.reply_text)
        self.code = close.reply_code
        self.text = close.reply_text
        self.connection = isinstance(close, Connection.Close)
        self.method = (close.class_id, close.method_id)


class Client:
    """One connection's view."""

    def __init__(self, harness: "Harness", id: int) -> None:
        self.harness = harness
        self.id = id

    async def call(self, channel: int, method: Frame) -> list[Any]:
        """What comes back until the server reads on. Closed: that is what came back."""
        fields = [getattr(method, name) for name in method.attributes()]
        whole = encode_method(channel, type(method), *fields)
        return await self.event(MethodArrived(self.id, channel, whole[7:-1]))

    async def event(self, event: Event) -> list[Any]:
        engine = self.harness.engine
        before = engine.resumed.get(self.id, 0)
        self.harness.server.take(event)
        with trio.fail_after(20):
            while engine.resumed.get(self.id, 0) == before:
                await engine.changed.park()
        frames = self.frames()
        for frame in frames:
            if isinstance(frame, Channel.Close | Connection.Close):
                raise Closed(frame)
        return frames

    def frames(self) -> list[Any]:
        data = self.harness.engine.sent.pop(self.id, b"")
        found = []
        while data:
            end = 7 + int.from_bytes(data[3:7], "big")
            found.append(decode_method(data[7:end]))
            data = data[end + 1 :]
        return found

    async def start(self, peer: str = "127.0.0.1:4711") -> Any:
        (start,) = await self.event(ConnectionHello(self.id, peer))
        return start

    async def login(self, user: str = "guest", password: str = "guest") -> list[Any]:
        properties = {"capabilities": CAPABILITIES}
        response: Any = f"\0{user}\0{password}".encode()
        return await self.call(0, _start_ok(properties, "PLAIN", response))

    async def tune(self, channel_max: int = 2047, frame_max: int = 131072) -> list[Any]:
        return await self.call(0, Connection.TuneOk(channel_max, frame_max, 60))

    async def open(self, vhost: str = "/") -> None:
        await self.start()
        await self.login()
        await self.tune()
        await self.call(0, Connection.Open(vhost))

    async def channel(self, number: int = 1) -> int:
        await self.call(number, Channel.Open())
        return number


def _start_ok(properties: dict[str, Any], mechanism: str, response: Any) -> Connection.StartOk:
    return Connection.StartOk(properties, mechanism, response, "en_US")


class Harness:
    """The server and all that it acts on."""

    def __init__(
        self, context: AmqpContext, engine: FakeEngine, auth: Auth, topology: Topology, db: MetaDb
    ) -> None:
        self.context = context
        self.db = db
        self.engine = engine
        self.auth = auth
        self.topology = topology
        self.server = AmqpServer(context)
        self._ids = 0

    def client(self) -> Client:
        self._ids += 1
        return Client(self, self._ids)

    async def connected(self, vhost: str = "/") -> Client:
        """A client that is through its handshake, with channel 1 open."""
        client = self.client()
        await client.open(vhost)
        await client.channel()
        return client

    def lose(self, client: Client) -> None:
        self.server.take(ConnectionClosed(client.id, "by the client"))


@asynccontextmanager
async def open_harness(data: Path, settings: AmqpSettings | None = None) -> AsyncIterator[Harness]:
    # How long a hash takes is not what these tests are about.
    with patch.object(passwords, "COST", 4), MetaDb(data) as db:
        topology = restore(db)
        auth = open_auth(db, AuthSettings())
        await auth.first_start()
        engine = FakeEngine()
        store: Any = FakeStore()
        queues = Queues(
            engine, store, topology, rules=lambda name: LogOptions(), holds=Holds(topology)
        )
        context = AmqpContext(engine, topology, auth, queues, settings or AmqpSettings())
        harness = Harness(context, engine, auth, topology, db)
        async with trio.open_nursery() as nursery:
            harness.server._nursery = nursery
            nursery.start_soon(queues.run)
            await trio.testing.wait_all_tasks_blocked()
            yield harness
            nursery.cancel_scope.cancel()
