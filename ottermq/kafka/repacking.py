"""Batches that a topic doesn't take as they are: decompressed, checked, compressed in its codec.

    engine ── KafkaRepackWanted ──▶ Repacker ── in a thread ──▶ kafka_repacked ──▶ engine
              (a Produce waits)                                                    (and goes on)

There are two reasons: the topic has a codec of its own (`compression.type`), or it is compacted and
every record needs a key. The records stay the same byte for byte, and so does the head of their
batch but for codec, length and checksum: it holds producer, sequence, times and transaction.

The output for one request is limited to the size of a request; few are worked on at once.
"""

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

import trio

from ottermq import eventlog
from ottermq._core import ffi, lib
from ottermq.contained import is_failure
from ottermq.engine.engine import Engine
from ottermq.engine.events import KafkaRepackWanted
from ottermq.engine.types import Repacked
from ottermq.kafka.errors import Error
from ottermq.kafka.request import Connection
from ottermq.net import close_reasons
from ottermq.storage.codecs import NotDecompressed, TooMuch, compress_records, decompress_records
from ottermq.wal.records import CODECS, OVERHEAD, with_records

HEAD = struct.Struct(">IbBiI")
AS_SENT = int(lib.OM_KAFKA_AS_SENT)


class RepackRequest(NamedTuple):
    place: int
    codec: int  # the one it is to have; AS_SENT: its own
    keyed: bool  # every record needs a key
    level: int
    batch: bytes


class Repacker:
    def __init__(self, engine: Engine, end: Callable[[Connection, str], None]) -> None:
        """end: closes a connection, for that reason."""
        self._engine = engine
        self._end = end

    async def repack(self, conn: Connection, event: KafkaRepackWanted) -> None:
        limit = self._engine.options.kafka_max_request
        try:
            done = await trio.to_thread.run_sync(
                repack_all, event.batches, limit, limiter=self._engine.unpacking
            )
        except BaseException as error:
            if not is_failure(error):
                raise
            eventlog.failure("batches not recompressed", error, peer=conn.peer)
            code = Error.UNKNOWN_SERVER_ERROR
            done = [Repacked(each.place, code) for each in repack_requests(event.batches)]
        taken = self._engine.kafka_repacked(event.conn, done)
        if not taken and self._engine.conn_stat(event.conn) is not None:
            self._end(conn, close_reasons.OUT_OF_MEMORY)  # it must not wait for ever


def repack_requests(payload: bytes) -> Iterator[RepackRequest]:
    at = 0
    while at < len(payload):
        place, codec, keyed, level, size = HEAD.unpack_from(payload, at)
        at += HEAD.size
        yield RepackRequest(place, codec, bool(keyed), level, payload[at : at + size])
        at += size


def repack_all(payload: bytes, limit: int) -> list[Repacked]:
    """limit: how many bytes may come out of all of them."""
    done = []
    for request in repack_requests(payload):
        made = repack(request)
        limit -= len(made.data or b"")
        if limit < 0:
            made = Repacked(request.place, Error.MESSAGE_TOO_LARGE)
        done.append(made)
    return done


def repack(request: RepackRequest) -> Repacked:
    batch = request.batch
    attributes = int.from_bytes(batch[21:23], "big")
    codec = attributes & CODECS
    try:
        records = decompress_records(codec, batch[OVERHEAD:]) if codec else batch[OVERHEAD:]
    except TooMuch:
        return Repacked(request.place, Error.MESSAGE_TOO_LARGE)
    except NotDecompressed:
        return Repacked(request.place, Error.CORRUPT_MESSAGE)
    plain = with_records(batch, attributes & ~CODECS, records)
    found = ffi.new("om_records_seen *")
    if lib.om_records_survey(ffi.from_buffer(plain), len(plain), request.keyed, found):
        return Repacked(request.place, Error.INVALID_RECORD)
    times = (found.first_time, found.last_time)
    if request.codec == AS_SENT:
        return Repacked(request.place, data=None, times=times)
    if not request.codec:
        return Repacked(request.place, data=plain, times=times)
    closed = compress_records(request.codec, records, request.level)
    data = with_records(batch, attributes & ~CODECS | request.codec, closed)
    return Repacked(request.place, data=data, times=times)
