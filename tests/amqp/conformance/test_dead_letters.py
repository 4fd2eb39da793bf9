"""Dead letters: why, where to, and what their headers tell."""

import datetime
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.amqp.wire import Channel, Client, Confirms, Message

Connect = Callable[..., Client]
Unique = Callable[[str], str]


def with_grave(channel: Channel, **arguments: Any) -> tuple[str, str]:
    """A queue, and the one that its dead letters go to by the default exchange."""
    grave = channel.declare()
    given = {key.replace("_", "-"): value for key, value in arguments.items()}
    queue = channel.declare(
        "", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": grave, **given}
    )
    return queue, grave


def reject(channel: Channel, queue: str) -> None:
    channel.reject(channel.must_get(queue, no_ack=False).tag, requeue=False)


def death(message: Message) -> dict[str, Any]:
    (only,) = message.headers["x-death"]
    return dict(only)


# -- the reasons


@pytest.mark.parametrize("answer", ["reject", "nack"])
def test_a_rejected_message_is_dead_lettered(channel: Channel, answer: str) -> None:
    queue, grave = with_grave(channel)
    channel.publish(b"x", key=queue)
    getattr(channel, answer)(channel.must_get(queue, no_ack=False).tag, requeue=False)
    message = channel.must_get(grave)
    assert (message.body, message.exchange, message.key) == (b"x", "", grave)
    assert death(message)["reason"] == "rejected"


def test_an_expired_message_is_dead_lettered(channel: Channel) -> None:
    queue, grave = with_grave(channel, x_message_ttl=20)
    channel.publish(b"x", key=queue)
    assert death(channel.must_get(grave))["reason"] == "expired"


def test_a_message_pushed_out_of_a_full_queue_is_dead_lettered(channel: Channel) -> None:
    queue, grave = with_grave(channel, x_max_length=2)
    for body in (b"1", b"2", b"3"):
        channel.publish(body, key=queue)
    message = channel.must_get(grave)
    assert message.body == b"1"
    assert death(message)["reason"] == "maxlen"
    assert channel.drain(queue) == [b"2", b"3"]


def test_reject_publish_dlx_dead_letters_what_does_not_fit(channel: Channel) -> None:
    queue, grave = with_grave(channel, x_max_length=1, x_overflow="reject-publish-dlx")
    channel.publish(b"1", key=queue)
    assert channel.becomes(queue, 1)
    channel.publish(b"2", key=queue)
    message = channel.must_get(grave)
    assert (message.body, death(message)["reason"]) == (b"2", "maxlen")


def test_reject_publish_dlx_goes_by_all_priorities_together(channel: Channel) -> None:
    queue, grave = with_grave(
        channel, x_max_length=1, x_overflow="reject-publish-dlx", x_max_priority=3
    )
    channel.publish(b"1", key=queue, priority=1)
    assert channel.becomes(queue, 1)
    channel.publish(b"2", key=queue, priority=3)
    channel.publish(b"3", key=queue, priority=0)
    assert channel.becomes(grave, 2)
    assert channel.drain(grave) == [b"2", b"3"]
    assert channel.drain(queue) == [b"1"]


def test_a_dead_letter_that_finds_its_queue_full_is_refused_like_a_publish(
    channel: Channel,
) -> None:
    grave = channel.declare("", {"x-max-length": 1, "x-overflow": "reject-publish"})
    queue = channel.declare("", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": grave})
    for body in (b"1", b"2", b"3"):
        channel.publish(body, key=queue)
        reject(channel, queue)
        assert channel.becomes(queue, 0)
        assert channel.becomes(grave, 1)
    assert channel.drain(grave) == [b"1"]


def test_nack_multiple_dead_letters_each_in_order(channel: Channel) -> None:
    queue, grave = with_grave(channel)
    for number in range(5):
        channel.publish(b"%d" % number, key=queue)
    channel.consume(queue)
    channel.deliveries(5)
    channel.nack(0, multiple=True, requeue=False)
    assert channel.becomes(grave, 5)
    assert channel.drain(grave) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_purged_or_deleted_queue_dead_letters_nothing(channel: Channel) -> None:
    queue, grave = with_grave(channel)
    channel.publish(b"x", key=queue)
    assert channel.becomes(queue, 1)
    channel.purge(queue)
    channel.publish(b"x", key=queue)
    assert channel.becomes(queue, 1)
    channel.delete(queue)
    assert channel.nothing_comes() and channel.count(grave) == 0


# -- where to


def test_without_a_routing_key_of_its_own_a_dead_letter_keeps_its_key(
    channel: Channel, unique: Unique
) -> None:
    exchange = channel.declare_exchange(unique("dead"), "topic")
    grave = channel.declare()
    channel.bind(grave, exchange, "#")
    queue = channel.declare("", {"x-dead-letter-exchange": exchange})
    channel.publish(b"x", key=queue)
    reject(channel, queue)
    message = channel.must_get(grave)
    assert (message.exchange, message.key) == (exchange, queue)


def test_a_dead_letter_whose_exchange_is_missing_is_dropped(
    channel: Channel, unique: Unique
) -> None:
    queue = channel.declare("", {"x-dead-letter-exchange": unique("no-such")})
    channel.publish(b"x", key=queue)
    reject(channel, queue)
    assert channel.count(queue) == 0


def test_dead_letters_fan_out_like_any_message(channel: Channel, unique: Unique) -> None:
    exchange = channel.declare_exchange(unique("dead"), "fanout")
    graves = [channel.declare() for _ in range(3)]
    for grave in graves:
        channel.bind(grave, exchange)
    queue = channel.declare("", {"x-dead-letter-exchange": exchange})
    channel.publish(b"x", key=queue)
    reject(channel, queue)
    assert [channel.must_get(grave).body for grave in graves] == [b"x"] * 3


# -- what the headers tell


def test_x_death_tells_all_about_it(channel: Channel, unique: Unique) -> None:
    exchange = channel.declare_exchange(unique("in"), "topic")
    queue, grave = with_grave(channel)
    channel.bind(queue, exchange, "a.*")
    before = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    channel.publish(b"x", key="a.b", exchange=exchange, headers={"mine": 1})
    reject(channel, queue)
    message = channel.must_get(grave)
    told = death(message)
    when = told.pop("time")
    assert told == {
        "count": 1,
        "reason": "rejected",
        "queue": queue,
        "exchange": exchange,
        "routing-keys": ["a.b"],
    }
    assert before <= when <= before + datetime.timedelta(minutes=1)
    first = {name: message.headers[f"x-first-death-{name}"] for name in ("reason", "queue")}
    assert first == {"reason": "rejected", "queue": queue}
    assert message.headers["x-first-death-exchange"] == exchange
    assert message.headers["mine"] == 1


@pytest.mark.ottermq_only("since 3.13")
def test_x_last_death_tells_the_last(channel: Channel) -> None:
    queue, grave = with_grave(channel)
    channel.publish(b"x", key=queue)
    reject(channel, queue)
    headers = channel.must_get(grave).headers
    assert headers["x-last-death-reason"] == "rejected"
    assert headers["x-last-death-queue"] == queue
    assert headers["x-last-death-exchange"] == ""


def test_routing_keys_in_x_death_hold_cc_too(channel: Channel) -> None:
    queue, grave = with_grave(channel)
    channel.publish(b"x", key=queue, headers={"CC": ["copy"]})
    reject(channel, queue)
    message = channel.must_get(grave)
    assert death(message)["routing-keys"] == [queue, "copy"]


def test_a_new_routing_key_takes_cc_away(channel: Channel) -> None:
    queue, grave = with_grave(channel)
    copy = channel.declare()
    channel.publish(b"x", key=queue, headers={"CC": [copy]})
    assert channel.must_get(copy)
    reject(channel, queue)
    assert "CC" not in channel.must_get(grave).headers
    assert channel.count(copy) == 0


def test_two_deaths_stand_newest_first(channel: Channel) -> None:
    last = channel.declare()
    middle = channel.declare("", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": last})
    first = channel.declare("", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": middle})
    channel.publish(b"x", key=first)
    reject(channel, first)
    reject(channel, middle)
    headers = channel.must_get(last).headers
    assert [death["queue"] for death in headers["x-death"]] == [middle, first]
    assert headers["x-first-death-queue"] == first


def test_rejections_in_a_ring_go_on_and_count(channel: Channel, unique: Unique) -> None:
    one, two = unique("one"), unique("two")
    for queue, other in ((one, two), (two, one)):
        channel.declare(
            queue,
            {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": other},
            exclusive=True,
        )
    channel.publish(b"x", key=one)
    for _ in range(3):
        reject(channel, one)
        reject(channel, two)
    message = channel.must_get(one)
    told = [(d["queue"], d["reason"], d["count"]) for d in message.headers["x-death"]]
    assert told == [(two, "rejected", 3), (one, "rejected", 3)]


def test_an_expiry_ring_without_a_rejection_drops_the_message(
    channel: Channel, unique: Unique
) -> None:
    one, two = unique("one"), unique("two")
    for queue, other in ((one, two), (two, one)):
        channel.declare(
            queue,
            {
                "x-message-ttl": 10,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": other,
            },
            exclusive=True,
        )
    channel.publish(b"round", key=one)
    limit = time.monotonic() + 20
    calm = 0
    while calm < 10:  # gone for good, not only on its way
        assert time.monotonic() < limit
        calm = 0 if channel.count(one) + channel.count(two) else calm + 1
        time.sleep(0.01)


def test_a_queue_may_dead_letter_to_itself_after_a_rejection(
    channel: Channel, unique: Unique
) -> None:
    queue = unique("self")
    channel.declare(
        queue, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}, exclusive=True
    )
    channel.publish(b"x", key=queue)
    reject(channel, queue)
    assert death(channel.must_get(queue))["count"] == 1


def test_expiration_is_taken_off_and_kept_as_original_expiration(channel: Channel) -> None:
    queue, grave = with_grave(channel)
    channel.publish(b"x", key=queue, expiration="10")
    message = channel.must_get(grave)
    assert not message.properties.expiration
    assert death(message)["original-expiration"] == "10"


def test_a_dead_letter_that_was_rejected_keeps_no_expiration_either(channel: Channel) -> None:
    queue, grave = with_grave(channel)
    channel.publish(b"x", key=queue, expiration="60000")
    reject(channel, queue)
    message = channel.must_get(grave)
    assert not message.properties.expiration
    assert death(message)["original-expiration"] == "60000"


def test_properties_and_headers_survive(channel: Channel) -> None:
    queue, grave = with_grave(channel)
    channel.publish(
        b"x",
        key=queue,
        content_type="text/plain",
        correlation_id="c",
        delivery_mode=2,
        headers={"deep": {"list": [1, 2.5, None]}},
    )
    reject(channel, queue)
    message = channel.must_get(grave)
    properties = message.properties
    assert (properties.content_type, properties.correlation_id, properties.delivery_mode) == (
        "text/plain",
        "c",
        2,
    )
    assert message.headers["deep"] == {"list": [1, 2.5, None]}


def test_dead_letters_of_a_backlog_keep_their_order(channel: Channel) -> None:
    queue, grave = with_grave(channel, x_message_ttl=50)
    for number in range(300):
        channel.publish(b"%d" % number, key=queue)
    assert channel.becomes(grave, 300)
    assert channel.drain(grave) == [b"%d" % number for number in range(300)]


# -- at least once


def careful(channel: Channel, unique: Unique, exchange: str, **arguments: Any) -> str:
    """A quorum queue that keeps its dead letters until somebody takes them."""
    given = {key.replace("_", "-"): value for key, value in arguments.items()}
    return channel.declare(
        unique("careful"),
        {
            "x-queue-type": "quorum",
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
            "x-dead-letter-exchange": exchange,
            **given,
        },
        durable=True,
    )


def test_at_least_once_dead_lettering_moves_messages_on(channel: Channel, unique: Unique) -> None:
    grave = channel.declare(unique("grave"), {"x-queue-type": "quorum"}, durable=True)
    queue = careful(channel, unique, "", x_dead_letter_routing_key=grave)
    channel.confirm()
    channel.publish(b"x", key=queue)
    channel.confirmed(1)
    reject(channel, queue)
    message = channel.must_get(grave)
    assert (message.body, death(message)["reason"]) == (b"x", "rejected")
    channel.delete(queue)
    channel.delete(grave)


@pytest.mark.ottermq_only("RabbitMQ refuses by the time its publishers hear of it")
@pytest.mark.parametrize("limit", [{"x_max_length": 2}, {"x_max_length_bytes": 2}])
def test_dead_letters_that_find_no_place_count_towards_the_limit(
    channel: Channel, unique: Unique, limit: dict[str, int]
) -> None:
    queue = careful(channel, unique, unique("no-such"), **limit)
    channel.confirm()
    confirms = Confirms(channel)
    for number in (1, 2):
        channel.publish(b"%d" % number, key=queue)
        confirms.until(number)
        reject(channel, queue)
    assert channel.count(queue) == 0
    channel.publish(b"3", key=queue)
    confirms.until(3)
    assert (confirms.taken, confirms.refused) == ({1, 2}, {3})


@pytest.mark.ottermq_only("since 4.3")
def test_a_purge_takes_dead_letters_that_find_no_place_along(
    channel: Channel, unique: Unique
) -> None:
    exchange = unique("later")
    queue = careful(channel, unique, exchange)
    for body in (b"1", b"2", b"3"):
        channel.publish(body, key=queue)
    for _ in range(2):
        reject(channel, queue)
    assert channel.becomes(queue, 1)
    assert channel.purge(queue) == 3
    channel.declare_exchange(exchange, "fanout")
    grave = channel.declare()
    channel.bind(grave, exchange)
    channel.publish(b"4", key=queue)
    reject(channel, queue)
    assert channel.must_get(grave).body == b"4"
    assert channel.get(grave) is None


@pytest.mark.ottermq_only("RabbitMQ tries again after three minutes only")
def test_a_dead_letter_that_finds_no_place_does_not_keep_others_from_theirs(
    channel: Channel, unique: Unique
) -> None:
    exchange = channel.declare_exchange(unique("dead"))
    source = channel.declare_exchange(unique("in"), "fanout")
    queue, grave = careful(channel, unique, exchange), channel.declare()
    channel.bind(queue, source)
    channel.bind(grave, exchange, "good")
    for number in range(10):
        channel.publish(b"%d" % number, "bad" if number % 3 else "good", source)
    channel.consume(queue)
    channel.deliveries(10)
    channel.nack(0, multiple=True, requeue=False)
    assert channel.becomes(grave, 4)
    assert channel.drain(grave) == [b"0", b"3", b"6", b"9"]
    channel.bind(grave, exchange, "bad")
    assert channel.becomes(grave, 6)
    assert sorted(channel.drain(grave)) == [b"1", b"2", b"4", b"5", b"7", b"8"]
