"""The broker's own settings by the names that Kafka's tools look for, all read-only.

What something hangs on here comes from config.yaml and is told as STATIC_BROKER_CONFIG. The rest of
what Kafka 4.3 lists is told with Kafka's default, and as that: tools look for the names.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import NamedTuple

from ottermq.kafka.configs import INT_MAX, LONG_MAX, TOPIC_CONFIGS, Source, Type
from ottermq.kafka.logdirs import log_dir
from ottermq.kafka.request import Body, Connection
from ottermq.kafka.room import Room

MILLISECOND, MINUTE = timedelta(milliseconds=1), timedelta(minutes=1)
HOUR_MS = 3_600_000
OURS = "set in config.yaml"
NOT_OURS = "Kafka's default; nothing hangs on it here"


class Setting(NamedTuple):
    type: Type
    value: str | None
    source: Source = Source.STATIC_BROKER


def described(kafka: Room, conn: Connection) -> Iterator[Body]:
    found = {
        **{name: Setting(type, value, Source.DEFAULT) for name, type, value in DEFAULTS},
        **_of_all_topics(kafka),
        **_own(kafka),
        **_listeners(kafka, conn),
    }
    for name, (type, value, source) in sorted(found.items()):
        yield {
            "name": name,
            "value": value,
            "read_only": True,
            "config_source": source,
            "synonyms": [{"name": name, "value": value, "source": source}],
            "config_type": type,
            "documentation": OURS if source is Source.STATIC_BROKER else NOT_OURS,
        }


def _own(kafka: Room) -> Mapping[str, Setting]:
    settings = kafka.settings
    groups, limits = settings.groups, settings.transactions
    return {
        "broker.id": Setting(Type.INT, str(kafka.node_id)),
        "node.id": Setting(Type.INT, str(kafka.node_id)),
        "process.roles": Setting(Type.LIST, "broker,controller"),
        "log.dirs": Setting(Type.STRING, log_dir(kafka)),
        "auto.create.topics.enable": Setting(Type.BOOLEAN, _flag(settings.auto_create)),
        "num.partitions": Setting(Type.INT, str(settings.default_partitions)),
        "default.replication.factor": Setting(Type.INT, "1"),
        "delete.topic.enable": Setting(Type.BOOLEAN, "true"),
        "socket.request.max.bytes": Setting(Type.INT, str(settings.max_request_size)),
        "log.cleaner.enable": Setting(Type.BOOLEAN, "true"),
        "log.cleaner.backoff.ms": Setting(Type.LONG, _ms(settings.compaction_interval)),
        "offsets.topic.replication.factor": Setting(Type.SHORT, "1"),
        "offsets.retention.minutes": Setting(Type.INT, str(groups.offsets_retention // MINUTE)),
        "offsets.retention.check.interval.ms": Setting(
            Type.LONG, _ms(groups.offsets_check_interval)
        ),
        "offset.metadata.max.bytes": Setting(Type.INT, str(groups.offset_metadata_max_size)),
        "group.initial.rebalance.delay.ms": Setting(Type.INT, _ms(groups.initial_rebalance_delay)),
        "group.min.session.timeout.ms": Setting(Type.INT, _ms(groups.min_session_timeout)),
        "group.max.session.timeout.ms": Setting(Type.INT, _ms(groups.max_session_timeout)),
        "group.max.size": Setting(Type.INT, str(groups.max_size)),
        "transaction.state.log.replication.factor": Setting(Type.SHORT, "1"),
        "transaction.state.log.min.isr": Setting(Type.INT, "1"),
        "transaction.max.timeout.ms": Setting(Type.INT, _ms(limits.max_timeout)),
        "transactional.id.expiration.ms": Setting(Type.INT, _ms(limits.id_expiration)),
    }


def _listeners(kafka: Room, conn: Connection) -> Mapping[str, Setting]:
    """The one that this client came by: who may ask has logged in."""
    protocol = "SASL_PLAINTEXT" if conn.listener == "kafka" else "SASL_SSL"
    return {
        "listeners": Setting(Type.LIST, f"{protocol}://{conn.local}"),
        "advertised.listeners": Setting(Type.LIST, f"{protocol}://{conn.advertised}"),
    }


def _of_all_topics(kafka: Room) -> Mapping[str, Setting]:
    usual: Mapping[str, str] = kafka.configs.usual(None)
    found = {
        config.synonym: Setting(
            config.type, usual[name], Source.STATIC_BROKER if config.acts else Source.DEFAULT
        )
        for name, config in TOPIC_CONFIGS.items()
        if config.synonym is not None
    }
    retention = int(usual["retention.ms"])
    hours = str(retention // HOUR_MS if retention >= 0 else -1)
    return {**found, "log.retention.hours": Setting(Type.INT, hours)}


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _ms(time: timedelta) -> str:
    return str(time // MILLISECOND)


DEFAULTS: tuple[tuple[str, Type, str | None], ...] = (
    ("alter.config.policy.class.name", Type.CLASS, None),
    ("authorizer.class.name", Type.STRING, ""),
    ("auto.leader.rebalance.enable", Type.BOOLEAN, "true"),
    ("background.threads", Type.INT, "10"),
    ("broker.heartbeat.interval.ms", Type.INT, "2000"),
    ("broker.rack", Type.STRING, None),
    ("broker.session.timeout.ms", Type.INT, "9000"),
    ("connection.failed.authentication.delay.ms", Type.INT, "100"),
    ("connections.max.idle.ms", Type.LONG, "600000"),
    ("connections.max.reauth.ms", Type.LONG, "0"),
    ("controlled.shutdown.enable", Type.BOOLEAN, "true"),
    ("controlled.shutdown.max.retries", Type.INT, "3"),
    ("controlled.shutdown.retry.backoff.ms", Type.LONG, "5000"),
    ("controller.listener.names", Type.STRING, None),
    ("controller.quorum.voters", Type.LIST, ""),
    ("create.topic.policy.class.name", Type.CLASS, None),
    ("delete.records.purgatory.purge.interval.requests", Type.INT, "1"),
    ("early.start.listeners", Type.STRING, None),
    ("fetch.max.bytes", Type.INT, str(55 << 20)),
    ("fetch.purgatory.purge.interval.requests", Type.INT, "1000"),
    ("group.consumer.heartbeat.interval.ms", Type.INT, "5000"),
    ("group.consumer.max.size", Type.INT, str(INT_MAX)),
    ("group.consumer.session.timeout.ms", Type.INT, "45000"),
    ("group.coordinator.append.linger.ms", Type.INT, "10"),
    ("group.coordinator.threads", Type.INT, "1"),
    ("inter.broker.listener.name", Type.STRING, None),
    ("leader.imbalance.check.interval.seconds", Type.LONG, "300"),
    ("leader.imbalance.per.broker.percentage", Type.INT, "10"),
    ("log.cleaner.dedupe.buffer.size", Type.LONG, str(128 << 20)),
    ("log.cleaner.io.buffer.load.factor", Type.DOUBLE, "0.9"),
    ("log.cleaner.io.buffer.size", Type.INT, str(512 << 10)),
    ("log.cleaner.io.max.bytes.per.second", Type.DOUBLE, "1.7976931348623157E308"),
    ("log.cleaner.threads", Type.INT, "1"),
    ("log.dir", Type.STRING, "/tmp/kafka-logs"),
    ("log.flush.offset.checkpoint.interval.ms", Type.INT, "60000"),
    ("log.flush.scheduler.interval.ms", Type.LONG, str(LONG_MAX)),
    ("log.flush.start.offset.checkpoint.interval.ms", Type.INT, "60000"),
    ("log.retention.check.interval.ms", Type.LONG, "300000"),
    ("log.retention.minutes", Type.INT, None),
    ("log.roll.hours", Type.INT, "168"),
    ("log.roll.jitter.hours", Type.INT, "0"),
    ("max.connection.creation.rate", Type.INT, str(INT_MAX)),
    ("max.connections", Type.INT, str(INT_MAX)),
    ("max.connections.per.ip", Type.INT, str(INT_MAX)),
    ("max.connections.per.ip.overrides", Type.STRING, ""),
    ("max.incremental.fetch.session.cache.slots", Type.INT, "1000"),
    ("max.request.partition.size.limit", Type.INT, "2000"),
    ("metrics.num.samples", Type.INT, "2"),
    ("metrics.recording.level", Type.STRING, "INFO"),
    ("metrics.sample.window.ms", Type.LONG, "30000"),
    ("num.io.threads", Type.INT, "8"),
    ("num.network.threads", Type.INT, "3"),
    ("num.recovery.threads.per.data.dir", Type.INT, "2"),
    ("num.replica.alter.log.dirs.threads", Type.INT, None),
    ("num.replica.fetchers", Type.INT, "1"),
    ("offsets.commit.timeout.ms", Type.INT, "5000"),
    ("offsets.load.buffer.size", Type.INT, str(5 << 20)),
    ("offsets.topic.compression.codec", Type.INT, "0"),
    ("offsets.topic.num.partitions", Type.INT, "50"),
    ("offsets.topic.segment.bytes", Type.INT, str(100 << 20)),
    ("producer.id.expiration.check.interval.ms", Type.INT, "600000"),
    ("producer.id.expiration.ms", Type.INT, "86400000"),
    ("producer.purgatory.purge.interval.requests", Type.INT, "1000"),
    ("queued.max.request.bytes", Type.LONG, "-1"),
    ("queued.max.requests", Type.INT, "500"),
    ("quota.window.num", Type.INT, "11"),
    ("quota.window.size.seconds", Type.INT, "1"),
    ("replica.fetch.backoff.ms", Type.INT, "1000"),
    ("replica.fetch.max.bytes", Type.INT, str(1 << 20)),
    ("replica.fetch.min.bytes", Type.INT, "1"),
    ("replica.fetch.response.max.bytes", Type.INT, str(10 << 20)),
    ("replica.fetch.wait.max.ms", Type.INT, "500"),
    ("replica.high.watermark.checkpoint.interval.ms", Type.LONG, "5000"),
    ("replica.lag.time.max.ms", Type.LONG, "30000"),
    ("replica.selector.class", Type.STRING, None),
    ("replica.socket.receive.buffer.bytes", Type.INT, str(64 << 10)),
    ("replica.socket.timeout.ms", Type.INT, "30000"),
    ("request.timeout.ms", Type.INT, "30000"),
    ("security.inter.broker.protocol", Type.STRING, "PLAINTEXT"),
    ("socket.listen.backlog.size", Type.INT, "50"),
    ("socket.receive.buffer.bytes", Type.INT, str(100 << 10)),
    ("socket.send.buffer.bytes", Type.INT, str(100 << 10)),
    ("transaction.abort.timed.out.transaction.cleanup.interval.ms", Type.INT, "10000"),
    ("transaction.partition.verification.enable", Type.BOOLEAN, "true"),
    ("transaction.remove.expired.transaction.cleanup.interval.ms", Type.INT, "3600000"),
    ("transaction.state.log.load.buffer.size", Type.INT, str(5 << 20)),
    ("transaction.state.log.num.partitions", Type.INT, "50"),
    ("transaction.state.log.segment.bytes", Type.INT, str(100 << 20)),
    ("unclean.leader.election.interval.ms", Type.LONG, "300000"),
)
