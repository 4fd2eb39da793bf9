"""A data directory of an earlier version opens, and all is there.

tests/data/make_old_data.py filled it with commit bc3a773, and stopped that broker once cleanly
and once with kill -9. The audit's look at it is tests/audit/test_old_data.py.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from ottermq.kafka.api import Api
from tests import brokers
from tests.amqp.wire import Client, Message, Refused, eventually
from tests.brokers import KAFKA_ADMIN, PATIENCE, Broker
from tests.kafka.raw_client import RawClient
from tests.old_data import ENDS, body_of, expected, unpack

# The older it gets, the more would have expired by now.
ENV = {"OTTERMQ_KAFKA__GROUPS__OFFSETS_RETENTION": "36500d"}
Known = dict[str, Any]


@pytest.fixture(scope="module", params=ENDS)
def opened(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Broker, Known]]:
    data = unpack(request.param, tmp_path_factory.mktemp(request.param))
    is_whole(data)
    with Broker(data, env=ENV) as broker:
        yield broker, expected(request.param)
        assert broker.stop() == 0
        assert not [line for line in broker.lines if " ERROR " in line]
    is_whole(data)


@pytest.fixture
def broker(opened: tuple[Broker, Known]) -> Broker:
    return opened[0]


@pytest.fixture
def known(opened: tuple[Broker, Known]) -> Known:
    return opened[1]


def is_whole(data: Path) -> None:
    done = brokers.run("segment", "verify", str(data))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all well" in done.stdout


def kafka(broker: Broker, **options: Any) -> dict[str, Any]:
    host, port = broker.address("kafka")
    return {"bootstrap.servers": f"{host}:{port}", **KAFKA_ADMIN, **options}


# -- AMQP


def taken(client: Client, queue: str, count: int) -> list[Message]:
    """So many, in order, all of which come back when the client is gone."""
    channel = client.channel()
    return [channel.must_get(queue, no_ack=False) for _ in range(count)]


def test_queues_have_what_was_not_acked_in_order(broker: Broker, known: Known) -> None:
    for queue, wanted in known["queues"].items():
        client = Client(broker.address("amqp"))
        found = taken(client, queue, len(wanted))
        channel = client.channel()
        assert channel.get(queue) is None, queue
        if queue == "urgent":  # by priority, and in order within one
            assert [message.properties.priority for message in found] == sorted(
                (message.properties.priority for message in found), reverse=True
            )
        assert [message.body for message in found] == [body_of(each["label"]) for each in wanted]
        assert [message.redelivered for message in found] == [
            each["redelivered"] for each in wanted
        ], queue
        assert {message.properties.delivery_mode for message in found} == {2}
        for message, each in zip(found, wanted, strict=True):
            if "death" in each:
                [death] = message.headers["x-death"]
                assert [death["reason"], death["queue"], death["count"]] == [*each["death"], 1]
        client.drop()


def test_a_queue_of_another_vhost_has_its_own(broker: Broker) -> None:
    with Client(broker.address("amqp"), vhost="second") as client:
        [message] = taken(client, "jobs", 1)
        assert message.body == body_of("second jobs 0")


def test_queues_are_what_they_were_declared_as(broker: Broker, known: Known) -> None:
    with Client(broker.address("amqp")) as client:
        for queue, arguments in known["arguments"].items():
            client.channel().declare(queue, arguments=arguments, durable=True)
            with pytest.raises(Refused) as refused:
                other = {**arguments, "x-max-length-bytes": 1_000_000}
                client.channel().declare(queue, arguments=other, durable=True)
            assert refused.value.code == 406


def test_exchanges_bindings_and_policies_count_as_before(broker: Broker) -> None:
    with Client(broker.address("amqp")) as client:
        channel = client.channel()
        channel.declare_exchange(
            "later", "x-delayed-message", {"x-delayed-type": "direct"}, durable=True
        )
        channel.declare_exchange("clicks", "direct", {"x-super-stream": True}, durable=True)
        channel.confirm()
        channel.publish(b"one more", "eu.rome", "news", delivery_mode=2)
        channel.confirmed(1)
        assert channel.count("bounded") == 5, "the policy's max-length"
        assert channel.must_get("bounded").body == body_of("bounded 5"), "the oldest went"
        assert channel.drain("bounded")[-1] == b"one more"


def test_a_delay_that_is_over_ends_and_another_begins(broker: Broker, known: Known) -> None:
    with Client(broker.address("amqp")) as client:
        channel = client.channel()
        channel.confirm()
        channel.publish(b"soon", "late", "later", headers={"x-delay": 200})
        channel.confirmed(1)
        assert channel.becomes("late", len(known["queues"]["late"]) + 1)


def test_streams_are_read_from_any_place(broker: Broker, known: Known) -> None:
    with Client(broker.address("amqp")) as client:
        channel = client.channel()
        channel.qos(1000)
        channel.consume("events", arguments={"x-stream-offset": 120})
        wanted = [label for _, offset, _, label in known["topics"]["events"] if offset >= 120]
        found = channel.deliveries(len(wanted))
        assert [message.body for message in found] == [body_of(label) for label in wanted]


# -- users


@pytest.mark.parametrize(("user", "vhost"), [("ann", "/"), ("bob", "second")])
def test_users_have_their_passwords_and_vhosts(broker: Broker, user: str, vhost: str) -> None:
    Client(broker.address("amqp"), user=user, password=f"{user}'s", vhost=vhost).close()
    with pytest.raises(Refused):
        Client(broker.address("amqp"), user=user, password="guest", vhost=vhost)
    with pytest.raises(Refused):
        other = "/" if vhost == "second" else "second"
        Client(broker.address("amqp"), user=user, password=f"{user}'s", vhost=other)


def test_permissions_hold(broker: Broker) -> None:
    def refused(act: Callable[[Any], object]) -> bool:
        with Client(broker.address("amqp"), user="ann", password="ann's") as client:
            channel = client.channel()
            try:
                act(channel)
                channel.round_trip()
            except Refused as no:
                assert no.code == 403
                return True
            return False

    assert not refused(lambda channel: channel.look("jobs"))
    assert refused(lambda channel: channel.get("dead"))
    assert refused(lambda channel: channel.declare("new", durable=True))


def test_scram_credentials_acls_and_quotas_count(broker: Broker) -> None:
    secret = {"sasl.username": "carol", "sasl.password": "carol's"}
    for_scram = {"sasl.mechanism": "SCRAM-SHA-256", **secret}
    admin = AdminClient(kafka(broker, **for_scram))
    assert "wide" in admin.list_topics(timeout=PATIENCE).topics
    assert "paid" not in admin.list_topics(timeout=PATIENCE).topics, "no right to see it"
    no_matter: Any = None  # which it is annotated not to take
    every = AclBindingFilter(
        ResourceType.ANY, no_matter, ResourcePatternType.ANY, "User:carol", no_matter,
        AclOperation.ANY, AclPermissionType.ANY,
    )  # fmt: skip
    owner = AdminClient(kafka(broker))
    # That version kept a group's ACL as a right to all of that name, and so it still counts.
    acls = owner.describe_acls(every).result(PATIENCE)
    assert {acl.name for acl in acls} == {"wide", "carols-"}
    assert consumes(broker, "carols-own", **for_scram)
    assert not consumes(broker, "readers", **for_scram)
    component = {"entity_type": "user", "match_type": 0, "match": "carol"}
    with RawClient(broker.address("kafka")) as raw_client:
        raw_client.log_in()
        told = raw_client.ask(
            Api.DESCRIBE_CLIENT_QUOTAS, {"components": [component], "strict": False}
        )
    [entry] = told["entries"]
    [value] = entry["values"]
    assert (value["key"], value["value"]) == ("producer_byte_rate", 1_000_000.0)


def consumes(broker: Broker, group: str, **login: str) -> bool:
    """Whether a member of that group gets anything of `wide`."""
    options = {"group.id": group, "auto.offset.reset": "earliest", **login}
    consumer = Consumer(kafka(broker, **options))
    consumer.subscribe(["wide"])
    try:
        message = consumer.poll(PATIENCE)
        assert message is not None
        error = message.error()
        assert error is None or error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
        return error is None
    finally:
        consumer.close()


# -- Kafka


def records(broker: Broker, topic: str, partitions: int, isolation: str) -> list[list[Any]]:
    """Everything up to the end, as the maker noted it."""
    consumer = Consumer(
        kafka(broker, **{
            "group.id": "nobody", "isolation.level": isolation, "enable.auto.commit": False,
            "enable.partition.eof": True,
        })
    )  # fmt: skip
    try:
        consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
        found: list[list[Any]] = []
        ended: set[int] = set()
        limit = time.monotonic() + PATIENCE
        while len(ended) < partitions:
            assert time.monotonic() < limit
            message = consumer.poll(1.0)
            if message is None:
                continue
            partition = message.partition() or 0
            if message.error():
                ended.add(partition)
                continue
            value, key = message.value(), message.key()
            label = None if value is None else value.decode().partition("|")[0]
            assert value is None or value == body_of(label or "")
            found.append([partition, message.offset(), key and key.decode(), label])
        return sorted(found, key=lambda each: (each[0], each[1]))
    finally:
        consumer.close()


@pytest.mark.parametrize(("topic", "partitions"), [("wide", 3), ("events", 1), ("clicks", 2)])
def test_topics_have_their_records_where_they_were(
    broker: Broker, known: Known, topic: str, partitions: int
) -> None:
    assert records(broker, topic, partitions, "read_committed") == known["topics"][topic]


def test_a_compacted_topic_has_the_last_value_of_each_key(broker: Broker, known: Known) -> None:
    def state(of: list[list[Any]]) -> dict[str, str]:
        last = {key: label for _, _, key, label in of}
        return {key: label for key, label in last.items() if label is not None}

    found = records(broker, "table", 1, "read_committed")
    assert state(found) == state(known["topics"]["table"])
    assert len(found) < len(known["topics"]["table"]), "it was compacted"
    assert all(each in known["topics"]["table"] for each in found)


def test_transactions_ended_as_they_did_and_the_open_one_is_aborted(
    broker: Broker, known: Known
) -> None:
    """Its time is over: the restart is no reason to give it more."""
    every = known["topics"]["paid"]
    committed = [each for each in every if each[3].startswith("committed")]
    assert len(every) == 3 * len(committed)
    assert records(broker, "paid", 1, "read_uncommitted") == every
    admin = AdminClient(kafka(broker))

    def is_over() -> bool:
        at = TopicPartition("paid", 0)
        consumer = Consumer(kafka(broker, **{"group.id": "x", "isolation.level": "read_committed"}))
        _, stable = consumer.get_watermark_offsets(at, timeout=PATIENCE)
        consumer.close()
        return bool(stable > every[-1][1])

    assert admin.list_topics(timeout=PATIENCE).topics["paid"]
    assert eventually(is_over)
    assert records(broker, "paid", 1, "read_committed") == committed


def test_groups_have_their_offsets(broker: Broker, known: Known) -> None:
    admin = AdminClient(kafka(broker))
    for group, offsets in known["groups"].items():
        asked = ConsumerGroupTopicPartitions(group)
        [done] = admin.list_consumer_group_offsets([asked]).values()
        told = done.result(PATIENCE).topic_partitions
        found = [[each.topic, each.partition, each.offset, each.metadata or ""] for each in told]
        assert found == offsets


def test_topics_have_their_configs(broker: Broker) -> None:
    admin = AdminClient(kafka(broker))
    for topic, key, value in (
        ("wide", "retention.ms", "315360000000"),
        ("table", "cleanup.policy", "compact"),
        ("table", "min.cleanable.dirty.ratio", "0.01"),
    ):
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        [done] = admin.describe_configs([resource]).values()
        assert done.result(PATIENCE)[key].value == value


def test_producers_go_on_where_they_were(broker: Broker) -> None:
    """The transactional id that left one open is fenced off, and used again."""
    again = Producer(kafka(broker, **{"transactional.id": "left-open"}))
    again.init_transactions(PATIENCE)
    again.begin_transaction()
    again.produce("new", body_of("x"))
    again.commit_transaction(PATIENCE)
    assert [each[3] for each in records(broker, "new", 1, "read_committed")] == ["x"]
