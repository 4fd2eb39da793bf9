"""Compressed batches are decompressed for AMQP readers: in a thread, a few at a time.

The engine asks once for a batch and goes on with other queues meanwhile. If a batch can't be
decompressed, the answer says so: the queue passes over it, and the log says which.
"""

import trio

from ottermq import eventlog
from ottermq.contained import contained, is_failure
from ottermq.engine.engine import Engine
from ottermq.engine.events import DecompressWanted
from ottermq.storage.codecs import NotDecompressed, decompress_records


class Opener:
    def __init__(self, engine: Engine, nursery: trio.Nursery) -> None:
        self._engine = engine
        self._nursery = nursery

    def take(self, event: DecompressWanted) -> None:
        self._nursery.start_soon(self._open, event)

    async def _open(self, event: DecompressWanted) -> None:
        offset = event.base_offset
        name = self._engine.store.name_of(event.log) or str(event.log)  # deleted meanwhile
        with contained("batch not decompressed", log=name, offset=offset):
            try:
                await self._open_one(event, name)
            except BaseException as error:
                if is_failure(error):  # its readers must not wait for an answer for ever
                    self._engine.batch_decompressed(event.log, offset, None)
                raise

    async def _open_one(self, event: DecompressWanted, name: str) -> None:
        log, offset = event.log, event.base_offset
        try:
            records = await trio.to_thread.run_sync(
                decompress_records, event.codec, event.records, limiter=self._engine.unpacking
            )
            if self._engine.batch_decompressed(log, offset, records):
                return
            reason = "what came out are no records"
        except NotDecompressed as error:
            reason = str(error)
            self._engine.batch_decompressed(log, offset, None)
        eventlog.warning("batch not decompressed", log=name, offset=offset, reason=reason)
