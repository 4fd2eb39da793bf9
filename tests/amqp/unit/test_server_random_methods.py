"""Methods with random fields: whatever they hold, the server answers or closes with a code that
tells what was wrong. Never with 541, which is for mistakes of our own."""

import random
import struct
from pathlib import Path
from typing import Any

import pytest
from pamqp.commands import Channel

from ottermq.amqp.frames import LAYOUTS, METHODS
from ottermq.amqp.server import METHODS as UNDERSTOOD
from ottermq.engine.events import Event, MethodArrived, RouteWanted
from tests.amqp.unit.server_harness import Client, Closed, Harness, open_harness

ROUNDS = 600
NAMES = [
    b"", b"q", b"amq.direct", b"amq.headers", b"amq.rabbitmq.reply-to", b"amq.rabbitmq.reply-to.x",
    b"a\nb", b"\0", "ü".encode() * 100, b"\xff\xfe", b"direct", b"topic", b"x-delayed-message",
    b"x-consistent-hash", b"PLAIN", b"/", b"x" * 255,
]  # fmt: skip
KEYS = [
    b"x-message-ttl", b"x-expires", b"x-max-length", b"x-overflow", b"x-dead-letter-exchange",
    b"x-queue-type", b"x-max-priority", b"x-single-active-consumer", b"x-delivery-limit",
    b"x-stream-offset", b"x-stream-filter", b"x-priority", b"x-match", b"alternate-exchange",
    b"x-delayed-type", b"x-name-prefix", b"x-max-age", b"x-consumer-timeout", b"hash-header",
    b"CC", b"BCC", b"x-delay", b"capabilities", b"\xff",
]  # fmt: skip
NUMBERS = {"octet": 1, "short": 2, "long": 4, "longlong": 8}


class RandomMethods:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def payload(self) -> bytes:
        known = self.random.random() < 0.9
        index = self.random.choice([m.index for m in UNDERSTOOD] if known else list(METHODS))
        out = [struct.pack(">I", index)]
        kinds = [kind for _, kind in LAYOUTS[index]]
        for before, kind in zip([None, *kinds], kinds, strict=False):
            if kind != "bit":
                out.append(self.field(kind))
            elif before != "bit":
                out.append(bytes([self.random.choice([0, 0, self.random.randrange(256)])]))
        whole = b"".join(out)
        match self.random.randrange(20):
            case 0:
                return whole[: self.random.randrange(len(whole))]
            case 1:
                return whole + b"more"
            case _:
                return whole

    def field(self, kind: str) -> bytes:
        match kind:
            case "shortstr":
                name = self.random.choice(NAMES)
                return bytes([len(name)]) + name
            case "longstr":
                return b"\0\0\0\x0c\0guest\0guest"
            case "table":
                return self.table(self.random.choice([0, 0, 1, 2]))
            case _:
                size = NUMBERS[kind]
                return self.random.choice([bytes(size), b"\xff" * size, bytes(size - 1) + b"\1"])

    def table(self, size: int, depth: int = 0) -> bytes:
        entries = b""
        for _ in range(size):
            key = self.random.choice(KEYS)
            entries += bytes([len(key)]) + key + self.value(depth)
        return struct.pack(">I", len(entries)) + entries

    def value(self, depth: int) -> bytes:
        text = self.random.choice([b"", b"first", b"7D", b"quorum", b"stream", b"direct", b"\xff"])
        choices = [
            b"t\1", b"b\xff", b"I\0\0\0\x05", b"l" + b"\x7f" * 8, b"d" + bytes(8), b"V",
            b"T" + b"\xff" * 8, b"x\0\0\0\0", b"D\2\0\0\0\x07", b"A\0\0\0\0",
            b"S" + struct.pack(">I", len(text)) + text,
        ]  # fmt: skip
        if depth < 3:
            choices.append(b"F" + self.table(2, depth + 1))
        return self.random.choice(choices)

    def event(self, client: Client) -> Event:
        if self.random.random() < 0.2:
            return RouteWanted(
                client.id,
                1,
                exchange=self.random.choice(NAMES),
                key=self.random.choice(NAMES),
                properties=b"\x20\0" + self.table(1),
            )
        number = self.random.choice([0, 1, 1, 1, 1, 1, 2])
        return MethodArrived(client.id, number, self.payload())


async def spoken_with(harness: Harness, client: Client | None, event: Event) -> Client | None:
    """None: the connection is at its end."""
    assert client is not None
    try:
        await client.event(event)
    except Closed as closed:
        assert closed.code != 541, closed.text
        if closed.connection:
            harness.lose(client)
            return None
        await client.call(1, Channel.CloseOk())
    if client.id in harness.engine.gone:
        harness.lose(client)
        return None
    if 1 not in harness.server.connections[client.id].channels:
        await client.channel()
    return client


@pytest.mark.parametrize("seed", range(3))
async def test_no_method_is_our_own_mistake(tmp_path: Path, seed: int) -> None:
    random_methods = RandomMethods(seed)
    async with open_harness(tmp_path) as harness:
        client: Any = None
        for _ in range(ROUNDS):
            client = client or await harness.connected()
            client = await spoken_with(harness, client, random_methods.event(client))
