"""Apache Kafka's own console tools, and with them the Java client: each a process, as operators run
them. Their jars come by Maven (.ci/clients --java)."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from perf import apache_kafka
from tests.clients.test_kafka_admin import done
from tests.examples import shortened

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(
        not apache_kafka.is_fetched(),
        reason="no jars of Apache Kafka; .ci/clients --java fetches them, if Maven can be reached",
    ),
]
TOOLS = "org.apache.kafka.tools"
JAVA = ("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{apache_kafka.JARS}/*")

Unique = Callable[[str], str]
Tool = Callable[..., str]


@pytest.fixture
def tool(kafka: str) -> Tool:
    """`tool("TopicCommand", "--list")`: what it prints."""

    def run(name: str, *arguments: str, sent: str = "") -> str:
        main = name if name.startswith("kafka.") else f"{TOOLS}.{name}"
        server = [] if name == "ProducerPerformance" else ["--bootstrap-server", kafka]
        done = subprocess.run(
            [*JAVA, main, *server, *arguments],
            input=sent,
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def read(tool: Tool, topic: str, count: int, *more: str) -> list[str]:
    limits = ("--max-messages", str(count), "--timeout-ms", "120000")
    said = tool("consumer.ConsoleConsumer", "--topic", topic, "--from-beginning", *limits, *more)
    return said.splitlines()


def test_topics_are_made_described_divided_and_deleted(tool: Tool, unique: Unique) -> None:
    topic = unique("java")
    tool("TopicCommand", "--create", "--topic", topic, "--partitions", "2")
    assert topic in tool("TopicCommand", "--list").split()
    tool("TopicCommand", "--alter", "--topic", topic, "--partitions", "3")
    described = tool("TopicCommand", "--describe", "--topic", topic)
    assert "PartitionCount: 3\tReplicationFactor: 1" in described
    assert described.count("Leader: 1\tReplicas: 1\tIsr: 1") == 3
    tool("TopicCommand", "--delete", "--topic", topic)
    assert topic not in tool("TopicCommand", "--list").split()


@pytest.mark.parametrize("codec", shortened(["none", "zstd", "gzip", "snappy", "lz4"], 2))
def test_an_idempotent_producer_and_a_group(tool: Tool, unique: Unique, codec: str) -> None:
    topic, group = unique("java"), unique("group")
    lines = [f"line {n}" for n in range(20)]
    sent = "\n".join(lines) + "\n"
    tool("ConsoleProducer", "--topic", topic, "--compression-codec", codec, sent=sent)
    assert sorted(read(tool, topic, 20, "--group", group)) == sorted(lines)
    told = tool("consumer.group.ConsumerGroupCommand", "--describe", "--group", group)
    [row] = [line.split() for line in told.splitlines() if line.startswith(group)]
    assert row[1:6] == [topic, "0", "20", "20", "0"]  # committed, end, lag


def test_what_was_compressed_here_is_read(kafka: str, tool: Tool, unique: Unique) -> None:
    """lz4 above all: the Java client takes independent blocks only."""
    topic, lines = unique("java"), []
    admin = AdminClient({"bootstrap.servers": kafka})
    done(admin.create_topics([NewTopic(topic)]))
    producer = Producer({"bootstrap.servers": kafka})
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        change = ConfigEntry("compression.type", codec, incremental_operation=AlterConfigOpType.SET)
        altered = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[change])
        done(admin.incremental_alter_configs([altered]))
        lines.append(codec * 50_000)
        producer.produce(topic, lines[-1].encode(), partition=0)
        assert producer.flush(60) == 0
    assert read(tool, topic, len(lines)) == lines


def test_offsets_of_a_group_are_reset(tool: Tool, unique: Unique) -> None:
    topic, group = unique("java"), unique("group")
    tool("ConsoleProducer", "--topic", topic, sent="a\nb\nc\n")
    read(tool, topic, 3, "--group", group)
    reset = ("--reset-offsets", "--to-offset", "1", "--topic", topic, "--execute")
    tool("consumer.group.ConsumerGroupCommand", "--group", group, *reset)
    assert read(tool, topic, 2, "--group", group) == ["b", "c"]


def test_committed_transactions_are_read(kafka: str, tool: Tool, unique: Unique) -> None:
    topic = unique("java")
    tool("TopicCommand", "--create", "--topic", topic)
    work = ("--num-records", "500", "--record-size", "50", "--throughput", "-1")
    transactions = ("--transactional-id", unique("id"), "--transaction-duration-ms", "50")
    servers = ("--producer-props", f"bootstrap.servers={kafka}")
    tool("ProducerPerformance", "--topic", topic, *work, *transactions, *servers)
    committed = ("--isolation-level", "read_committed")
    assert len(read(tool, topic, 500, *committed)) == 500


def test_records_are_deleted_up_to_an_offset(tool: Tool, unique: Unique, tmp_path: Path) -> None:
    topic = unique("java")
    tool("ConsoleProducer", "--topic", topic, sent="a\nb\nc\n")
    wanted = {"partitions": [{"topic": topic, "partition": 0, "offset": 2}], "version": 1}
    file = tmp_path / "delete.json"
    file.write_text(json.dumps(wanted))
    assert "low_watermark: 2" in tool("DeleteRecordsCommand", "--offset-json-file", str(file))
    assert tool("GetOffsetShell", "--topic", topic, "--time", "-2").strip() == f"{topic}:0:2"
    assert read(tool, topic, 1) == ["c"]


def test_configs_are_altered_and_told(tool: Tool, unique: Unique) -> None:
    topic = unique("java")
    tool("TopicCommand", "--create", "--topic", topic)
    change = ("--alter", "--topic", topic, "--add-config", "retention.ms=100000")
    tool("kafka.admin.ConfigCommand", *change)
    told = tool("kafka.admin.ConfigCommand", "--describe", "--topic", topic)
    assert "retention.ms=100000" in told
    every = tool("kafka.admin.ConfigCommand", "--describe", "--all", "--topic", topic)
    for name in ("cleanup.policy=delete", "compression.type=producer", "max.message.bytes="):
        assert name in every
