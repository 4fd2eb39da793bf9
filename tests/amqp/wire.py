"""An AMQP client for tests that hides nothing: every frame that comes in can be looked at, in
the order it came, and any frame can be sent, also those that no client library would let out.

    client = Client(address)                 a connection, open unless told otherwise
    channel = client.channel()               its methods are the protocol's, named as there
    queue = channel.declare()                the broker's answer, decoded
    channel.publish(b"hello", key=queue)
    assert channel.get(queue).body == b"hello"

What the broker says on a channel gathers in the channel's inbox. A call waits for its own
answer and leaves deliveries, returns and confirms there, in their order; `take` hands out
whatever is first. When the broker closes the channel or the connection instead, `Refused`
tells code and text.
"""

import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pamqp import body as bodies
from pamqp import commands, header, heartbeat
from pamqp import frame as frames
from pamqp.base import Frame
from pamqp.commands import Basic, Confirm, Connection, Exchange, Queue, Tx

PATIENCE = 60.0  # seconds for what must come; a busy machine may need some
QUIET = 0.15  # seconds for what must not come
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
FRAME_END = b"\xce"
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8

Properties = Basic.Properties
Address = tuple[str, int]
T = TypeVar("T")

# pamqp refuses names and flags that the specification forbids. What the broker says to them
# is exactly what is tested here.
for _method in commands.INDEX_MAPPING.values():
    _method.validate = lambda self: None  # type: ignore[attr-defined]


class Refused(Exception):
    """The broker closed the channel or the connection, and said why."""

    def __init__(self, close: commands.Channel.Close | commands.Connection.Close) -> None:
        self.code = close.reply_code
        self.text = close.reply_text
        self.method = (close.class_id, close.method_id)
        self.connection = isinstance(close, commands.Connection.Close)
        super().__init__(f"{'connection' if self.connection else 'channel'}: {self.text}")


class Gone(Exception):
    """The broker hung up."""


@contextmanager
def refused(code: int, text: str | None = None, *, connection: bool = False) -> Iterator[None]:
    """What happens inside ends the channel, or the connection, with this code and this text."""
    try:
        yield
    except Refused as no:
        scope = "connection" if no.connection else "channel"
        assert (no.code, scope) == (code, "connection" if connection else "channel"), no.text
        assert text is None or no.text == text
    else:
        raise AssertionError(f"not refused with {code}")


def eventually(holds: Callable[[], bool]) -> bool:
    limit = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > limit:
            return False
        time.sleep(0.01)
    return True


@dataclass
class Message:
    """A delivery, a return or the answer to basic.get, with its content."""

    method: Any
    properties: Any = field(default_factory=Properties)
    body: bytes = b""
    size: int | None = None  # the content's, once its header came

    @property
    def tag(self) -> int:
        return int(self.method.delivery_tag)

    @property
    def redelivered(self) -> bool:
        return bool(self.method.redelivered)

    @property
    def key(self) -> str:
        return str(self.method.routing_key)

    @property
    def exchange(self) -> str:
        return str(self.method.exchange)

    @property
    def headers(self) -> dict[str, Any]:
        return dict(self.properties.headers or {})


CONTENT = (Basic.Deliver, Basic.GetOk, Basic.Return)
CAPABILITIES = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}


class Client:
    def __init__(
        self,
        address: Address,
        *,
        open: bool = True,
        user: str = "guest",
        password: str = "guest",
        vhost: str = "/",
        heartbeat: int = 0,
        frame_max: int | None = None,
        channel_max: int | None = None,
        capabilities: dict[str, Any] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.socket = socket.create_connection(address, timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self.capabilities = CAPABILITIES if capabilities is None else capabilities
        self.channels: dict[int, Channel] = {}
        self.inbox: deque[Frame] = deque()  # channel 0
        self.heartbeats = 0
        self.largest = 0  # frame so far
        self.frame_max = 131072
        self._buffer = b""
        if open:
            try:
                self.start(user, password)
                self.tune(frame_max, channel_max, heartbeat)
                self.open(vhost)
            except BaseException:
                self.socket.close()
                raise

    # -- the handshake, step by step

    def start(
        self,
        user: str = "guest",
        password: str = "guest",
        mechanism: str = "PLAIN",
        response: str | None = None,
    ) -> Connection.Start:
        """Until the broker wants more or is content; its Start is handed back."""
        self.raw(PROTOCOL_HEADER)
        start = self.expect(Connection.Start)
        self.started: Connection.Start = start
        self.send(
            Connection.StartOk(
                client_properties={"product": "wire", "capabilities": dict(self.capabilities)},
                mechanism=mechanism,
                response=f"\0{user}\0{password}" if response is None else response,
                locale="en_US",
            ),
            0,
        )
        return start

    def tune(
        self, frame_max: int | None = None, channel_max: int | None = None, heartbeat: int = 0
    ) -> Connection.Tune:
        tune = self.expect(Connection.Tune)
        self.frame_max = tune.frame_max if frame_max is None else frame_max
        self.channel_max = tune.channel_max if channel_max is None else channel_max
        self.send(Connection.TuneOk(self.channel_max, self.frame_max, heartbeat), 0)
        return tune

    def open(self, vhost: str = "/") -> None:
        self.send(Connection.Open(vhost), 0)
        self.expect(Connection.OpenOk)

    # -- frames out

    def raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is sent inside leaves in one piece: no pause of ours comes between."""
        parts: list[bytes] = []
        self.raw = parts.append  # type: ignore[assignment,method-assign]
        try:
            yield
        finally:
            del self.raw
            self.raw(b"".join(parts))

    def send(self, frame: frames.FrameTypes, channel: int) -> None:
        self.raw(frames.marshal(frame, channel))

    # -- frames in

    def _receive(self, limit: float) -> None:
        self.socket.settimeout(max(limit - time.monotonic(), 0.001))
        try:
            data = self.socket.recv(1 << 20)
        except ConnectionError as gone:
            raise Gone from gone
        if not data:
            raise Gone
        self._buffer += data

    def read(self, limit: float) -> tuple[int, Any]:
        """The next frame, whatever it is. TimeoutError when none came by then."""
        while True:
            if len(self._buffer) >= 7:
                size = int(struct.unpack_from(">I", self._buffer, 3)[0]) + 8
                if len(self._buffer) >= size:
                    self.largest = max(self.largest, size)
                    whole, self._buffer = self._buffer[:size], self._buffer[size:]
                    if whole[0] == BODY and size == 8:
                        return struct.unpack_from(">H", whole, 1)[0], bodies.ContentBody(b"")
                    _, channel, frame = frames.unmarshal(whole)
                    return channel, frame
            self._receive(limit)

    def pump(self, limit: float) -> None:
        """Read one frame and put it where it belongs."""
        number, frame = self.read(limit)
        if isinstance(frame, heartbeat.Heartbeat):
            self.heartbeats += 1
        elif number == 0:
            if isinstance(frame, Connection.Close):
                self.send(Connection.CloseOk(), 0)
            self.inbox.append(frame)
        else:
            self.channels[number].arrived(frame)

    def wait(self, look: Callable[[], T | None], seconds: float = PATIENCE) -> T:
        """Read until `look` finds something; a closed connection raises."""
        limit = time.monotonic() + seconds
        while True:
            found = look()
            if found is not None:
                return found
            for frame in self.inbox:
                if isinstance(frame, Connection.Close):
                    raise Refused(frame)
            self.pump(limit)

    def expect(self, kind: type[T]) -> T:
        """The next frame on channel 0, which is of that kind."""

        def first() -> T | None:
            if self.inbox and isinstance(self.inbox[0], kind):
                return self.inbox.popleft()  # type: ignore[return-value]
            return None

        return self.wait(first)

    def pass_time(self, seconds: float = QUIET) -> None:
        """Let whatever may come, come."""
        limit = time.monotonic() + seconds
        try:
            while True:
                self.pump(limit)
        except TimeoutError:
            pass

    def hung_up(self) -> bool:
        """The broker closes the socket, whatever it says before."""
        limit = time.monotonic() + PATIENCE
        try:
            while True:
                self._receive(limit)
                self._buffer = b""
        except Gone:
            return True
        except TimeoutError:
            return False

    def refusal(self) -> Refused:
        """The broker closes the connection with a reason."""
        try:
            self.wait(lambda: None)
        except Refused as refusal:
            return refusal
        raise AssertionError("unreachable")

    def channel(self, number: int | None = None) -> "Channel":
        if number is None:
            number = max(self.channels, default=0) + 1
        channel = self.channels[number] = Channel(self, number)
        channel.call(commands.Channel.Open())
        return channel

    def close(self) -> None:
        try:
            self.send(Connection.Close(200, "bye", 0, 0), 0)
            self.expect(Connection.CloseOk)
        except (Refused, Gone, OSError):
            pass
        finally:
            self.drop()

    def drop(self) -> None:
        """As a process that dies."""
        self.socket.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Channel:
    def __init__(self, client: Client, number: int) -> None:
        self.client = client
        self.number = number
        self.inbox: deque[Any] = deque()
        self.is_open = True
        self._content: Message | None = None

    # -- in

    def arrived(self, frame: Any) -> None:
        if isinstance(frame, header.ContentHeader):
            content = self._content
            assert content, "a content header without its method"
            content.properties, content.size = frame.properties, frame.body_size
        elif isinstance(frame, bodies.ContentBody):
            content = self._content
            assert content and content.size is not None, "a body without its header"
            content.body += frame.value or b""
        elif isinstance(frame, CONTENT):
            assert self._content is None, "content within content"
            self._content = Message(frame)
        else:
            assert self._content is None, f"{frame.name} within content"
            if isinstance(frame, commands.Channel.Close):
                self.is_open = False
                self.send(commands.Channel.CloseOk())
            self.inbox.append(frame)
        if self._content and self._content.size == len(self._content.body):
            self.inbox.append(self._content)
            self._content = None

    def _first(self, wanted: Callable[[Any], bool]) -> Any:
        for item in self.inbox:
            if wanted(item):
                self.inbox.remove(item)
                return item
            if isinstance(item, commands.Channel.Close):
                raise Refused(item)
        return None

    def wait(self, wanted: Callable[[Any], bool], seconds: float = PATIENCE) -> Any:
        return self.client.wait(lambda: self._first(wanted), seconds)

    def take(self, seconds: float = PATIENCE) -> Any:
        """Whatever the broker said first."""
        return self.wait(lambda item: not isinstance(item, commands.Channel.Close), seconds)

    def expect(self, *kinds: type) -> Any:
        """The first of these kinds; what came before stays."""
        return self.wait(lambda item: isinstance(getattr(item, "method", item), kinds))

    def delivery(self, seconds: float = PATIENCE) -> Message:
        message = self.wait(
            lambda item: isinstance(item, Message) and isinstance(item.method, Basic.Deliver),
            seconds,
        )
        assert isinstance(message, Message)
        return message

    def deliveries(self, count: int) -> list[Message]:
        return [self.delivery() for _ in range(count)]

    def returned(self) -> Message:
        message = self.expect(Basic.Return)
        assert isinstance(message, Message)
        return message

    def nothing_comes(self, seconds: float = QUIET) -> bool:
        self.client.pass_time(seconds)
        return not self.inbox

    def refusal(self) -> Refused:
        """The broker closes this channel, or the connection, with a reason."""
        try:
            self.wait(lambda item: False)
        except Refused as no:
            return no
        raise AssertionError("unreachable")

    # -- out

    def send(self, frame: frames.FrameTypes) -> None:
        self.client.send(frame, self.number)

    def call(self, method: Any) -> Any:
        """The broker's answer to a method that has one."""
        self.send(method)
        answers = tuple(method.valid_responses)
        return self.wait(lambda item: getattr(getattr(item, "method", item), "name", "") in answers)

    def close(self) -> None:
        self.is_open = False
        self.call(commands.Channel.Close(200, "bye", 0, 0))
        del self.client.channels[self.number]

    def round_trip(self) -> None:
        """Everything sent before has been looked at."""
        self.call(Basic.Qos(0, 0, False))

    def flow(self, active: bool) -> bool:
        return bool(self.call(commands.Channel.Flow(active)).active)

    # -- queue

    def declare(self, queue: str = "", arguments: Any = None, **flags: bool) -> str:
        if not queue:
            flags.setdefault("exclusive", True)
        return str(self.call(Queue.Declare(queue=queue, arguments=arguments, **flags)).queue)

    def look(self, queue: str) -> tuple[int, int]:
        """How many messages are ready and how many consumers there are."""
        answer = self.call(Queue.Declare(queue=queue, passive=True))
        return answer.message_count, answer.consumer_count

    def count(self, queue: str) -> int:
        return self.look(queue)[0]

    def becomes(self, queue: str, count: int) -> bool:
        """The queue's ready messages come to this count."""
        limit = time.monotonic() + PATIENCE
        while (now := self.count(queue)) != count:
            assert time.monotonic() < limit, f"{queue} has {now} messages, not {count}"
            time.sleep(0.01)
        return True

    def bind(self, queue: str, exchange: str, key: str = "", arguments: Any = None) -> None:
        self.call(Queue.Bind(0, queue, exchange, key, False, arguments))

    def unbind(self, queue: str, exchange: str, key: str = "", arguments: Any = None) -> None:
        self.call(Queue.Unbind(0, queue, exchange, key, arguments))

    def purge(self, queue: str) -> int:
        return int(self.call(Queue.Purge(queue=queue)).message_count)

    def delete(self, queue: str, **flags: bool) -> int:
        return int(self.call(Queue.Delete(queue=queue, **flags)).message_count)

    # -- exchange

    def declare_exchange(
        self, name: str, type: str = "direct", arguments: Any = None, **flags: bool
    ) -> str:
        self.call(Exchange.Declare(exchange=name, exchange_type=type, arguments=arguments, **flags))
        return name

    def delete_exchange(self, name: str, **flags: bool) -> None:
        self.call(Exchange.Delete(exchange=name, **flags))

    def bind_exchange(
        self, destination: str, source: str, key: str = "", arguments: Any = None
    ) -> None:
        self.call(Exchange.Bind(0, destination, source, key, False, arguments))

    def unbind_exchange(
        self, destination: str, source: str, key: str = "", arguments: Any = None
    ) -> None:
        self.call(Exchange.Unbind(0, destination, source, key, False, arguments))

    # -- basic

    def publish(
        self,
        body: bytes = b"",
        key: str = "",
        exchange: str = "",
        *,
        mandatory: bool = False,
        immediate: bool = False,
        **properties: Any,
    ) -> None:
        method = Basic.Publish(0, exchange, key, mandatory, immediate)
        room = (self.client.frame_max or 1 << 20) - 8
        parts: list[frames.FrameTypes] = [method]
        parts += [header.ContentHeader(0, len(body), Properties(**properties))]
        parts += [bodies.ContentBody(body[i : i + room]) for i in range(0, len(body), room)]
        self.client.raw(b"".join(frames.marshal(part, self.number) for part in parts))

    def get(self, queue: str, no_ack: bool = True) -> Message | None:
        answer = self.call(Basic.Get(queue=queue, no_ack=no_ack))
        return answer if isinstance(answer, Message) else None

    def must_get(self, queue: str, no_ack: bool = True) -> Message:
        """Wait until there is one."""
        limit = time.monotonic() + PATIENCE
        while (message := self.get(queue, no_ack)) is None:
            assert time.monotonic() < limit, f"nothing came to {queue}"
            time.sleep(0.01)
        return message

    def drain(self, queue: str) -> list[bytes]:
        """What is ready, in order."""
        taken = []
        while message := self.get(queue):
            taken.append(message.body)
        return taken

    def consume(self, queue: str, tag: str = "", arguments: Any = None, **flags: bool) -> str:
        answer = self.call(
            Basic.Consume(queue=queue, consumer_tag=tag, arguments=arguments, **flags)
        )
        return str(answer.consumer_tag)

    def cancel(self, tag: str) -> None:
        self.call(Basic.Cancel(tag))

    def qos(self, count: int, *, everyone: bool = False, size: int = 0) -> None:
        self.call(Basic.Qos(size, count, everyone))

    def ack(self, tag: int, multiple: bool = False) -> None:
        self.send(Basic.Ack(tag, multiple))

    def nack(self, tag: int, multiple: bool = False, requeue: bool = True) -> None:
        self.send(Basic.Nack(tag, multiple, requeue))

    def reject(self, tag: int, requeue: bool = True) -> None:
        self.send(Basic.Reject(tag, requeue))

    def recover(self, requeue: bool = True) -> None:
        self.call(Basic.Recover(requeue))

    # -- confirm and tx

    def confirm(self) -> None:
        self.call(Confirm.Select())

    def confirmed(self, tag: int) -> None:
        """Wait until all up to this publish are confirmed, and none refused."""
        confirms = Confirms(self)
        confirms.until(tag)
        assert not confirms.refused, f"refused: {sorted(confirms.refused)}"

    def tx_select(self) -> None:
        self.call(Tx.Select())

    def tx_commit(self) -> None:
        self.call(Tx.Commit())

    def tx_rollback(self) -> None:
        self.call(Tx.Rollback())


class Confirms:
    """What the broker said about the publishes on a channel in confirm mode."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.taken: set[int] = set()
        self.refused: set[int] = set()
        self.floor = 0  # all up to here are answered

    def until(self, tag: int) -> None:
        while self.floor < tag:
            self.next()

    def next(self) -> None:
        answer = self.channel.expect(Basic.Ack, Basic.Nack)
        last = answer.delivery_tag
        tags = range(self.floor + 1, last + 1) if answer.multiple else range(last, last + 1)
        new = set(tags) - self.taken - self.refused
        (self.taken if isinstance(answer, Basic.Ack) else self.refused).update(new)
        while self.floor + 1 in self.taken or self.floor + 1 in self.refused:
            self.floor += 1


def fill(channel: Channel, queue: str, count: int) -> list[bytes]:
    """With 1, 2, 3 ..., and all of them are there."""
    bodies = [b"%d" % number for number in range(1, count + 1)]
    for body in bodies:
        channel.publish(body, key=queue)
    assert channel.becomes(queue, count)
    return bodies
