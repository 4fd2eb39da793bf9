"""Every setting of a topic by Kafka's name: its type, its default, its range.

Clients expect all of them to be listed, whether they have an effect here or not; `acts` marks
those that have one. Their defaults come from our own configuration, so that DescribeConfigs says
what happens.

`flush.mode` is ours: `async` answers acks=all from the page cache; so is `legal.hold`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum

from ottermq.config.schema import QueueSettings
from ottermq.queue_runtime import SEGMENT_LEAST
from ottermq.storage.codecs import Codec
from ottermq.storage.topic_retention import DELETE_RETENTION_MS, LONG_MAX, listed

INT_MAX = (1 << 31) - 1
AS_SENT = "producer"


class Type(IntEnum):
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Source(IntEnum):
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class BadValue(ValueError):
    """The text says what the value should have been."""


Check = Callable[[str], None]


def _whole(least: int, most: int) -> Check:
    def check(text: str) -> None:
        try:
            number = int(text)
        except ValueError:
            raise BadValue("not a number") from None
        if not least <= number <= most:
            raise BadValue(f"it must be between {least} and {most}")

    return check


def _fraction(text: str) -> None:
    try:
        inside = 0.0 <= float(text) <= 1.0
    except ValueError:
        inside = False
    if not inside:
        raise BadValue("it must be between 0 and 1")


def _one_of(*choices: str) -> Check:
    def check(text: str) -> None:
        if text not in choices:
            raise BadValue(f"it must be one of {', '.join(choices)}")

    return check


def _some_of(*choices: str) -> Check:
    def check(text: str) -> None:
        parts = listed(text)
        if not parts or any(part not in choices for part in parts):
            raise BadValue(f"it must be some of {', '.join(choices)}")

    return check


def codec_name(codec: Codec) -> str:
    return "uncompressed" if codec is Codec.NONE else codec.name.lower()


def codec_of(name: str) -> Codec | None:
    """None: as it was sent."""
    return next((codec for codec in Codec if codec_name(codec) == name), None)


def _anything(text: str) -> None:
    pass


@dataclass(frozen=True)
class Config:
    name: str
    type: Type
    default: str
    check: Check
    doc: str
    synonym: str | None = None  # the name of the broker's own setting for all topics
    acts: bool = False


def _long(
    name: str, default: int, doc: str, synonym: str | None, *, least: int = 0, acts: bool = False
) -> Config:
    return Config(name, Type.LONG, str(default), _whole(least, LONG_MAX), doc, synonym, acts)


def _int(
    name: str, default: int, doc: str, synonym: str | None, *, least: int = 0, acts: bool = False
) -> Config:
    return Config(name, Type.INT, str(default), _whole(least, INT_MAX), doc, synonym, acts)


def _flag(name: str, default: str, doc: str, synonym: str | None = None) -> Config:
    return Config(name, Type.BOOLEAN, default, _one_of("true", "false"), doc, synonym)


TOPIC_CONFIGS: dict[str, Config] = {
    config.name: config
    for config in (
        Config(
            "cleanup.policy",
            Type.LIST,
            "delete",
            _some_of("delete", "compact"),
            "What becomes of old records: `delete` lets whole segments go by age and size,"
            " `compact` keeps the last record of each key.",
            "log.cleanup.policy",
            acts=True,
        ),
        Config(
            "compression.type",
            Type.STRING,
            AS_SENT,
            _one_of(AS_SENT, *(codec_name(each) for each in Codec)),
            "How producers' batches are kept: in this codec, or as they were sent.",
            "compression.type",
            acts=True,
        ),
        Config(
            "compression.gzip.level",
            Type.INT,
            "-1",
            _whole(-1, 9),
            "The level of gzip.",
            "compression.gzip.level",
            acts=True,
        ),
        Config(
            "compression.lz4.level",
            Type.INT,
            "9",
            _whole(1, 17),
            "The level of lz4.",
            "compression.lz4.level",
            acts=True,
        ),
        Config(
            "compression.zstd.level",
            Type.INT,
            "3",
            _whole(-131072, 22),
            "The level of zstd.",
            "compression.zstd.level",
            acts=True,
        ),
        _long(
            "delete.retention.ms",
            DELETE_RETENTION_MS,
            "How long a compacted topic keeps tombstones.",
            "log.cleaner.delete.retention.ms",
            acts=True,
        ),
        _long(
            "file.delete.delay.ms",
            60_000,
            "How long files stay after their segment went. Here they go at once.",
            "log.segment.delete.delay.ms",
        ),
        _long(
            "flush.messages",
            LONG_MAX,
            "After how many messages to sync. Here acks=all decides, and flush.mode.",
            "log.flush.interval.messages",
            least=1,
        ),
        _long(
            "flush.ms",
            LONG_MAX,
            "After what time to sync. Here acks=all decides, and flush.mode.",
            "log.flush.interval.ms",
        ),
        Config(
            "flush.mode",
            Type.STRING,
            "batch",
            _one_of("batch", "immediate", "async"),
            "What acks=all means: synced with others, synced at once, or in the page cache.",
            "flush.mode",
            acts=True,
        ),
        Config(
            "follower.replication.throttled.replicas",
            Type.LIST,
            "",
            _anything,
            "There are no followers.",
        ),
        _int(
            "index.interval.bytes",
            4096,
            "How far apart entries of the index are.",
            "log.index.interval.bytes",
        ),
        Config(
            "leader.replication.throttled.replicas",
            Type.LIST,
            "",
            _anything,
            "There are no followers.",
        ),
        Config(
            "legal.hold",
            Type.BOOLEAN,
            "false",
            _one_of("true", "false"),
            "Nothing of the topic goes while this is true: no retention, compaction or deletion.",
            "legal.hold",
            acts=True,
        ),
        _long(
            "local.retention.bytes",
            -2,
            "How much stays on the local disk of a topic with remote storage; -2: retention.bytes.",
            "log.local.retention.bytes",
            least=-2,
        ),
        _long(
            "local.retention.ms",
            -2,
            "How long it stays on the local disk of a topic with remote storage; -2: retention.ms.",
            "log.local.retention.ms",
            least=-2,
        ),
        _long(
            "max.compaction.lag.ms",
            LONG_MAX,
            "How long a record may stay out of reach of the compaction.",
            "log.cleaner.max.compaction.lag.ms",
            least=1,
            acts=True,
        ),
        _int(
            "max.message.bytes",
            1_048_588,
            "The largest batch a producer may send, after compression.",
            "message.max.bytes",
            acts=True,
        ),
        _long(
            "message.timestamp.after.max.ms",
            3_600_000,
            "How far a timestamp may be ahead of our clock.",
            "log.message.timestamp.after.max.ms",
            acts=True,
        ),
        _long(
            "message.timestamp.before.max.ms",
            LONG_MAX,
            "How far a timestamp may be behind our clock.",
            "log.message.timestamp.before.max.ms",
            acts=True,
        ),
        Config(
            "message.timestamp.type",
            Type.STRING,
            "CreateTime",
            _one_of("CreateTime", "LogAppendTime"),
            "Whose clock a record's timestamp is: the producer's or ours.",
            "log.message.timestamp.type",
            acts=True,
        ),
        Config(
            "min.cleanable.dirty.ratio",
            Type.DOUBLE,
            "0.5",
            _fraction,
            "How much of the log must be new before it is compacted again.",
            "log.cleaner.min.cleanable.ratio",
            acts=True,
        ),
        _long(
            "min.compaction.lag.ms",
            0,
            "How long a record stays out of reach of the compaction.",
            "log.cleaner.min.compaction.lag.ms",
            acts=True,
        ),
        _int(
            "min.insync.replicas",
            1,
            "How many replicas acks=all waits for, at most as many as there are: one.",
            "min.insync.replicas",
            least=1,
        ),
        _flag(
            "preallocate",
            "false",
            "Whether a segment's file gets its size when it is made.",
            "log.preallocate",
        ),
        _flag("remote.log.copy.disable", "false", "Whether remote storage gets nothing new."),
        _flag(
            "remote.log.delete.on.disable", "false", "Whether remote storage is emptied with it."
        ),
        _flag("remote.storage.enable", "false", "Whether segments go to remote storage."),
        _long(
            "retention.bytes",
            -1,
            "The oldest segments go when a partition is larger; -1: however large it is.",
            "log.retention.bytes",
            least=-1,
            acts=True,
        ),
        _long(
            "retention.ms",
            604_800_000,
            "Segments go when their newest record is older; -1: however old it is.",
            "log.retention.ms",
            least=-1,
            acts=True,
        ),
        _int(
            "segment.bytes",
            1 << 30,
            "How large a segment's file may become.",
            "log.segment.bytes",
            least=SEGMENT_LEAST,
            acts=True,
        ),
        _int(
            "segment.index.bytes",
            10_485_760,
            "How large a segment's index may become.",
            "log.index.size.max.bytes",
            least=4,
        ),
        _long("segment.jitter.ms", 0, "How much earlier a segment may end.", "log.roll.jitter.ms"),
        _long(
            "segment.ms",
            604_800_000,
            "How old a segment may become before the next one is begun.",
            "log.roll.ms",
            least=1,
            acts=True,
        ),
        _flag(
            "unclean.leader.election.enable",
            "false",
            "There is one replica, and it leads.",
            "unclean.leader.election.enable",
        ),
    )
}


def check(name: str, value: str) -> None:
    """BadValue: it can't be, or there is no such config."""
    config = TOPIC_CONFIGS.get(name)
    if config is None:
        raise BadValue(f"Unknown topic config name: {name}")
    try:
        config.check(value)
    except BadValue as wrong:
        raise BadValue(f"Invalid value {value} for configuration {name}: {wrong}") from None


def ours(settings: QueueSettings) -> dict[str, str]:
    """Our own configuration for the logs of a topic."""
    age, size = settings.retention.max_age, settings.retention.max_size
    roll = settings.segment_max_age
    return {
        "flush.mode": settings.flush_mode,
        "legal.hold": "true" if settings.retention.legal_hold else "false",
        "preallocate": "true" if settings.pre_allocate else "false",
        "retention.bytes": "-1" if size is None else str(size),
        "retention.ms": "-1" if age is None else str(age // timedelta(milliseconds=1)),
        "segment.bytes": str(settings.segment_size),
        "segment.ms": str(LONG_MAX if roll is None else roll // timedelta(milliseconds=1)),
    }
