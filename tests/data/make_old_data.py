"""Data directories as an earlier OtterMQ left them, kept for every later change of the format.

    git worktree add --detach ../old bc3a773 && make -C ../old .venv/.core
    .venv/bin/python -m tests.data.make_old_data bc3a773 ../old/.venv/bin/python

starts that broker, fills it through both protocols, and stops it: once cleanly, once with
kill -9, so that the WAL has something to bring back. It writes COMMIT-clean.tar.xz and
COMMIT-killed.tar.xz, and COMMIT.json with what has to be in both (tests/old_data.py reads them).
"""

import json
import signal
import sys
import tarfile
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka import Message as Record
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from ottermq.kafka.api import Api
from tests.amqp.wire import Client, Message
from tests.brokers import KAFKA_ADMIN, PATIENCE, Broker
from tests.kafka.raw_client import RawClient
from tests.old_data import DATA, body_of

ENV = {
    "OTTERMQ_WAL__SEGMENT_SIZE": "64KiB",
    "OTTERMQ_KAFKA__COMPACTION_INTERVAL": "1s",
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DELAY_MS = 20_000  # long enough for the end to come first

DEFINITIONS: dict[str, Any] = {
    "vhosts": [{"name": "/"}, {"name": "second"}],
    "users": [
        {"name": "guest", "password": "guest", "tags": "administrator"},
        {"name": "ann", "password": "ann's", "tags": "monitoring"},
        # "bob's", hashed as RabbitMQ does it
        {
            "name": "bob",
            "password_hash": "AQIDBPJjm0/+aBrfIsfSs+4LptmNwqQgZsbzmV4QqfyEUBqL",
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": "",
        },
    ],
    "permissions": [
        {"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"},
        {"user": "guest", "vhost": "second", "configure": ".*", "write": ".*", "read": ".*"},
        {
            "user": "ann",
            "vhost": "/",
            "configure": "^$",
            "write": "^jobs$",
            "read": "^(jobs|amq.*)$",
        },
        {"user": "bob", "vhost": "second", "configure": "", "write": ".*", "read": ".*"},
    ],
    "topic_permissions": [
        {"user": "ann", "vhost": "/", "exchange": "amq.topic", "write": "^ann\\.", "read": ".*"}
    ],
    "policies": [
        {
            "vhost": "/", "name": "five", "pattern": "^bounded$", "apply-to": "queues",
            "priority": 1, "definition": {"max-length": 5},
        },
        {
            "vhost": "/", "name": "letters", "pattern": "^jobs$", "apply-to": "queues",
            "priority": 1,
            "definition": {"dead-letter-exchange": "", "dead-letter-routing-key": "dead"},
        },
    ],
    "exchanges": [
        {"name": "news", "vhost": "/", "type": "topic", "durable": True, "auto_delete": False,
         "internal": False, "arguments": {}},
    ],
}  # fmt: skip
QUEUES: dict[str, dict[str, Any]] = {
    "jobs": {},
    "dead": {},
    "bounded": {},
    "ledger": {"x-queue-type": "quorum", "x-delivery-limit": 5},
    "urgent": {"x-max-priority": 3},
    "short": {
        "x-message-ttl": 1500, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "expired",
    },
    "expired": {},
    "late": {},
    "events": {"x-queue-type": "stream", "x-max-age": "1000Y"},
    "clicks-0": {"x-queue-type": "stream"},
    "clicks-1": {"x-queue-type": "stream"},
}  # fmt: skip
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "wide": (3, {"retention.ms": "315360000000"}),
    "table": (1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}),
    "paid": (1, {}),
}


class Filler:
    """What it puts in, it notes: that is what has to come out."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.kafka = "{}:{}".format(*broker.address("kafka"))
        self.queues: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.topics: dict[str, list[list[Any]]] = defaultdict(list)
        self.client = Client(broker.address("amqp"))
        self.channel = self.client.channel()
        self.channel.confirm()
        self.sent = 0

    # -- AMQP

    def publish(self, label: str, key: str, exchange: str = "", **properties: Any) -> None:
        self.channel.publish(body_of(label), key, exchange, delivery_mode=2, **properties)
        self.sent += 1

    def put(self, queue: str, count: int, **properties: Any) -> None:
        """So many messages, in order, that stay."""
        known = len(self.queues[queue])
        for number in range(known, known + count):
            label = f"{queue} {number}"
            self.publish(label, queue, **properties)
            self.queues[queue].append({"label": label, "redelivered": False})
        self.channel.confirmed(self.sent)

    def declare(self) -> None:
        for queue, arguments in QUEUES.items():
            self.channel.declare(queue, arguments=arguments, durable=True)
        self.channel.bind("bounded", "news", "eu.#")
        self.channel.declare_exchange(
            "later", "x-delayed-message", {"x-delayed-type": "direct"}, durable=True
        )
        self.channel.bind("late", "later", "late")
        self.channel.declare_exchange("clicks", "direct", {"x-super-stream": True}, durable=True)
        for number in range(2):
            order = {"x-stream-partition-order": number}
            self.channel.bind(f"clicks-{number}", "clicks", str(number), order)

    def fill_queues(self) -> None:
        self.put("jobs", 60)
        self.put("ledger", 40)
        for number in range(12):
            label, priority = f"urgent {number}", number % 4
            self.publish(label, "urgent", priority=priority)
            self.queues["urgent"].append({"label": label, "redelivered": False})
        self.queues["urgent"].sort(key=lambda each: -(int(each["label"].split()[1]) % 4))
        for number in range(9):
            self.publish(f"bounded {number}", "eu.paris", "news", headers={"n": number})
        self.queues["bounded"] = [
            {"label": f"bounded {number}", "redelivered": False} for number in range(4, 9)
        ]
        for number in range(300):
            self.publish(f"events {number}", "events")
            self.topics["events"].append([0, number, "events", f"events {number}"])
        for number in range(40):
            key = str(number % 2)
            self.publish(f"clicks {number}", key, "clicks")
            self.topics["clicks"].append([number % 2, number // 2, key, f"clicks {number}"])
        self.channel.confirmed(self.sent)

    def settle(self, queue: str, count: int) -> None:
        """So many are given out, each third is acked, and others come for those; the rest is
        unacked at the end, and comes again."""
        taker = self.client.channel()
        taker.qos(count)
        taker.consume(queue)
        acked = 0
        for number, message in enumerate(taker.deliveries(count)):
            noted = self.given_out(queue, message)
            if number % 3 == 0:
                taker.ack(message.tag)
                self.queues[queue].remove(noted)
                acked += 1
        for message in taker.deliveries(acked):
            self.given_out(queue, message)

    def given_out(self, queue: str, message: Message) -> dict[str, Any]:
        label = message.body.decode().partition("|")[0]
        [noted] = [each for each in self.queues[queue] if each["label"] == label]
        noted["redelivered"] = True
        return noted

    def reject(self) -> None:
        """By the policy `letters`, to the queue `dead`."""
        taker = self.client.channel()
        for _ in range(3):
            message = taker.must_get("jobs", no_ack=False)
            label = message.body.decode().partition("|")[0]
            self.queues["jobs"] = [each for each in self.queues["jobs"] if each["label"] != label]
            self.queues["dead"].append(
                {"label": label, "redelivered": False, "death": ["rejected", "jobs"]}
            )
            taker.reject(message.tag, requeue=False)
        taker.becomes("dead", 3)
        taker.close()

    def expire(self, label: str) -> None:
        self.publish(label, "short")
        self.channel.confirmed(self.sent)
        self.queues["expired"].append(
            {"label": label, "redelivered": False, "death": ["expired", "short"]}
        )

    def delay(self, label: str, delay_ms: int) -> None:
        self.publish(label, "late", "later", headers={"x-delay": delay_ms})
        self.channel.confirmed(self.sent)
        self.queues["late"].append({"label": label, "redelivered": False})

    def fill_another_vhost(self) -> None:
        with Client(self.broker.address("amqp"), vhost="second") as client:
            channel = client.channel()
            channel.declare("jobs", durable=True)
            channel.confirm()
            channel.publish(body_of("second jobs 0"), "jobs", delivery_mode=2)
            channel.confirmed(1)

    # -- Kafka

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.kafka, **KAFKA_ADMIN})

    def create_topics(self) -> None:
        wanted = [NewTopic(name, parts, 1, config=set) for name, (parts, set) in TOPICS.items()]
        admin = self.admin()
        for done in admin.create_topics(wanted).values():
            done.result(PATIENCE)

    def noted(self, error: Any, message: Record) -> None:
        assert error is None, error
        value = message.value()
        label = None if value is None else value.decode().partition("|")[0]
        key = message.key()
        self.topics[str(message.topic())].append(
            [message.partition(), message.offset(), key and key.decode(), label]
        )

    def producer(self, **options: Any) -> Producer:
        return Producer(
            {"bootstrap.servers": self.kafka, **KAFKA_ADMIN, "linger.ms": 20, **options}
        )

    def fill_topics(self) -> None:
        for codec in CODECS:
            producer = self.producer(**{"compression.type": codec, "enable.idempotence": True})
            for number in range(30):
                producer.produce(
                    "wide", body_of(f"wide {codec} {number}"), f"key {number}",
                    partition=number % 3, headers={"codec": codec.encode()},
                    on_delivery=self.noted,
                )  # fmt: skip
            assert producer.flush(PATIENCE) == 0
        producer = self.producer()
        for number in range(400):
            value = None if number % 20 == 7 and number > 300 else body_of(f"table {number}")
            producer.produce("table", value, f"key {number % 20}", on_delivery=self.noted)
            if number % 10 == 0:
                assert producer.flush(PATIENCE) == 0
        assert producer.flush(PATIENCE) == 0
        self.broker.wait_for(" compacted log=table")

    def commit_offsets(self) -> dict[str, list[list[Any]]]:
        wanted = [TopicPartition("wide", each, 10 + each, f"noted {each}") for each in range(3)]
        settings = {"bootstrap.servers": self.kafka, **KAFKA_ADMIN, "group.id": "readers"}
        consumer = Consumer(settings)
        consumer.commit(offsets=wanted, asynchronous=False)
        consumer.close()
        readers = [["wide", each.partition, each.offset, each.metadata] for each in wanted]
        return {"readers": readers}

    def transactions(self) -> Producer:
        """One committed with offsets, one aborted; one that is open when the broker ends."""
        ended = self.transactional("ended")
        for name, commit in (("committed", True), ("aborted", False)):
            ended.begin_transaction()
            for number in range(10):
                ended.produce("paid", body_of(f"{name} {number}"), on_delivery=self.noted)
            assert ended.flush(PATIENCE) == 0
            if commit:
                consumer = Consumer(
                    {"bootstrap.servers": self.kafka, **KAFKA_ADMIN, "group.id": "in-transaction"}
                )
                ended.send_offsets_to_transaction(
                    [TopicPartition("wide", 0, 7)], consumer.consumer_group_metadata(), PATIENCE
                )
                consumer.close()
                ended.commit_transaction(PATIENCE)
            else:
                ended.abort_transaction(PATIENCE)
        left_open = self.transactional("left-open")
        left_open.begin_transaction()
        for number in range(10):
            left_open.produce("paid", body_of(f"open {number}"), on_delivery=self.noted)
        assert left_open.flush(PATIENCE) == 0
        return left_open

    def transactional(self, id: str) -> Producer:
        producer = self.producer(**{"transactional.id": id, "transaction.timeout.ms": 60_000})
        producer.init_transactions(PATIENCE)
        return producer

    def rights(self) -> None:
        admin = self.admin()
        secret = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        wanted = UserScramCredentialUpsertion("carol", secret, b"carol's", b"a salt of hers")
        admin.alter_user_scram_credentials([wanted])["carol"].result(PATIENCE)
        for kind, name, pattern, operation in (
            (ResourceType.TOPIC, "wide", ResourcePatternType.LITERAL, AclOperation.READ),
            (ResourceType.GROUP, "carols-", ResourcePatternType.PREFIXED, AclOperation.READ),
        ):
            acl = AclBinding(
                kind, name, pattern, "User:carol", "*", operation, AclPermissionType.ALLOW
            )
            for done in admin.create_acls([acl]).values():
                done.result(PATIENCE)
        entry = {
            "entity": [{"entity_type": "user", "entity_name": "carol"}],
            "ops": [{"key": "producer_byte_rate", "value": 1_000_000.0}],
        }
        with RawClient(self.broker.address("kafka")) as raw_client:
            raw_client.log_in()
            told = raw_client.ask(Api.ALTER_CLIENT_QUOTAS, {"entries": [entry]}, 1)
        assert told["entries"][0]["error_code"] == 0


def fill(broker: Broker) -> tuple[Filler, Producer, dict[str, Any]]:
    filler = Filler(broker)
    filler.declare()
    filler.fill_queues()
    filler.reject()
    filler.settle("jobs", 20)
    filler.settle("ledger", 9)
    filler.expire("expired before")
    filler.channel.becomes("expired", 1)
    filler.fill_another_vhost()
    filler.create_topics()
    filler.fill_topics()
    groups = filler.commit_offsets()
    filler.rights()
    time.sleep(4)  # a checkpoint: what comes from here on is in the WAL alone after a kill
    left_open = filler.transactions()
    groups["in-transaction"] = [["wide", 0, 7, ""]]
    filler.put("jobs", 15)
    filler.put("ledger", 5)
    filler.delay("late 0", DELAY_MS)
    filler.expire("expired after")
    for topic in filler.topics.values():
        topic.sort(key=lambda each: (each[0], each[1]))
    return filler, left_open, {
        "queues": filler.queues,
        "arguments": QUEUES,
        "topics": filler.topics,
        "groups": groups,
    }  # fmt: skip


@contextmanager
def old_broker(python: str, folder: Path) -> Iterator[Broker]:
    definitions = folder / "definitions.json"
    definitions.write_text(json.dumps(DEFINITIONS))
    broker = Broker(folder / "data", "--definitions", str(definitions), env=ENV, python=python)
    with broker:
        yield broker


def pack(data: Path, name: str) -> None:
    def nobodys(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        return info

    with tarfile.open(DATA / f"{name}.tar.xz", "w:xz", preset=9) as archive:
        archive.add(data, "data", filter=nobodys)


def make(commit: str, python: str) -> None:
    known: dict[str, Any] = {}
    for how, number in (("clean", signal.SIGTERM), ("killed", signal.SIGKILL)):
        with tempfile.TemporaryDirectory() as folder:
            with old_broker(python, Path(folder)) as broker:
                filler, left_open, known[how] = fill(broker)
                if how == "clean":
                    filler.client.drop()
                broker.stop(number)
                del left_open
            pack(Path(folder) / "data", f"{commit}-{how}")
    (DATA / f"{commit}.json").write_text(json.dumps(known, sort_keys=True) + "\n")


if __name__ == "__main__":
    make(*sys.argv[1:])
