"""What the broker counts, as Prometheus reads it: `GET /metrics` (text exposition format 0.0.4).

    # HELP ottermq_connections Open connections, of all protocols.
    # TYPE ottermq_connections gauge
    ottermq_connections 3

All of it lies ready: a scrape asks each part once and looks at no queue. Only transactions that
readers wait for are told one by one, to who may know names: the oldest few, however many there are.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

from ottermq import __version__
from ottermq.engine.engine import Engine
from ottermq.kafka.groups import Groups
from ottermq.kafka.groups.group import State as GroupState
from ottermq.kafka.transactions import Transactions
from ottermq.kafka.transactions.transaction import State as TransactionState
from ottermq.wal import Store

HELD_AFTER_MS = 5_000  # a shorter transaction is in nobody's way
MOST_HELD = 20

GAUGE, COUNTER = "gauge", "counter"
NANOSECOND = 1e-9

Labels = Mapping[str, object]
Read = Callable[[bool], str]


class Metric(NamedTuple):
    name: str
    kind: str
    help: str
    samples: Iterable[tuple[Labels, float]]


def reader(engine: Engine, store: Store, groups: Groups, transactions: Transactions) -> Read:
    """Whatever is true when it is called, with names of topics and transactional ids or without."""

    def read(with_names: bool) -> str:
        parts = (_broker(engine), _log(store), _groups(groups), _transactions(transactions))
        named = _held(transactions) if with_names else ()
        return exposition(chain(*parts, named))

    return read


def exposition(metrics: Iterable[Metric]) -> str:
    lines = []
    for name, kind, help, samples in metrics:
        lines += [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{_labels(labels)} {value:.15g}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(str(text))}"' for name, text in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _one(kind: str, name: str, help: str, value: float) -> Metric:
    return Metric(f"ottermq_{name}", kind, help, [({}, value)])


_gauge, _counter = partial(_one, GAUGE), partial(_one, COUNTER)


def _broker(engine: Engine) -> Iterator[Metric]:
    now = engine.stat()
    version: Labels = {"version": __version__}
    yield Metric("ottermq_build_info", GAUGE, "Which broker this is.", [(version, 1)])
    yield _gauge("connections", "Open connections, of all protocols.", now.connections)
    yield _gauge("channels", "Open AMQP channels.", now.channels)
    yield _gauge("consumers", "AMQP consumers.", now.consumers)
    yield _gauge("queues", "Queues and streams.", now.queues)
    yield _gauge("publishers_blocked", "1 while publishers are held back.", now.blocked)
    yield _gauge("output_bytes", "Bytes that wait for clients to read them.", now.output_bytes)
    published = "Messages and records that were sent to us, by either protocol."
    yield _counter("messages_published_total", published, now.published)
    yield _counter(
        "messages_confirmed_total", "Messages confirmed to AMQP publishers.", now.confirmed
    )
    yield _counter("messages_delivered_total", "Messages given to AMQP consumers.", now.delivered)
    yield _counter("messages_acknowledged_total", "Messages that those settled.", now.acked)
    returned = "Messages that had no route and went back."
    yield _counter("messages_returned_total", returned, now.returned)
    yield _counter("received_bytes_total", "Bytes read from sockets.", now.received_bytes)
    yield _counter("sent_bytes_total", "Bytes written to sockets.", now.sent_bytes)


def _log(store: Store) -> Iterator[Metric]:
    now = store.stat()
    yield _gauge("logs", "Logs: one a queue, stream or partition, and our own.", now.logs)
    yield _gauge("refusing_appends", "1 while durable appends are refused.", bool(store.trouble()))
    yield _gauge("writer_stuck", "1 while a segment can't be written.", now.writer_stuck)
    yield _gauge("checkpoint_failing", "1 since a checkpoint failed.", now.checkpoint_failing)
    stalled = "1 once what was taken can't be written for ten seconds: publishers are held back."
    yield _gauge("storage_stalled", stalled, now.stalled)
    lost = "Places where records are lost or can't be read: found at the start or since."
    yield _counter("damaged_places_total", lost, store.damage.places)
    lost = "Records in there, at most."
    yield _counter("damaged_records_total", lost, store.damage.records)
    yield _counter("wal_written_bytes_total", "Bytes written ahead.", now.wal_bytes)
    yield _counter("wal_syncs_total", "Groups written ahead, a sync each.", now.wal_groups)
    seconds = now.wal_sync_ns * NANOSECOND
    yield _counter("wal_sync_seconds_total", "Time those syncs took.", seconds)
    yield _gauge("wal_used_bytes", "Bytes that the next start would replay.", now.wal_used)
    yield _gauge("wal_files", "Files of the WAL, spare ones too.", now.wal_files)
    yield _counter("checkpoints_total", "Checkpoints.", now.checkpoints)
    seconds = now.checkpoint_ns * NANOSECOND
    yield _counter("checkpoint_seconds_total", "Time they took.", seconds)
    yield _counter("segment_written_bytes_total", "Bytes written to segments.", now.written_bytes)
    yield _gauge("hot_bytes", "Bytes in memory that no segment has yet.", now.hot_bytes)
    yield _gauge("open_segment_files", "Segment files that are open.", now.open_files)
    yield _gauge("mapped_bytes", "Bytes of segments that are mapped.", now.mapped_bytes)


def _groups(groups: Groups) -> Iterator[Metric]:
    states = Counter(entry.group.state for entry in groups)
    samples = [({"state": state.value}, states[state]) for state in GroupState]
    yield Metric("ottermq_kafka_groups", GAUGE, "Consumer groups.", samples)


def _transactions(transactions: Transactions) -> Iterator[Metric]:
    states = Counter(transaction.state for transaction in transactions.all())
    samples = [({"state": state.value}, states[state]) for state in TransactionState]
    yield Metric("ottermq_kafka_transactions", GAUGE, "Transactional ids.", samples)
    oldest = next(iter(transactions.holding(HELD_AFTER_MS)), None)
    help = "Age of the oldest transaction that readers of a partition wait for."
    yield _gauge("kafka_transaction_holds_max_seconds", help, oldest.age_ms / 1000 if oldest else 0)


def _held(transactions: Transactions) -> Iterator[Metric]:
    held = [
        (
            {
                "topic": each.place.topic,
                "partition": each.place.partition,
                "kind": "stream" if each.is_stream else "queue",
                "transactional_id": each.by.id,
                "producer_id": each.by.producer.id,
            },
            each.age_ms / 1000,
        )
        for each in islice(transactions.holding(HELD_AFTER_MS), MOST_HELD)
    ]
    help = "Age of a transaction that the readers of a partition wait for; the oldest ones."
    yield Metric("ottermq_kafka_transaction_holds_seconds", GAUGE, help, held)
