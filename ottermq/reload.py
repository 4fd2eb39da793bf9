"""SIGHUP: the configuration is read again, and settings that may change while we serve do.

    configuration reloaded applied="log.level, tls.cert" restart=wal.segment_size
    definitions loaded path=/etc/ottermq/definitions.json

Files are read again whether or not their names have changed: certificates and definitions. A
configuration with a mistake in it changes nothing, and neither do certificates that can't be used;
the log says why. A signal that comes while we start counts when we are ready. None ends us.
"""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import trio

from ottermq import auditlog, definitions, eventlog
from ottermq.amqp.context import AmqpContext
from ottermq.config import Config
from ottermq.config.messages import dotted
from ottermq.config.schema import Keys, keys
from ottermq.errors import OtterError
from ottermq.kafka.context import KafkaContext
from ottermq.net.tls import Contexts
from ottermq.wal import LogError

TLS = "tls"
# Everything else is built into what runs already: it counts from the next start on.
RELOADED: frozenset[Keys] = frozenset(
    {
        ("definitions",),
        ("log", "level"),
        ("log", "format"),
        *((TLS, name) for name in ("cert", "key", "ca", "verify", "min_version", "check_interval")),
        ("auth", "loopback_users"),
        ("admin", "names_need_login"),
        ("admin", "hosts"),
        ("memory", "high_watermark"),
        # For connections that come from then on:
        ("amqp", "heartbeat"),
        ("amqp", "channel_max"),
        ("amqp", "max_message_size"),
        ("amqp", "permit", "global_qos"),
        ("amqp", "permit", "transient_queues"),
        ("kafka", "advertised"),
        ("kafka", "advertised_tls"),
        ("kafka", "auto_create"),
        ("kafka", "default_partitions"),
        ("kafka", "any_replication_factor"),
    }
)


@dataclass(eq=False)
class Reloader:
    config: Config  # as it runs
    read: Callable[[], Config]  # the files, the environment and the flags, once more
    asked: "trio.MemoryReceiveChannel[None]"  # a signal has come
    contexts: Contexts | None
    amqp: AmqpContext
    kafka: KafkaContext

    async def run(self) -> None:
        """Reload whenever asked, until cancelled."""
        async for _ in self.asked:
            try:
                await self.reload()
            except Exception as error:
                eventlog.failure("configuration not reloaded", error)

    async def reload(self) -> None:
        try:
            wanted = await trio.to_thread.run_sync(self.read)
        except (OtterError, OSError) as error:
            eventlog.warning("configuration not reloaded", reason=error)
            return
        if self.contexts and not await self.contexts.reload(_tls(self.config, wanted).tls):
            wanted = dataclasses.replace(wanted, tls=self.config.tls)  # the log has the reason
        others = changed(self.config, wanted)
        applied = [path for path in others if path in RELOADED]
        self._apply(_with(self.config, wanted, applied))
        restart = [path for path in others if path not in RELOADED]
        eventlog.info("configuration reloaded", applied=_listed(applied), restart=_listed(restart))
        if applied:
            auditlog.record("config.reload", user=None, peer="SIGHUP", what=_listed(applied))
        await self._load_definitions()

    def _apply(self, config: Config) -> None:
        self.config = config
        eventlog.set_level(config.log.level)
        eventlog.set_format(config.log.format)
        self.amqp.engine.set_limits(
            memory_limit=config.memory.high_watermark,
            max_message_size=config.amqp.max_message_size,
        )
        self.amqp.auth.users.loopback_only = frozenset(config.auth.loopback_users or ())
        self.amqp.settings, self.kafka.settings = config.amqp, config.kafka

    async def _load_definitions(self) -> None:
        context = self.amqp
        try:
            await definitions.load(
                self.config.definitions, context.topology, context.auth, context.queues
            )
        except (OtterError, LogError) as error:
            eventlog.warning("definitions not loaded", reason=error)


def changed(one: Config, other: Config) -> list[Keys]:
    """The keys in which they differ."""
    paths: Iterator[Keys] = (path for path, _ in keys(Config))
    return [path for path in (*paths, ("queues",)) if _at(one, path) != _at(other, path)]


def _at(config: Any, path: Keys) -> Any:
    for name in path:
        config = getattr(config, name)
    return config


def _tls(running: Config, wanted: Config) -> Config:
    return _with(running, wanted, [path for path in RELOADED if path[0] == TLS])


def _with(running: Config, wanted: Config, paths: list[Keys]) -> Config:
    for path in paths:
        running = _replaced(running, path, _at(wanted, path))
    return running


def _replaced(section: Any, path: Keys, value: Any) -> Any:
    name, *below = path
    if below:
        value = _replaced(getattr(section, name), tuple(below), value)
    return dataclasses.replace(section, **{name: value})


def _listed(paths: list[Keys]) -> str:
    return ", ".join(dotted(path) for path in paths) or "nothing"
