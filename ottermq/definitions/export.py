"""The other way: all durable objects, in the form of a RabbitMQ definitions file.

As in RabbitMQ, objects that are exclusive, not durable or built in stay out. A password hash that
RabbitMQ doesn't know (scrypt) is written with our name for it: such a file is for us.
"""

import json
from datetime import datetime
from typing import Any

from ottermq import __version__
from ottermq.auth import Auth
from ottermq.topology.exchange import Binding
from ottermq.topology.policy import Policy
from ottermq.topology.queue import Queue
from ottermq.topology.sql import OPERATOR_POLICY
from ottermq.topology.topology import Topology
from ottermq.topology.vhost import VHost

Json = dict[str, Any]
VERSION = "4.0.0"  # whose form it is


def export(topology: Topology, auth: Auth) -> str:
    return json.dumps(tell(topology, auth), indent=2, default=_plain)


def tell(topology: Topology, auth: Auth, version: str = VERSION) -> Json:
    """version: of RabbitMQ, for tools that look at it."""
    hosts = list(topology.vhosts.values())
    return {
        "rabbit_version": version,
        "rabbitmq_version": version,
        "product_name": "OtterMQ",
        "product_version": __version__,
        "users": [_user(auth, user.name) for user in auth.users.all()],
        "vhosts": [_vhost(host) for host in hosts],
        "permissions": [
            {
                "user": each.user,
                "vhost": each.vhost,
                "configure": each.configure,
                "write": each.write,
                "read": each.read,
            }
            for each in auth.permissions.entries()
        ],
        "topic_permissions": [
            {
                "user": each.user,
                "vhost": each.vhost,
                "exchange": each.exchange,
                "write": each.write,
                "read": each.read,
            }
            for each in auth.permissions.topic_entries()
        ],
        "parameters": [each for host in hosts for each in _parameters(host, auth)],
        "global_parameters": [
            {"name": name, "value": value} for name, value in topology.global_parameters.items()
        ],
        "policies": [
            {"vhost": host.name, "name": policy.name, **_policy(policy)}
            for host in hosts
            for policy in host.policies.values()
        ],
        "queues": [each for host in hosts for each in _queues(host)],
        "exchanges": [each for host in hosts for each in _exchanges(host)],
        "bindings": [each for host in hosts for each in _bindings(host)],
    }


def tell_vhost(host: VHost, auth: Auth, version: str = VERSION) -> Json:
    """Without its name in what another vhost may take as it is, as RabbitMQ has it."""
    queues, exchanges, bindings = _queues(host), _exchanges(host), _bindings(host)
    for each in (*queues, *exchanges, *bindings):
        del each["vhost"]
    return {
        "rabbit_version": version,
        "rabbitmq_version": version,
        "product_name": "OtterMQ",
        "product_version": __version__,
        "rabbitmq_definition_format": "single_virtual_host",
        "original_vhost_name": host.name,
        "description": host.options.description,
        "parameters": _parameters(host, auth),
        "policies": [
            {"vhost": host.name, "name": policy.name, **_policy(policy)}
            for policy in host.policies.values()
        ],
        "queues": queues,
        "exchanges": exchanges,
        "bindings": bindings,
    }


def _plain(value: object) -> object:
    """Values that JSON has no type for, as RabbitMQ writes them: their type is lost."""
    match value:
        case bytes() | bytearray():
            return value.decode("utf-8", "replace")
        case datetime():
            return int(value.timestamp())
        case _:
            return float(str(value))


def _user(auth: Auth, name: str) -> Json:
    user = auth.users.existing(name)
    stored = user.secrets.stored
    return {
        "name": name,
        "password_hash": stored.hash,
        "hashing_algorithm": stored.algorithm,
        "tags": list(user.tags),
        "limits": auth.limits.of_user(name),
    }


def _vhost(host: VHost) -> Json:
    options: Json = {"description": host.options.description, "tags": list(host.options.tags)}
    if host.options.default_queue_type:
        options["default_queue_type"] = host.options.default_queue_type
    return {"name": host.name, **options, "metadata": options}


def _policy(policy: Policy) -> Json:
    return {
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "priority": policy.priority,
        "definition": dict(policy.definition),
    }


def _parameters(host: VHost, auth: Auth) -> list[Json]:
    def parameter(component: str, name: str, value: Any) -> Json:
        return {"vhost": host.name, "component": component, "name": name, "value": value}

    found = [parameter(*key, value) for key, value in host.parameters.items()]
    for policy in host.operator_policies.values():
        found.append(parameter(OPERATOR_POLICY, policy.name, _policy(policy)))
    limits = auth.limits.of_vhost(host.name)
    return [*found, parameter("vhost-limits", "limits", limits)] if limits else found


def _queues(host: VHost) -> list[Json]:
    return [
        {
            "name": queue.name,
            "vhost": host.name,
            "type": queue.type.value,
            "durable": True,
            "auto_delete": queue.auto_delete,
            "arguments": dict(queue.arguments),
        }
        for queue in host.queues.values()
        if queue.durable
    ]


def _exchanges(host: VHost) -> list[Json]:
    return [
        {
            "name": exchange.name,
            "vhost": host.name,
            "type": exchange.type,
            "durable": True,
            "auto_delete": exchange.auto_delete,
            "internal": exchange.internal,
            "arguments": dict(exchange.arguments),
        }
        for exchange in host.exchanges.values()
        if exchange.durable and not exchange.built_in
    ]


def _bindings(host: VHost) -> list[Json]:
    return [
        _binding(binding)
        for exchange in host.exchanges.values()
        for binding in exchange.bindings.values()
        if binding.durable
    ]


def _binding(binding: Binding) -> Json:
    return {
        "source": binding.source.name,
        "vhost": binding.source.vhost,
        "destination": binding.destination.name,
        "destination_type": "queue" if isinstance(binding.destination, Queue) else "exchange",
        "routing_key": binding.key,
        "arguments": dict(binding.arguments),
    }
