"""The wiring: what a broker is made of, in the order it starts and, backwards, stops.

data directory claimed → sockets bound → store opened (recovery) → doors open → `ready`
SIGTERM or SIGINT → doors closed → store closed (flush, checkpoint) → claim released
"""

import logging
import resource
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import trio

from ottermq import eventlog, listeners, retention, systemd
from ottermq.admin import http as admin
from ottermq.amqp import door as amqp
from ottermq.config import Config
from ottermq.kafka import door as kafka
from ottermq.listeners import Bound, Door
from ottermq.lockfile import claim
from ottermq.store import open_store, tell_reports
from ottermq.wal import Store
from ottermq.wal.store import Interrupted

Signals = AsyncIterator[int]


def run(config: Config) -> None:
    """Serve until told to stop. StartupError: it couldn't begin."""
    _raise_file_limit()
    with claim(config.data), _bind(config) as bound:
        trio.run(_serve, config, bound)
    eventlog.info("stopped")


async def _serve(config: Config, bound: dict[str, Bound]) -> None:
    stop = trio.Event()
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_heed, signals, stop)
            try:
                async with open_store(config, stop) as store:
                    await _keep_doors_open(config, bound, store, stop)
            except* Interrupted:
                eventlog.info("recovery called off")
            nursery.cancel_scope.cancel()


async def _keep_doors_open(
    config: Config, bound: dict[str, Bound], store: Store, stop: trio.Event
) -> None:
    doors = [
        Door("amqp", amqp.serve, most=10_000),
        Door("kafka", kafka.serve, most=10_000),
        Door("admin", partial(admin.serve, trouble=store.trouble), 100, log_level=logging.DEBUG),
    ]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tell_reports, store)
        nursery.start_soon(retention.keep, store, config)
        for door in doors:
            opened = listeners.listen(door.name, bound[door.name])
            nursery.start_soon(listeners.accept, door, opened)
        addresses = {name: str(place.address) for name, place in bound.items()}
        eventlog.info("ready", **addresses, data=config.data.resolve())
        systemd.notify("READY=1")
        await stop.wait()
        systemd.notify("STOPPING=1")
        nursery.cancel_scope.cancel()


async def _heed(signals: Signals, stop: trio.Event) -> None:
    """The first signal stops us; more of them don't make it faster, nor unclean."""
    async for number in signals:
        if not stop.is_set():
            eventlog.info("stopping", signal=signal.Signals(number).name)
            stop.set()


@contextmanager
def _bind(config: Config) -> Iterator[dict[str, Bound]]:
    with ExitStack() as stack:
        bound = {}
        for name in ("amqp", "kafka", "admin"):
            bound[name] = listeners.bind(name, getattr(config.listen, name))
            stack.callback(bound[name].close)
        yield bound


def _raise_file_limit() -> None:
    """Connections and segments need descriptors: take all we are allowed to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
