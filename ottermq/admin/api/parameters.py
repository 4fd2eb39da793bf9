"""Runtime parameters of vhosts, and global ones: kept and shown, for policymakers."""

from collections.abc import Iterable
from typing import Any

from ottermq.admin.api import policies
from ottermq.admin.api.call import CREATED, DONE, Call, Json, bad_request, existing, not_found
from ottermq.admin.api.listing import listing
from ottermq.admin.api.router import Route, Rule
from ottermq.admin.api.vhosts import entered
from ottermq.admin.messages import Answer
from ottermq.topology import Policy, VHost
from ottermq.topology.sql import OPERATOR_POLICY, POLICY

LIMITS = "vhost-limits"
# These have paths of their own, which check more.
ELSEWHERE = {POLICY: "policies", OPERATOR_POLICY: "operator-policies", LIMITS: "vhost-limits"}


def row(component: str, vhost: str, name: str, value: Any) -> Json:
    return {"component": component, "vhost": vhost, "name": name, "value": value}


def _own(host: VHost) -> list[Json]:
    return [
        row(component, host.name, name, value)
        for (component, name), value in sorted(host.parameters.items())
    ]


def _policy(policy: Policy) -> Json:
    told = policies.row(policy)
    value = {key: told[key] for key in ("pattern", "definition", "priority", "apply-to")}
    component = OPERATOR_POLICY if policy.operator else POLICY
    return row(component, policy.vhost, policy.name, value)


def _of_component(call: Call, host: VHost, component: str) -> list[Json]:
    match component:
        case "policy":
            return [_policy(each) for each in host.policies.values()]
        case "operator_policy":
            return [_policy(each) for each in host.operator_policies.values()]
        case "vhost-limits":
            limits = call.context.auth.limits.of_vhost(host.name)
            return [row(LIMITS, host.name, "limits", limits)] if limits else []
        case _:
            return [each for each in _own(host) if each["component"] == component]


async def _listed(call: Call, found: Iterable[Json]) -> Answer:
    return await listing(call, found, lambda each: each, lambda each: str(each["name"]))


def _hosts(call: Call) -> list[VHost]:
    return [call.context.topology.vhosts[name] for name in entered(call)]


async def all_of_them(call: Call) -> Answer:
    """Those of plugins, and of what has paths of its own all but policies, as RabbitMQ has it."""
    found: list[Json] = []
    for host in _hosts(call):
        found += _own(host)
        found += _of_component(call, host, OPERATOR_POLICY)
        found += _of_component(call, host, LIMITS)
    return await _listed(call, found)


async def of_component(call: Call) -> Answer:
    component = call.path["component"]
    found = [each for host in _hosts(call) for each in _of_component(call, host, component)]
    return await _listed(call, found)


async def of_vhost(call: Call) -> Answer:
    host = call.context.topology.vhosts[call.vhost]
    return await _listed(call, _of_component(call, host, call.path["component"]))


def one(call: Call) -> Json:
    host = call.context.topology.vhosts[call.vhost]
    for each in _of_component(call, host, call.path["component"]):
        if each["name"] == call.path["name"]:
            return each
    raise not_found()


def _value(call: Call) -> Any:
    body = call.body()
    if body.fields.get("value") is None:
        raise bad_request("value is missing")
    return body.fields["value"]


def _writable(component: str) -> str:
    """Federation isn't there, and a link that nobody keeps would look like one that works."""
    if component in ELSEWHERE:
        raise bad_request(f"{component} is set at /api/{ELSEWHERE[component]}")
    if component.startswith("federation"):
        raise bad_request(f"{component}: there is no federation here; move messages by a shovel")
    return component


async def put(call: Call) -> Answer:
    component, name = _writable(call.path["component"]), call.path["name"]
    value, topology = _value(call), call.context.topology
    before = topology.vhosts[call.vhost].parameters.get((component, name))
    await topology.pending.save(topology.set_parameter(call.vhost, component, name, value))
    call.audit("parameter.set", name, vhost=call.vhost, type=component)
    return CREATED if before is None else DONE


async def delete(call: Call) -> Answer:
    component, name = _writable(call.path["component"]), call.path["name"]
    topology = call.context.topology
    existing(topology.vhosts[call.vhost].parameters.get((component, name)))
    await topology.pending.save(topology.set_parameter(call.vhost, component, name, None))
    call.audit("parameter.clear", name, vhost=call.vhost, type=component)
    return DONE


def _global(call: Call) -> list[Json]:
    known = call.context.topology.global_parameters
    return [{"name": name, "value": known[name]} for name in sorted(known)]


async def all_globals(call: Call) -> Answer:
    return await _listed(call, _global(call))


def one_global(call: Call) -> Json:
    name = call.path["name"]
    return {"name": name, "value": existing(call.context.topology.global_parameters.get(name))}


async def put_global(call: Call) -> Answer:
    name, value, topology = call.path["name"], _value(call), call.context.topology
    before = topology.global_parameters.get(name)
    await topology.pending.save(topology.set_global_parameter(name, value))
    call.audit("global_parameter.set", name)
    return CREATED if before is None else DONE


async def delete_global(call: Call) -> Answer:
    name, topology = call.path["name"], call.context.topology
    existing(topology.global_parameters.get(name))
    await topology.pending.save(topology.set_global_parameter(name, None))
    call.audit("global_parameter.clear", name)
    return DONE


RULE = Rule.POLICYMAKER
ROUTES = (
    Route("parameters", RULE, get=all_of_them),
    Route("parameters/{component}", RULE, get=of_component),
    Route("parameters/{component}/{vhost}", RULE, get=of_vhost),
    Route("parameters/{component}/{vhost}/{name}", RULE, get=one, put=put, delete=delete),
    Route("global-parameters", RULE, get=all_globals),
    Route("global-parameters/{name}", RULE, get=one_global, put=put_global, delete=delete_global),
)
