"""The broker's own settings by the names that Kafka's tools look for, all read-only.

Settings that have an effect here come from config.yaml and are listed as STATIC_BROKER_CONFIG. The
rest of Kafka 4.3's list has Kafka's default, and is listed as that: tools look for the names.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import NamedTuple

from ottermq.kafka.broker_defaults import DEFAULTS
from ottermq.kafka.configs import TOPIC_CONFIGS, Source, Type
from ottermq.kafka.context import KafkaContext
from ottermq.kafka.logdirs import log_dir
from ottermq.kafka.request import Body, Connection
from ottermq.kafka.sasl import MECHANISMS

MILLISECOND, MINUTE = timedelta(milliseconds=1), timedelta(minutes=1)
HOUR_MS = 3_600_000
OURS = "set in config.yaml"
NOT_OURS = "Kafka's default; nothing hangs on it here"


class Setting(NamedTuple):
    type: Type
    value: str | None
    source: Source = Source.STATIC_BROKER


def described(kafka: KafkaContext, conn: Connection) -> Iterator[Body]:
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
            "is_sensitive": type is Type.PASSWORD,
            "config_source": source,
            "synonyms": [{"name": name, "value": value, "source": source}],
            "config_type": type,
            "documentation": OURS if source is Source.STATIC_BROKER else NOT_OURS,
        }


def _own(kafka: KafkaContext) -> Mapping[str, Setting]:
    settings = kafka.settings
    groups, limits = settings.groups, settings.transactions
    return {
        "broker.id": Setting(Type.INT, str(kafka.node_id)),
        "node.id": Setting(Type.INT, str(kafka.node_id)),
        "process.roles": Setting(Type.LIST, "broker,controller"),
        "log.dir": Setting(Type.LIST, log_dir(kafka)),
        "log.dirs": Setting(Type.LIST, log_dir(kafka)),
        "sasl.enabled.mechanisms": Setting(Type.LIST, ",".join(MECHANISMS)),
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


def _listeners(kafka: KafkaContext, conn: Connection) -> Mapping[str, Setting]:
    """The listener that this client came by; the request takes a login."""
    protocol = "SASL_PLAINTEXT" if conn.listener == "kafka" else "SASL_SSL"
    return {
        "listeners": Setting(Type.LIST, f"{protocol}://{conn.local}"),
        "advertised.listeners": Setting(Type.LIST, f"{protocol}://{conn.advertised}"),
    }


def _of_all_topics(kafka: KafkaContext) -> Mapping[str, Setting]:
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
