"""Transactions with a real client (librdkafka): what is committed is seen once, whoever dies."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pytest
from confluent_kafka import (
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.brokers import Broker
from tests.clients.proxy import Proxy
from tests.examples import shortened

PATIENCE = 60.0
Unique = Callable[[str], str]
PARTITIONS = 2
# When its only broker was away, librdkafka 2.16 forgets it and begins anew, but for the group's
# coordinator: send_offsets_to_transaction then waits for a broker object that is no more.
PATIENT = {"metadata.recovery.strategy": "none", "reconnect.backoff.max.ms": 500}


def transactional(kafka: str, id: str) -> Producer:
    settings = {"bootstrap.servers": kafka, "transactional.id": id, "linger.ms": 0}
    producer = Producer({**settings, **PATIENT, "transaction.timeout.ms": 50_000})
    producer.init_transactions(PATIENCE)
    return producer


def in_transaction(producer: Producer, topic: str, values: list[bytes], *, commit: bool) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(PATIENCE) == 0
    if commit:
        producer.commit_transaction(PATIENCE)
    else:
        producer.abort_transaction(PATIENCE)


END = b"end"


def read_all(kafka: str, topic: str, isolation: str, partitions: int = 1) -> list[bytes]:
    """From the start to the end that there is now, or to a record that says END."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "nobody",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
        found: list[bytes] = []
        ends: set[int] = set()
        limit = time.monotonic() + PATIENCE
        while len(ends) < partitions:
            assert time.monotonic() < limit
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.value() == END or message.error():
                ends.add(message.partition() or 0)
            else:
                found.append(message.value() or b"")
        return found
    finally:
        consumer.close()


def test_only_what_was_committed_is_read_by_who_asks_for_that(kafka: str, unique: Unique) -> None:
    topic, producer = unique("tx"), transactional(kafka, unique("id"))
    in_transaction(producer, topic, [b"a", b"b"], commit=True)
    in_transaction(producer, topic, [b"never"], commit=False)
    in_transaction(producer, topic, [b"c"], commit=True)
    assert read_all(kafka, topic, "read_committed") == [b"a", b"b", b"c"]
    assert read_all(kafka, topic, "read_uncommitted") == [b"a", b"b", b"never", b"c"]


def test_an_open_transaction_holds_readers_back(kafka: str, unique: Unique) -> None:
    topic, producer = unique("tx"), transactional(kafka, unique("id"))
    in_transaction(producer, topic, [b"a"], commit=True)
    producer.begin_transaction()
    producer.produce(topic, b"b", partition=0)
    assert producer.flush(PATIENCE) == 0
    assert read_all(kafka, topic, "read_committed") == [b"a"]
    producer.commit_transaction(PATIENCE)
    assert read_all(kafka, topic, "read_committed") == [b"a", b"b"]


def test_a_second_instance_fences_the_first(kafka: str, unique: Unique) -> None:
    topic, id = unique("tx"), unique("id")
    first = transactional(kafka, id)
    first.begin_transaction()
    first.produce(topic, b"zombie", partition=0)
    assert first.flush(PATIENCE) == 0
    second = transactional(kafka, id)
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(PATIENCE)
    assert caught.value.args[0].fatal()
    in_transaction(second, topic, [b"alive"], commit=True)
    assert read_all(kafka, topic, "read_committed") == [b"alive"]


def test_an_amqp_consumer_gets_what_was_committed_in_order(
    kafka: str, url: str, unique: Unique
) -> None:
    name = unique("work")
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_declare(name, durable=True)
    producer = transactional(kafka, unique("id"))
    in_transaction(producer, name, [b"a", b"b"], commit=True)
    in_transaction(producer, name, [b"never"] * 3, commit=False)
    channel.basic_publish("", name, b"c", pika.BasicProperties(delivery_mode=2))
    in_transaction(producer, name, [b"d"], commit=True)
    got = []
    for _, _, body in channel.consume(name, auto_ack=True, inactivity_timeout=PATIENCE):
        assert body is not None
        got.append(body)
        if len(got) == 4:
            break
    channel.cancel()
    assert got == [b"a", b"b", b"c", b"d"]
    connection.close()


def message_count(broker: Broker, queue: str) -> int:
    host, port = broker.address("amqp")
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, port))
    try:
        declared = connection.channel().queue_declare(queue, durable=True)
        return int(declared.method.message_count)
    finally:
        connection.close()


def test_a_queues_message_count_is_what_was_committed_also_after_a_kill(tmp_path: Path) -> None:
    with killable(tmp_path / "data") as one:
        assert message_count(one.broker, "work") == 0
        producer = transactional(one.kafka, "id")
        in_transaction(producer, "work", [b"a", b"b"], commit=True)
        in_transaction(producer, "work", [b"never"] * 5, commit=False)
        producer.begin_transaction()
        for value in (b"c", b"d", b"e"):
            producer.produce("work", value, partition=0)
        assert producer.flush(PATIENCE) == 0
        assert message_count(one.broker, "work") == 2
        one.kill()
        assert message_count(one.broker, "work") == 2
        producer.commit_transaction(PATIENCE)
        assert message_count(one.broker, "work") == 5


# -- consume, transform, produce


class KillableBroker:
    """A broker that is killed and comes back, at an address that stays."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.proxy = Proxy(("127.0.0.1", 1))
        host, port = self.proxy.address
        self.kafka = f"{host}:{port}"
        self.broker = self._start()
        self.killed = 0

    def _start(self) -> Broker:
        broker = Broker(self.data, env={"OTTERMQ_KAFKA__ADVERTISED": self.kafka})
        self.proxy.target = broker.address("kafka")
        return broker

    def kill(self) -> None:
        self.broker.process.kill()
        self.broker.stop()
        self.proxy.cut()
        self.broker = self._start()
        self.killed += 1

    def close(self) -> None:
        self.broker.stop()
        self.proxy.close()


@contextmanager
def killable(data: Path) -> Iterator[KillableBroker]:
    one = KillableBroker(data)
    try:
        yield one
    finally:
        one.close()


class Transformer:
    """Reads `in`, writes to `out`, and commits both at once. What goes wrong is done again."""

    def __init__(self, kafka: str) -> None:
        self.kafka = kafka
        self.producer = transactional(kafka, "transformer")
        self.consumer = Consumer(
            {
                "bootstrap.servers": kafka,
                "group.id": "transformers",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **PATIENT,
            }
        )
        self.rewind()

    def committed(self) -> list[TopicPartition]:
        places = [TopicPartition("in", each) for each in range(PARTITIONS)]
        limit = time.monotonic() + PATIENCE
        while True:
            try:
                committed = self.consumer.committed(places, PATIENCE)
                break
            except KafkaException:
                assert time.monotonic() < limit
        for place in committed:
            place.offset = max(place.offset, 0)
        return committed

    def rewind(self) -> None:
        """To what was committed."""
        self.consumer.assign(self.committed())

    def step(self, disturb: Callable[[str], None]) -> bool:
        """One transaction. False: there was nothing to do."""
        batch = [each for each in self.consumer.consume(7, 1.0) if not each.error()]
        if not batch:
            return False
        self.producer.begin_transaction()
        for message in batch:
            self.producer.produce("out", message.value(), partition=message.partition() or 0)
        disturb("produced")
        self.producer.send_offsets_to_transaction(
            self.consumer.position(self.consumer.assignment()),
            self.consumer.consumer_group_metadata(),
            PATIENCE,
        )
        disturb("offsets sent")
        self._commit()
        disturb("committed")
        return True

    def _commit(self) -> None:
        limit = time.monotonic() + PATIENCE
        while True:
            try:
                self.producer.commit_transaction(PATIENCE)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > limit:
                    raise

    def close(self) -> None:
        self.consumer.close()


def transform_all(kafka: str, count: int, disturb: Callable[[str], None]) -> None:
    transformer, done = Transformer(kafka), 0
    limit = time.monotonic() + 4 * PATIENCE
    while done < count:
        assert time.monotonic() < limit
        try:
            if not transformer.step(disturb):
                done = sum(each.offset for each in transformer.committed())
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                try:
                    transformer.producer.abort_transaction(PATIENCE)
                    transformer.rewind()
                    continue
                except KafkaException:
                    pass
            transformer.close()
            transformer = Transformer(kafka)
    transformer.close()


def fill(kafka: str, count: int) -> list[bytes]:
    admin = AdminClient({"bootstrap.servers": kafka})
    made = admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in ("in", "out")])
    for each in made.values():
        each.result(PATIENCE)
    producer = Producer({"bootstrap.servers": kafka, "enable.idempotence": True})
    values = [b"%d" % n for n in range(count)]
    for n, value in enumerate(values):
        producer.produce("in", value, partition=n % PARTITIONS)
    assert producer.flush(PATIENCE) == 0
    return values


def check(kafka: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": kafka})
    for partition in range(PARTITIONS):
        producer.produce("out", END, partition=partition)
    assert producer.flush(PATIENCE) == 0
    counted = Counter(read_all(kafka, "out", "read_committed", PARTITIONS))
    assert counted == Counter(values)


@pytest.mark.parametrize("moment", shortened(["offsets sent", "produced", "committed"], 1))
def test_a_killed_broker_loses_and_doubles_nothing(tmp_path: Path, moment: str) -> None:
    with killable(tmp_path / "data") as broker:
        values = fill(broker.kafka, 60)
        steps = Counter[str]()

        def disturb(now: str) -> None:
            steps[now] += 1
            if now == moment and steps[now] in (2, 5):
                broker.kill()

        transform_all(broker.kafka, len(values), disturb)
        assert broker.killed == 2
        check(broker.kafka, values)


def test_a_client_that_dies_in_the_middle_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with killable(tmp_path / "data") as broker:
        values = fill(broker.kafka, 60)
        left = Transformer(broker.kafka)
        for moment in ("produced", "offsets sent"):

            def die(now: str, moment: str = moment) -> None:
                if now == moment:
                    raise InterruptedError

            with pytest.raises(InterruptedError):
                left.step(die)
            left.consumer.close()
            left = Transformer(broker.kafka)
        left.close()
        transform_all(broker.kafka, len(values), lambda now: None)
        check(broker.kafka, values)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_kills_at_any_time_lose_and_double_nothing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with killable(tmp_path / "data") as broker:
        values = fill(broker.kafka, 3000)
        over = threading.Event()

        def killer() -> None:
            while broker.killed < 15 and not over.wait(chance.uniform(0.1, 2.0)):
                broker.kill()

        thread = threading.Thread(target=killer)
        thread.start()
        try:
            transform_all(broker.kafka, len(values), lambda now: None)
        finally:
            over.set()
            thread.join()
        assert broker.killed > 5
        check(broker.kafka, values)
