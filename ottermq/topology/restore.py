"""The topology as meta.db remembers it."""

from typing import Any, Protocol

from ottermq.topology import sql
from ottermq.topology.exchange import Binding, Destination, Exchange, router_for
from ottermq.topology.exchange.exchange import ALTERNATE
from ottermq.topology.metadb import MetaDb
from ottermq.topology.policy import Policy
from ottermq.topology.queue import Queue, QueueType
from ottermq.topology.topology import QUEUE_TYPE, Topology
from ottermq.topology.values import load
from ottermq.topology.vhost import VHost, VHostOptions

DEFAULT_VHOST = "/"


class Rows(Protocol):
    """MetaDb, or a reader of its file."""

    def read(self, sql: str) -> list[tuple[Any, ...]]: ...


def restore(db: MetaDb) -> Topology:
    """Blocks. The first start makes the vhost `/`."""
    db.define(sql.SCHEMA)
    topology = Topology(db)
    fill(topology, db)
    if not topology.vhosts:
        topology.pending.save_now(topology.create_vhost(DEFAULT_VHOST))
    return topology


def fill(topology: Topology, db: Rows) -> None:
    """With what there is; nothing is written."""
    _vhosts(db, topology)
    _parameters(db, topology)
    _exchanges(db, topology)
    _queues(db, topology)
    _bindings(db, topology)


def _vhosts(db: Rows, topology: Topology) -> None:
    for name, text in db.read("SELECT name, options FROM vhosts"):
        options: dict[str, Any] = load(text)
        options["tags"] = tuple(options.get("tags", ()))
        topology.put(VHost(name, VHostOptions(**options)))


def _parameters(db: Rows, topology: Topology) -> None:
    for name, component, key, text in db.read("SELECT * FROM parameters"):
        value = load(text)
        if not name:
            topology.global_parameters[key] = value
            continue
        if component == sql.POLICY:
            topology.put(_policy(name, key, value, operator=False))
        elif component == sql.OPERATOR_POLICY:
            topology.put(_policy(name, key, value, operator=True))
        else:
            topology.vhost(name).parameters[component, key] = value


def _policy(vhost: str, name: str, value: dict[str, Any], *, operator: bool) -> Policy:
    return Policy(
        vhost=vhost,
        name=name,
        pattern=value["pattern"],
        definition=value["definition"],
        priority=value["priority"],
        apply_to=value["apply-to"],
        operator=operator,
    )


def _exchanges(db: Rows, topology: Topology) -> None:
    for vhost, name, type, auto_delete, internal, text in db.read("SELECT * FROM exchanges"):
        arguments = load(text)
        topology.put(
            Exchange(
                topology.next_id(),
                vhost,
                name,
                type,
                True,
                bool(auto_delete),
                bool(internal),
                arguments,
                router_for(type, arguments),
                arguments.get(ALTERNATE),
            )
        )


def _queues(db: Rows, topology: Topology) -> None:
    for vhost, name, auto_delete, text in db.read("SELECT * FROM queues"):
        arguments = load(text)
        type = QueueType(arguments[QUEUE_TYPE])
        topology.put(
            Queue(topology.next_id(), vhost, name, type, True, None, bool(auto_delete), arguments)
        )


def _bindings(db: Rows, topology: Topology) -> None:
    for vhost, source, kind, name, key, text in db.read("SELECT * FROM bindings"):
        host = topology.vhost(vhost)
        there: Destination = (host.queues if kind == "queue" else host.exchanges)[name]
        topology.put(Binding(host.exchanges[source], there, key, load(text)))
