"""Policies and arguments merged, for each queue and exchange; kept until they change."""

from collections.abc import Callable, Mapping, Sequence

from ottermq.topology.exchange import Exchange
from ottermq.topology.exchange.exchange import ALTERNATE
from ottermq.topology.policy import Policy, best, merged
from ottermq.topology.queue import Queue
from ottermq.topology.settings import QueueSettings, settings_of
from ottermq.topology.values import NONE, Table
from ottermq.topology.vhost import VHost


class EffectiveSettings:
    def __init__(self, vhosts: Mapping[str, VHost]) -> None:
        self._vhosts = vhosts
        self._settings: dict[Queue, QueueSettings] = {}
        self.on_settings: list[Callable[[Sequence[Queue]], None]] = []

    def policy_of(self, thing: Queue | Exchange, *, operator: bool = False) -> Policy | None:
        vhost = self._vhosts[thing.vhost]
        policies = vhost.operator_policies if operator else vhost.policies
        kind = thing.type if isinstance(thing, Queue) else "exchange"
        return best(policies.values(), kind, thing.name)

    def _ruled(self, thing: Queue | Exchange) -> Table:
        vhost = self._vhosts[thing.vhost]
        if not vhost.policies and not vhost.operator_policies:
            return NONE
        return merged(self.policy_of(thing), self.policy_of(thing, operator=True))

    def effective(self, queue: Queue) -> QueueSettings:
        found = self._settings.get(queue)
        if found is None:
            found = self._settings[queue] = settings_of(queue, self._ruled(queue))
        return found

    def alternate_of(self, exchange: Exchange) -> str | None:
        named = exchange.arguments.get(ALTERNATE)
        return self._ruled(exchange).get(ALTERNATE) if named is None else named

    def forget(self, queue: Queue) -> None:
        self._settings.pop(queue, None)

    def review(self, vhost: VHost) -> None:
        """The vhost's policies changed: report queues whose settings differ. Settings never
        computed are skipped."""
        others = []
        for queue in vhost.queues.values():
            before = self._settings.pop(queue, None)
            if before is not None and self.effective(queue) != before:
                others.append(queue)
        if others:
            for listener in self.on_settings:
                listener(others)
