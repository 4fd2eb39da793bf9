"""The wiring: what a broker is made of, in the order it starts and, backwards, stops.

data directory claimed → sockets bound → store opened → log recovered, topology and users read →
every queue, config, group and transaction put into the paused engine → engine started →
listening → `ready`
SIGHUP → what may change is read again (reload.py)
SIGTERM or SIGINT → clients told → engine stopped → store closed (flush, checkpoint) → claim
released
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import NamedTuple

import trio

from ottermq import definitions, eventlog
from ottermq.admin import port as admin
from ottermq.admin.context import AdminContext
from ottermq.amqp.context import AmqpContext
from ottermq.amqp.server import AmqpServer
from ottermq.auth import Auth, open_auth
from ottermq.config import Config
from ottermq.engine import dispatch
from ottermq.engine.engine import Engine
from ottermq.engine.options import engine_options
from ottermq.engine.types import Protocol
from ottermq.kafka import anonymous
from ottermq.kafka.server import KafkaServer
from ottermq.kafka.startup import Kafka, open_kafka
from ottermq.net import listeners, tls_bridge
from ottermq.net.listeners import Bound, bind_all
from ottermq.net.tls import Contexts
from ottermq.process import systemd
from ottermq.process.file_limit import raise_file_limit
from ottermq.process.gc_tuning import uncollected
from ottermq.process.lockfile import claim
from ottermq.process.secrecy import keep_to_ourselves, look_who_reads
from ottermq.process.signals import HEEDED, heed, ignore_signals
from ottermq.queue_runtime import Queues
from ottermq.reload import Reloader
from ottermq.storage import ballast, retention, version_file
from ottermq.storage.legal_holds import Holds
from ottermq.storage.store import (
    log_options,
    open_store,
    recovering,
    tell_reports,
    told_in_one_line,
)
from ottermq.topology import MetaDb, Topology, restore
from ottermq.wal import Log, Store
from ottermq.wal.retention import Policy
from ottermq.wal.store import Interrupted

MILLISECOND = timedelta(milliseconds=1)


def run(read: Callable[[], Config], *, accept_missing_metadata: bool = False) -> None:
    """Serve until told to stop. `read`: the configuration, and again on SIGHUP. StartupError: it
    couldn't begin."""
    ignore_signals()
    config = read()
    eventlog.start(config.log.level, config.log.format)
    keep_to_ourselves()
    raise_file_limit()
    secure = config.listen.amqps or config.listen.kafkas
    contexts = Contexts(config.tls) if secure else None
    with claim(config.data), ballast.in_need(config.data), bind_all(config.listen) as bound:
        look_who_reads(config.data)
        anonymous.check_listeners(config, bound)
        version_file.note(config.data)
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
    with trio.open_signal_receiver(*HEEDED) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(heed, signals, stop, ask)
            try:
                opening = open_store(config, accept_missing_metadata=accept_missing_metadata)
                async with opening as store, open_broker(config, store, stop) as broker:
                    reloader = Reloader(
                        config, read, asked, contexts, broker.amqp, broker.kafka.context
                    )
                    await _serve_clients(broker, store, bound, reloader, stop)
            except* Interrupted:
                eventlog.info("recovery interrupted")
            nursery.cancel_scope.cancel()


class Broker(NamedTuple):
    """A running broker: one log, as each protocol sees it."""

    amqp: AmqpContext
    kafka: Kafka

    def retention_of(self, log: Log) -> Policy | None:
        """A legal hold comes first; then Kafka's altered configs; then arguments and policies."""
        if self.amqp.queues.holds.on_log(log):
            return Policy(legal_hold=True)
        return self.kafka.context.configs.retention_of(log) or self.amqp.queues.retention_of(log)


@asynccontextmanager
async def open_broker(config: Config, store: Store, stop: trio.Event) -> AsyncIterator[Broker]:
    """The state that clients work on: the log, the topology and the users as they were left, and
    the engine. Interrupted: `stop` was set before the log was recovered."""
    with told_in_one_line(config):
        opened = MetaDb(config.data)
    with opened as db:
        async with recovering(config, store, stop):
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
            with told_in_one_line(config, db), uncollected():
                queues.start()
            yield Broker(
                AmqpContext(engine, topology, auth, queues, config.amqp),
                await open_kafka(config, db, store, engine, topology, auth, queues),
            )
        finally:
            engine.close()


async def _serve_clients(
    broker: Broker, store: Store, bound: dict[str, Bound], reloader: Reloader, stop: trio.Event
) -> None:
    config, engine, contexts = reloader.config, broker.amqp.engine, reloader.contexts
    amqp, kafka = AmqpServer(broker.amqp), KafkaServer(broker.kafka.context)
    shown = AdminContext(store, amqp, kafka, bound, lambda: reloader.config, broker.kafka.metrics)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tell_reports, store)
        nursery.start_soon(ballast.keep, config.data)
        nursery.start_soon(retention.keep, store, config, broker.retention_of)
        nursery.start_soon(broker.amqp.queues.run)
        await nursery.start(broker.kafka.run, kafka.connections)
        await nursery.start(amqp.run)
        await nursery.start(kafka.run)
        servers: dict[int, dispatch.Server] = {Protocol.AMQP: amqp, Protocol.KAFKA: kafka}
        nursery.start_soon(dispatch.dispatch, engine, servers)
        engine.start()
        for name, protocol in (("amqp", Protocol.AMQP), ("kafka", Protocol.KAFKA)):
            for listener in listeners.listen(name, bound[name]):
                engine.listen(listener.socket.fileno(), protocol)
        if contexts is not None:
            nursery.start_soon(contexts.keep)
            ports = {"amqps": amqp.open_virtual, "kafkas": kafka.open_virtual}
            most = engine.options.max_connections
            for service in tls_bridge.services(contexts, config, most, ports):
                opened = listeners.listen(service.name, bound[service.name])
                nursery.start_soon(listeners.accept, service, opened)
        for_admin: dict[str, list[trio.SocketListener]] = {
            name: listeners.listen(name, bound[name])
            for name in ("admin", "health")
            if name in bound
        }
        addresses = {name: str(place.address) for name, place in bound.items()}
        eventlog.info("ready", **addresses, data=config.data.resolve())
        systemd.notify("READY=1")
        nursery.start_soon(admin.serve, shown, for_admin)
        nursery.start_soon(reloader.run)
        await stop.wait()
        systemd.notify("STOPPING=1")
        kafka.stop()
        await amqp.stop()
        nursery.cancel_scope.cancel()


async def _remember(config: Config, db: MetaDb) -> tuple[Topology, Auth]:
    """Read meta.db. The first start makes a user, whose password is slow to hash."""
    with uncollected():
        topology = await trio.to_thread.run_sync(restore, db)
    auth = open_auth(db, config.auth)
    await definitions.load(config.definitions, topology, auth)
    await auth.first_start()
    await anonymous.make_user(auth, config.kafka)
    return topology, auth
