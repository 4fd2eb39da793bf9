"""Frames from strangers: cut anywhere, too large, out of turn, in parts."""

from pathlib import Path

import pytest
from pamqp.commands import Basic, Channel

from ottermq.engine.events import ConnectionHello
from tests.engine.plane import GREETING, Client, Plane, content, frame
from tests.wal.stores import with_room

CONVERSATION = (
    content(b"whole", "work")
    + content(b"in three pieces", "work", pieces=3)
    + content(b"", "work")
    + content(b"with headers", "work", headers={"a": [1, {"b": None}]}, message_id="m")
    + content(b"nowhere", "nothing", mandatory=True)
    + frame(Basic.Get(queue="work", no_ack=True))
    + frame(Basic.Get(queue="work"))
    + frame(Basic.Ack(2))
    + frame(Basic.Get(queue="work"))
    + frame(Basic.Reject(3, requeue=True))
)
ENDING = [
    ("Return", b"nowhere", False),
    ("GetOk", b"whole", False),
    ("GetOk", b"in three pieces", False),
    ("GetOk", b"", False),
]


def told(client: Client, count: int) -> list[tuple[str, bytes, bool]]:
    got = client.messages(count)
    return [(type(m.method).__name__, m.body, getattr(m.method, "redelivered", False)) for m in got]


def test_frames_cut_at_every_byte_mean_the_same(plane: Plane) -> None:
    plane.queue("work")
    for cut in range(1, len(CONVERSATION)):
        client = plane.client()
        client.feed(CONVERSATION[:cut])
        client.feed(CONVERSATION[cut:])
        assert told(client, 4) == ENDING, cut
        assert client.errors == []
        client.leave()
        assert with_room(lambda: plane.engine.purge(plane.queues["work"]))[0] == 2, cut


def test_frames_may_come_byte_by_byte(plane: Plane) -> None:
    plane.queue("work")
    client = plane.client()
    for at in range(len(CONVERSATION)):
        client.feed(CONVERSATION[at : at + 1])
    assert told(client, 4) == ENDING
    assert plane.ready("work") == 2


def test_a_greeting_may_come_byte_by_byte(plane: Plane) -> None:
    number = plane.engine.virtual("slow")
    for at in range(8):
        assert plane.engine.feed(number, GREETING[at : at + 1]) == 1
    plane.take_events()
    assert plane.events[-1] == ConnectionHello(number, "slow")


@pytest.mark.parametrize(
    "greeting", [b"AMQP\0\0\x08\0", b"GET / HT", b"\x16\x03\x01\x02\0\x01\0\x01"]
)
def test_another_protocol_is_told_ours_and_closed(plane: Plane, greeting: bytes) -> None:
    number = plane.engine.virtual("stranger")
    plane.engine.feed(number, greeting)
    room = bytearray(100)
    assert plane.engine.drain(number, room) == 8
    assert room[:8] == GREETING
    assert plane.engine.drain(number, room) == -1


WRONG = {
    "a frame over the limit": (b"\x03\0\x01\0\x01\xff\xf9", 501),
    "a wrong end": (frame(Basic.Ack(1))[:-1] + b"\xcd", 501),
    "no frame type": (b"\x07\0\x01\0\0\0\0\xce", 501),
    "a heartbeat on a channel": (b"\x08\0\x01\0\0\0\0\xce", 505),
    "a heartbeat with a load": (b"\x08\0\0\0\0\0\x01x\xce", 501),
    "a method of three bytes": (b"\x01\0\x01\0\0\0\x03\0\x3c\0\xce", 501),
    "a body without header": (b"\x03\0\x01\0\0\0\x01x\xce", 505),
    "a header without method": (
        content(b"x", "k")[len(frame(Basic.Publish(routing_key="k"))) :],
        505,
    ),
    "a closed channel": (content(b"x", "k", channel=7), 504),
    "a publish without arguments": (b"\x01\0\x01\0\0\0\x04\0\x3c\0\x28\xce", 501),
    "a publish that is cut": (b"\x01\0\x01\0\0\0\x09\0\x3c\0\x28\0\0\xff\0\0\xce", 501),
    "an ack of one byte": (b"\x01\0\x01\0\0\0\x05\0\x3c\0\x50\0\xce", 501),
    "an unknown tag": (frame(Basic.Ack(5)), 406),
    "all up to an unknown tag": (frame(Basic.Ack(5, True)), 406),
    "tag zero alone": (frame(Basic.Nack(0)), 406),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_broken_rule_is_told_by_its_code(plane: Plane, what: str) -> None:
    data, code = WRONG[what]
    client = plane.client()
    client.feed(data + b"\xce\0" * 50)
    assert [error[0] for error in client.errors] == [code]
    other = plane.client()
    plane.queue("work")
    other.publish(b"hello", "work")
    got = other.get("work")
    assert got is not None and got.body == b"hello"


def test_more_body_than_its_header_told_is_an_error(plane: Plane) -> None:
    client = plane.client()
    head = content(b"12345", "k")[:-13]
    client.feed(head + b"\x03\0\x01\0\0\0\x06123456\xce")
    assert client.errors[0][0] == 501


def test_a_message_larger_than_the_limit_is_refused_by_its_header(tmp_path: Path) -> None:
    plane = Plane(tmp_path, max_message_size=100)
    plane.queue("work")
    client = plane.client()
    client.publish(b"x" * 100, "work")
    client.publish(b"x" * 101, "work")
    assert client.errors[0][0] == 406
    assert plane.ready("work") == 1
    plane.close()


def test_on_a_closing_channel_all_is_dropped_but_its_end(plane: Plane) -> None:
    plane.queue("work")
    client = plane.client(channels=2)
    plane.engine.channel_close(client.id, 1, True)
    client.feed(
        content(b"late", "work") + frame(Basic.Ack(9)) + content(b"other", "work", channel=2)
    )
    assert client.errors == []
    assert plane.ready("work") == 1
    client.feed(frame(Channel.CloseOk()))
    assert client.errors == [(0, 1, "unexpected")]  # it reached Python


def test_nothing_is_heard_until_the_server_answers(plane: Plane) -> None:
    plane.queue("work")
    plane.routes["ex", "k"] = ["work"]
    plane.answering = False
    client = plane.client()
    client.feed(content(b"1", "k", "ex") + content(b"2", "work") + content(b"3", "k", "ex"))
    assert [event.key for event in plane.asked] == [b"k"]
    assert plane.ready("work") == 0
    plane.answering = True
    plane.answer(plane.asked[0])
    client.plane.wait(lambda: plane.ready("work") == 3)
    bodies = [client.get("work", no_ack=True) for _ in range(3)]
    assert [m.body for m in bodies if m] == [b"1", b"2", b"3"]


def test_a_channel_that_is_closed_while_its_publish_waits_for_a_route_holds_nobody_up(
    plane: Plane,
) -> None:
    plane.queue("work")
    plane.answering = False
    client = plane.client(channels=2)
    client.feed(content(b"1", "k", "ex") + content(b"2", "work", channel=2))
    plane.engine.channel_close(client.id, 1, True)
    plane.answering = True
    plane.answer(plane.asked[0])
    client.plane.wait(lambda: plane.ready("work") == 1)
