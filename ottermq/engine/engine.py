"""The face of the C data plane: its calls with Python's types, its events, each of its own type.

    engine = Engine(store, EngineOptions())
    engine.add_queue(...)
    engine.start()
    engine.listen(sock.fileno())
    await trio.lowlevel.wait_readable(engine.event_fd)
    for protocol, event in engine.events(): ...

Nothing is decided here. csrc/ottermq.h describes what each call promises. A call for a connection,
channel or queue that is gone returns False, for it may go at any time.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import trio

from ottermq._core import ffi, lib
from ottermq.engine import events
from ottermq.engine.events import Event
from ottermq.engine.types import (
    Added,
    ConnFlags,
    ConnStat,
    Consume,
    Consumer,
    EngineOptions,
    EngineStat,
    KafkaRights,
    KafkaTopicOptions,
    Protocol,
    Purged,
    QueueOptions,
    QueueStat,
    Repacked,
    RouteFlags,
)
from ottermq.wal import Log, Store
from ottermq.wal.errors import check

MOST = (1 << 63) - 1  # of what C counts
UNPACKING = 2  # compressed batches at a time


@dataclass
class Engine:
    store: Store
    options: EngineOptions = field(default_factory=EngineOptions)
    # All openers of compressed batches take turns: each may want a hundred megabytes for a
    # moment.
    unpacking: trio.CapacityLimiter = field(default_factory=lambda: trio.CapacityLimiter(UNPACKING))

    def __post_init__(self) -> None:
        options = ffi.new("om_engine_options *")
        for name in EngineOptions.__dataclass_fields__:
            setattr(options, name, getattr(self.options, name))
        self._engine: Any = lib.om_engine_new(self.store._handle, options)
        if self._engine == ffi.NULL:
            raise MemoryError("the engine could not be started")
        self.memory_limit = self.options.memory_limit
        self.event_fd: int = lib.om_engine_event_fd(self._engine)

    def start(self) -> None:
        """Let the queues act, once the whole topology is in it: a new engine is paused."""
        lib.om_engine_start(self._engine)

    def close(self) -> None:
        """Every socket is closed as it is; before the store."""
        engine, self._engine = self._engine, ffi.NULL
        if engine != ffi.NULL:
            lib.om_engine_free(engine)

    def listen(self, fd: int, protocol: Protocol = Protocol.AMQP) -> None:
        check(lib.om_engine_listen(self._engine, fd, protocol), "listen")

    def stop_listening(self) -> None:
        lib.om_engine_stop_listening(self._engine)

    def set_limits(self, *, memory_limit: int, max_message_size: int) -> None:
        """Replace the options, from now on."""
        lib.om_engine_set_limits(self._engine, memory_limit, max_message_size)
        self.memory_limit = memory_limit

    def events(self) -> Iterator[tuple[int, Event]]:
        """The events since the last call, each with its protocol; the event fd is read first, so
        that none is slept over."""
        try:
            os.eventfd_read(self.event_fd)
        except BlockingIOError:
            pass
        while (event := lib.om_engine_next_event(self._engine)) != ffi.NULL:
            protocol, copy = event.protocol, events.read(event)
            lib.om_event_free(event)
            yield protocol, copy

    # -- connections

    def virtual(self, peer: str, protocol: Protocol = Protocol.AMQP) -> int:
        """A connection without a socket, for TLS; its number."""
        conn: int = lib.om_conn_virtual(self._engine, protocol, peer.encode())
        if not conn:
            raise MemoryError("no memory for a connection")
        return conn

    def feed(self, conn: int, data: bytes | memoryview) -> int:
        """How many bytes were taken; -1: it is gone."""
        taken: int = lib.om_conn_feed(self._engine, conn, ffi.from_buffer(data), len(data))
        return max(taken, -1)

    def drain(self, conn: int, room: Any) -> int:
        """Output into a writable buffer: how many bytes; -1: it is gone."""
        out = ffi.from_buffer(room, require_writable=True)
        return max(int(lib.om_conn_drain(self._engine, conn, out, len(room))), -1)

    def send(self, conn: int, data: bytes) -> bool:
        return _ok(lib.om_conn_send(self._engine, conn, data, len(data)))

    def resume(self, conn: int, data: bytes = b"") -> bool:
        return _ok(lib.om_conn_resume(self._engine, conn, data, len(data)))

    def tune(self, conn: int, frame_max: int, channel_max: int, heartbeat: int) -> bool:
        return _ok(lib.om_conn_tune(self._engine, conn, frame_max, channel_max, heartbeat))

    def open(self, conn: int, vhost: int, user: str, flags: ConnFlags) -> bool:
        return _ok(lib.om_conn_open(self._engine, conn, vhost, user.encode(), int(flags)))

    def closing(self, conn: int, data: bytes) -> bool:
        return _ok(lib.om_conn_closing(self._engine, conn, data, len(data)))

    def hang_up(self, conn: int, data: bytes = b"") -> bool:
        return _ok(lib.om_conn_close(self._engine, conn, data, len(data)))

    def conn_stat(self, conn: int) -> ConnStat | None:
        out = ffi.new("om_conn_stat *")
        if lib.om_conn_stat_get(self._engine, conn, out) < 0:
            return None
        return ConnStat(*(getattr(out, name) for name in ConnStat._fields))

    # -- channels

    def channel_open(self, conn: int, channel: int) -> bool:
        return _ok(lib.om_channel_open(self._engine, conn, channel))

    def channel_close(self, conn: int, channel: int, closing: bool) -> bool:
        return _ok(lib.om_channel_close(self._engine, conn, channel, closing))

    def channel_confirm(self, conn: int, channel: int) -> bool:
        return _ok(lib.om_channel_confirm(self._engine, conn, channel))

    def channel_limit(self, conn: int, channel: int, prefetch: int) -> bool:
        return _ok(lib.om_channel_limit(self._engine, conn, channel, prefetch))

    def channel_recover(self, conn: int, channel: int) -> bool:
        return _ok(lib.om_channel_recover(self._engine, conn, channel))

    def tx_select(self, conn: int, channel: int) -> bool:
        return _ok(lib.om_channel_tx_select(self._engine, conn, channel))

    def tx_commit(self, conn: int, channel: int, ok: bytes) -> int:
        """`ok` leaves when it is on disk. OM_OK or OM_E_*: then nothing of it happened."""
        result: int = lib.om_channel_tx_commit(self._engine, conn, channel, ok, len(ok))
        return result

    def tx_rollback(self, conn: int, channel: int) -> bool:
        return _ok(lib.om_channel_tx_rollback(self._engine, conn, channel))

    # -- publishing

    def may_publish(self, conn: int, exchange: bytes, salt: int, by_event: bool) -> bool:
        flags = lib.OM_EXCHANGE_BY_EVENT if by_event else 0
        return _ok(
            lib.om_conn_may_publish(self._engine, conn, exchange, len(exchange), salt, flags)
        )

    def publish_route(
        self, conn: int, channel: int, queues: Sequence[int], flags: RouteFlags, generation: int
    ) -> bool:
        """False: the route is older than a change of its exchange, work it out again."""
        ids = ffi.new("uint64_t[]", list(queues))
        result: int = lib.om_publish_route(
            self._engine, conn, channel, ids, len(queues), int(flags), generation
        )
        return bool(result != lib.OM_E_STALE)

    def dead_route(
        self, queue: int, queues: Sequence[int], flags: RouteFlags, generation: int
    ) -> bool:
        ids = ffi.new("uint64_t[]", list(queues))
        result: int = lib.om_dead_letter_route(
            self._engine, queue, ids, len(queues), int(flags), generation
        )
        return bool(result != lib.OM_E_STALE)

    @property
    def route_generation(self) -> int:
        return int(lib.om_route_generation(self._engine))

    def forget_routes(self, vhost: int, exchange: bytes | None) -> None:
        """Of an exchange; None: of all."""
        name = ffi.NULL if exchange is None else exchange
        lib.om_route_forget(self._engine, vhost, name, len(exchange or b""))

    def forget_permissions(self) -> None:
        lib.om_engine_forget_permissions(self._engine)

    # -- queues

    def add_queue(
        self, queue: int, vhost: int, name: bytes, logs: Sequence[Log], options: QueueOptions
    ) -> None:
        handles = ffi.new("om_log *[]", [log._log for log in logs])
        settings, _alive = _queue_options(options)
        check(
            lib.om_queue_add(
                self._engine, queue, vhost, name, len(name), handles, len(logs), settings
            ),
            f"queue {name.decode(errors='replace')}",
        )

    def set_queue(self, queue: int, options: QueueOptions) -> bool:
        settings, _alive = _queue_options(options)
        return _ok(lib.om_queue_set(self._engine, queue, settings))

    def remove_queue(self, queue: int) -> bool:
        return _ok(lib.om_queue_remove(self._engine, queue))

    def purge(self, queue: int) -> Purged:
        """Full: nothing went."""
        seq = ffi.new("uint64_t *")
        return Purged(check(lib.om_queue_purge(self._engine, queue, seq), "purge"), int(seq[0]))

    def queue_stat(self, queue: int) -> QueueStat:
        """All zero when it is gone."""
        out = ffi.new("om_queue_stat *")
        if lib.om_queue_stat_get(self._engine, queue, out) < 0:
            return QueueStat()
        return QueueStat(*(getattr(out, name) for name in QueueStat._fields))

    def touch(self, queue: int) -> None:
        lib.om_queue_touch(self._engine, queue)

    # -- consuming

    def add_consumer(self, conn: int, channel: int, consume: Consume, ok: bytes) -> Added:
        spec = ffi.new("om_consume *")
        filters = b"".join(bytes([len(each)]) + each for each in consume.filters)
        alive = [_span(spec.tag, consume.tag), _span(spec.filter, filters)]
        spec.queue = consume.queue
        spec.flags = (lib.OM_CONSUME_NO_ACK if consume.no_ack else 0) | (
            lib.OM_CONSUME_EXCLUSIVE if consume.exclusive else 0
        )
        spec.prefetch = consume.prefetch
        spec.priority = consume.priority
        spec.start = consume.start
        spec.start_value = consume.start_value
        spec.match_unfiltered = consume.match_unfiltered
        spec.timeout_ms = consume.timeout_ms
        result: int = lib.om_consumer_add(self._engine, conn, channel, spec, ok, len(ok))
        del alive
        return _added(result)

    def cancel_consumer(self, conn: int, channel: int, tag: bytes, ok: bytes) -> bool:
        return _ok(lib.om_consumer_cancel(self._engine, conn, channel, tag, len(tag), ok, len(ok)))

    def add_reply_consumer(self, conn: int, channel: int, tag: bytes, ok: bytes) -> Added:
        result: int = lib.om_consumer_add_reply_to(
            self._engine, conn, channel, tag, len(tag), ok, len(ok)
        )
        return _added(result)

    def expects_replies(self, address: bytes) -> bool:
        """Direct reply-to: is the client that asked still there?"""
        return bool(lib.om_reply_to_exists(self._engine, address, len(address)) > 0)

    def consumers(self, queue: int) -> list[Consumer]:
        room = 16
        while True:
            out = ffi.new("om_consumer_info[]", room)
            count: int = lib.om_queue_consumers(self._engine, queue, out, room)
            if count <= room:
                return [_consumer(out[i]) for i in range(max(count, 0))]
            room = count

    def get(self, conn: int, channel: int, queue: int, no_ack: bool) -> bool:
        return _ok(lib.om_basic_get(self._engine, conn, channel, queue, no_ack))

    # -- Kafka

    def kafka_trust(self, conn: int, trusted: bool) -> bool:
        """trusted: it needs no login, so its requests may be of full size."""
        return _ok(lib.om_kafka_trust(self._engine, conn, trusted))

    def kafka_open(self, conn: int, user: str) -> bool:
        return _ok(lib.om_kafka_open(self._engine, conn, user.encode()))

    def kafka_answer(self, conn: int, slot: int, data: bytes = b"") -> bool:
        """A whole response, size and header included; empty: none is due."""
        return _ok(lib.om_kafka_answer(self._engine, conn, slot, data, len(data)))

    def kafka_permit(self, conn: int, topic: bytes, rights: KafkaRights) -> bool:
        return _ok(lib.om_kafka_permit(self._engine, conn, topic, len(topic), int(rights)))

    def kafka_permit_producer(self, conn: int, transactional_id: bytes, allowed: bool) -> bool:
        return _ok(
            lib.om_kafka_permit_producer(
                self._engine, conn, transactional_id, len(transactional_id), allowed
            )
        )

    def kafka_retry(self, conn: int) -> bool:
        return _ok(lib.om_kafka_retry(self._engine, conn))

    def kafka_repacked(self, conn: int, batches: Sequence[Repacked]) -> bool:
        """The answer to KafkaRepackWanted, for all of its batches."""
        array = ffi.new("om_kafka_repacked[]", len(batches))
        kept = []
        for slot, each in zip(array, batches, strict=True):
            slot.place, slot.error = each.place, each.error
            slot.first_time, slot.last_time = each.times
            if each.data is not None:
                kept.append(ffi.from_buffer(each.data))
                slot.data, slot.len = kept[-1], len(each.data)
        return _ok(lib.om_kafka_batches_repacked(self._engine, conn, array, len(batches)))

    def kafka_throttle(self, conn: int, milliseconds: int) -> bool:
        return _ok(lib.om_kafka_throttle(self._engine, conn, milliseconds))

    def set_kafka_topic(
        self,
        name: bytes,
        topic_id: bytes,
        partitions: Sequence[tuple[int, int]],
        options: KafkaTopicOptions,
    ) -> None:
        """partitions: a queue and its lane each."""
        if len(topic_id) != 16:
            raise ValueError("a topic id has 16 bytes")
        settings = ffi.new("om_kafka_topic_options *")
        settings.flags = int(options.flags)
        settings.max_message_bytes = options.max_message_bytes
        settings.codec = lib.OM_KAFKA_AS_SENT if options.codec is None else options.codec
        settings.level = options.level
        settings.timestamp_before_max_ms = _or_any(options.timestamp_before_max_ms)
        settings.timestamp_after_max_ms = _or_any(options.timestamp_after_max_ms)
        places = ffi.new("om_kafka_partition[]", list(partitions))
        check(
            lib.om_kafka_topic_set(
                self._engine, name, len(name), topic_id, places, len(partitions), settings
            ),
            f"topic {name.decode(errors='replace')}",
        )

    def remove_kafka_topic(self, name: bytes) -> bool:
        return _ok(lib.om_kafka_topic_remove(self._engine, name, len(name)))

    def batch_decompressed(self, log: int, base_offset: int, records: bytes | None) -> bool:
        """The answer to DecompressWanted: plain records, or None if there are none to be had."""
        data, size = (records, len(records)) if records is not None else (ffi.NULL, -1)
        return _ok(lib.om_batch_decompressed(self._engine, log, base_offset, data, size))

    def stat(self) -> EngineStat:
        out = ffi.new("om_engine_stat *")
        lib.om_engine_stat_get(self._engine, out)
        return EngineStat(*(getattr(out, name) for name in EngineStat._fields))


def _added(result: int) -> Added:
    """LogError: what no rule of the protocol explains."""
    known = result in {each.value for each in Added}
    return Added(result if known else check(result, "add a consumer"))


def _ok(result: int) -> bool:
    """False: what the call names is gone, or there is no memory."""
    return result >= 0


def _or_any(milliseconds: int | None) -> int:
    return MOST if milliseconds is None else milliseconds


def _span(span: Any, data: bytes) -> Any:
    """Point it at these bytes; keep what is returned alive as long as the span is used."""
    alive = ffi.from_buffer(data)
    span.data = ffi.cast("const uint8_t *", alive)
    span.len = len(data)
    return alive


@lru_cache(4096)
def _queue_options(options: QueueOptions) -> tuple[Any, Iterable[Any]]:
    out = ffi.new("om_queue_options *")
    out.flags = int(options.flags)
    for name in (
        "message_ttl_ms", "max_length", "max_length_bytes", "delivery_limit", "consumer_timeout_ms"
    ):  # fmt: skip
        value = getattr(options, name)
        setattr(out, name, -1 if value is None else min(value, MOST))
    out.has_dlx = options.dead_letter_exchange is not None
    out.has_dlrk = options.dead_letter_key is not None
    alive = (
        _span(out.dlx, options.dead_letter_exchange or b""),
        _span(out.dlrk, options.dead_letter_key or b""),
    )
    return out, alive


def _consumer(info: Any) -> Consumer:
    return Consumer(
        info.conn,
        info.channel,
        bytes(ffi.buffer(info.tag, info.tag_len)),
        bool(info.flags & lib.OM_CONSUME_NO_ACK),
        bool(info.flags & lib.OM_CONSUME_EXCLUSIVE),
        info.prefetch,
        info.priority,
        info.unacked,
        bool(info.active),
    )
