"""Quotas of users and client ids, in bytes per second: kept in meta.db, held by throttle times.

An entity is a user, a client id, both, or the default of one of them (a name that is null). Of all
that fit a connection the most specific counts, as in Kafka: user and client id, user, client id;
each before its default. Connections of one entity share its quota.

The bytes they moved are looked at a few times a second, and only while there are quotas. A client
over its quota gets a throttle time in the next answer: it keeps away until the excess is made up
for, and Kafka's clients do.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import trio

from ottermq.contained import contained
from ottermq.engine.engine import Engine
from ottermq.kafka import ids
from ottermq.kafka.api import Api
from ottermq.kafka.context import KafkaContext
from ottermq.kafka.errors import Error, KafkaError
from ottermq.kafka.request import Body, Connection, Handler, Request
from ottermq.topology import MetaDb, Statement
from ottermq.topology.values import dump, load
from ottermq.wal import LogError

USER, CLIENT, IP = "user", "client-id", "ip"
TYPES = (USER, CLIENT)
PRODUCE, CONSUME = "producer_byte_rate", "consumer_byte_rate"
KEYS = (PRODUCE, CONSUME)
# Kafka's others have no effect here, so setting one is refused; an older one may be removed.
NOT_HELD = ("request_percentage", "controller_mutation_rate", "connection_creation_rate")
EXACT, DEFAULT, ANY = 0, 1, 2  # match types
INTERVAL = 0.25
LONGEST = 30.0  # seconds that a client is sent away for
SCHEMA = """
CREATE TABLE IF NOT EXISTS kafka_quotas (
    entity  TEXT NOT NULL,
    name    TEXT NOT NULL,
    value   REAL NOT NULL,
    PRIMARY KEY (entity, name)
) WITHOUT ROWID;
"""

# (type, name or None for the default), in the order of TYPES.
Entity = tuple[tuple[str, str | None], ...]


@dataclass
class Bucket:
    """The bytes one entity may still move at once; below zero: those it has to make up for."""

    rate: float
    level: float
    at: float

    def take(self, amount: int, now: float) -> float:
        """How long it has to keep away."""
        self.level = min(self.rate, self.level + (now - self.at) * self.rate) - amount
        self.at = now
        return min(-self.level / self.rate, LONGEST) if self.level < 0 else 0.0


@dataclass
class Moved:
    received: int = 0
    sent: int = 0


@dataclass
class Quotas:
    db: MetaDb
    engine: Engine
    values: dict[Entity, dict[str, float]] = field(default_factory=dict)
    _buckets: dict[tuple[Entity, str], Bucket] = field(default_factory=dict)
    _moved: dict[int, Moved] = field(default_factory=dict)
    _some: trio.Event = field(default_factory=trio.Event)

    def start(self) -> None:
        """Blocks."""
        self.db.define(SCHEMA)
        for text, name, value in self.db.read("SELECT * FROM kafka_quotas"):
            entity: Entity = tuple((type, who) for type, who in load(text))
            self.values.setdefault(entity, {})[name] = value
        if self.values:
            self._some.set()

    async def set(self, entity: Entity, changes: Mapping[str, float | None]) -> None:
        """None: no longer."""
        text = dump([list(part) for part in entity])
        rows: list[Statement] = []
        for name, value in changes.items():
            if value is None:
                rows.append(
                    ("DELETE FROM kafka_quotas WHERE entity = ? AND name = ?", (text, name))
                )
            else:
                sql = "INSERT OR REPLACE INTO kafka_quotas VALUES (?, ?, ?)"
                rows.append((sql, (text, name, value)))
        await self.db.commit(rows)
        now = {**self.values.get(entity, {}), **changes}
        kept = {name: value for name, value in now.items() if value is not None}
        if kept:
            self.values[entity] = kept
            self._some.set()
        else:
            self.values.pop(entity, None)
        self._buckets.clear()

    def of(self, user: str, client: str | None, key: str) -> tuple[Entity, float] | None:
        """The quota that counts, and the entity that shares it."""
        for entity in _by_rank(user, client):
            value = self.values.get(entity, {}).get(key)
            if value is not None:
                shared = tuple(
                    (type, name if name is not None else (user if type == USER else client))
                    for type, name in entity
                )
                return shared, value
        return None

    # -- holding them

    async def keep(self, connections: Mapping[int, Connection]) -> None:
        """Until cancelled."""
        while True:
            await self._some.wait()
            while self.values:
                with contained("quotas not applied"):
                    self.look(connections, trio.current_time())
                await trio.sleep(INTERVAL)
            self._some = trio.Event()
            self._moved.clear()

    def look(self, connections: Mapping[int, Connection], now: float) -> None:
        moved: dict[int, Moved] = {}
        for id, conn in list(connections.items()):
            stat = self.engine.conn_stat(id)
            if stat is None or conn.user is None:
                continue
            before = self._moved.get(id) or Moved(stat.received_bytes, stat.sent_bytes)
            moved[id] = Moved(stat.received_bytes, stat.sent_bytes)
            away = max(
                self._charge(conn, PRODUCE, stat.received_bytes - before.received, now),
                self._charge(conn, CONSUME, stat.sent_bytes - before.sent, now),
            )
            if away:
                self.engine.kafka_throttle(id, max(int(away * 1000), 1))
        self._moved = moved

    def _charge(self, conn: Connection, key: str, amount: int, now: float) -> float:
        found = self.of(conn.whose().name, conn.client_id, key) if amount > 0 else None
        if found is None:
            return 0.0
        shared, rate = found
        bucket = self._buckets.get((shared, key))
        if bucket is None or bucket.rate != rate:
            bucket = self._buckets[shared, key] = Bucket(rate, rate, now)
        return bucket.take(amount, now)


def _by_rank(user: str, client: str | None) -> Iterable[Entity]:
    clients: list[str | None] = [client, None] if client is not None else [None]
    for who in (user, None):
        for id in clients:
            yield ((USER, who), (CLIENT, id))
        yield ((USER, who),)
    for id in clients:
        yield ((CLIENT, id),)


# -- asked for


def describe_client_quotas(kafka: KafkaContext, request: Request) -> Body:
    _check_administrator(request)
    components = request.body["components"]
    types = [each["entity_type"] for each in components]
    if types == [IP]:
        return {"entries": []}  # there are none, and tools ask for them
    if any(type not in TYPES for type in types) or len(set(types)) != len(types):
        raise KafkaError(Error.INVALID_REQUEST, f"entities are {' and '.join(TYPES)}, once each")
    strict = request.body["strict"]
    entries = [
        {
            "entity": [{"entity_type": type, "entity_name": name} for type, name in entity],
            "values": [{"key": key, "value": value} for key, value in sorted(values.items())],
        }
        for entity, values in kafka.quotas.values.items()
        if _matches(dict(entity), components, strict)
    ]
    return {"entries": entries}


def _matches(entity: dict[str, str | None], components: list[Body], strict: bool) -> bool:
    if strict and entity.keys() != {each["entity_type"] for each in components}:
        return False
    for each in components:
        type, how = each["entity_type"], each["match_type"]
        if type not in entity:
            return False
        if how == EXACT and entity[type] != each["match"]:
            return False
        if how == DEFAULT and entity[type] is not None:
            return False
    return True


def _check_administrator(request: Request) -> None:
    if not request.conn.is_administrator:
        raise KafkaError(Error.CLUSTER_AUTHORIZATION_FAILED, "for administrators")


# -- altered


async def alter_client_quotas(kafka: KafkaContext, request: Request) -> Body:
    answers = []
    for each in request.body["entries"]:
        answer: Body = {"entity": each["entity"], "error_message": None}
        try:
            _check_administrator(request)
            entity, changes = _entity(each["entity"]), _changes(each["ops"])
            if not request.body["validate_only"]:
                await kafka.quotas.set(entity, changes)
                request.audit("quota.set", _said(each["entity"]), quotas=_values(changes))
        except KafkaError as error:
            answer |= {"error_code": error.error, "error_message": error.text}
            request.audit("quota.set", _said(each["entity"]), error)
        except LogError as error:
            answer |= {"error_code": Error.KAFKA_STORAGE_ERROR, "error_message": str(error)}
            request.audit("quota.set", _said(each["entity"]), error)
        answers.append(answer)
    return {"entries": answers}


def _entity(parts: list[dict[str, Any]]) -> Entity:
    named = {part["entity_type"]: part["entity_name"] for part in parts}
    if IP in named:
        raise KafkaError(Error.INVALID_REQUEST, "quotas of ip addresses aren't enforced here")
    if not named or len(named) != len(parts) or any(type not in TYPES for type in named):
        raise KafkaError(Error.INVALID_REQUEST, f"entities are {' and '.join(TYPES)}, once each")
    if any(name == "" for name in named.values()):
        raise KafkaError(Error.INVALID_REQUEST, "an entity's name can't be empty")
    if not all(ids.fits(name or "") for name in named.values()):
        raise KafkaError(Error.INVALID_REQUEST, "an entity's name is too long")
    return tuple((type, named[type]) for type in TYPES if type in named)


def _said(entity: list[Body]) -> str:
    return ",".join(f"{each['entity_type']}:{each['entity_name']}" for each in entity)


def _values(changes: Mapping[str, float | None]) -> str:
    return ",".join(f"{name}={value}" for name, value in changes.items())


def _changes(ops: list[Body]) -> dict[str, float | None]:
    changes: dict[str, float | None] = {}
    for op in ops:
        key, value = op["key"], op["value"]
        if key in changes:
            raise KafkaError(Error.INVALID_REQUEST, f"{key} is named more than once")
        if key in NOT_HELD and not op["remove"]:
            raise KafkaError(
                Error.INVALID_REQUEST, f"{key} isn't enforced here; {' and '.join(KEYS)} are"
            )
        if key not in KEYS + NOT_HELD:
            raise KafkaError(Error.INVALID_REQUEST, f"no quota '{key}'")
        if not op["remove"] and not value > 0:
            raise KafkaError(Error.INVALID_REQUEST, f"{key} must be more than nought")
        changes[key] = None if op["remove"] else value
    return changes


HANDLERS: dict[Api, Handler] = {
    Api.DESCRIBE_CLIENT_QUOTAS: describe_client_quotas,
    Api.ALTER_CLIENT_QUOTAS: alter_client_quotas,
}
