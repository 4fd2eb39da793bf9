"""Every setting: its type, its range, its default. config.yaml describes them in prose.

A section is a frozen dataclass; each of its fields is a setting with a kind (kinds.py) or
another section. The rest of the configuration reads this by reflection: there is no second
list of keys to keep in step.
"""

import dataclasses
import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

from ottermq.config.kinds import (
    Address,
    Choice,
    Count,
    File,
    Flag,
    Folder,
    Kind,
    Listen,
    Maybe,
    Names,
    Size,
    Text,
    Time,
    Version,
)

T = TypeVar("T")
Keys = tuple[str, ...]  # the path of a key: ("wal", "segment_size")

QUEUES_EXPECTED = "a list of rules such as {match: audit.*, flush_mode: immediate}"


def setting(kind: Kind[T], default: str) -> T:
    """A field of that kind. The default is written as in a file and goes the same way in."""
    value: T = field(default=kind.parse(default), metadata={"kind": kind})
    return value


def section(kind: type[T]) -> T:
    value: T = field(default_factory=kind, metadata={"section": kind})
    return value


@dataclass(frozen=True)
class ListenSettings:
    # Loopback: a broker nobody has set users up for must not be open to the network.
    amqp: Address = setting(Listen(), "localhost:5672")
    amqps: Address | None = setting(Maybe(Listen()), "null")
    kafka: Address = setting(Listen(), "localhost:9092")
    kafkas: Address | None = setting(Maybe(Listen()), "null")
    admin: Address = setting(Listen(), "localhost:15672")
    health: Address | None = setting(Maybe(Listen()), "null")


@dataclass(frozen=True)
class TlsSettings:
    cert: Path | None = setting(Maybe(File()), "null")
    key: Path | None = setting(Maybe(File()), "null")
    ca: Path | None = setting(Maybe(File()), "null")
    verify: str = setting(Choice(("none", "optional", "required")), "none")
    login_from: str = setting(Choice(("distinguished_name", "common_name")), "distinguished_name")
    min_version: str = setting(Choice(("1.2", "1.3")), "1.2")
    check_interval: timedelta = setting(Time("1s", "1d", "10s"), "10s")


@dataclass(frozen=True)
class AdminSettings:
    names_need_login: bool = setting(Flag(), "true")
    hosts: tuple[str, ...] | None = setting(Maybe(Names("broker.example.org, ottermq")), "null")
    rabbitmq_version: str = setting(Version(), "4.1.0")


@dataclass(frozen=True)
class AuthSettings:
    default_user: str = setting(Text("the name of a user"), "guest")
    default_password: str = setting(Text("a password"), "guest")
    loopback_users: tuple[str, ...] | None = setting(
        Maybe(Names("guest, monitor")), "guest, anonymous"
    )
    unauthenticated_per_address: int = setting(Count(1, 1_000_000), "1000")


@dataclass(frozen=True)
class Permit:
    global_qos: bool = setting(Flag(), "true")
    transient_queues: bool = setting(Flag(), "true")


@dataclass(frozen=True)
class AmqpSettings:
    heartbeat: timedelta = setting(Time("0", "65535s", "60s"), "60s")
    frame_max: int = setting(Size("4KiB", "16MiB", "128KiB"), "128KiB")
    channel_max: int = setting(Count(1, 65535), "2047")
    consumer_max_per_channel: int = setting(Count(1, 1_000_000), "10000")
    max_message_size: int = setting(Size("1KiB", "512MiB", "128MiB"), "128MiB")
    handshake_timeout: timedelta = setting(Time("100ms", "1h", "10s"), "10s")
    consumer_timeout: timedelta | None = setting(Maybe(Time("1s", "36500d", "30m")), "30m")
    nacks_count: bool = setting(Flag(), "false")
    permit: Permit = section(Permit)


@dataclass(frozen=True)
class KafkaGroups:
    initial_rebalance_delay: timedelta = setting(Time("0s", "1h", "100ms"), "100ms")
    min_session_timeout: timedelta = setting(Time("0s", "1d", "6s"), "6s")
    max_session_timeout: timedelta = setting(Time("0s", "1d", "30m"), "30m")
    max_size: int = setting(Count(1, 2**31 - 1), "1000")
    offsets_retention: timedelta = setting(Time("1s", "36500d", "7d"), "7d")
    offsets_check_interval: timedelta = setting(Time("100ms", "1d", "10m"), "10m")
    offset_metadata_max_size: int = setting(Size("0", "32767", "4KiB"), "4KiB")


@dataclass(frozen=True)
class KafkaTransactions:
    max_timeout: timedelta = setting(Time("1s", "1d", "15m"), "15m")
    queue_timeout: timedelta = setting(Time("100ms", "1d", "60s"), "60s")
    id_expiration: timedelta = setting(Time("1s", "36500d", "7d"), "7d")


@dataclass(frozen=True)
class KafkaSettings:
    vhost: str = setting(Text("the name of a vhost"), "/")
    advertised: Address | None = setting(Maybe(Listen()), "null")
    advertised_tls: Address | None = setting(Maybe(Listen()), "null")
    anonymous_user: str | None = setting(Maybe(Text("the name of a user")), "anonymous")
    anonymous_network: bool = setting(Flag(), "false")
    auto_create: bool = setting(Flag(), "true")
    default_partitions: int = setting(Count(1, 10_000), "1")
    any_replication_factor: bool = setting(Flag(), "false")
    max_request_size: int = setting(Size("1KiB", "1GiB", "100MiB"), "100MiB")
    compaction_interval: timedelta = setting(Time("100ms", "1d", "15s"), "15s")
    groups: KafkaGroups = section(KafkaGroups)
    transactions: KafkaTransactions = section(KafkaTransactions)


@dataclass(frozen=True)
class MemorySettings:
    high_watermark: int = setting(Size("16MiB", "1000TiB", "1GiB"), "1GiB")


@dataclass(frozen=True)
class LogSettings:
    level: str = setting(Choice(("debug", "info", "warning", "error")), "info")
    format: str = setting(Choice(("text", "json")), "text")


FLUSH_MODE = Choice(("batch", "immediate", "async"))
MAX_AGE = Maybe(Time("1s", "36500d", "7d"))
SEGMENT_SIZE = Size("64KiB", "1GiB", "64MiB", multiple_of="4KiB")


@dataclass(frozen=True)
class Retention:
    min_offset_based: bool = setting(Flag(), "true")
    max_age: timedelta | None = setting(MAX_AGE, "null")
    max_size: int | None = setting(Maybe(Size("64KiB", "1000TiB", "10GiB")), "null")
    keep_settled: bool = setting(Flag(), "false")
    legal_hold: bool = setting(Flag(), "false")


@dataclass(frozen=True)
class BrokerRetention(Retention):
    check_interval: timedelta = setting(Time("1s", "1d", "30s"), "30s")


@dataclass(frozen=True)
class PageCache:
    hot_buffer_size: int = setting(Size("1MiB", "1TiB", "128MiB"), "128MiB")
    mmap_cache_size: int = setting(Size("1MiB", "1000TiB", "1GiB"), "1GiB")
    open_files: int = setting(Count(16, 1_000_000), "16384")


@dataclass(frozen=True)
class ZeroCopy:
    enabled: bool = setting(Flag(), "true")
    min_message_size: int = setting(Size("4KiB", "1GiB", "64KiB"), "64KiB")


@dataclass(frozen=True)
class WalSettings:
    segment_size: int = setting(SEGMENT_SIZE, "64MiB")
    segment_max_age: timedelta | None = setting(MAX_AGE, "7d")
    pre_allocate: bool = setting(Flag(), "true")
    flush_mode: str = setting(FLUSH_MODE, "batch")
    batch_max_size: int = setting(Size("4KiB", "1GiB", "4MiB", multiple_of="4KiB"), "4MiB")
    batch_max_wait: timedelta = setting(Time("0", "1s", "2ms"), "0ms")
    file_size: int = setting(Size("1MiB", "1GiB", "64MiB", multiple_of="4KiB"), "64MiB")
    max_size: int = setting(Size("3MiB", "1TiB", "512MiB"), "512MiB")
    direct_io: str = setting(Choice(("auto", "on", "off")), "auto")
    checkpoint_interval: timedelta = setting(Time("100ms", "1h", "30s"), "30s")
    low_space_limit: int = setting(Size("0", "1000TiB", "256MiB"), "256MiB")
    retention: BrokerRetention = section(BrokerRetention)
    page_cache: PageCache = section(PageCache)
    zero_copy: ZeroCopy = section(ZeroCopy)


@dataclass(frozen=True)
class QueueSettings:
    """The settings of one queue's log; the defaults are the `wal` section's."""

    segment_size: int = setting(SEGMENT_SIZE, "64MiB")
    segment_max_age: timedelta | None = setting(MAX_AGE, "7d")
    pre_allocate: bool = setting(Flag(), "true")
    flush_mode: str = setting(FLUSH_MODE, "batch")
    retention: Retention = section(Retention)


@dataclass(frozen=True)
class QueueEntry(QueueSettings):
    """An entry of `queues` as a file writes it; settings it leaves out are `wal`'s."""

    match: str = setting(Text("a pattern of queue names, such as audit.*"), "*")


@dataclass(frozen=True)
class QueueRule:
    match: str
    settings: QueueSettings


@dataclass(frozen=True)
class Config:
    data: Path = setting(Folder(), "./data")
    definitions: Path | None = setting(Maybe(File()), "null")
    listen: ListenSettings = section(ListenSettings)
    tls: TlsSettings = section(TlsSettings)
    auth: AuthSettings = section(AuthSettings)
    admin: AdminSettings = section(AdminSettings)
    amqp: AmqpSettings = section(AmqpSettings)
    kafka: KafkaSettings = section(KafkaSettings)
    memory: MemorySettings = section(MemorySettings)
    log: LogSettings = section(LogSettings)
    wal: WalSettings = section(WalSettings)
    queues: tuple[QueueRule, ...] = ()

    def for_queue(self, name: str) -> QueueSettings:
        """The first rule whose pattern the name matches, else what `wal` says."""
        for rule in self.queues:
            if fnmatch.fnmatchcase(name, rule.match):
                return rule.settings
        return self.usual

    @cached_property
    def usual(self) -> QueueSettings:
        """For queues without a rule: asked for with each of them, worked out once."""
        return queue_defaults(self.wal)


def queue_defaults(wal: WalSettings) -> QueueSettings:
    return cast(QueueSettings, _part(QueueSettings, wal))


def _part(wanted: type[Any], whole: Any) -> Any:
    """A `wanted` made of the fields of the same name in `whole`, sections included."""
    values = {}
    for item in dataclasses.fields(wanted):
        value = getattr(whole, item.name)
        inner = item.metadata.get("section")
        values[item.name] = _part(inner, value) if inner else value
    return wanted(**values)


def keys(section: type[Any], above: Keys = ()) -> Iterator[tuple[Keys, Kind[object]]]:
    """Each setting in that section and below, as its path and its kind."""
    for item in dataclasses.fields(section):
        if "kind" in item.metadata:
            yield (*above, item.name), item.metadata["kind"]
        elif "section" in item.metadata:
            yield from keys(item.metadata["section"], (*above, item.name))


def hints(section: type[Any], above: Keys = ()) -> dict[Keys, str]:
    """Each key there is, sections too, beside what it expects: what messages are made of."""
    found: dict[Keys, str] = {}
    for item in dataclasses.fields(section):
        path = (*above, item.name)
        if inner := item.metadata.get("section"):
            found[path] = f"a section with keys such as {dataclasses.fields(inner)[0].name}"
            found |= hints(inner, path)
        else:
            found[path] = item.metadata["kind"].expected if item.metadata else QUEUES_EXPECTED
    return found
