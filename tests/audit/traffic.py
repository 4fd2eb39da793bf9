"""What flows through a broker and what gets stuck in it, written through real clients.

tasks      ten messages; the first is given out, and comes back, again and again
jobs       one that nobody can do: rejected, it waits a little in `pause` and comes back
mail       rejected once each, to `grave`
later      a delayed exchange, with one message that waits for a week
readings   a topic with four records an hour, and one that is late
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pika
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pika.adapters.blocking_connection import BlockingChannel

from tests.audit import logs
from tests.brokers import Broker

DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)
START = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - 3 * HOUR
TASKS, MAIL, DEATHS, GIVEN_OUT = 10, 3, 6, 5
READINGS = 13  # four an hour, and one that is late
SMALL, LARGE = bytes(10), bytes(2000)
PERSISTENT = pika.BasicProperties(delivery_mode=2)


def write(broker: Broker) -> None:
    channel = logs.channel_to(broker)
    write_tasks(channel)
    write_poison(channel)
    write_mail(channel)
    write_delayed(channel)
    channel.connection.close()
    write_readings(broker)


def write_tasks(channel: BlockingChannel) -> None:
    channel.queue_declare("tasks", durable=True)
    for _ in range(TASKS):
        channel.basic_publish("", "tasks", SMALL, PERSISTENT)
    for _ in range(GIVEN_OUT):
        channel.basic_nack(got(channel, "tasks"), requeue=True)


def write_poison(channel: BlockingChannel) -> None:
    channel.queue_declare("jobs", durable=True, arguments=dying_to("pause"))
    channel.queue_declare(
        "pause", durable=True, arguments={"x-message-ttl": 20, **dying_to("jobs")}
    )
    channel.basic_publish("", "jobs", SMALL, PERSISTENT)
    for _ in range(DEATHS):
        channel.basic_reject(got(channel, "jobs"), requeue=False)
    until(lambda: waiting(channel, "jobs") == 1)


def write_mail(channel: BlockingChannel) -> None:
    channel.exchange_declare("post", "fanout", durable=True)
    channel.queue_declare("mail", durable=True, arguments=dying_to("grave"))
    channel.queue_declare("grave", durable=True)
    channel.queue_bind("mail", "post")
    for _ in range(MAIL):
        channel.basic_publish("post", "", SMALL, PERSISTENT)
        channel.basic_reject(got(channel, "mail"), requeue=False)
    until(lambda: waiting(channel, "grave") == MAIL)


def write_delayed(channel: BlockingChannel) -> None:
    kind = {"x-delayed-type": "direct"}
    channel.exchange_declare("later", "x-delayed-message", durable=True, arguments=kind)
    channel.queue_bind("tasks", "later", "tasks")
    in_a_week = pika.BasicProperties(delivery_mode=2, headers={"x-delay": 7 * 86_400_000})
    channel.basic_publish("later", "tasks", SMALL, in_a_week)


def write_readings(broker: Broker) -> None:
    where: dict[str, Any] = {"bootstrap.servers": logs.kafka_of(broker)}
    admin = AdminClient(where)
    admin.create_topics([NewTopic("readings", 1)])["readings"].result(60)
    producer = Producer(where)
    for number in range(READINGS):
        at = START + number // 4 * HOUR + number * MINUTE
        if number == READINGS - 1:
            at = START + 30 * MINUTE
        producer.produce(
            "readings",
            SMALL if number % 4 else LARGE,
            key="aab"[number % 3],
            partition=0,
            timestamp=int(at.timestamp() * 1000),
            # It looks like a dead letter, and isn't one.
            headers=[("amqp", b"\x81")] if number == 5 else None,
        )
    assert producer.flush(60) == 0


def dying_to(queue: str) -> dict[str, Any]:
    return {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}


def waiting(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def got(channel: BlockingChannel, queue: str) -> int:
    until(lambda: waiting(channel, queue) > 0)
    method, _, _ = channel.basic_get(queue)
    return int(method.delivery_tag)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
