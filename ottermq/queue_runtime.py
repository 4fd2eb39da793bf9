"""Queues as they run: a definition of the topology, its logs in the store, its place in the engine.

| a queue that is      | lies on                                            |
|----------------------|----------------------------------------------------|
| durable              | a log that the catalogue names, through the WAL    |
| transient, exclusive | a scratch log, gone at the next start              |
| a stream             | the same without a cursor: readers keep their own  |
| a priority queue     | a log per priority: `jobs`, `jobs␀1`, … `jobs␀9`   |

A queue takes messages as soon as it is added; its row and its logs' rows reach the disk in one
commit, and its declaration is answered after that. A queue that goes is out of the engine first,
then its rows go, then its logs: a log that no row names doesn't exist.

A delayed exchange has such a log too, for the messages that wait: a queue nobody can name.
"""

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, lru_cache
from heapq import heappop, heappush
from typing import Any

import trio

from ottermq import auditlog, eventlog
from ottermq.contained import contained
from ottermq.engine.engine import Engine
from ottermq.engine.types import Consumer, QueueFlags, QueueOptions
from ottermq.storage.legal_holds import Holds
from ottermq.topology import Change, Exchange, Queue, QueueSettings, QueueType, Topology
from ottermq.topology.log_names import log_of_delayed, logs_of_queue
from ottermq.wal import Log, LogError, LogFlags, LogOptions, RemovalReason, Store
from ottermq.wal.catalog import Catalog, Statement
from ottermq.wal.retention import Policy
from ottermq.wal.store import SCRATCH_IDS

SEGMENT_LEAST = 64 << 10  # bytes
OVERFLOW = {
    "drop-head": QueueFlags(0),
    "reject-publish": QueueFlags.REJECT_PUBLISH,
    "reject-publish-dlx": QueueFlags.REJECT_PUBLISH | QueueFlags.REJECT_DLX,
}
TYPES = {
    QueueType.CLASSIC: QueueFlags(0),
    QueueType.QUORUM: QueueFlags.QUORUM,
    QueueType.STREAM: QueueFlags.STREAM,
}
AGAIN = 1.0  # seconds until an expiry that failed is tried again


Gone = Callable[[Queue, list[Consumer]], None]


class Queues:
    def __init__(
        self,
        engine: Engine,
        store: Store,
        topology: Topology,
        *,
        rules: Callable[[str], LogOptions],
        holds: Holds,
        consumer_timeout_ms: int | None = None,
    ) -> None:
        self.holds = holds
        self._engine = engine
        self._store = store
        self._topology = topology
        self._rules = rules
        self._consumer_timeout_ms = consumer_timeout_ms
        self._vhosts: dict[str, int] = {}
        self._logs: dict[int, list[Log]] = {}
        self._by_id: dict[int, Queue] = {}
        self._held: set[int] = set()  # ids
        self._delayed: dict[int, Exchange] = {}
        self._routed: dict[int, tuple[int, bytes]] = {}  # exchanges C may hold routes of
        self._settings_later: list[Queue] | None = None  # whose settings wait, and that they do
        self._expiring: list[tuple[float, int]] = []
        self._expiry_changed = trio.Event()
        self._nursery: trio.Nursery | None = None
        # For servers with consumers of a queue that is gone: they must cancel them.
        self.on_gone: list[Gone] = []
        # For servers with connections to a vhost that is gone: they must end them.
        self.on_vhost_gone: list[Callable[[str], None]] = []
        # For listeners with a list of their own: a queue is in the engine now, or no longer.
        self.on_moved: list[Callable[[Queue], None]] = []
        topology.on_change.append(self._forget_routes)
        topology.on_settings.append(self._apply_settings)
        holds.on_change.append(lambda queue: self._hold(queue, self.logs_of(queue)))

    # -- the start

    def start(self) -> None:
        """All that is in the topology, into the engine. Blocks, like all of the start."""
        for vhost in self._topology.vhosts.values():
            things: list[Queue | Exchange] = [
                *vhost.queues.values(),
                *(each for each in vhost.exchanges.values() if each.delayed),
            ]
            self._create_missing(vhost.name, things)
            for thing in things:
                self.add(thing)

    def _create_missing(self, vhost: str, things: Iterable[Queue | Exchange]) -> None:
        """Definitions that were loaded just now have no logs yet: one commit for all of them."""
        missing: dict[LogFlags, list[str]] = {}
        for thing in things:
            names = [name for name in self._names(thing) if (vhost, name) not in self._store]
            missing.setdefault(_log_flags(thing), []).extend(names)
        for flags, names in missing.items():
            self._store.create_many(names, vhost=vhost, flags=flags)

    async def run(self) -> None:
        """Background work: queues expire. Until cancelled."""
        if self._held:
            eventlog.info("legal holds in force", queues=len(self._held))
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            while True:
                wait = AGAIN
                with contained("queue expiry failed"):
                    wait = self._expire(trio.current_time())
                with trio.move_on_after(wait):
                    await self._expiry_changed.wait()
                if self._expiry_changed.is_set():
                    self._expiry_changed = trio.Event()

    # -- what there is

    def vhost_number(self, name: str) -> int:
        """Its number in C."""
        return self._vhosts.setdefault(name, len(self._vhosts) + 1)

    def by_id(self, id: int) -> Queue | None:
        return self._by_id.get(id)

    def logs_of(self, queue: Queue) -> list[Log]:
        """One, or one per priority; none when it isn't in the engine."""
        return self._logs.get(queue.id, [])

    def delayed(self, id: int) -> Exchange | None:
        """The delayed exchange whose waiting messages lie in that queue."""
        return self._delayed.get(id)

    def retention_of(self, log: Log) -> Policy | None:
        """A stream's own: the age and the size its arguments and policies allow."""
        if log.has_cursor or log.vhost not in self._topology.vhosts:
            return None
        queue = self._topology.find_queue(log.vhost, log.name)
        if queue is None or queue.type is not QueueType.STREAM:
            return None
        settings = self._topology.effective(queue)
        if settings.max_age_ms is None and settings.max_length_bytes is None:
            return None
        return Policy(max_age_ms=settings.max_age_ms, max_size=settings.max_length_bytes)

    # -- coming

    def declared(self, change: Change) -> None:
        """New queues go into the engine, and their logs' rows into the change that is saved. A
        queue that the engine doesn't take was never declared."""
        queue, exchange = change.queue, change.exchange
        try:
            if change.created and queue is not None:
                change.statements += self.add(queue)
            elif change.created and exchange is not None and exchange.delayed:
                change.statements += self.add(exchange)
        except Exception:
            if queue is not None and self._nursery is not None:
                self.remove_unasked([queue])
            raise

    def add(self, thing: Queue | Exchange, before: list[Log] | None = None) -> list[Statement]:
        """Into the engine; a delayed exchange for the messages that wait. Rows to be saved. before:
        the logs it had, if it comes back."""
        logs, rows = self._open(thing) if before is None else (before, [])
        self._prepare(thing, logs)
        self._logs[thing.id] = logs
        if isinstance(thing, Exchange):
            self._delayed[thing.id] = thing
            durable = QueueFlags.DURABLE if thing.durable else QueueFlags(0)
            options = QueueOptions(QueueFlags.DELAY | durable)
        else:
            self._by_id[thing.id] = thing
            options = self._options(thing)
        name = self._names(thing)[0].encode()
        self._engine.add_queue(thing.id, self.vhost_number(thing.vhost), name, logs, options)
        if isinstance(thing, Queue):
            self._watch_expiry(thing)
            self._tell_moved(thing)
        return rows

    def _open(self, thing: Queue | Exchange) -> tuple[list[Log], list[Statement]]:
        names, vhost = self._names(thing), thing.vhost
        flags = _log_flags(thing)
        if thing.durable and all((vhost, name) in self._store for name in names):
            logs = [self._store.get(name, vhost) for name in names]
            rows: list[Statement] = []
        else:
            logs, rows = self._store.reserve(names, vhost=vhost, flags=flags)
        return logs, rows

    def _prepare(self, thing: Queue | Exchange, logs: list[Log]) -> None:
        if isinstance(thing, Queue):
            size = self._topology.effective(thing).segment_size
            if size is not None:
                for log in logs:
                    options = replace(self._rules(log.name), segment_size=segment_size(size))
                    self._store.set_options(log, options)
            self._hold(thing, logs)

    def _hold(self, queue: Queue, logs: Iterable[Log]) -> None:
        """While a hold stands, settled messages stay in the log."""
        held = self.holds.on(queue)
        if held == (queue.id in self._held):
            return
        for log in logs:
            self._store.keep_settled(log, held or self._rules(log.name).keep_settled)
            self._store.note(log, RemovalReason.HOLD if held else RemovalReason.LIFTED)
        (self._held.add if held else self._held.discard)(queue.id)
        if self._nursery is not None:  # the start tells how many there are
            act = "hold.set" if held else "hold.lift"
            auditlog.record(act, user=None, peer="-", what=queue.name, vhost=queue.vhost)

    def _names(self, thing: Queue | Exchange) -> list[str]:
        if isinstance(thing, Exchange):
            return [log_of_delayed(thing.name)]
        top = self._topology.effective(thing).max_priority or 0
        return logs_of_queue(thing.name, top)

    def _options(self, queue: Queue) -> QueueOptions:
        settings = self._topology.effective(queue)
        return options_of(settings, queue.durable, self._consumer_timeout_ms)

    @contextmanager
    def settings_later(self) -> Iterator[None]:
        """Policies that change in here count once all of it is done."""
        waiting = self._settings_later = []
        try:
            yield
        finally:
            self._settings_later = None
            self._apply_settings(waiting)

    def _apply_settings(self, queues: Sequence[Queue]) -> None:
        """Policies changed."""
        if self._settings_later is not None:
            self._settings_later += queues
            return
        for queue in queues:
            if queue.id in self._by_id:
                self._engine.set_queue(queue.id, self._options(queue))
                self._hold(queue, self._logs[queue.id])
                self._watch_expiry(queue)

    async def save(self, *changes: Change) -> None:
        """On disk when it returns, in one commit. A queue that isn't saved is taken out again."""
        try:
            await self._topology.pending.save(*changes)
        except LogError:
            for change in changes:
                for thing in (change.queue, change.exchange):
                    if thing is not None and change.created and thing.id in self._logs:
                        self._discard(self._take_out(thing))
            raise
        for change in changes:
            for made in (change.queue, change.exchange):
                if made is not None and change.created and made.id in self._logs:
                    self._store.named(self._logs[made.id])

    # -- going

    def remove(self, change: Change) -> Coroutine[Any, Any, None] | None:
        """Queues and delayed exchanges that are gone by this change leave the engine at once; the
        returned rest waits for the disk. None: nothing of it is on disk."""
        touched: list[Queue | Exchange] = list(change.removed)
        touched += [self._delayed[id] for id in change.touched & self._delayed.keys()]
        gone = {
            each: self._take_out(each)
            for each in touched
            if each.id in self._logs and not self._exists(each)
        }
        logs = [log for each in gone.values() for log in each]
        if change.statements:
            change.statements += [Catalog.removal(log.id) for log in logs if log.id < SCRATCH_IDS]
            for log in logs:  # one that is declared by that name meanwhile is another
                self._store.free_name(log)
            return self._finish(change, gone)
        self._discard(logs)
        return None

    async def delete_vhost(self, name: str) -> None:
        """With all that is in it; its connections have to end first. NotFound: there is none.
        Grants in it are auth's to take back: `auth.delete_vhost`. UnderLegalHold: a queue in
        it is."""
        host = self._topology.vhosts.get(name)
        for queue in host.queues.values() if host else ():
            self.holds.refuse(queue, "deleted with its vhost")
        change = self._topology.delete_vhost(name)
        removing = self.remove(change)
        for tell in self.on_vhost_gone:
            tell(name)
        assert removing is not None  # a vhost has a row
        await removing

    async def _finish(self, change: Change, gone: Mapping[Queue | Exchange, list[Log]]) -> None:
        """A log that no row names is gone, whatever becomes of its files."""
        try:
            await self._topology.pending.save(change)
        except LogError:
            for thing, logs in gone.items():
                self._bring_back(thing, logs)
            raise
        for logs in gone.values():
            self._discard(logs)

    def _bring_back(self, thing: Queue | Exchange, logs: list[Log]) -> None:
        """A queue declared by its name meanwhile was undone together with the deletion."""
        things: list[Queue | Exchange] = [*self._by_id.values(), *self._delayed.values()]
        for other in things:
            if type(other) is type(thing) and _place(other) == _place(thing):
                self._discard(self._take_out(other))
        for log in logs:
            self._store.take_name(log)
        self.add(thing, logs)

    def _exists(self, thing: Queue | Exchange) -> bool:
        if isinstance(thing, Queue) or thing.vhost not in self._topology.vhosts:
            return False
        return self._topology.find_exchange(thing.vhost, thing.name) is thing

    def _take_out(self, thing: Queue | Exchange) -> list[Log]:
        """Of the engine. Its consumers hear of it when no delivery can follow."""
        consumers = self._engine.consumers(thing.id) if isinstance(thing, Queue) else []
        self._engine.remove_queue(thing.id)
        self._by_id.pop(thing.id, None)
        self._held.discard(thing.id)
        self._delayed.pop(thing.id, None)
        logs = self._logs.pop(thing.id)
        if isinstance(thing, Queue):
            self._tell_moved(thing)
            if consumers:
                for tell in self.on_gone:
                    tell(thing, consumers)
        return logs

    def _tell_moved(self, queue: Queue) -> None:
        for tell in self.on_moved:
            tell(queue)

    def _discard(self, logs: Iterable[Log]) -> None:
        for log in logs:
            self._store.discard(log)

    async def wait_durable(self, seq: int) -> None:
        await self._store.wait_durable(seq)

    async def wait_moved(self) -> None:
        """For callers that found no room in the WAL: try again now."""
        await self._store.waiting.wait_moved()

    def remove_unasked(self, queues: Iterable[Queue]) -> None:
        """Nobody waits for it: they expired, their connection ended, their last consumer left.
        One under legal hold stays until it is lifted and the same happens again."""
        queues = [queue for queue in queues if not self.holds.on(queue)]
        waiting = self.remove(self._topology.remove(queues))
        if waiting is not None:
            assert self._nursery is not None
            self._nursery.start_soon(_logged, waiting, queues)

    def lost_last_consumer(self, id: int) -> None:
        queue = self._by_id.get(id)
        if queue and queue.auto_delete and not self._engine.queue_stat(id).consumers:
            self.remove_unasked([queue])

    # -- expiry

    def _watch_expiry(self, queue: Queue) -> None:
        expires = self._topology.effective(queue).expires_ms
        if expires is not None:
            heappush(self._expiring, (trio.current_time() + expires / 1000, queue.id))
            self._expiry_changed.set()

    def _expire(self, now: float) -> float:
        """Remove what nobody has used for its time; how long until the next one is due."""
        while self._expiring and self._expiring[0][0] <= now:
            _, id = heappop(self._expiring)
            queue = self._by_id.get(id)
            expires = self._topology.effective(queue).expires_ms if queue else None
            if queue is None or expires is None:
                continue
            stat = self._engine.queue_stat(id)
            is_used = stat.consumers or self.holds.on(queue)
            left = expires if is_used else expires - stat.idle_ms
            if left > 0:
                heappush(self._expiring, (now + left / 1000, id))
            else:
                eventlog.debug("queue expired", queue=queue.name, vhost=queue.vhost)
                self.remove_unasked([queue])
        return self._expiring[0][0] - now if self._expiring else float("inf")

    # -- routes

    def routed(self, exchange: Exchange) -> None:
        """C may remember routes of it from now on."""
        if exchange.id not in self._routed:
            place = (self.vhost_number(exchange.vhost), exchange.name.encode())
            self._routed[exchange.id] = place

    def _forget_routes(self, exchanges: frozenset[int]) -> None:
        for id in exchanges & self._routed.keys():
            self._engine.forget_routes(*self._routed.pop(id))


async def _logged(waiting: Coroutine[Any, Any, None], queues: Sequence[Queue]) -> None:
    whose = {"queue": queues[0].name, "vhost": queues[0].vhost, "queues": len(queues)}
    with contained("queue not removed from metadata", **whose):
        try:
            await waiting
        except LogError as error:
            eventlog.warning("queue not removed from metadata", **whose, error=error)


# A hundred thousand queues share a handful of settings: each is worked out once.
@lru_cache(4096)
def options_of(settings: QueueSettings, durable: bool, usual_timeout: int | None) -> QueueOptions:
    flags = TYPES[settings.type] | OVERFLOW[settings.overflow]
    if durable:
        flags |= QueueFlags.DURABLE
    if settings.single_active:
        flags |= QueueFlags.SINGLE_ACTIVE
    if settings.dl_strategy == "at-least-once":
        flags |= QueueFlags.AT_LEAST_ONCE
    if settings.type is QueueType.STREAM:
        return QueueOptions(flags)  # whole segments go, by age and size: retention.py's
    timeout = settings.consumer_timeout_ms
    limit = settings.delivery_limit
    return QueueOptions(
        flags=flags,
        message_ttl_ms=settings.message_ttl_ms,
        max_length=settings.max_length,
        max_length_bytes=settings.max_length_bytes,
        delivery_limit=None if limit < 0 else limit,
        consumer_timeout_ms=usual_timeout if timeout is None else timeout,
        dead_letter_exchange=_bytes(settings.dlx),
        dead_letter_key=_bytes(settings.dlrk),
    )


def _place(thing: Queue | Exchange) -> tuple[str, str]:
    return thing.vhost, thing.name


def _log_flags(thing: Queue | Exchange) -> LogFlags:
    is_stream = isinstance(thing, Queue) and thing.type is QueueType.STREAM
    return _flags_of(thing.durable, is_stream)


@cache
def _flags_of(durable: bool, is_stream: bool) -> LogFlags:
    flags = LogFlags(0) if durable else LogFlags.SCRATCH
    return flags | LogFlags.NO_CURSOR if is_stream else flags


def segment_size(wanted: int) -> int:
    """Whole pages, within what a segment may be."""
    return min(max(wanted, SEGMENT_LEAST), 1 << 30) & -4096


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
