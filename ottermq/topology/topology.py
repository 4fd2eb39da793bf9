"""The rules: what may be declared, deleted, bound and unbound, and what follows from it.

Everything here happens in memory and at once. Each call that changes something checks first, and
raises an error of ottermq/errors.py with RabbitMQ's text when the rules forbid it; then nothing
has changed. Else it returns a `Change`, which `pending.save` brings to disk. Permissions are the
protocols'.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, Literal

from ottermq.errors import (
    AccessRefused,
    InvalidRequest,
    NotAllowed,
    NotFound,
    PreconditionFailed,
)
from ottermq.topology import arguments as queue_arguments
from ottermq.topology import sql
from ottermq.topology.change import Change, Statement, Thing
from ottermq.topology.effective_settings import EffectiveSettings
from ottermq.topology.exchange import BUILT_IN, Binding, Destination, Exchange, Message, router_for
from ottermq.topology.exchange.binding import identity
from ottermq.topology.exchange.exchange import ALTERNATE
from ottermq.topology.graph import Graph
from ottermq.topology.metadb import MetaDb
from ottermq.topology.names import (
    generated,
    has_control,
    label,
    refuse_control,
    refuse_long,
    refuse_reserved,
    stripped,
)
from ottermq.topology.pending_changes import PendingChanges
from ottermq.topology.policy import Policy
from ottermq.topology.queue import Queue, QueueType, check_properties
from ottermq.topology.routing import Route, walk
from ottermq.topology.settings import QueueSettings
from ottermq.topology.values import NONE, Table, kind_of, shown
from ottermq.topology.vhost import PLAIN_VHOST, VHost, VHostOptions
from ottermq.wal.catalog import INTERNAL_VHOST

Kind = Literal["queue", "exchange"]
QUEUE_TYPE = "x-queue-type"
NO_QUEUE_TYPE = ("", "undefined")  # as RabbitMQ 4.x: the default is meant
NAME_PREFIX = "x-name-prefix"
MAX_PREFIX = 64


class Topology:
    def __init__(self, db: MetaDb | None = None) -> None:
        """Without a db nothing is kept: for tests of rules."""
        self._ids = count(1)
        self._graph = Graph()
        self._settings = EffectiveSettings(self._graph.vhosts)
        # Where changes wait for the disk: what a call here returns is saved there.
        self.pending = PendingChanges(db, self._graph, self._tell)
        # Parameters of plugins that belong to no vhost: name → value.
        self.global_parameters: dict[str, Any] = {}
        # Asked with (vhost, queue, queues there now) before a new one: auth.limits.check_queues.
        self.check_room: Callable[[str, str, int], None] | None = None
        # Called with the ids of exchanges whose routes may have changed, after each change.
        self.on_change: list[Callable[[frozenset[int]], None]] = []

    # -- vhosts

    @property
    def vhosts(self) -> Mapping[str, VHost]:
        return self._graph.vhosts

    def vhost(self, name: str) -> VHost:
        try:
            return self._graph.vhosts[name]
        except KeyError:
            raise NotAllowed(f"vhost {name} not found") from None

    def create_vhost(self, name: str, options: VHostOptions = PLAIN_VHOST) -> Change:
        """One that is there takes the options."""
        if not name:
            raise InvalidRequest("a vhost needs a name")
        if name == INTERNAL_VHOST:
            raise InvalidRequest("this vhost is the broker's own")
        default = options.default_queue_type
        if default is not None and default not in queue_arguments.TYPES:
            raise InvalidRequest(f"vhost '{name}': unsupported queue type '{default}'")
        change = Change()
        found = self._graph.vhosts.get(name)
        if found is None and has_control(name):
            raise InvalidRequest(f"vhost {ascii(name)}: a name can't hold control characters")
        if found:
            if found.options != options:
                change.steps.append(partial(setattr, found, "options", found.options))
                found.options = options
                change.statements.append(sql.put_vhost(found))
            return self._told(change)
        change.created = True
        vhost = VHost(name, options)
        change.steps.append(partial(self._graph.drop_vhost, vhost))
        self._furnish(change, vhost)
        change.statements.append(sql.put_vhost(self.vhost(name)))
        return self._told(change)

    def _furnish(self, change: Change, vhost: VHost) -> None:
        self._graph.put_vhost(vhost)
        for name, type in BUILT_IN:
            self._graph.add_exchange(change, self._built_in(vhost.name, name, type))

    def _built_in(self, vhost: str, name: str, type: str) -> Exchange:
        internal = name == "amq.rabbitmq.trace"
        return Exchange(
            next(self._ids), vhost, name, type, True, False, internal, NONE, router_for(type, NONE)
        )

    def delete_vhost(self, name: str) -> Change:
        """With all that is in it: `removed` holds its queues."""
        vhost = self._graph.vhosts.get(name)
        if vhost is None:
            raise NotFound(f"no vhost '{name}'")
        change = Change()
        for queue in list(vhost.queues.values()):
            self._graph.remove_queue(change, queue)
        change.touched.update(exchange.id for exchange in vhost.exchanges.values())
        self._graph.drop_vhost(vhost)
        change.steps.append(partial(self._graph.put_vhost, vhost))
        change.statements[:] = sql.drop_vhost(vhost)
        return self._told(change)

    # -- exchanges

    def find_exchange(self, vhost: str, name: str) -> Exchange | None:
        return self.vhost(vhost).exchanges.get(name)

    def exchange_by_id(self, id: int) -> Exchange | None:
        """For listeners of `on_change`; None: it is gone."""
        return self._graph.exchange_by_id(id)

    def exchange(self, vhost: str, name: str) -> Exchange:
        found = self.vhost(vhost).exchanges.get(name)
        if found is None:
            raise NotFound(f"no {label('exchange', name, vhost)}")
        return found

    def passive_exchange(self, vhost: str, name: str) -> Exchange:
        _refuse_default(name)
        return self.exchange(vhost, stripped(name))

    def publishable(self, vhost: str, name: str) -> Exchange:
        """For basic.publish: nobody publishes to an internal one."""
        found = self.exchange(vhost, name)
        if found.internal:
            raise AccessRefused(f"cannot publish to internal {found.label}")
        return found

    def declare_exchange(
        self,
        vhost: str,
        name: str,
        type: str = "direct",
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Table = NONE,
        by_operator: bool = False,
    ) -> Change:
        """by_operator: a definitions file may name what clients may not."""
        host = self.vhost(vhost)
        name = stripped(name)
        found = host.exchanges.get(name)
        router = router_for(type, arguments) if found is None or found.type != type else None
        _refuse_default(name)
        if found:
            found.check_equivalent(
                type=type,
                durable=durable,
                auto_delete=auto_delete,
                internal=internal,
                arguments=arguments,
            )
            return Change(exchange=found, maker=self._graph.unsaved.get(found))
        assert router is not None
        refuse_control("exchange", name)
        refuse_long("exchange name", name)
        if not by_operator:
            refuse_reserved("exchange", name)
        alternate = arguments.get(ALTERNATE)
        if alternate is not None and not isinstance(alternate, str):
            raise PreconditionFailed(
                f"invalid type '{kind_of(alternate)}' for arg '{ALTERNATE}' in "
                f"{label('exchange', name, vhost)}"
            )
        exchange = Exchange(
            next(self._ids), vhost, name, type, durable, auto_delete, internal, arguments, router
        )
        exchange.alternate = self._settings.alternate_of(exchange)
        change = Change(exchange=exchange, created=True)
        self._graph.add_exchange(change, exchange)
        return self._told(change)

    def delete_exchange(self, vhost: str, name: str, *, if_unused: bool = False) -> Change:
        """None to delete is no error."""
        name = stripped(name)
        _refuse_default(name)
        exchange = self.vhost(vhost).exchanges.get(name)
        if name.startswith("amq."):
            what = label("exchange", name, vhost)
            raise AccessRefused(f"deletion of system {what} not allowed")
        change = Change(exchange=exchange)
        if exchange is None:
            return change
        if if_unused and exchange.bindings:
            raise PreconditionFailed(f"{exchange.label} in use")
        self._graph.remove_exchange(change, exchange)
        return self._told(change)

    # -- queues

    def find_queue(self, vhost: str, name: str) -> Queue | None:
        return self.vhost(vhost).queues.get(name)

    def queue(self, vhost: str, name: str, connection: int | None = None) -> Queue:
        """For any use of it: exclusive ones are there for their own connection only."""
        found = self.vhost(vhost).queues.get(name)
        if found is None:
            raise NotFound(f"no {label('queue', name, vhost)}")
        found.check_access(connection)
        return found

    def owned_by(self, connection: int) -> list[Queue]:
        """The exclusive queues that end with it."""
        return list(self._graph.owned.get(connection, ()))

    def declare_queue(
        self,
        vhost: str,
        name: str = "",
        *,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Table = NONE,
        connection: int | None = None,
        by_operator: bool = False,
    ) -> Change:
        """An empty name: one is made up. exclusive: to `connection`, and never durable.
        by_operator: a definitions file may name what clients may not."""
        host = self.vhost(vhost)
        given = dict(arguments)
        prefix = given.pop(NAME_PREFIX, None)
        if given.get(QUEUE_TYPE, "") in NO_QUEUE_TYPE:
            given[QUEUE_TYPE] = _default_type(
                host, durable=durable, exclusive=exclusive, auto_delete=auto_delete
            )
        owner = connection if exclusive else None
        durable = durable and not exclusive
        name = stripped(name)
        if name:
            if not by_operator:
                refuse_reserved("queue", name)
            found = host.queues.get(name)
            if found:
                found.check_equivalent(
                    durable=durable, owner=owner, auto_delete=auto_delete, arguments=given
                )
                return Change(queue=found, maker=self._graph.unsaved.get(found))
        else:
            name = _made_up(given, prefix)
        refuse_control("queue", name)
        refuse_long("queue name", name)
        what = label("queue", name, vhost)
        queue_arguments.check_queue_type(given, what)
        type = QueueType(shown(given[QUEUE_TYPE]))
        queue_arguments.check(type, given, what)
        check_properties(type, what, durable=durable, exclusive=exclusive, auto_delete=auto_delete)
        if self.check_room:
            self.check_room(vhost, name, len(host.queues))
        queue = Queue(next(self._ids), vhost, name, type, durable, owner, auto_delete, given)
        change = Change(queue=queue, created=True)
        self._graph.add_queue(change, queue)
        return self._told(change)

    def delete_queue(self, vhost: str, name: str, connection: int | None = None) -> Change:
        """None to delete is no error. Whether it is in use or empty, the engine knows."""
        queue = self.vhost(vhost).queues.get(stripped(name))
        if queue is None:
            return Change()
        queue.check_access(connection)
        return self.remove([queue])

    def remove(self, queues: Iterable[Queue]) -> Change:
        """These, of any owner: a connection ended, they expired, nobody consumes any more."""
        change = Change()
        for queue in queues:
            if self.vhost(queue.vhost).queues.get(queue.name) is queue:
                change.queue = queue
                self._graph.remove_queue(change, queue)
        return self._told(change)

    # -- bindings

    def bind(
        self,
        vhost: str,
        source: str,
        destination: str,
        key: str = "",
        arguments: Table = NONE,
        *,
        kind: Kind = "queue",
        connection: int | None = None,
    ) -> Change:
        """queue.bind, or exchange.bind with kind="exchange". `created` is False if it was there."""
        there, exchange = self._ends(vhost, source, destination, kind)
        refuse_long("routing key", key)
        if exchange is None:
            raise NotFound(f"no {label('exchange', source, vhost)}")
        if there is None:
            raise NotFound(f"no {label(kind, destination, vhost)}")
        exchange.router.check(there, key, arguments)
        if isinstance(there, Queue):
            there.check_access(connection)
        found = exchange.bindings.get(identity(there, key, arguments))
        if found:
            return Change(exchange=exchange, maker=self._graph.unsaved.get(found))
        change = Change(exchange=exchange, created=True)
        self._graph.add_binding(change, Binding(exchange, there, key, arguments))
        return self._told(change)

    def unbind(
        self,
        vhost: str,
        source: str,
        destination: str,
        key: str = "",
        arguments: Table = NONE,
        *,
        kind: Kind = "queue",
        connection: int | None = None,
    ) -> Change:
        """Nothing to unbind is no error, whichever part is missing."""
        there, exchange = self._ends(vhost, source, destination, kind)
        change = Change(exchange=exchange)
        if exchange is None or there is None:
            return change
        binding = exchange.bindings.get(identity(there, key, arguments))
        if binding is None:
            return change
        if isinstance(there, Queue):
            there.check_access(connection)
        self._graph.remove_binding(change, binding)
        return self._told(change)

    def _ends(
        self, vhost: str, source: str, destination: str, kind: Kind
    ) -> tuple[Destination | None, Exchange | None]:
        host = self.vhost(vhost)
        _refuse_default(source)
        if kind == "exchange":
            _refuse_default(destination)
            return host.exchanges.get(destination), host.exchanges.get(source)
        return host.queues.get(destination), host.exchanges.get(source)

    def bindings_to(self, destination: Destination) -> list[Binding]:
        return list(self._graph.incoming(destination))

    # -- policies

    def set_policy(self, policy: Policy) -> Change:
        """New, or in place of the one of that name."""
        known = self._policies(policy.vhost, policy.operator)
        return self._with_policies(
            policy.vhost, policy.operator, {**known, policy.name: policy}, sql.put_policy(policy)
        )

    def clear_policy(self, vhost: str, name: str, *, operator: bool = False) -> Change:
        known = dict(self._policies(vhost, operator))
        gone = known.pop(name, None)
        if gone is None:
            raise NotFound(f"no policy '{name}' in vhost '{vhost}'")
        return self._with_policies(vhost, operator, known, sql.drop_policy(gone))

    def _policies(self, vhost: str, operator: bool) -> dict[str, Policy]:
        host = self.vhost(vhost)
        return host.operator_policies if operator else host.policies

    def _with_policies(
        self, vhost: str, operator: bool, wanted: dict[str, Policy], statement: Statement
    ) -> Change:
        host = self.vhost(vhost)
        field = "operator_policies" if operator else "policies"
        change = Change(statements=[statement])
        # Undone last, so that what follows from them is worked out from the old ones.
        change.steps.append(partial(self._settings.review, host))
        change.steps.append(partial(setattr, host, field, getattr(host, field)))
        setattr(host, field, wanted)
        for exchange in host.exchanges.values():
            self._graph.set_alternate(change, exchange, self._settings.alternate_of(exchange))
        self._settings.review(host)
        return self._told(change)

    def set_parameter(self, vhost: str, component: str, name: str, value: Any) -> Change:
        """A plugin's: kept and exported, never looked at. None: away with it."""
        row = (vhost, component, name)
        return self._parameter(self.vhost(vhost).parameters, (component, name), value, row)

    def set_global_parameter(self, name: str, value: Any) -> Change:
        return self._parameter(self.global_parameters, name, value, ("", "", name))

    def _parameter(
        self, table: dict[Any, Any], key: object, value: Any, row: tuple[str, str, str]
    ) -> Change:
        change = Change()
        before = table.pop(key, None)
        change.steps.append(partial(_put_back, table, key, before))
        if value is not None:
            table[key] = value
            change.statements.append(sql.put_parameter(*row, value))
        elif before is not None:
            change.statements.append(sql.drop_parameter(*row))
        return self._told(change)

    # -- what follows from all that

    def policy_of(self, thing: Queue | Exchange, *, operator: bool = False) -> Policy | None:
        """The one that counts."""
        return self._settings.policy_of(thing, operator=operator)

    def effective(self, queue: Queue) -> QueueSettings:
        """The effective settings: arguments and policies, merged."""
        return self._settings.effective(queue)

    @property
    def on_settings(self) -> list[Callable[[Sequence[Queue]], None]]:
        """Called with queues whose settings changed, after a change of policies."""
        return self._settings.on_settings

    def route(
        self,
        vhost: str,
        exchange: str,
        routing_key: str,
        headers: Table | None = None,
        properties: Table | None = None,
        *,
        also: Sequence[str] = (),
    ) -> Route:
        """also: the keys of CC and BCC. NotFound: no such exchange."""
        message = Message((routing_key, *also), headers or NONE, properties or NONE)
        return walk(self.vhost(vhost), self.exchange(vhost, exchange), message)

    def upstream(self, exchange: Exchange) -> frozenset[int]:
        """All exchanges whose routes may change when this one's do, itself included."""
        return frozenset(each.id for each in self._graph.upstream(exchange))

    # -- from the disk

    def next_id(self) -> int:
        return next(self._ids)

    def put(self, thing: Thing | VHost | Policy) -> None:
        """Back in its place at the start, as it was on disk: no rule is asked again."""
        match thing:
            case VHost():
                self._furnish(Change(), thing)
            case Policy():
                self._policies(thing.vhost, thing.operator)[thing.name] = thing
                for built_in in self.vhost(thing.vhost).exchanges.values():
                    alternate = self._settings.alternate_of(built_in)
                    self._graph.set_alternate(Change(), built_in, alternate)
            case Queue():
                self._graph.put_queue(thing)
            case Exchange():
                if thing.alternate is None:
                    thing.alternate = self._settings.alternate_of(thing)
                self._graph.put_exchange(thing)
            case Binding():
                self._graph.attach(thing)

    def _told(self, change: Change) -> Change:
        self.pending.enter(change)
        self._tell(change)
        return change

    def _tell(self, change: Change) -> None:
        for queue in change.removed:
            self._settings.forget(queue)
        if change.undone and change.queue:
            self._settings.forget(change.queue)
        if change.touched:
            ids = frozenset(change.touched)
            for listener in self.on_change:
                listener(ids)


def _refuse_default(name: str) -> None:
    if not name:
        raise AccessRefused("operation not permitted on the default exchange")


def _default_type(vhost: VHost, *, durable: bool, exclusive: bool, auto_delete: bool) -> str:
    """The vhost's, unless such a queue can't be of that type."""
    default = vhost.options.default_queue_type
    if default is None or not durable or exclusive or auto_delete:
        return QueueType.CLASSIC.value
    return default


def _made_up(arguments: Table, prefix: Any) -> str:
    type = shown(arguments[QUEUE_TYPE])
    if type != QueueType.CLASSIC and type in queue_arguments.TYPES:
        raise PreconditionFailed(
            f"Cannot declare a server-named queue for type rabbit_{type}_queue"
        )
    if not isinstance(prefix, str) or not prefix:
        return generated()
    if len(prefix.encode()) > MAX_PREFIX:
        raise PreconditionFailed(
            f"Queue name prefix '{stripped(prefix)}' exceeds the {MAX_PREFIX}-byte limit"
        )
    return generated(stripped(prefix))


def _put_back(table: dict[Any, Any], key: Any, value: Any) -> None:
    table.pop(key, None)
    if value is not None:
        table[key] = value
