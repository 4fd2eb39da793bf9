"""Policies and operator policies: set by policymakers, operators' by administrators."""

from collections.abc import Iterable
from typing import NamedTuple

from ottermq.admin.api.call import CREATED, DONE, Call, Json, existing
from ottermq.admin.api.listing import listing, shaped
from ottermq.admin.api.router import Route, Rule
from ottermq.admin.api.vhosts import entered
from ottermq.admin.messages import Answer
from ottermq.definitions.parse import policy_of
from ottermq.topology import Policy, VHost


def row(policy: Policy) -> Json:
    return {
        "vhost": policy.vhost,
        "name": policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": dict(policy.definition),
        "priority": policy.priority,
    }


class Kind(NamedTuple):
    operator: bool

    def of(self, host: VHost) -> dict[str, Policy]:
        return host.operator_policies if self.operator else host.policies

    async def _listed(self, call: Call, vhosts: Iterable[str]) -> Answer:
        hosts = call.context.topology.vhosts
        found = [policy for name in vhosts for _, policy in sorted(self.of(hosts[name]).items())]
        return await listing(call, found, row, lambda policy: policy.name)

    async def all_of_them(self, call: Call) -> Answer:
        return await self._listed(call, entered(call))

    async def of_vhost(self, call: Call) -> Answer:
        return await self._listed(call, [call.vhost])

    def _find(self, call: Call) -> Policy | None:
        return self.of(call.context.topology.vhosts[call.vhost]).get(call.path["name"])

    def one(self, call: Call) -> Json:
        return shaped(call, row(existing(self._find(call))))

    async def put(self, call: Call) -> Answer:
        body, name = call.body(), call.path["name"]
        body.number("priority", 0)  # a text is a number from here on
        policy = policy_of(call.vhost, name, body, operator=self.operator)
        before = self._find(call)
        topology = call.context.topology
        await topology.pending.save(topology.set_policy(policy))
        if self.operator:
            call.audit("operator_policy.set", name, vhost=call.vhost)
        else:
            call.audit("policy.set", name, vhost=call.vhost)
        return DONE if before else CREATED

    async def delete(self, call: Call) -> Answer:
        policy, topology = existing(self._find(call)), call.context.topology
        change = topology.clear_policy(call.vhost, policy.name, operator=self.operator)
        await topology.pending.save(change)
        if self.operator:
            call.audit("operator_policy.clear", policy.name, vhost=call.vhost)
        else:
            call.audit("policy.clear", policy.name, vhost=call.vhost)
        return DONE


def _routes(where: str, kind: Kind, writing: Rule) -> tuple[Route, ...]:
    return (
        Route(where, get=kind.all_of_them),
        Route(where + "/{vhost}", get=kind.of_vhost),
        Route(
            where + "/{vhost}/{name}",
            get=kind.one,
            put=kind.put,
            delete=kind.delete,
            writing=writing,
        ),
    )


ROUTES = (
    *_routes("policies", Kind(operator=False), Rule.POLICYMAKER),
    *_routes("operator-policies", Kind(operator=True), Rule.ADMINISTRATOR),
)
