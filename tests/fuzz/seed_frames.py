"""Writes the first inputs for fuzz_frames: whole conversations, as clients have them.

Run from the checkout: python -m tests.fuzz.seed_frames
"""

import struct
from pathlib import Path

from pamqp.base import Frame
from pamqp.commands import Basic, Channel, Confirm, Connection, Queue, Tx

from tests.engine.plane import GREETING, content, frame
from tests.fuzz.odd_tables import tables

FOLDER = Path(__file__).resolve().parent / "corpus" / "frames"
LOOSE, UNGREETED, CONFIRMS, UNREAD, BREAKS = 1, 2, 4, 8, 16
QUEUES = "abcdefh"


def all_of(*methods: Frame, channel: int = 1) -> bytes:
    return b"".join(frame(method, channel) for method in methods)


def consume(queue: str, bits: int = 0) -> bytes:
    """The last byte tells the server how: see mini_server.h."""
    whole = frame(Basic.Consume(queue=queue, consumer_tag=f"tag-{queue}"))
    return whole[:-2] + bytes([bits]) + whole[-1:]


def with_headers(table: bytes, key: str) -> bytes:
    """An empty message with that headers table, to the queues that the key's letters name."""
    head = struct.pack(">HHQHI", 60, 0, 0, 1 << 13, len(table)) + table
    header = struct.pack(">BHI", 2, 1, len(head)) + head + b"\xce"
    return frame(Basic.Publish(exchange="ex", routing_key=key)) + header


def conversations() -> dict[str, tuple[int, bytes]]:
    hello = b"".join(content(b"hello %d" % n, queue) for n, queue in enumerate(QUEUES))
    many = b"".join(content(b"%d" % n, "a") for n in range(20))
    found = {
        "publish": (0, hello),
        "publish-confirmed": (CONFIRMS, hello + many),
        "publish-in-pieces": (0, content(b"x" * 300, "a", pieces=7)),
        "publish-large": (0, content(b"x" * 30_000, "a", pieces=5) + consume("a", 3)),
        "mandatory": (CONFIRMS, content(b"back", "nowhere", mandatory=True)),
        "get": (0, hello + all_of(*(Basic.Get(queue=q) for q in QUEUES), Basic.Ack(1, True))),
        "consume-ack": (0, consume("a", 1) + many + all_of(Basic.Ack(3, True), Basic.Ack(4))),
        "consume-back": (0, consume("a", 8) + many + all_of(Basic.Nack(0, True, True))),
        "consume-no-ack": (UNREAD, consume("a", 3) + many),
        "leave-with-much": (BREAKS, consume("a", 8) + many),
        "two-consumers": (0, many + consume("a", 1) + consume("h", 2) + all_of(Basic.Ack(2))),
        "stream": (0, content(b"1", "f") + consume("f", 6) + all_of(Basic.Ack(1), Basic.Nack(2))),
        "reject": (0, hello + all_of(Basic.Get(queue="b"), Basic.Reject(1, requeue=False))),
        "fail": (0, hello + all_of(*(Basic.Get(queue="d"), Basic.Reject(1)) * 3)),
        "expire": (0, content(b"soon", "c", expiration="0", priority=2) + hello),
        "exchange": (0, content(b"1", "abc", "ex") + content(b"2", "abc", "ex") * 2),
        "delay": (0, content(b"1", "!ab", "ex", headers={"x-delay": 1}) * 3),
        "copies": (0, content(b"1", "a", "ex", headers={"CC": ["b"], "BCC": ["d"]})),
        **{
            # To queues that it leaves by dying, and through a delay; a heartbeat's time for both.
            name: (0, with_headers(table, "bce") * 5 + with_headers(table, "!ab") * 2 + many)
            for name, table in tables().items()
        },
        "refused-exchange": (0, content(b"1", "a", "forbidden") + hello),
        "reply-to": (0, consume("a", 11) + content(b"?", "a", reply_to="amq.rabbitmq.reply-to")),
        "user": (0, content(b"1", "a", user_id="guest") + content(b"2", "a", user_id="other")),
        "rich": (0, content(b"1", "a", headers={"a": {"b": [1, "2", None]}}, message_id="m")),
        "tx": (0, b"".join(content(b"%d" % n, "ab", "ex", channel=2) for n in range(3))
               + all_of(Basic.Get(queue="a"), Basic.Ack(1), Tx.Commit(), Tx.Rollback(), channel=2)),
        "channels": (0, all_of(Channel.Open(), channel=3) + content(b"3", "a", channel=3)
                     + all_of(Channel.Flow(active=False), Channel.Close(200, "", 0, 0), channel=3)
                     + all_of(Channel.Open(), Confirm.Select(), channel=3)),
        "qos-recover": (0, all_of(Basic.Qos(prefetch_count=2, global_=True)) + consume("a", 1)
                        + many + all_of(Basic.Recover(requeue=True), Basic.Cancel("tag-a"))),
        "queues-go": (0, consume("a", 1) + many + all_of(Queue.Delete(queue="a"), Basic.Ack(1))
                      + hello + all_of(Queue.Purge(queue="b"), Queue.Delete(queue="c"))),
        "unknown-tag": (0, all_of(Basic.Ack(77)) + hello),
        "close": (0, hello + all_of(Connection.Close(200, "", 0, 0), channel=0) + hello),
        "greeting": (UNGREETED, GREETING + all_of(Connection.CloseOk(), channel=0)),
        "other-greeting": (UNGREETED, b"AMQP\0\0\x08\0" + hello),
        "body-only": (0, content(b"abc", "a")[-11:]),
        "heartbeats": (0, b"\x08\0\0\0\0\0\0\xce" * 3 + hello),
    }  # fmt: skip
    return found


def loose(data: bytes) -> bytes:
    """The same frames without sizes and ends: mutations then change what they say."""
    found = b""
    while data:
        size = int.from_bytes(data[3:7], "big")
        if size < 256:
            found += bytes([data[0], data[2], size]) + data[7 : 7 + size]
        data = data[8 + size :]
    return found


def seeds() -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name, (mode, data) in conversations().items():
        found[name] = bytes([mode, 0]) + data
        if not mode & UNGREETED and name != "body-only":
            found[f"{name}-loose"] = bytes([mode | LOOSE, 0]) + loose(data)
    found["byte-by-byte"] = bytes([0, 1]) + found["get"][2:]
    return found


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, data in seeds().items():
        (FOLDER / name).write_bytes(data)
