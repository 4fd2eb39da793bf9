"""The records of groups in their log: keys and values of Apache Kafka's __consumer_offsets.

| key                                   | value                                             |
|---------------------------------------|---------------------------------------------------|
| 1: group, topic, partition            | 3: offset, leader epoch, metadata, commit time    |
| 2: group                              | 3: protocol, generation, leader, time, members    |
| 1000: producer, group, topic, partition | as 1, but held until the transaction ends       |

Each begins with its version; the third kind is our own (Kafka holds such offsets in transactional
batches). Kafka's tools can decode the others.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ottermq.errors import Malformed
from ottermq.kafka.groups.member import Member
from ottermq.kafka.wire import Reader, Writer

OFFSET, GROUP, HELD = 1, 2, 1000
OFFSET_VALUE, GROUP_VALUE = 3, 3


class Place(NamedTuple):
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Committed:
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    time_ms: int = 0


@dataclass(frozen=True, slots=True)
class OffsetKey:
    group: str
    place: Place


@dataclass(frozen=True, slots=True)
class HeldKey:
    producer_id: int
    group: str
    place: Place


@dataclass(frozen=True, slots=True)
class GroupKey:
    group: str


@dataclass(frozen=True, slots=True)
class SavedGroup:
    """members: with the metadata of the one protocol that was chosen."""

    protocol_type: str | None
    generation: int
    protocol: str | None
    leader: str | None
    time_ms: int
    members: tuple[Member, ...]


Key = OffsetKey | HeldKey | GroupKey


# -- writing


def encode_key(key: Key) -> bytes:
    out = Writer()
    match key:
        case OffsetKey(group, place):
            out.int16(OFFSET)
        case HeldKey(producer_id, group, place):
            out.int16(HELD)
            out.int64(producer_id)
        case GroupKey(group):
            out.int16(GROUP)
            out.string(group)
            return bytes(out)
    out.string(group)
    out.string(place.topic)
    out.int32(place.partition)
    return bytes(out)


def encode_committed(committed: Committed) -> bytes:
    out = Writer()
    out.int16(OFFSET_VALUE)
    out.int64(committed.offset)
    out.int32(committed.leader_epoch)
    out.string(committed.metadata)
    out.int64(committed.time_ms)
    return bytes(out)


def encode_group(group: SavedGroup, assignments: Mapping[str, bytes]) -> bytes:
    out = Writer()
    out.int16(GROUP_VALUE)
    out.string(group.protocol_type or "")
    out.int32(group.generation)
    out.nullable_string(group.protocol)
    out.nullable_string(group.leader)
    out.int64(group.time_ms)
    out.int32(len(group.members))
    for member in group.members:
        out.string(member.id)
        out.nullable_string(member.instance_id)
        out.string(member.client_id)
        out.string(member.client_host)
        out.int32(round(member.rebalance_timeout * 1000))
        out.int32(round(member.session_timeout * 1000))
        out.octets(member.metadata(group.protocol))
        out.octets(assignments.get(member.id, b""))
    return bytes(out)


# -- reading


def decode_key(raw: bytes) -> Key | None:
    """None: of a kind that a later version wrote."""
    reader = Reader(raw)
    match reader.int16():
        case 0 | 1:
            return OffsetKey(reader.string(), _place(reader))
        case 2:
            return GroupKey(reader.string())
        case 1000:
            return HeldKey(reader.int64(), reader.string(), _place(reader))
    return None


def _place(reader: Reader) -> Place:
    return Place(reader.string(), reader.int32())


def decode_committed(raw: bytes) -> Committed:
    reader = Reader(raw)
    _expect(reader, OFFSET_VALUE)
    return Committed(reader.int64(), reader.int32(), reader.string(), reader.int64())


def decode_group(raw: bytes) -> SavedGroup:
    reader = Reader(raw)
    _expect(reader, GROUP_VALUE)
    protocol_type = reader.string() or None
    generation = reader.int32()
    protocol, leader = reader.nullable_string(), reader.nullable_string()
    time_ms = reader.int64()
    count = reader.int32()
    reader.allow(count, 1)
    members = tuple(_member(reader, protocol) for _ in range(count))
    return SavedGroup(protocol_type, generation, protocol, leader, time_ms, members)


def _member(reader: Reader, protocol: str | None) -> Member:
    id, instance_id = reader.string(), reader.nullable_string()
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout, session_timeout = reader.int32() / 1000, reader.int32() / 1000
    protocols = ((protocol or "", reader.octets()),)
    return Member(
        id, instance_id, client_id, client_host, session_timeout, rebalance_timeout, protocols,
        reader.octets(),
    )  # fmt: skip


def _expect(reader: Reader, version: int) -> None:
    found = reader.int16()
    if found != version:
        raise Malformed(f"version {found} of a record")


def subscribed(metadata: Iterable[bytes]) -> set[str] | None:
    """Topics of a consumer's subscription metadata; None: it can't be read."""
    topics: set[str] = set()
    try:
        for each in metadata:
            reader = Reader(each)
            reader.int16()
            count = reader.int32()
            reader.allow(count, 2)
            topics.update(reader.string() for _ in range(count))
    except (Malformed, struct.error, UnicodeDecodeError):
        return None
    return topics
