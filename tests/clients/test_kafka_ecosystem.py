"""What people run beside Apache Kafka: Streams, Connect and MirrorMaker 2, each the real one,
through a kill of the broker. Their jars come by Maven (.ci/clients --java)."""

import json
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from perf import apache_kafka
from perf.served import free_port
from tests.brokers import Broker
from tests.clients.test_kafka_admin import done

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(
        not apache_kafka.is_fetched() or not shutil.which("javac"),
        reason="no jars of Apache Kafka; .ci/clients --java fetches them, if Maven can be reached",
    ),
]
JAVA = ("java", "-Xmx384m", "-XX:TieredStopAtLevel=1", "-cp")
PATIENCE = 180.0  # seconds: these start slowly, and notice a broker's end slowly
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="guest" password="guest";',
}
Settings = dict[str, str]


class KillableBroker:
    """A broker that is killed and comes back at the same address."""

    def __init__(self, data: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self._data = data
        self._broker = self._start()

    def _start(self) -> Broker:
        return Broker(self._data, "--kafka", self.address).__enter__()

    def kill_and_restart(self) -> None:
        self._broker.stop(signal.SIGKILL)
        self._broker = self._start()

    def stop(self) -> None:
        self._broker.stop()

    @property
    def client(self) -> Settings:
        """For librdkafka."""
        return {
            "bootstrap.servers": self.address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "guest",
            "sasl.password": "guest",
        }


@pytest.fixture
def killable(tmp_path: Path) -> Iterator[KillableBroker]:
    broker = KillableBroker(tmp_path / "data")
    yield broker
    broker.stop()


def properties(path: Path, *groups: Mapping[str, str]) -> Path:
    lines = [f"{name}={value}\n" for group in groups for name, value in group.items()]
    path.write_text("".join(lines))
    return path


def prefixed(prefix: str, settings: Mapping[str, str]) -> Settings:
    return {f"{prefix}{name}": value for name, value in settings.items()}


@contextmanager
def running(folder: Path, classes: str, main: str, *arguments: str) -> Iterator[None]:
    """A Java program beside the test. What it said is told when the test fails."""
    said = folder / f"{main}.output"
    with said.open("wb") as output:
        program = subprocess.Popen(
            [*JAVA, classes, main, *arguments],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
    except BaseException as error:
        error.add_note(f"{main} said: …{said.read_text(errors='replace')[-4000:]}")
        raise
    finally:
        assert program.stdin
        program.stdin.close()
        program.terminate()
        try:
            program.wait(20)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()


def eventually(holds: Callable[[], bool], what: str) -> None:
    limit = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < limit, what
        time.sleep(0.1)


def create(client: Settings, topic: str, partitions: int) -> None:
    admin = AdminClient({**client})  # an answer reaches only one that is still there
    done(admin.create_topics([NewTopic(topic, partitions, 1)]))


def produce(client: Settings, topic: str, values: list[str]) -> None:
    producer = Producer({**client, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value.encode())
    assert producer.flush(PATIENCE) == 0


class Reader:
    """All records of a topic as they are committed: key and value."""

    def __init__(self, client: Settings, topic: str) -> None:
        self.seen: list[tuple[str | None, str]] = []
        self._consumer = Consumer({
            **client,
            "group.id": f"reader of {topic}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "topic.metadata.refresh.interval.ms": 500,
            "allow.auto.create.topics": "false",
        })  # fmt: skip
        self._consumer.subscribe([topic])

    def has(self, count: int) -> bool:
        message = self._consumer.poll(0.5)
        while message is not None:
            if message.error() is None:
                key = message.key()
                self.seen.append((key.decode() if key else None, (message.value() or b"").decode()))
            message = self._consumer.poll(0.05)
        return len(self.seen) >= count

    def close(self) -> None:
        self._consumer.close()


def test_streams_count_exactly_once_through_a_kill(
    killable: KillableBroker, tmp_path: Path
) -> None:
    """Each record makes one new count: neither a count twice nor one left out."""
    source = Path(__file__).with_name("StreamsCount.java")
    jars = f"{apache_kafka.jars()}/*"
    compiling = ["javac", "-nowarn", "-cp", jars, "-d", str(tmp_path), str(source)]
    subprocess.run(compiling, check=True, timeout=PATIENCE)
    settings = properties(
        tmp_path / "streams.properties",
        {
            "application.id": "counting",
            "bootstrap.servers": killable.address,
            "processing.guarantee": "exactly_once_v2",
            "commit.interval.ms": "100",
            "statestore.cache.max.bytes": "0",  # every count is told
            "state.dir": str(tmp_path / "state"),
            "replication.factor": "1",
            "auto.offset.reset": "earliest",
        },
        LOGIN,
    )
    for topic in ("words", "counts"):
        create(killable.client, topic, 2)
    words = [f"word{n % 10}" for n in range(1000)]
    counts = Reader(killable.client, "counts")
    with running(tmp_path, f"{tmp_path}:{jars}", "StreamsCount", str(settings), "words", "counts"):
        produce(killable.client, "words", words[:500])
        eventually(lambda: counts.has(100), "nothing is counted")
        killable.kill_and_restart()
        produce(killable.client, "words", words[500:])
        eventually(lambda: counts.has(1000), f"counted {len(counts.seen)} of 1000")
    assert counts.has(1000)
    counts.close()
    for word in set(words):
        told = [int(count) for key, count in counts.seen if key == word]
        assert told == list(range(1, 101)), word


def ask(method: str, url: str, body: object = None) -> bool:
    """Whether Connect's REST interface did it."""
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return bool(answer.status < 300)
    except (urllib.error.URLError, OSError):
        return False


def test_connect_carries_a_file_through_a_kill(killable: KillableBroker, tmp_path: Path) -> None:
    """A distributed worker: its connectors, offsets and status lie in topics of ours."""
    place = f"http://127.0.0.1:{free_port()}"
    converter = "org.apache.kafka.connect.storage.StringConverter"
    storage = ("config", "offset", "status")
    settings = properties(
        tmp_path / "worker.properties",
        {
            "bootstrap.servers": killable.address,
            "group.id": "workers",
            "listeners": place,
            "key.converter": converter,
            "value.converter": converter,
            "offset.flush.interval.ms": "200",
            "plugin.discovery": "service_load",
            "plugin.path": str(apache_kafka.jars()),
        },
        {f"{each}.storage.topic": f"connect-{each}" for each in storage},
        {f"{each}.storage.replication.factor": "1" for each in storage},
        {f"{each}.storage.partitions": "2" for each in ("offset", "status")},
        *(prefixed(prefix, LOGIN) for prefix in ("", "producer.", "consumer.", "admin.")),
    )
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    source.write_text("")
    connectors = {
        "out": {"connector.class": "FileStreamSource", "file": str(source), "topic": "lines"},
        "in": {"connector.class": "FileStreamSink", "file": str(sink), "topics": "lines"},
    }
    lines = [f"line {n}" for n in range(200)]

    def arrived() -> list[str]:
        return sink.read_text().splitlines() if sink.exists() else []

    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    with running(tmp_path, f"{apache_kafka.jars()}/*", main, str(settings)):
        for name, connector in connectors.items():
            url = f"{place}/connectors/{name}/config"
            eventually(partial(ask, "PUT", url, connector), f"no connector {name}")
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in lines[:100])
        eventually(lambda: len(set(arrived())) == 100, "the first lines didn't arrive")
        killable.kill_and_restart()
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in lines[100:])
        eventually(lambda: len(set(arrived())) == 200, "the last lines didn't arrive")
    assert list(dict.fromkeys(arrived())) == lines  # at least once, in order


@pytest.mark.long
def test_mirror_maker_copies_from_and_to_apache_kafka(
    killable: KillableBroker, tmp_path: Path
) -> None:
    settings = properties(
        tmp_path / "mirror.properties",
        {
            "clusters": "otter, kafka",
            "otter.bootstrap.servers": killable.address,
            "otter->kafka.enabled": "true",
            "otter->kafka.topics": "from-otter",
            "kafka->otter.enabled": "true",
            "kafka->otter.topics": "from-kafka",
            "refresh.topics.interval.seconds": "5",
            "replication.factor": "1",
        },
        {
            f"{topic}.replication.factor": "1"
            for topic in (
                "checkpoints.topic", "heartbeats.topic", "offset-syncs.topic",
                "config.storage", "offset.storage", "status.storage",
            )
        },
        prefixed("otter.", LOGIN),
    )  # fmt: skip
    values = [f"value {n}" for n in range(200)]
    with apache_kafka.ApacheKafka(tmp_path / "kafka") as peer:
        there = {"bootstrap.servers": "{}:{}".format(*peer.address)}
        with settings.open("a") as file:
            file.write(f"kafka.bootstrap.servers={there['bootstrap.servers']}\n")
        create(killable.client, "from-otter", 1)
        create(there, "from-kafka", 1)
        produce(killable.client, "from-otter", values[:100])
        produce(there, "from-kafka", values[:100])
        at_kafka = Reader(there, "otter.from-otter")
        at_otter = Reader(killable.client, "kafka.from-kafka")
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        with running(tmp_path, f"{apache_kafka.jars()}/*", main, str(settings)):
            eventually(lambda: at_kafka.has(100), f"to Kafka came {len(at_kafka.seen)}")
            eventually(lambda: at_otter.has(100), f"from Kafka came {len(at_otter.seen)}")
            killable.kill_and_restart()
            produce(killable.client, "from-otter", values[100:])
            produce(there, "from-kafka", values[100:])
            for reader in (at_kafka, at_otter):
                eventually(partial(reader.has, 200), f"after the kill came {len(reader.seen)}")
        for reader in (at_kafka, at_otter):
            reader.close()
            assert list(dict.fromkeys(value for _, value in reader.seen)) == values
