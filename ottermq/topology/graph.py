"""The topology's moving parts: vhosts, exchanges, queues and bindings, put in and taken out.

Each step adds to its change the row for the disk, the exchanges whose routes it touched, and how to
take it back. No rule is checked here; topology.py did.

An exchange's routes depend on itself and on all that it leads to. So a step touches its own
exchange and all that lead there: by a binding, or by naming it as their alternate.
"""

from collections.abc import Iterable
from functools import partial

from ottermq.topology import sql
from ottermq.topology.change import Change, Thing
from ottermq.topology.exchange import Binding, Destination, Exchange
from ottermq.topology.exchange.binding import identity
from ottermq.topology.queue import Queue
from ottermq.topology.vhost import VHost


class Graph:
    def __init__(self) -> None:
        self.vhosts: dict[str, VHost] = {}
        self.owned: dict[int, dict[Queue, None]] = {}  # by connection
        self.unsaved: dict[Thing, Change] = {}  # durable, not on disk yet: its change
        self._incoming: dict[Destination, dict[Binding, None]] = {}
        self._exchanges: dict[int, Exchange] = {}

    def exchange_by_id(self, id: int) -> Exchange | None:
        return self._exchanges.get(id)

    def incoming(self, destination: Destination) -> Iterable[Binding]:
        return self._incoming.get(destination, ())

    def upstream(self, exchange: Exchange) -> set[Exchange]:
        """All exchanges whose routes may change when this one's do, itself included."""
        alternates = self.vhosts[exchange.vhost].alternates
        found = {exchange}
        todo = [exchange]
        while todo:
            here = todo.pop()
            leading = [binding.source for binding in self.incoming(here)]
            leading += alternates.get(here.name, ())
            for source in leading:
                if source not in found:
                    found.add(source)
                    todo.append(source)
        return found

    def _touch(self, change: Change, exchange: Exchange) -> None:
        if exchange.id not in change.touched:
            change.touched.update(each.id for each in self.upstream(exchange))

    def _made(self, change: Change, thing: Thing) -> None:
        self.unsaved[thing] = change
        change.made.append(thing)

    def saved(self, change: Change) -> None:
        """Or undone: its objects are no longer on their way."""
        for thing in change.made:
            self.unsaved.pop(thing, None)

    # -- queues

    def add_queue(self, change: Change, queue: Queue) -> None:
        self.put_queue(queue)
        if queue.durable:
            self._made(change, queue)
            change.statements.append(sql.put_queue(queue))
        change.steps.append(partial(self._drop_queue, queue))
        self._touch(change, self.vhosts[queue.vhost].default_exchange)

    def remove_queue(self, change: Change, queue: Queue) -> None:
        self._unbind_all(change, self.incoming(queue))
        self._touch(change, self.vhosts[queue.vhost].default_exchange)
        self._drop_queue(queue)
        change.removed.append(queue)
        change.steps.append(partial(self.put_queue, queue))
        if queue.durable:
            change.statements.append(sql.drop_queue(queue))

    def put_queue(self, queue: Queue) -> None:
        self.vhosts[queue.vhost].queues[queue.name] = queue
        if queue.owner is not None:
            self.owned.setdefault(queue.owner, {})[queue] = None

    def _drop_queue(self, queue: Queue) -> None:
        self._detach_all(self.incoming(queue))
        self._incoming.pop(queue, None)
        del self.vhosts[queue.vhost].queues[queue.name]
        if queue.owner is not None:
            owned = self.owned[queue.owner]
            del owned[queue]
            if not owned:
                del self.owned[queue.owner]

    # -- exchanges

    def add_exchange(self, change: Change, exchange: Exchange) -> None:
        self.put_exchange(exchange)
        if exchange.durable and not exchange.built_in:
            self._made(change, exchange)
            change.statements.append(sql.put_exchange(exchange))
        change.steps.append(partial(self._drop_exchange, exchange))
        self._touch(change, exchange)

    def remove_exchange(self, change: Change, exchange: Exchange) -> None:
        self._touch(change, exchange)
        self._unbind_all(change, exchange.bindings.values(), spare=exchange)
        self._unbind_all(change, self.incoming(exchange))
        self._drop_exchange(exchange)
        change.steps.append(partial(self.put_exchange, exchange))
        if exchange.durable:
            change.statements.append(sql.drop_exchange(exchange))

    def put_exchange(self, exchange: Exchange) -> None:
        vhost = self.vhosts[exchange.vhost]
        vhost.exchanges[exchange.name] = exchange
        self._exchanges[exchange.id] = exchange
        if exchange.alternate is not None:
            vhost.alternates.setdefault(exchange.alternate, {})[exchange] = None

    def _drop_exchange(self, exchange: Exchange) -> None:
        self._detach_all(exchange.bindings.values())
        self._detach_all(self.incoming(exchange))
        self._incoming.pop(exchange, None)
        vhost = self.vhosts[exchange.vhost]
        del vhost.exchanges[exchange.name]
        del self._exchanges[exchange.id]
        self._forget_alternate(vhost, exchange)

    def put_vhost(self, vhost: VHost) -> None:
        self.vhosts[vhost.name] = vhost
        self._exchanges.update((each.id, each) for each in vhost.exchanges.values())

    def drop_vhost(self, vhost: VHost) -> None:
        del self.vhosts[vhost.name]
        for exchange in vhost.exchanges.values():
            del self._exchanges[exchange.id]

    def set_alternate(self, change: Change, exchange: Exchange, name: str | None) -> None:
        """By a policy that came or went. Nothing for the disk: the policy is."""
        before = exchange.alternate
        if before != name:
            self._touch(change, exchange)
            self._name_alternate(exchange, name)
            change.steps.append(partial(self._name_alternate, exchange, before))

    def _name_alternate(self, exchange: Exchange, name: str | None) -> None:
        vhost = self.vhosts[exchange.vhost]
        self._forget_alternate(vhost, exchange)
        exchange.alternate = name
        if name is not None:
            vhost.alternates.setdefault(name, {})[exchange] = None

    def _forget_alternate(self, vhost: VHost, exchange: Exchange) -> None:
        if exchange.alternate is not None:
            naming = vhost.alternates[exchange.alternate]
            del naming[exchange]
            if not naming:
                del vhost.alternates[exchange.alternate]

    # -- bindings

    def add_binding(self, change: Change, binding: Binding) -> None:
        self.attach(binding)
        if binding.durable:
            self._made(change, binding)
            change.statements.append(sql.put_binding(binding))
        change.steps.append(partial(self._detach, binding))
        self._touch(change, binding.source)

    def remove_binding(
        self, change: Change, binding: Binding, *, spare: Exchange | None = None
    ) -> None:
        """An auto-delete exchange goes with its last binding. spare: it goes anyway."""
        source = binding.source
        self._touch(change, source)
        self._detach(binding)
        change.steps.append(partial(self._reattach, binding))
        if binding.durable:
            change.statements.append(sql.drop_binding(binding))
        if source.auto_delete and not source.bindings and source is not spare:
            self.remove_exchange(change, source)

    def _unbind_all(
        self, change: Change, bindings: Iterable[Binding], spare: Exchange | None = None
    ) -> None:
        for binding in list(bindings):
            if self._is_attached(binding):  # a circle of auto-delete exchanges may be faster
                self.remove_binding(change, binding, spare=spare)

    def _detach_all(self, bindings: Iterable[Binding]) -> None:
        for binding in list(bindings):
            self._detach(binding)

    def attach(self, binding: Binding) -> None:
        key = identity(binding.destination, binding.key, binding.arguments)
        binding.source.bindings[key] = binding
        self._incoming.setdefault(binding.destination, {})[binding] = None
        binding.source.router.add(binding)

    def _reattach(self, binding: Binding) -> None:
        """Taking a removal back; a transient end may be gone for good meanwhile."""
        if self._is_here(binding.source) and self._is_here(binding.destination):
            self.attach(binding)

    def _detach(self, binding: Binding) -> None:
        if not self._is_attached(binding):
            return
        key = identity(binding.destination, binding.key, binding.arguments)
        del binding.source.bindings[key]
        del self._incoming[binding.destination][binding]
        binding.source.router.remove(binding)

    def _is_attached(self, binding: Binding) -> bool:
        return binding in self._incoming.get(binding.destination, ())

    def _is_here(self, thing: Destination) -> bool:
        vhost = self.vhosts.get(thing.vhost)
        if vhost is None:
            return False
        if isinstance(thing, Queue):
            return vhost.queues.get(thing.name) is thing
        return vhost.exchanges.get(thing.name) is thing
