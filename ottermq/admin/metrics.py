"""`GET /metrics`: the counters of the broker, its log and its protocols.

All figures lie ready: a scrape asks each part once and looks at no queue.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from ottermq import __version__
from ottermq.engine.engine import Engine
from ottermq.metrics import GAUGE, Labels, Metric, counter, exposition, gauge
from ottermq.wal import Store

NANOSECOND = 1e-9

Read = Callable[[bool], str]
Part = Callable[[bool], Iterable[Metric]]


def reader(engine: Engine, store: Store, *parts: Part) -> Read:
    """The page as of the call; each part knows whether names may be in it."""

    def read(with_names: bool) -> str:
        more = (part(with_names) for part in parts)
        return exposition(chain(_broker(engine), _log(store), *more))

    return read


def _broker(engine: Engine) -> Iterator[Metric]:
    now = engine.stat()
    version: Labels = {"version": __version__}
    yield Metric("ottermq_build_info", GAUGE, "Which broker this is.", [(version, 1)])
    yield gauge("connections", "Open connections, of all protocols.", now.connections)
    yield gauge("channels", "Open AMQP channels.", now.channels)
    yield gauge("consumers", "AMQP consumers.", now.consumers)
    yield gauge("queues", "Queues and streams.", now.queues)
    yield gauge("publishers_blocked", "1 while publishers are held back.", now.blocked)
    yield gauge("output_bytes", "Bytes that wait for clients to read them.", now.output_bytes)
    published = "Messages and records that were sent to us, by either protocol."
    yield counter("messages_published_total", published, now.published)
    yield counter(
        "messages_confirmed_total", "Messages confirmed to AMQP publishers.", now.confirmed
    )
    yield counter("messages_delivered_total", "Messages given to AMQP consumers.", now.delivered)
    yield counter("messages_acknowledged_total", "Messages that those settled.", now.acked)
    returned = "Messages that had no route and went back."
    yield counter("messages_returned_total", returned, now.returned)
    yield counter("received_bytes_total", "Bytes read from sockets.", now.received_bytes)
    yield counter("sent_bytes_total", "Bytes written to sockets.", now.sent_bytes)


def _log(store: Store) -> Iterator[Metric]:
    now = store.stat()
    yield gauge("logs", "Logs: one a queue, stream or partition, and our own.", now.logs)
    yield gauge("refusing_appends", "1 while durable appends are refused.", bool(store.trouble()))
    yield gauge("writer_stuck", "1 while a segment can't be written.", now.writer_stuck)
    yield gauge("checkpoint_failing", "1 since a checkpoint failed.", now.checkpoint_failing)
    stalled = "1 once what was taken can't be written for ten seconds: publishers are held back."
    yield gauge("storage_stalled", stalled, now.stalled)
    lost = "Places where records are lost or can't be read: found at the start or since."
    yield counter("damaged_places_total", lost, store.damage.places)
    lost = "Records in there, at most."
    yield counter("damaged_records_total", lost, store.damage.records)
    yield counter("wal_written_bytes_total", "Bytes written ahead.", now.wal_bytes)
    yield counter("wal_syncs_total", "Groups written ahead, a sync each.", now.wal_groups)
    seconds = now.wal_sync_ns * NANOSECOND
    yield counter("wal_sync_seconds_total", "Time those syncs took.", seconds)
    yield gauge("wal_used_bytes", "Bytes that the next start would replay.", now.wal_used)
    yield gauge("wal_files", "Files of the WAL, spare ones too.", now.wal_files)
    yield counter("checkpoints_total", "Checkpoints.", now.checkpoints)
    seconds = now.checkpoint_ns * NANOSECOND
    yield counter("checkpoint_seconds_total", "Time they took.", seconds)
    yield counter("segment_written_bytes_total", "Bytes written to segments.", now.written_bytes)
    yield gauge("hot_bytes", "Bytes in memory that no segment has yet.", now.hot_bytes)
    yield gauge("open_segment_files", "Segment files that are open.", now.open_files)
    yield gauge("mapped_bytes", "Bytes of segments that are mapped.", now.mapped_bytes)
