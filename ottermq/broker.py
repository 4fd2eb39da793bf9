"""The wiring: what a broker is made of, in the order it starts and, backwards, stops.

data directory claimed → sockets bound → store opened → log recovered, topology and users read →
every queue, config, group and transaction put into the paused engine → engine started →
listening → `ready`
SIGHUP → what may change is read again (reload.py)
SIGTERM or SIGINT → clients told → engine stopped → store closed (flush, checkpoint) → claim
released
"""

import logging
import resource
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import NamedTuple

import trio

from ottermq import eventlog
from ottermq.admin import http as admin
from ottermq.admin import metrics
from ottermq.admin.guard import Guard
from ottermq.amqp.context import AmqpContext
from ottermq.amqp.server import AmqpServer
from ottermq.auth import Auth, open_auth
from ottermq.config import Config
from ottermq.engine import dispatch
from ottermq.engine.engine import Engine
from ottermq.engine.types import EngineOptions, Protocol
from ottermq.kafka import anonymous
from ottermq.kafka.altered import Altered
from ottermq.kafka.cluster import open_cluster
from ottermq.kafka.compaction import Compactor
from ottermq.kafka.context import KafkaContext
from ottermq.kafka.groups import Groups, group_settings
from ottermq.kafka.quotas import Quotas
from ottermq.kafka.server import KafkaServer
from ottermq.kafka.table import EngineTable
from ottermq.kafka.topics import Topics
from ottermq.kafka.transactions import Transactions, transaction_settings
from ottermq.net import listeners
from ottermq.net.listeners import Bound, Service
from ottermq.net.tls import Contexts
from ottermq.net.tls_bridge import Tunnel
from ottermq.process import systemd
from ottermq.process.gc_tuning import uncollected
from ottermq.process.lockfile import claim
from ottermq.process.secrecy import keep_to_ourselves, look_who_reads
from ottermq.queue_runtime import Queues
from ottermq.reload import Reloader, ignore_signals
from ottermq.storage import ballast, retention
from ottermq.storage import version_file as versionfile
from ottermq.storage.legal_holds import Holds
from ottermq.storage.store import (
    log_options,
    open_store,
    recovered,
    store_options,
    tell_reports,
    told_in_one_line,
)
from ottermq.topology import MetaDb, Topology, restore
from ottermq.wal import Log, Store
from ottermq.wal.retention import Policy
from ottermq.wal.store import Interrupted

Signals = AsyncIterator[int]
MILLISECOND = timedelta(milliseconds=1)
ADMIN_MOST = admin.MOST_WAITING + 50  # connections, with those that are being answered
OTHER_FILES = 512  # descriptors for what is neither a connection nor a segment


def run(read: Callable[[], Config], *, accept_missing_metadata: bool = False) -> None:
    """Serve until told to stop. `read`: the configuration, and again on SIGHUP. StartupError: it
    couldn't begin."""
    ignore_signals()
    config = read()
    eventlog.start(config.log.level, config.log.format)
    keep_to_ourselves()
    _raise_file_limit()
    secure = config.listen.amqps or config.listen.kafkas
    contexts = Contexts(config.tls) if secure else None
    with claim(config.data), ballast.in_need(config.data), _bind(config) as bound:
        look_who_reads(config.data)
        anonymous.check_listeners(config, bound)
        versionfile.note(config.data)
        trio.run(_serve, config, read, bound, contexts, accept_missing_metadata)
    eventlog.info("stopped")


async def _serve(
    config: Config,
    read: Callable[[], Config],
    bound: dict[str, Bound],
    contexts: Contexts | None,
    accept_missing_metadata: bool,
) -> None:
    stop = trio.Event()
    ask, asked = trio.open_memory_channel[None](1)
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_heed, signals, stop, ask)
            try:
                opening = open_store(config, accept_missing_metadata=accept_missing_metadata)
                async with opening as store, open_broker(config, store, stop) as broker:
                    reloader = Reloader(config, read, asked, contexts, broker.amqp, broker.kafka)
                    await _serve_clients(config, bound, contexts, store, broker, stop, reloader)
            except* Interrupted:
                eventlog.info("recovery interrupted")
            nursery.cancel_scope.cancel()


class Broker(NamedTuple):
    """What runs: one log, as each protocol sees it."""

    amqp: AmqpContext
    kafka: KafkaContext
    compactor: Compactor

    def retention_of(self, log: Log) -> Policy | None:
        """A legal hold comes first; what somebody altered by Kafka's configs before arguments and
        policies."""
        if self.amqp.queues.holds.on_log(log):
            return Policy(legal_hold=True)
        return self.kafka.configs.retention_of(log) or self.amqp.queues.retention_of(log)


@asynccontextmanager
async def open_broker(config: Config, store: Store, stop: trio.Event) -> AsyncIterator[Broker]:
    """What clients work on: the log, the topology and the users as they were left, and the
    engine. Interrupted: `stop` was set before the log was recovered."""
    with told_in_one_line(config):
        opened = MetaDb(config.data)
    with opened as db:
        doubtful = store.is_doubtful  # then meta.db isn't written to before the log has seen it
        async with trio.open_nursery() as nursery:
            if doubtful:
                await recovered(config, store, stop)
            else:
                nursery.start_soon(recovered, config, store, stop)
            with told_in_one_line(config, db):
                topology, auth = await _remember(config, db)
        engine = Engine(store, engine_options(config))
        try:
            timeout = config.amqp.consumer_timeout
            queues = Queues(
                engine,
                store,
                topology,
                rules=lambda name: log_options(config.for_queue(name)),
                holds=Holds(topology, lambda name: config.for_queue(name).retention.legal_hold),
                consumer_timeout_ms=None if timeout is None else timeout // MILLISECOND,
            )
            with told_in_one_line(config, db):
                with uncollected():
                    queues.start()
                cluster, table = open_cluster(db), EngineTable(engine)
                topics = Topics(topology, queues, cluster, vhost=config.kafka.vhost, table=table)
                configs = Altered(db, store, topology, topics, config.for_queue, queues.holds)
                configs.start()
                compactor = Compactor(db, store, configs)
                quotas = Quotas(db, engine)
                quotas.start()
            groups = await Groups.open(store, group_settings(config.kafka.groups))
            groups.follow(topics)
            transactions = await Transactions.open(
                store, topics, groups, transaction_settings(config.kafka.transactions)
            )
            yield Broker(
                AmqpContext(engine, topology, auth, queues, config.amqp),
                KafkaContext(
                    engine, store, topology, auth, queues, config.kafka, cluster, topics, configs,
                    groups, transactions, quotas,
                ),
                compactor,
            )  # fmt: skip
        finally:
            engine.close()


async def _serve_clients(
    config: Config,
    bound: dict[str, Bound],
    contexts: Contexts | None,
    store: Store,
    broker: Broker,
    stop: trio.Event,
    reloader: Reloader,
) -> None:
    amqp, kafka = AmqpServer(broker.amqp), KafkaServer(broker.kafka)
    engine, queues = broker.amqp.engine, broker.amqp.queues
    read = metrics.reader(engine, store, broker.kafka.groups, broker.kafka.transactions)
    hidden = broker.kafka.topics.hidden
    unfence = partial(trio.to_thread.run_sync, store.unfence)
    pages = admin.Pages(
        store.trouble, read, hidden, unfence, lambda: store.damage.reason, store.hindrance
    )
    guard = Guard(broker.amqp.auth.users, lambda: reloader.config.admin, config.listen.admin.host)
    services = [
        Service("admin", admin.Desk(pages, guard).serve, ADMIN_MOST, log_level=logging.DEBUG)
    ]
    if "health" in bound:
        desk = admin.Desk(pages, guard, admin.ONLY_HEALTH)
        services.append(Service("health", desk.serve, ADMIN_MOST, log_level=logging.DEBUG))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tell_reports, store)
        nursery.start_soon(ballast.keep, config.data)
        nursery.start_soon(retention.keep, store, config, broker.retention_of)
        nursery.start_soon(broker.compactor.keep, config.kafka.compaction_interval.total_seconds())
        nursery.start_soon(queues.run)
        await nursery.start(broker.kafka.groups.run)
        await nursery.start(broker.kafka.transactions.run)
        await nursery.start(amqp.run)
        await nursery.start(kafka.run)
        nursery.start_soon(broker.kafka.quotas.keep, kafka.connections)
        by_protocol: dict[int, dispatch.Server] = {
            Protocol.AMQP: amqp,
            Protocol.KAFKA: kafka,
        }
        nursery.start_soon(dispatch.dispatch, engine, by_protocol)
        engine.start()
        for name, protocol in (("amqp", Protocol.AMQP), ("kafka", Protocol.KAFKA)):
            for listener in listeners.listen(name, bound[name]):
                engine.listen(listener.socket.fileno(), protocol)
        if contexts is not None:
            nursery.start_soon(contexts.keep)
            patience = config.amqp.handshake_timeout.total_seconds()
            for name, open_pipe in (("amqps", amqp.open_pipe), ("kafkas", kafka.open_pipe)):
                if name in bound:
                    tunnel = Tunnel(contexts, config.tls.login_from, patience, open_pipe)
                    services.append(
                        Service(name, tunnel.serve, most=engine.options.max_connections)
                    )
        for service in services:
            opened = listeners.listen(service.name, bound[service.name])
            nursery.start_soon(listeners.accept, service, opened)
        addresses = {name: str(place.address) for name, place in bound.items()}
        eventlog.info("ready", **addresses, data=config.data.resolve())
        systemd.notify("READY=1")
        nursery.start_soon(reloader.run)
        await stop.wait()
        systemd.notify("STOPPING=1")
        kafka.stop()
        await amqp.stop()
        nursery.cancel_scope.cancel()


async def _remember(config: Config, db: MetaDb) -> tuple[Topology, Auth]:
    """What meta.db holds. The first start makes a user, whose password is slow to hash."""
    with uncollected():
        topology = await trio.to_thread.run_sync(restore, db)
    auth = open_auth(db, config.auth)
    if config.definitions is not None:
        # Here and not above: most starts have no such file, and are quicker for it.
        from ottermq import definitions

        await definitions.load(config.definitions, topology, auth)
    await auth.first_start()
    await anonymous.make_user(auth, config.kafka)
    return topology, auth


def engine_options(config: Config) -> EngineOptions:
    zero_copy = config.wal.zero_copy
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    segments = store_options(config).open_files
    return EngineOptions(
        frame_max=config.amqp.frame_max,
        handshake_timeout_ms=config.amqp.handshake_timeout // MILLISECOND,
        max_message_size=config.amqp.max_message_size,
        memory_limit=config.memory.high_watermark,
        zero_copy_min=zero_copy.min_message_size if zero_copy.enabled else 0,
        kafka_max_request=config.kafka.max_request_size,
        consumers_per_channel=config.amqp.consumer_max_per_channel,
        nacks_count=config.amqp.nacks_count,
        strangers_per_address=config.auth.unauthenticated_per_address,
        max_connections=max(files - segments - OTHER_FILES, 64),
    )


async def _heed(signals: Signals, stop: trio.Event, ask: "trio.MemorySendChannel[None]") -> None:
    """The first signal that stops us does; more of them don't make it faster, nor unclean."""
    async for number in signals:
        name = signal.Signals(number).name
        if number == signal.SIGHUP:
            if stop.is_set():
                eventlog.info("configuration not reloaded", signal=name, reason="stopping")
            else:
                eventlog.info("configuration reloading", signal=name)
            with suppress(trio.WouldBlock):  # one waits already: it sees what this one would
                ask.send_nowait(None)
        elif not stop.is_set():
            eventlog.info("stopping", signal=name)
            stop.set()


@contextmanager
def _bind(config: Config) -> Iterator[dict[str, Bound]]:
    with ExitStack() as stack:
        bound = {}
        for name in ("amqp", "amqps", "kafka", "kafkas", "admin", "health"):
            wanted = getattr(config.listen, name)
            if wanted is not None:
                bound[name] = listeners.bind(name, wanted)
                stack.callback(bound[name].close)
        yield bound


def _raise_file_limit() -> None:
    """Connections and segments need descriptors: take all we are allowed to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
