"""Time-to-live of messages and queues, length limits, overflow, consumer time-outs."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from pamqp.commands import Basic

from tests.amqp.wire import Channel, Client, Confirms, Refused, eventually, refused

Connect = Callable[..., Client]
Unique = Callable[[str], str]


def arrive(channel: Channel, queue: str, *bodies: bytes, **properties: Any) -> None:
    """Publish, and wait until they are in the queue: one that is empty may not be so yet."""
    channel.confirm()
    for body in bodies:
        channel.publish(body, key=queue, **properties)
        channel.expect(Basic.Ack)


# -- messages


def test_messages_expire_by_the_queues_ttl(channel: Channel) -> None:
    queue = channel.declare("", {"x-message-ttl": 30})
    arrive(channel, queue, b"x")
    assert channel.becomes(queue, 0)
    assert channel.get(queue) is None


def test_messages_expire_by_their_own_expiration(channel: Channel) -> None:
    queue = channel.declare()
    arrive(channel, queue, b"x", expiration="30")
    assert channel.becomes(queue, 0)


@pytest.mark.parametrize("key", ["direct", "by headers", "copied"])
def test_messages_expire_in_time_also_where_python_routed_them(
    connect: Connect, unique: Unique, key: str
) -> None:
    """The engine sleeps while Python publishes: it must not sleep on for half a second."""
    other = connect().channel()
    dead = other.declare()
    dying = {"x-message-ttl": 30, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    headers = other.declare_exchange(unique("x"), "headers")
    queue = other.declare(unique("q"), dying)
    other.bind(queue, headers, arguments={"a": 1})
    other.consume(dead, no_ack=True)
    late = []
    for _ in range(6):
        channel = connect().channel()  # whose first publish Python has to allow
        began = time.monotonic()
        if key == "by headers":
            channel.publish(b"x", exchange=headers, headers={"a": 1})
        elif key == "copied":
            channel.publish(b"x", key=unique("nowhere"), headers={"CC": [queue]})
        else:
            channel.publish(b"x", key=queue)
        other.delivery()
        late.append(time.monotonic() - began)
    assert sorted(late)[3] < 0.25, late
    other.delete(queue)


def test_the_shorter_of_both_counts(channel: Channel) -> None:
    short = channel.declare("", {"x-message-ttl": 30})
    arrive(channel, short, b"x", expiration="600000")
    assert channel.becomes(short, 0)
    long = channel.declare("", {"x-message-ttl": 600_000})
    arrive(channel, long, b"x", expiration="30")
    assert channel.becomes(long, 0)


def test_a_message_does_not_expire_before_its_time(channel: Channel) -> None:
    queue = channel.declare("", {"x-message-ttl": 60_000})
    arrive(channel, queue, b"x", expiration="60000")
    arrive(channel, queue, b"y")
    assert channel.nothing_comes() and channel.count(queue) == 2


@pytest.mark.parametrize("by", ["queue", "message"])
def test_a_ttl_of_zero_means_now_or_never(channel: Channel, by: str) -> None:
    queue = channel.declare("", {"x-message-ttl": 0} if by == "queue" else None)
    expiration: dict[str, Any] = {"expiration": "0"} if by == "message" else {}
    arrive(channel, queue, b"nobody waits", **expiration)
    assert channel.becomes(queue, 0)
    channel.consume(queue, no_ack=True)
    channel.publish(b"somebody waits", key=queue, **expiration)
    assert channel.delivery().body == b"somebody waits"


@pytest.mark.parametrize("by", ["queue", "message"])
def test_a_ttl_of_zero_is_over_when_the_message_comes_back(channel: Channel, by: str) -> None:
    queue = channel.declare("", {"x-message-ttl": 0} if by == "queue" else None)
    channel.consume(queue)
    for _ in range(20):  # within the millisecond in which it came, now and then
        channel.publish(b"x", key=queue, expiration="0" if by == "message" else None)
        channel.reject(channel.delivery().tag, requeue=True)
        channel.count(queue)
    assert channel.nothing_comes()


def test_a_classic_queue_looks_at_its_head_only(channel: Channel) -> None:
    queue = channel.declare()
    arrive(channel, queue, b"lasting")
    arrive(channel, queue, b"brief", expiration="1")
    time.sleep(0.05)
    assert channel.count(queue) == 2
    assert channel.must_get(queue).body == b"lasting"
    assert channel.becomes(queue, 0)


def test_an_expired_message_is_never_delivered(channel: Channel) -> None:
    queue = channel.declare()
    channel.publish(b"lasting", key=queue)
    channel.publish(b"brief", key=queue, expiration="1")
    channel.publish(b"end", key=queue)
    assert channel.becomes(queue, 3)
    time.sleep(0.05)
    channel.consume(queue)
    assert [m.body for m in channel.deliveries(2)] == [b"lasting", b"end"]


def test_an_unacked_message_does_not_expire_until_it_comes_back(channel: Channel) -> None:
    queue = channel.declare("", {"x-message-ttl": 100})
    tag = channel.consume(queue)
    channel.publish(b"x", key=queue)
    message = channel.delivery()
    time.sleep(0.2)
    channel.ack(message.tag)  # its own: no error
    channel.publish(b"y", key=queue)
    message = channel.delivery()
    channel.cancel(tag)
    time.sleep(0.2)
    channel.nack(message.tag)
    assert channel.becomes(queue, 0)
    assert channel.nothing_comes()


def test_the_ttl_counts_from_the_publish_also_after_a_requeue(channel: Channel) -> None:
    queue = channel.declare("", {"x-message-ttl": 150})
    with channel.client.together():
        channel.publish(b"x", key=queue)
        channel.send(Basic.Get(queue=queue))
    message = channel.expect(Basic.GetOk)
    limit = time.monotonic() + 20
    while message:  # each return would give it new time, if that counted
        assert time.monotonic() < limit
        channel.nack(message.tag)
        message = channel.get(queue, no_ack=False)


def test_expired_messages_do_not_count_as_ready_for_long(channel: Channel) -> None:
    queue = channel.declare("", {"x-message-ttl": 50})
    channel.confirm()
    for _ in range(500):
        channel.publish(b"x", key=queue)
    channel.confirmed(500)
    assert channel.becomes(queue, 0)


# -- queues


def test_an_unused_queue_expires(client: Client, unique: Unique) -> None:
    name = client.channel().declare(unique("brief"), {"x-expires": 100})

    def gone() -> bool:
        # a passive declare is a use: look seldom
        time.sleep(0.3)
        try:
            client.channel().look(name)
        except Refused as no:
            return no.code == 404
        return False

    assert eventually(gone)


def test_a_queue_in_use_does_not_expire(client: Client, unique: Unique) -> None:
    channel = client.channel()
    expires = {"x-expires": 700}
    for attempt in range(20):
        consumed, declared, got, seen = (unique(f"{use}-{attempt}") for use in ("c", "d", "g", "s"))
        for name in (consumed, declared, got, seen):
            channel.declare(name, expires)
        channel.consume(consumed)
        until = time.monotonic() + 1.0
        pause, last = 0.0, time.monotonic()
        while time.monotonic() < until and pause < 0.5:
            try:
                channel.declare(declared, expires)
                channel.get(got)
                channel.look(seen)
            except Refused:
                assert time.monotonic() - last >= 0.5
                channel = client.channel()
            time.sleep(0.02)
            pause, last = max(pause, time.monotonic() - last), time.monotonic()
        if pause < 0.5:  # else we were asleep too long ourselves
            assert [channel.count(name) for name in (consumed, declared, got, seen)] == [0, 0, 0, 0]
            return
    pytest.skip("this machine is too busy to keep a queue in use")


# -- length


def test_a_full_queue_drops_from_its_head(channel: Channel) -> None:
    queue = channel.declare("", {"x-max-length": 3})
    for number in range(10):
        channel.publish(b"%d" % number, key=queue)
    assert channel.becomes(queue, 3)
    assert channel.drain(queue) == [b"7", b"8", b"9"]


def test_unacked_messages_do_not_count_towards_the_length(channel: Channel) -> None:
    queue = channel.declare("", {"x-max-length": 1})
    channel.publish(b"1", key=queue)
    channel.must_get(queue, no_ack=False)
    channel.publish(b"2", key=queue)
    assert channel.becomes(queue, 1)
    assert channel.drain(queue) == [b"2"]


def test_max_length_bytes_counts_bodies(channel: Channel) -> None:
    queue = channel.declare("", {"x-max-length-bytes": 100})
    for number in range(5):
        channel.publish(b"%d" % number * 40, key=queue)
    assert channel.becomes(queue, 2)
    assert channel.drain(queue) == [b"3" * 40, b"4" * 40]


def test_whichever_limit_is_met_first_counts(channel: Channel) -> None:
    queue = channel.declare("", {"x-max-length": 10, "x-max-length-bytes": 50})
    for _ in range(20):
        channel.publish(b"x" * 20, key=queue)
    assert channel.becomes(queue, 2)


def test_a_queue_of_length_zero_hands_on_but_keeps_nothing(client: Client) -> None:
    channel, other = client.channel(), client.channel()
    queue = channel.declare("", {"x-max-length": 0})
    arrive(channel, queue, b"lost")
    assert channel.becomes(queue, 0)
    other.consume(queue)
    channel.publish(b"wanted", key=queue)
    assert other.delivery().body == b"wanted"


NUMBERS = [b"%d" % number for number in range(5000)]


@pytest.mark.ottermq_only("RabbitMQ holds a consumer back that has 200 messages on their way")
@pytest.mark.parametrize(
    "limit",
    [{"x-max-length": 2}, {"x-max-length-bytes": 4}, {"x-max-length": 1, "x-max-priority": 2}],
)
@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish", "reject-publish-dlx"])
def test_a_short_queue_hands_on_all_that_a_waiting_consumer_takes(
    client: Client, limit: dict[str, Any], overflow: str
) -> None:
    channel, consumer = client.channel(), client.channel()
    queue = channel.declare("", {**limit, "x-overflow": overflow})
    consumer.consume(queue, no_ack=True)
    channel.confirm()
    with client.together():
        for body in NUMBERS:
            channel.publish(body, key=queue)
    assert [m.body for m in consumer.deliveries(len(NUMBERS))] == NUMBERS
    channel.confirmed(len(NUMBERS))


@pytest.mark.parametrize(("prefetch", "taken"), [(0, 20), (3, 5)])
def test_a_new_durable_queue_refuses_only_what_nobody_takes(
    client: Client, unique: Unique, prefetch: int, taken: int
) -> None:
    """Its first messages can't be given out before the disk has heard of it."""
    channel, consumer = client.channel(), client.channel()
    channel.confirm()
    confirms = Confirms(channel)
    consumer.qos(prefetch)
    published = 0
    for number in range(20):
        queue = channel.declare(
            unique(f"new-{number}"),
            {"x-max-length": 2, "x-overflow": "reject-publish"},
            durable=True,
        )
        consumer.consume(queue)
        with client.together():
            for body in NUMBERS[:20]:
                channel.publish(body, key=queue)
        confirms.until(published + 20)
        wanted = set(range(published + 1, published + taken + 1))
        assert confirms.taken & set(range(published + 1, published + 21)) == wanted
        published += 20
        channel.delete(queue)


def test_what_a_prefetch_has_no_room_for_falls_out_of_a_short_queue(client: Client) -> None:
    channel, consumer = client.channel(), client.channel()
    queue = channel.declare("", {"x-max-length": 2})
    consumer.qos(3)
    consumer.consume(queue)
    with client.together():
        for body in NUMBERS[:10]:
            channel.publish(body, key=queue)
    assert [m.body for m in consumer.deliveries(3)] == NUMBERS[:3]
    assert channel.becomes(queue, 2)
    assert channel.drain(queue) == NUMBERS[8:10]


OVERFLOWS = ["drop-head", "reject-publish", "reject-publish-dlx"]


@pytest.mark.parametrize("overflow", OVERFLOWS)
def test_what_consumers_have_no_credit_for_is_too_much(channel: Channel, overflow: str) -> None:
    queue = channel.declare("", {"x-max-length": 2, "x-overflow": overflow})
    channel.qos(3)
    channel.consume(queue)
    channel.confirm()
    confirms = Confirms(channel)
    with channel.client.together():
        for number in range(10):
            channel.publish(b"%d" % number, key=queue)
    confirms.until(10)
    assert [message.body for message in channel.deliveries(3)] == [b"0", b"1", b"2"]
    assert channel.becomes(queue, 2)
    dropped = overflow == "drop-head"
    assert confirms.refused == (set() if dropped else {6, 7, 8, 9, 10})
    assert channel.drain(queue) == ([b"8", b"9"] if dropped else [b"3", b"4"])


def test_what_a_standby_consumer_would_take_counts_nevertheless(client: Client) -> None:
    """Only the single active one is given anything, so only its credit makes room."""
    active, standby = client.channel(), client.channel()
    queue = active.declare(
        "",
        {"x-max-length": 1, "x-overflow": "reject-publish", "x-single-active-consumer": True},
    )
    active.qos(1)
    active.consume(queue)
    standby.consume(queue)
    standby.confirm()
    confirms = Confirms(standby)
    with client.together():
        for number in range(4):
            standby.publish(b"%d" % number, key=queue)
    confirms.until(4)
    assert confirms.refused == {3, 4}


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_a_full_queue_may_refuse_instead(channel: Channel, overflow: str) -> None:
    queue = channel.declare("", {"x-max-length": 2, "x-overflow": overflow})
    channel.confirm()
    confirms = Confirms(channel)
    for number in range(1, 6):
        channel.publish(b"%d" % number, key=queue)
        confirms.until(number)
    assert confirms.taken == {1, 2}
    assert confirms.refused == {3, 4, 5}
    assert channel.drain(queue) == [b"1", b"2"]


def test_a_queue_that_refuses_takes_again_when_there_is_room(channel: Channel) -> None:
    queue = channel.declare("", {"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.confirm()
    confirms = Confirms(channel)
    for number, answer in ((1, "taken"), (2, "refused")):
        channel.publish(b"%d" % number, key=queue)
        confirms.until(number)
        assert number in getattr(confirms, answer)
    channel.drain(queue)
    channel.publish(b"3", key=queue)
    confirms.until(3)
    assert 3 in confirms.taken


def test_without_confirms_a_refused_message_is_dropped(channel: Channel) -> None:
    queue = channel.declare("", {"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.publish(b"1", key=queue)
    assert channel.becomes(queue, 1)
    channel.publish(b"2", key=queue)
    channel.round_trip()
    assert channel.nothing_comes()
    assert channel.drain(queue) == [b"1"]


def test_a_message_refused_by_one_of_its_queues_is_nacked(channel: Channel, unique: Unique) -> None:
    exchange = channel.declare_exchange(unique("x"), "fanout")
    full = channel.declare("", {"x-max-length": 0, "x-overflow": "reject-publish"})
    roomy = channel.declare()
    for queue in (full, roomy):
        channel.bind(queue, exchange)
    channel.confirm()
    channel.publish(b"x", exchange=exchange)
    answer = channel.expect(Basic.Ack, Basic.Nack)
    assert isinstance(answer, Basic.Nack)
    assert channel.becomes(roomy, 1)


# -- consumers that never answer


@pytest.mark.ottermq_only("x-consumer-timeout on every work queue; RabbitMQ looks once a minute")
@pytest.mark.parametrize("type", ["classic", "quorum"])
def test_a_consumer_that_never_acks_is_ended(client: Client, unique: Unique, type: str) -> None:
    channel, other = client.channel(), client.channel()
    arguments: dict[str, Any] = {"x-queue-type": type, "x-consumer-timeout": 200}
    queue = other.declare(unique("slow"), arguments, durable=True)
    other.publish(b"x", key=queue)
    channel.consume(queue)
    channel.delivery()
    no = channel.refusal()
    assert (no.code, no.connection) == (406, False)
    assert no.text.startswith("PRECONDITION_FAILED - delivery acknowledgement on channel")
    again = other.must_get(queue)
    assert (again.body, again.redelivered) == (b"x", True)


@pytest.mark.ottermq_only("x-consumer-timeout on every work queue; RabbitMQ looks once a minute")
def test_a_consumer_that_acks_in_time_stays(client: Client, unique: Unique) -> None:
    channel = client.channel()
    queue = channel.declare(unique("slow"), {"x-consumer-timeout": 2000}, durable=True)
    channel.consume(queue)
    for _ in range(5):
        channel.publish(b"x", key=queue)
        channel.ack(channel.delivery().tag)
        time.sleep(0.05)
    channel.round_trip()


@pytest.mark.ottermq_only("x-consumer-timeout on every work queue; RabbitMQ looks once a minute")
@pytest.mark.parametrize("older", [{"x-consumer-timeout": 3_600_000}, {}])
@pytest.mark.parametrize("how", ["consume", "get"])
def test_each_unacked_message_is_held_to_its_own_queues_timeout(
    client: Client, unique: Unique, older: dict[str, int], how: str
) -> None:
    channel, other = client.channel(), client.channel()
    patient = other.declare(unique("patient"), older, durable=True)
    hasty = other.declare(unique("hasty"), {"x-consumer-timeout": 1000}, durable=True)
    for _ in range(3):
        other.publish(b"old", key=patient)
    channel.consume(patient)
    channel.deliveries(3)
    other.publish(b"young", key=hasty)
    if how == "consume":
        channel.consume(hasty)
        channel.delivery()
    else:
        channel.must_get(hasty, no_ack=False)
    no = channel.refusal()
    assert (no.code, no.connection) == (406, False)
    assert "Timeout value used: 1000 ms" in no.text
    assert other.must_get(hasty).redelivered


@pytest.mark.ottermq_only("x-consumer-timeout on every work queue; RabbitMQ looks once a minute")
def test_a_late_message_is_found_behind_thousands_that_have_time(
    client: Client, unique: Unique
) -> None:
    channel, other = client.channel(), client.channel()
    patient = other.declare(unique("patient"), durable=True)
    hasty = other.declare(unique("hasty"), {"x-consumer-timeout": 500}, durable=True)
    with client.together():
        for _ in range(40_000):
            other.publish(b"", key=patient)
    channel.consume(patient)
    channel.deliveries(40_000)
    other.publish(b"young", key=hasty)
    channel.consume(hasty)
    channel.delivery()
    assert channel.refusal().code == 406
    other.delete(patient)


@pytest.mark.ottermq_only("3.10 knows no x-consumer-timeout")
def test_no_consumer_is_ended_before_its_time(client: Client, unique: Unique) -> None:
    channel = client.channel()
    queue = channel.declare(unique("slow"), {"x-consumer-timeout": 1500}, durable=True)
    channel.consume(queue)
    channel.publish(b"x", key=queue)
    channel.delivery()
    since = time.monotonic()
    assert channel.refusal().code == 406
    assert time.monotonic() - since > 1.4


@pytest.mark.parametrize("value", [-1, "soon"])
@pytest.mark.ottermq_only("3.10 knows no x-consumer-timeout")
def test_a_consumer_timeout_out_of_range_is_406(
    channel: Channel, unique: Unique, value: Any
) -> None:
    with refused(406):
        channel.declare(unique("slow"), {"x-consumer-timeout": value}, durable=True)
