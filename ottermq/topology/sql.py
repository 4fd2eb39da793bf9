"""The durable part of the topology as rows of meta.db: each change in SQL, and the way back.

What isn't durable has no row, nor have the built-in exchanges: every vhost has them.
"""

from dataclasses import asdict
from typing import Any

from ottermq.topology.change import Statement
from ottermq.topology.exchange import Binding, Exchange
from ottermq.topology.policy import Policy
from ottermq.topology.queue import Queue
from ottermq.topology.values import dump
from ottermq.topology.vhost import VHost

SCHEMA = """
CREATE TABLE IF NOT EXISTS vhosts (
    name     TEXT PRIMARY KEY,
    options  TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS exchanges (
    vhost TEXT NOT NULL, name TEXT NOT NULL,
    type         TEXT NOT NULL,
    auto_delete  INTEGER NOT NULL,
    internal     INTEGER NOT NULL,
    arguments    TEXT NOT NULL,
    PRIMARY KEY (vhost, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS queues (
    vhost TEXT NOT NULL, name TEXT NOT NULL,
    auto_delete  INTEGER NOT NULL,
    arguments    TEXT NOT NULL,
    PRIMARY KEY (vhost, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS bindings (
    vhost        TEXT NOT NULL,
    source       TEXT NOT NULL,
    kind         TEXT NOT NULL,
    destination  TEXT NOT NULL,
    key          TEXT NOT NULL,
    arguments    TEXT NOT NULL,
    PRIMARY KEY (vhost, source, kind, destination, key, arguments)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS parameters (
    vhost TEXT NOT NULL, component TEXT NOT NULL, name TEXT NOT NULL,
    value  TEXT NOT NULL,
    PRIMARY KEY (vhost, component, name)
) WITHOUT ROWID;
"""
TABLES = ("exchanges", "queues", "bindings", "parameters")  # of what lives in a vhost


def put_vhost(vhost: VHost) -> Statement:
    options = {name: value for name, value in asdict(vhost.options).items() if value}
    return (
        "INSERT OR REPLACE INTO vhosts VALUES (?, ?)",
        (vhost.name, dump(options)),
    )


def drop_vhost(vhost: VHost) -> list[Statement]:
    gone: list[Statement] = [("DELETE FROM vhosts WHERE name = ?", (vhost.name,))]
    for table in TABLES:
        gone.append((f"DELETE FROM {table} WHERE vhost = ?", (vhost.name,)))
    return gone


def put_exchange(exchange: Exchange) -> Statement:
    return (
        "INSERT OR REPLACE INTO exchanges VALUES (?, ?, ?, ?, ?, ?)",
        (
            exchange.vhost,
            exchange.name,
            exchange.type,
            exchange.auto_delete,
            exchange.internal,
            dump(exchange.arguments),
        ),
    )


def drop_exchange(exchange: Exchange) -> Statement:
    return ("DELETE FROM exchanges WHERE vhost = ? AND name = ?", (exchange.vhost, exchange.name))


def put_queue(queue: Queue) -> Statement:
    return (
        "INSERT OR REPLACE INTO queues VALUES (?, ?, ?, ?)",
        (queue.vhost, queue.name, queue.auto_delete, dump(queue.arguments)),
    )


def drop_queue(queue: Queue) -> Statement:
    return ("DELETE FROM queues WHERE vhost = ? AND name = ?", (queue.vhost, queue.name))


def _binding(binding: Binding) -> tuple[Any, ...]:
    destination = binding.destination
    kind = "queue" if isinstance(destination, Queue) else "exchange"
    source = binding.source
    arguments = dump(binding.arguments)
    return (source.vhost, source.name, kind, destination.name, binding.key, arguments)


def put_binding(binding: Binding) -> Statement:
    return ("INSERT OR REPLACE INTO bindings VALUES (?, ?, ?, ?, ?, ?)", _binding(binding))


def drop_binding(binding: Binding) -> Statement:
    return (
        "DELETE FROM bindings WHERE vhost = ? AND source = ? AND kind = ? AND destination = ?"
        " AND key = ? AND arguments = ?",
        _binding(binding),
    )


def put_parameter(vhost: str, component: str, name: str, value: Any) -> Statement:
    return (
        "INSERT OR REPLACE INTO parameters VALUES (?, ?, ?, ?)",
        (vhost, component, name, dump(value)),
    )


def drop_parameter(vhost: str, component: str, name: str) -> Statement:
    return (
        "DELETE FROM parameters WHERE vhost = ? AND component = ? AND name = ?",
        (vhost, component, name),
    )


POLICY = "policy"
OPERATOR_POLICY = "operator_policy"


def put_policy(policy: Policy) -> Statement:
    value = {
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "priority": policy.priority,
        "definition": dict(policy.definition),
    }
    return put_parameter(policy.vhost, component_of(policy.operator), policy.name, value)


def drop_policy(policy: Policy) -> Statement:
    return drop_parameter(policy.vhost, component_of(policy.operator), policy.name)


def component_of(operator: bool) -> str:
    return OPERATOR_POLICY if operator else POLICY
