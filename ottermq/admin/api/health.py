"""Health checks: 200 when it is so, 503 with the facts when it isn't."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any

from ottermq.admin.api.call import Call, Json, bad_request
from ottermq.admin.api.nodes import PROTOCOLS, listeners, node_name
from ottermq.admin.api.router import Route
from ottermq.admin.messages import Answer
from ottermq.engine.alarms import LOW_ON_MEMORY
from ottermq.net import certificate

DAYS = {"days": 1, "weeks": 7, "months": 30, "years": 365}
ALONE = "single node cluster"
OTHER_NAMES = {"amqps": "amqp/ssl", "amqp091": "amqp", "kafkas": "kafka/ssl"}


def _ok(**more: Any) -> Json:
    return {"status": "ok", **more}


def _failed(reason: str, **more: Any) -> Answer:
    body = {"status": "failed", "reason": reason, **more}
    return Answer(HTTPStatus.SERVICE_UNAVAILABLE, body)


def alarms(call: Call) -> Json | Answer:
    reason = call.context.amqp.alarm_reason or call.context.store.trouble()
    if not reason:
        return _ok()
    resource = "memory" if reason == LOW_ON_MEMORY else "disk"
    return _failed(reason, alarms=[{"node": node_name(), "resource": resource}])


def port_listener(call: Call) -> Json | Answer:
    text = call.path["port"]
    if not (text.isascii() and text.isdigit() and len(text) <= 5):
        raise bad_request("Invalid port")
    port, ports = int(text), sorted({each.address.port for each in call.context.bound.values()})
    if port in ports:
        return _ok(port=port)
    return _failed("No active listener", missing=port, ports=ports)


def protocol_listener(call: Call) -> Json | Answer:
    there = [PROTOCOLS[name] for name in call.context.bound]
    wanted = call.path["protocols"].split(",")
    missing = [name for name in wanted if OTHER_NAMES.get(name, name) not in there]
    if not missing:
        return _ok(protocols=wanted, **({"protocol": wanted[0]} if len(wanted) == 1 else {}))
    return _failed("No active listener", missing=missing, protocols=there)


def certificate_expiration(call: Call) -> Json | Answer:
    days = DAYS.get(call.path["unit"].rstrip("s") + "s")
    if days is None:
        raise bad_request(f"Time unit not recognised. Supported units: {', '.join(DAYS)}.")
    within = call.path["within"]
    if not (within.isascii() and within.isdigit() and len(within) <= 4):
        raise bad_request("Invalid expiration value")
    context = call.context
    cert = context.config().tls.cert
    secure = [name for name in ("amqps", "kafkas") if name in context.bound]
    if cert is None or not secure:
        return _ok()
    try:
        end = certificate.ends(cert.read_bytes())
    except (OSError, ValueError) as error:
        return _failed(f"{cert}: {error}", expired=[])
    if end > datetime.now(UTC) + timedelta(days=int(within) * days):
        return _ok()
    told = {"certfile": str(cert), "certfile_expires_on": end.isoformat()}
    return _failed(
        "Certificates expiring",
        expired=[
            {"interface": each["ip_address"], **each, **told}
            for each in listeners(context)
            if each["protocol"] in [PROTOCOLS[name] for name in secure]
        ],
    )


def serves(call: Call) -> Json | Answer:
    if reason := call.context.store.trouble():
        return _failed(reason)
    return _ok(connections=call.context.engine.stat().connections)


def below_limit(call: Call) -> Json | Answer:
    now, most = call.context.engine.stat().connections, call.context.engine.options.max_connections
    if now < most:
        return _ok(current=now, limit=most)
    return _failed("node connection limit is exceeded", current=now, limit=most)


def _always(**more: Any) -> Callable[[Call], Json]:
    return lambda call: _ok(**more)


CHECKS: dict[str, Callable[[Call], Any]] = {
    "alarms": alarms,
    "local-alarms": alarms,
    "port-listener/{port}": port_listener,
    "protocol-listener/{protocols}": protocol_listener,
    "certificate-expiration/{within}/{unit}": certificate_expiration,
    "virtual-hosts": _always(),
    "node-is-quorum-critical": _always(reason=ALONE),
    "node-is-mirror-sync-critical": _always(reason=ALONE),
    "quorum-queues-without-elected-leaders/all-vhosts": _always(),
    "quorum-queues-without-elected-leaders/vhost/{vhost}": _always(),
    "quorum-queues-without-elected-leaders/all-vhosts/pattern/{pattern}": _always(),
    "quorum-queues-without-elected-leaders/vhost/{vhost}/pattern/{pattern}": _always(),
    "metadata-store/initialized": _always(),
    "metadata-store/initialized/with-data": _always(),
    "reached-target-cluster-size": _always(),
    "is-in-service": _always(),
    "ready-to-serve-clients": serves,
    "below-node-connection-limit": below_limit,
}
ROUTES = (
    *(Route(f"health/checks/{path}", get=check) for path, check in CHECKS.items()),
    Route("healthchecks/node", get=alarms),
)
