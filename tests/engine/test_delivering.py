"""Who gets what: turns, priorities, credit, and what comes back."""

from pathlib import Path

import pytest
from pamqp.commands import Basic

from ottermq.engine.types import QueueFlags, StreamStart
from tests.engine.kafka_plane import KafkaPlane, batch
from tests.engine.plane import Client, Plane, content, frame


def fill(client: Client, queue: str, count: int, **how: object) -> None:
    for number in range(count):
        client.publish(b"%d" % number, queue, **how)  # type: ignore[arg-type]


def bodies(client: Client, count: int, channel: int = 1) -> list[int]:
    return [int(m.body) for m in client.messages(count, channel)]


def test_consumers_take_turns(plane: Plane) -> None:
    plane.queue("work")
    one, two, three = (plane.client() for _ in range(3))
    for client in (one, two, three):
        client.consume("work")
    fill(one, "work", 9)
    assert bodies(one, 3) == [0, 3, 6]
    assert bodies(two, 3) == [1, 4, 7]
    assert bodies(three, 3) == [2, 5, 8]


def test_a_higher_priority_is_served_first_while_it_has_credit(plane: Plane) -> None:
    plane.queue("work")
    low, high = plane.client(), plane.client()
    low.consume("work")
    high.consume("work", priority=5, prefetch=2)
    fill(low, "work", 5)
    assert bodies(high, 2) == [0, 1]
    assert bodies(low, 3) == [2, 3, 4]


def test_messages_of_a_higher_priority_go_first(plane: Plane) -> None:
    plane.queue("work", lanes=10)
    client = plane.client()
    for number, priority in enumerate([0, 5, 9, 5, 200]):
        client.publish(b"%d" % number, "work", priority=priority)
    client.consume("work")
    assert bodies(client, 5) == [2, 4, 1, 3, 0]


def test_prefetch_is_a_consumers_own(plane: Plane) -> None:
    plane.queue("work")
    client = plane.client()
    client.consume("work", "a", prefetch=2)
    fill(client, "work", 5)
    got = client.messages(2)
    assert client.is_quiet()
    client.ack(got[0].tag)
    assert bodies(client, 1) == [2]
    assert client.is_quiet()
    client.consume("work", "b", prefetch=1)
    assert bodies(client, 1) == [3]
    assert client.is_quiet()


def test_a_channels_limit_counts_over_its_consumers(plane: Plane) -> None:
    plane.queue("one")
    plane.queue("two")
    client = plane.client()
    plane.engine.channel_limit(client.id, 1, 3)
    client.consume("one", "a")
    client.consume("two", "b")
    fill(client, "one", 2)
    fill(client, "two", 4)
    got = client.messages(3)
    assert client.is_quiet()
    client.ack(got[0].tag)  # of "one": the credit goes to whoever waits, here "two"
    assert client.message().method.consumer_tag == "b"
    assert client.is_quiet()


def test_recovered_credit_of_a_channel_reaches_its_other_consumers(plane: Plane) -> None:
    plane.queue("one")
    plane.queue("two")
    client = plane.client()
    plane.engine.channel_limit(client.id, 1, 1)
    client.consume("one", "a")
    fill(client, "one", 1)
    client.message()
    client.consume("two", "b")
    fill(client, "two", 1)
    assert client.is_quiet()
    plane.engine.cancel_consumer(client.id, 1, b"a", b"")
    plane.engine.channel_recover(client.id, 1)
    assert client.message().method.consumer_tag == "b"


def test_a_returned_message_returns_to_its_own_place(plane: Plane) -> None:
    plane.queue("work")
    client = plane.client(channels=2)
    fill(client, "work", 6)
    got = [client.get("work") for _ in range(4)]
    tags = [m.tag for m in got if m]
    client.nack(tags[2])
    client.nack(tags[0])
    again = [client.get("work", channel=2) for _ in range(4)]
    assert [(int(m.body), m.redelivered) for m in again if m] == [
        (0, True), (2, True), (4, False), (5, False),
    ]  # fmt: skip


def test_many_are_returned_at_once_in_their_order(plane: Plane) -> None:
    plane.queue("work")
    client = plane.client()
    fill(client, "work", 5)
    for _ in range(5):
        client.get("work")
    client.nack(0, multiple=True)
    assert [int(m.body) for _ in range(5) if (m := client.get("work"))] == [0, 1, 2, 3, 4]


def test_an_ack_of_many_takes_all_up_to_its_tag(plane: Plane) -> None:
    plane.queue("work")
    client = plane.client()
    client.consume("work")
    fill(client, "work", 10)
    got = client.messages(10)
    client.ack(got[3].tag)
    client.ack(got[6].tag, multiple=True)
    assert plane.unacked("work") == 3
    client.ack(0, multiple=True)
    assert plane.unacked("work") == 0
    assert client.errors == []


@pytest.mark.parametrize("multiple", [False, True])
def test_an_ack_twice_is_an_error(plane: Plane, multiple: bool) -> None:
    plane.queue("work")
    client = plane.client()
    fill(client, "work", 2)
    first, second = client.get("work"), client.get("work")
    assert first and second
    client.ack(first.tag)
    client.ack(first.tag, multiple=multiple)
    assert client.errors[0][0] == 406
    assert plane.unacked("work") == 1


def test_a_connection_that_goes_returns_what_it_held(plane: Plane) -> None:
    plane.queue("work")
    one, two = plane.client(), plane.client()
    one.consume("work")
    fill(two, "work", 5)
    got = one.messages(5)
    one.ack(got[1].tag)
    one.leave()
    two.consume("work")
    again = two.messages(4)
    assert [(int(m.body), m.redelivered) for m in again] == [(n, True) for n in (0, 2, 3, 4)]


def test_a_single_active_consumer_has_it_all_until_it_goes(plane: Plane) -> None:
    plane.queue("work", flags=QueueFlags.SINGLE_ACTIVE)
    one, two = plane.client(), plane.client()
    one.consume("work")
    two.consume("work")
    fill(two, "work", 3)
    assert bodies(one, 3) == [0, 1, 2]
    assert two.is_quiet()
    one.leave()
    assert bodies(two, 3) == [0, 1, 2]


def test_a_queue_can_go_under_load(plane: Plane) -> None:
    client = plane.client()
    for _ in range(20):
        plane.queue("work")
        client.consume("work", "c")
        fill(client, "work", 50)
        got = client.messages(20)
        plane.remove("work")
        client.publish(b"late", "work")
        client.ack(got[5].tag, multiple=True)
        client.nack(got[6].tag)
        client.reject(got[7].tag)
        client.nack(0, multiple=True)
        client.drain()
        client.inboxes.clear()
        assert client.errors == []
    assert plane.engine.conn_stat(client.id).unacked == 0  # type: ignore[union-attr]


def test_who_gets_and_does_not_read_is_not_heard_any_more(plane: Plane) -> None:
    """Its answers would gather in memory without end."""
    plane.queue("work")
    client = plane.client()
    client.publish(b"x" * 50_000, "work")
    ask = content(b"x" * 50_000, "nowhere", mandatory=True)
    taken = 0
    for _ in range(1000):
        got = plane.engine.feed(client.id, ask)
        taken += max(got, 0)
        if got < len(ask):
            break
    stat = plane.engine.conn_stat(client.id)
    assert stat is not None and stat.output_bytes < 6 << 20
    assert taken < 300 * len(ask)
    plane.wait(lambda: len(client.inboxes.get(1).items) >= taken // len(ask))  # type: ignore[union-attr]
    client.inboxes.clear()
    got_again = client.get("work")
    assert got_again is not None and len(got_again.body) == 50_000


def test_a_consumer_that_does_not_read_holds_bounded_memory(plane: Plane) -> None:
    plane.queue("work")
    client, publisher = plane.client(), plane.client()
    client.consume("work", no_ack=True)
    for _ in range(200):
        publisher.publish(b"x" * 50_000, "work")
    stat = plane.engine.conn_stat(client.id)
    assert stat is not None and stat.output_bytes < 2 << 20
    assert len(client.messages(200)) == 200


def test_one_that_is_kept_for_long_does_not_keep_the_memory_of_all_behind_it(plane: Plane) -> None:
    plane.queue("work")
    client = plane.client()
    client.consume("work", prefetch=3)
    client.publish(b"kept", "work")
    kept = client.message()
    acked: list[int] = []
    for number in range(3000):
        client.publish(b"%d" % number, "work")
        acked.append(client.message().tag)
        client.ack(acked[-1], multiple=False)
    assert acked == list(range(2, 3002))
    client.ack(acked[-1])
    assert client.errors[0][0] == 406
    other = plane.client()
    client.leave()
    again = other.get("work")
    assert again is not None and again.body == kept.body and again.redelivered
    assert plane.ready("work") == 0


def test_tags_count_on_over_deliveries_that_need_no_ack(plane: Plane) -> None:
    plane.queue("work")
    plane.queue("news")
    client = plane.client()
    client.consume("work", "w")
    client.consume("news", "n", no_ack=True)
    for number in range(400):
        client.publish(b"%d" % number, "news" if number % 3 else "work")
    got = client.messages(400)
    assert [m.tag for m in got] == list(range(1, 401))
    held = [m.tag for m in got if m.method.consumer_tag == "w"]
    client.ack(held[5])
    client.ack(held[50], multiple=True)
    assert plane.unacked("work") == len(held) - 51
    client.ack(next(m.tag for m in got if m.method.consumer_tag == "n"))
    assert client.errors[0][0] == 406


# -- properties that are longer than a client's frames ---------------------------------------

LONG = {"trace": "x" * 6_000}  # more than a frame of 4,096 has room for
TOO_LONG = "message properties exceed frame_max"


def test_what_does_not_fit_a_consumers_frames_goes_where_rejected_messages_go(plane: Plane) -> None:
    plane.queue("failed")
    plane.queue("work", dead_letter_exchange=b"", dead_letter_key=b"failed")
    small, large = plane.client(frame_max=4096), plane.client()
    for headers in (LONG, None, LONG):
        large.publish(b"x" if headers else b"short", "work", headers=headers)
    small.consume("work")
    assert small.message().body == b"short"
    for _ in range(2):
        dead = large.get("failed")
        assert dead is not None
        assert dead.headers["trace"] == LONG["trace"]
        assert dead.headers["x-death"][0]["reason"] == "rejected"
    assert plane.ready("work") == 0


@pytest.mark.parametrize("by_get", [False, True])
def test_it_is_not_lost_because_one_client_has_small_frames(plane: Plane, by_get: bool) -> None:
    plane.queue("work")
    small, large = plane.client(frame_max=4096), plane.client()
    large.publish(b"x", "work", headers=LONG)
    if by_get:
        small.feed(frame(Basic.Get(queue="work")))
    else:
        small.consume("work")
    plane.wait(lambda: small.gone == TOO_LONG)
    message = large.get("work")
    assert message is not None and message.properties.headers == LONG


def test_a_stream_keeps_it_for_readers_with_larger_frames(plane: Plane) -> None:
    plane.queue("news", flags=QueueFlags.STREAM)
    small, large = plane.client(frame_max=4096), plane.client()
    large.publish(b"x", "news", headers=LONG)
    small.consume("news", prefetch=10, start=StreamStart.FIRST)
    large.consume("news", prefetch=10, start=StreamStart.FIRST)
    assert large.message().body == b"x"
    plane.wait(lambda: small.gone == TOO_LONG)


def test_what_fits_nobody_is_in_nobodys_way(tmp_path: Path) -> None:
    """With frames that are smaller than they were when it was published."""
    plane = Plane(tmp_path)
    plane.queue("work")
    plane.queue("news", flags=QueueFlags.STREAM)
    client = plane.client()
    for queue in ("work", "news"):
        client.publish(b"x", queue, headers=LONG)
        client.publish(b"behind", queue)
    plane.store.wait(plane.store.durable_seq)
    plane.close()
    plane = Plane(tmp_path, frame_max=4096)
    plane.queue("work")
    plane.queue("news", flags=QueueFlags.STREAM)
    client = plane.client(frame_max=4096)
    client.consume("news", prefetch=10, start=StreamStart.FIRST)
    assert client.message().body == b"behind"
    found = client.get("work")
    assert found is not None and found.body == b"behind"
    plane.close()


def test_headers_of_a_kafka_producer_are_as_many_as_a_frame_holds(tmp_path: Path) -> None:
    plane = KafkaPlane(tmp_path, frame_max=8192)
    plane.topic("work", stream=False)
    headers = [(f"h{number}", b"x" * 1000) for number in range(20)]
    assert plane.kafka().produce("work", batch(b"x", headers=headers)).error == 0
    reader = plane.client(frame_max=8192)
    for _ in range(2):  # and when it comes back
        message = reader.get("work")
        assert message is not None and len(message.properties.headers or {}) == 8
        reader.reject(message.tag, requeue=True)
    plane.close()
