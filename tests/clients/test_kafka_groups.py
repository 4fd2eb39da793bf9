"""Consumer groups with real clients: members that come, go and die, and a broker that does."""

import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sized
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer

from tests.brokers import Broker
from tests.clients.proxy import Proxy

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120.0
QUIET = {"log_level": 0}  # a broker that is killed is no news
PATIENT = {"session.timeout.ms": 60_000, "heartbeat.interval.ms": 300}

Named = Callable[[str], str]


@pytest.fixture
def server(broker: Broker) -> str:
    host, port = broker.address("kafka")
    return f"{host}:{port}"


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.02)


def until_there_are(seen: Sized, count: int) -> None:
    until(lambda: len(seen) == count, f"{count} records")


def create(server: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": server, **QUIET})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(PATIENCE)


def produce(server: str, topic: str, values: range) -> None:
    producer = Producer({"bootstrap.servers": server, **QUIET})
    for value in values:
        producer.produce(topic, str(value), key=str(value))
    assert producer.flush(PATIENCE) == 0


class Member(threading.Thread):
    """Takes records until it is told to leave; what it took is committed when it gives a partition
    away, so that nobody takes it again."""

    def __init__(self, server: str, group: str, topic: str, seen: "Counter[str]", **more: Any):
        super().__init__(daemon=True)
        self.consumer = Consumer(
            {
                "bootstrap.servers": server,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **PATIENT,
                **QUIET,
                **more,
            }
        )
        self.topic = topic
        self.seen = seen
        self.assigned: list[int] = []
        self.id = ""
        self.trouble: list[str] = []
        self.leaving = threading.Event()
        self.start()

    def run(self) -> None:
        consumer = self.consumer
        consumer.subscribe([self.topic], on_revoke=self._revoked, on_lost=self._lost)
        while not self.leaving.is_set():
            message = consumer.poll(0.05)
            if message is not None and not message.error():
                self.seen[(message.value() or b"").decode()] += 1
            # Asked from another thread, it would hold the GIL that a callback waits for.
            self.assigned = sorted(each.partition for each in consumer.assignment())
            self.id = consumer.memberid()
        self._commit()
        consumer.close()

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit()

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.trouble.append(f"lost {partitions}")

    def _commit(self) -> None:
        try:
            self.consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].name() != "_NO_OFFSET":
                self.trouble.append(str(error))

    def leave(self) -> None:
        self.leaving.set()
        self.join(PATIENCE)
        assert not self.is_alive() and not self.trouble, self.trouble


@pytest.mark.parametrize("strategy", ["range,roundrobin", "cooperative-sticky"])
def test_every_record_once_however_members_come_and_go(
    server: str, unique: Named, strategy: str
) -> None:
    topic, group = unique("orders"), unique("group")
    create(server, topic, 6)
    seen: Counter[str] = Counter()
    more = {"partition.assignment.strategy": strategy}
    members: list[Member] = []
    produced = 0
    for change in (2, 1, -1, 2, -2, 1, -2, 1):
        for _ in range(change):
            members.append(Member(server, group, topic, seen, **more))
        for _ in range(-change):
            members.pop(0).leave()
        produce(server, topic, range(produced, produced + 200))
        produced += 200
        until_there_are(seen, produced)
    for member in members:
        member.leave()
    assert seen == Counter(str(value) for value in range(produced))


def test_members_share_the_partitions_evenly(server: str, unique: Named) -> None:
    topic, group = unique("orders"), unique("group")
    create(server, topic, 6)
    seen: Counter[str] = Counter()
    members = [Member(server, group, topic, seen) for _ in range(3)]
    until(
        lambda: [len(member.assigned) for member in members] == [2, 2, 2],
        "two partitions each",
    )
    members.pop().leave()
    until(
        lambda: [len(member.assigned) for member in members] == [3, 3],
        "three partitions each",
    )
    for member in members:
        member.leave()


# -- kafka-python


class PythonMember(threading.Thread):
    def __init__(self, server: str, group: str, topic: str, seen: "Counter[str]") -> None:
        super().__init__(daemon=True)
        self.server, self.group, self.topic, self.seen = server, group, topic, seen
        self.leaving = threading.Event()
        self.assigned = 0
        self.start()

    def run(self) -> None:
        consumer = KafkaConsumer(
            bootstrap_servers=self.server,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=60_000,
            heartbeat_interval_ms=300,
        )
        consumer.subscribe([self.topic])
        while not self.leaving.is_set():
            found = consumer.poll(timeout_ms=50)
            for records in found.values():
                for record in records:
                    self.seen[record.value.decode()] += 1
            if found:
                consumer.commit()
            self.assigned = len(consumer.assignment())
        consumer.close()

    def leave(self) -> None:
        self.leaving.set()
        self.join(PATIENCE)
        assert not self.is_alive()


def test_a_group_of_kafka_python(server: str, unique: Named) -> None:
    topic, group = unique("orders"), unique("group")
    create(server, topic, 4)
    seen: Counter[str] = Counter()
    first = PythonMember(server, group, topic, seen)
    produce(server, topic, range(100))
    until(lambda: len(seen) == 100, "the first hundred")
    second = PythonMember(server, group, topic, seen)
    until(lambda: (first.assigned, second.assigned) == (2, 2), "two partitions each")
    produce(server, topic, range(100, 200))
    until(lambda: len(seen) == 200, "the second hundred")
    first.leave()
    until(lambda: second.assigned == 4, "all partitions")
    produce(server, topic, range(200, 300))
    until(lambda: len(seen) == 300, "the third hundred")
    second.leave()
    assert set(seen.values()) == {1}


# -- members that die


class Process:
    """A member in a process of its own, and what it told."""

    def __init__(self, server: str, group: str, topic: str) -> None:
        command = [sys.executable, "-P", str(ROOT / "tests/clients/kafka_member.py")]
        self.process = subprocess.Popen(
            [*command, server, group, topic], stdout=subprocess.PIPE, text=True
        )
        self.seen: list[tuple[int, int, str]] = []
        self.committed: dict[int, int] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            match line.split():
                case ["seen", partition, offset, value]:
                    self.seen.append((int(partition), int(offset), value))
                case ["committed", partition, offset]:
                    self.committed[int(partition)] = int(offset)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE)
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def processes(server: str, group: str, topic: str, count: int) -> Iterator[list[Process]]:
    started = [Process(server, group, topic) for _ in range(count)]
    try:
        yield started
    finally:
        for each in started:
            each.kill()


def test_what_a_killed_member_left_is_taken_over(server: str, unique: Named) -> None:
    topic, group = unique("orders"), unique("group")
    create(server, topic, 4)
    with processes(server, group, topic, 2) as members:
        victim, survivor = members
        produce(server, topic, range(200))
        until(lambda: len({v for m in members for _, _, v in m.seen}) == 200, "200 records")
        # Killed while it has partitions: else there is nothing to take over.
        until(lambda: victim.seen or survivor.seen, "a member that works")
        if not victim.seen:
            victim, survivor = survivor, victim
        victim.kill()
        produce(server, topic, range(200, 400))
        everything = {str(value) for value in range(400)}
        until(lambda: {v for m in members for _, _, v in m.seen} == everything, "400 records")
        seen = Counter(v for m in members for _, _, v in m.seen)
        again = {value for value, count in seen.items() if count > 1}
        for partition, offset, value in victim.seen:
            if value in again:  # only what it hadn't committed comes again
                assert offset >= victim.committed.get(partition, 0)
        # The one who lived took nothing twice.
        assert max(Counter(v for _, _, v in survivor.seen).values()) == 1


def test_a_static_member_comes_back_to_its_partitions(server: str, unique: Named) -> None:
    topic, group = unique("orders"), unique("group")
    create(server, topic, 2)
    seen: Counter[str] = Counter()
    first = Member(server, group, topic, seen, **{"group.instance.id": "first"})
    until(lambda: len(first.assigned) == 2, "all partitions")
    second = Member(server, group, topic, seen, **{"group.instance.id": "second"})
    until(lambda: len(second.assigned) == 1, "one partition")
    until(lambda: len(first.assigned) == 1, "the other one")
    held = second.assigned
    second.leave()  # a static member says nothing when it goes
    admin = AdminClient({"bootstrap.servers": server, **QUIET})
    described = admin.describe_consumer_groups([group])[group].result(PATIENCE)
    assert described.state is ConsumerGroupState.STABLE
    assert {member.group_instance_id for member in described.members} == {"first", "second"}
    again = Member(server, group, topic, seen, **{"group.instance.id": "second"})
    until(lambda: again.assigned == held, "its partition")
    produce(server, topic, range(50))
    until(lambda: len(seen) == 50, "50 records")
    first.leave()
    again.leave()


# -- offsets


def commit(server: str, group: str, topic: str, offset: int, metadata: str | None = None) -> None:
    config = {"bootstrap.servers": server, "group.id": group, **QUIET}
    with closing(Consumer(config)) as consumer:
        place = TopicPartition(topic, 0, offset, metadata)
        [done] = consumer.commit(offsets=[place], asynchronous=False) or []
        assert done.error is None


def committed(server: str, group: str, topic: str) -> TopicPartition:
    config = {"bootstrap.servers": server, "group.id": group, **QUIET}
    with closing(Consumer(config)) as consumer:
        [found] = consumer.committed([TopicPartition(topic, 0)], timeout=PATIENCE)
        assert found.error is None
        return found


def test_metadata_comes_back_with_an_offset(server: str, unique: Named) -> None:
    topic, group = unique("orders"), unique("group")
    create(server, topic, 1)
    commit(server, group, topic, 42, "från början")
    found = committed(server, group, topic)
    assert (found.offset, found.metadata) == (42, "från början")
    too_long = {"bootstrap.servers": server, "group.id": group, **QUIET}
    with closing(Consumer(too_long)) as consumer, pytest.raises(KafkaException) as refused:
        consumer.commit(offsets=[TopicPartition(topic, 0, 1, "x" * 5000)], asynchronous=False)
    assert refused.value.args[0].name() == "OFFSET_METADATA_TOO_LARGE"


def test_offsets_survive_a_killed_broker(tmp_path: Path, unique: Named) -> None:
    topic, group = unique("orders"), unique("group")
    data = tmp_path / "data"
    for round in range(3):
        broker = Broker(data)
        with broker:
            host, port = broker.address("kafka")
            server = f"{host}:{port}"
            if round == 0:
                create(server, topic, 1)
            else:
                found = committed(server, group, topic)
                assert (found.offset, found.metadata) == (round - 1, f"round {round - 1}")
            commit(server, group, topic, round, f"round {round}")
            broker.stop(signal.SIGKILL)


def test_a_group_goes_on_when_its_broker_was_killed(tmp_path: Path, unique: Named) -> None:
    """Its members find the same generation again: no round of joins."""
    topic, group = unique("orders"), unique("group")
    with Proxy(("127.0.0.1", 1)) as proxy:
        host, port = proxy.address
        server = f"{host}:{port}"
        env = {"OTTERMQ_KAFKA__ADVERTISED": server}
        seen: Counter[str] = Counter()
        with Broker(tmp_path / "data", env=env) as broker:
            proxy.target = broker.address("kafka")
            create(server, topic, 4)
            members = [Member(server, group, topic, seen) for _ in range(2)]
            produce(server, topic, range(100))
            until(lambda: len(seen) == 100, "100 records")
            until(lambda: [len(m.assigned) for m in members] == [2, 2], "two each")
            held = [member.assigned for member in members]
            ids = [member.id for member in members]
            broker.stop(signal.SIGKILL)
        with Broker(tmp_path / "data", env=env) as broker:
            proxy.target = broker.address("kafka")
            produce(server, topic, range(100, 200))
            until(lambda: len(seen) == 200, "200 records")
            assert [member.id for member in members] == ids
            assert [member.assigned for member in members] == held
            for member in members:
                member.leave()
            assert set(seen.values()) == {1}


# -- operators


def test_operators_list_describe_and_delete_groups(server: str, unique: Named) -> None:
    topic, group = unique("orders"), unique("group")
    create(server, topic, 2)
    seen: Counter[str] = Counter()
    member = Member(server, group, topic, seen, **{"client.id": "till"})
    until(lambda: len(member.assigned) == 2, "all partitions")
    admin = AdminClient({"bootstrap.servers": server, **QUIET})
    listed = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(PATIENCE)
    assert group in {each.group_id for each in listed.valid}
    described = admin.describe_consumer_groups([group])[group].result(PATIENCE)
    assert described.state is ConsumerGroupState.STABLE
    [only] = described.members
    assert only.client_id == "till"
    assert len(only.assignment.topic_partitions) == 2
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([group])[group].result(PATIENCE)
    assert refused.value.args[0].name() == "NON_EMPTY_GROUP"
    produce(server, topic, range(10))
    until(lambda: len(seen) == 10, "ten records")
    member.leave()
    # Back to the start for all partitions, as kafka-consumer-groups --reset-offsets does.
    back = [TopicPartition(topic, partition, 0) for partition in range(2)]
    request = ConsumerGroupTopicPartitions(group, back)
    [altered] = admin.alter_consumer_group_offsets([request]).values()
    altered.result(PATIENCE)
    [told] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    assert {place.offset for place in told.result(PATIENCE).topic_partitions} == {0}
    admin.delete_consumer_groups([group])[group].result(PATIENCE)
    listed = admin.list_consumer_groups().result(PATIENCE)
    assert group not in {each.group_id for each in listed.valid}
