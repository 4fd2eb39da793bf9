"""A client of our own AMQP server, without a socket: for what the API publishes and gets.

It speaks AMQP as any client does, so that every rule of it holds here too: permissions, limits,
alarms, confirms. It is logged in by the name of the user who asks, as by a certificate.
"""

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import trio
from pamqp import body, frame, header
from pamqp.base import Frame
from pamqp.commands import Basic, Channel, Confirm, Connection
from pamqp.constants import FRAME_HEADER_SIZE
from pamqp.header import ProtocolHeader

from ottermq.admin.api.call import Call, bad_request
from ottermq.admin.messages import Problem, unauthorized
from ottermq.net.virtual_conn import VirtualConnection

PATIENCE = 5.0  # seconds for a whole conversation
CHUNK = 1 << 17
FRAME_MAX = 131072
OVERHEAD = FRAME_HEADER_SIZE + 1
HERE = 1  # the channel
NAME = "management"


class Closed(Exception):
    """The server closed the channel or the connection."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code

    def problem(self) -> Problem:
        if self.code == 403:
            return unauthorized(str(self))
        return bad_request(f"{self.code} {self}")


class InternalClient:
    def __init__(self, end: VirtualConnection) -> None:
        self._end = end
        self._received = bytearray()

    async def open(self, vhost: str) -> None:
        await self._feed(ProtocolHeader(0, 9, 1).marshal())
        await self.wait(Connection.Start)
        properties: dict[str, Any] = {"product": "OtterMQ", "connection_name": NAME}
        start_ok = Connection.StartOk(properties, "EXTERNAL", "", "en_US")
        await self.send(start_ok, channel=0)
        tune = await self.wait(Connection.Tune)
        frame_max = min(tune.frame_max, FRAME_MAX)
        await self.send(Connection.TuneOk(tune.channel_max, frame_max, 0), channel=0)
        await self.send(Connection.Open(vhost), channel=0)
        await self.wait(Connection.OpenOk)
        self.frame_max = frame_max
        await self.send(Channel.Open())
        await self.wait(Channel.OpenOk)

    async def close(self) -> None:
        await self.send(Connection.Close(200, "done", 0, 0), channel=0)
        await self.wait(Connection.CloseOk)

    async def select_confirms(self) -> None:
        await self.send(Confirm.Select())
        await self.wait(Confirm.SelectOk)

    async def publish(
        self, exchange: str, key: str, properties: Basic.Properties, content: bytes
    ) -> None:
        """mandatory: what has no queue comes back. Problem: a value has no place in AMQP."""
        parts: list[frame.FrameTypes] = [Basic.Publish(0, exchange, key, True)]
        parts.append(header.ContentHeader(0, len(content), properties))
        room = self.frame_max - OVERHEAD
        parts += [body.ContentBody(content[at : at + room]) for at in range(0, len(content), room)]
        try:
            encoded = [frame.marshal(part, HERE) for part in parts]
        except (TypeError, ValueError, OverflowError, struct.error) as error:
            raise bad_request(f"the key or a property can't be sent: {error}") from None
        await self._feed(b"".join(encoded))

    async def content(self) -> tuple[Basic.Properties, bytes]:
        """Of the message that just arrived."""
        head = await self._next()
        found = bytearray()
        while len(found) < head.body_size:
            found += (await self._next()).value
        return head.properties, bytes(found)

    async def send(self, part: frame.FrameTypes, channel: int = HERE) -> None:
        await self._feed(frame.marshal(part, channel))

    async def wait(self, *wanted: type[Frame]) -> Any:
        """The next of these; all else is passed over."""
        while True:
            part = await self._next()
            if isinstance(part, wanted):
                return part

    async def _next(self) -> Any:
        while True:
            part = self._cut()
            if part is not None:
                break
            if data := self._end.drain(CHUNK):
                self._received += data
            elif self._end.closed:
                raise Closed(541, "the connection ended")
            else:
                await self._end.wait_output()
        if isinstance(part, Channel.Close | Connection.Close):
            raise Closed(part.reply_code or 0, part.reply_text)
        return part

    def _cut(self) -> Any:
        if len(self._received) < OVERHEAD:
            return None
        size = OVERHEAD + int.from_bytes(self._received[3:7])
        if len(self._received) < size:
            return None
        _, _, part = frame.unmarshal(bytes(self._received[:size]))
        del self._received[:size]
        return part

    async def _feed(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            taken = self._end.feed(rest)
            rest = rest[taken:]
            if not taken:  # it tells when there is room, but not after it took a part
                if self._end.closed:
                    raise Closed(541, "the connection ended")
                await self._end.wait_room()


@asynccontextmanager
async def connected(call: Call) -> AsyncIterator[InternalClient]:
    """Problem: what the server refused, or it takes too long, as it does in an alarm."""
    end = call.context.amqp.open_internal(call.user.name, call.peer)
    try:
        with trio.move_on_after(PATIENCE) as patience:
            client = InternalClient(end)
            try:
                await client.open(call.vhost)
                yield client
                await client.close()
            except Closed as closed:
                raise closed.problem() from None
    finally:
        end.hang_up()
    if patience.cancelled_caught:
        raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "the broker takes no messages now")
