"""Connections of both protocols: one's own, or all of them for who may see them."""

from collections.abc import Iterable

from ottermq.admin.api import stats
from ottermq.admin.api.call import DONE, Call, Json, not_found
from ottermq.admin.api.listing import listing, shaped
from ottermq.admin.api.nodes import node_name
from ottermq.admin.api.router import Route
from ottermq.admin.context import AdminContext
from ottermq.admin.messages import Answer
from ottermq.amqp.connection import INTERNAL, Connection
from ottermq.engine.types import ConnStat
from ottermq.kafka.request import Connection as KafkaConnection

AnyConnection = Connection | KafkaConnection
DEFAULT_REASON = "Closed via management plugin"
LONGEST_REASON = 200


def name_of(context: AdminContext, conn: AnyConnection) -> str:
    return f"{conn.peer} -> {_local(context, conn)}"


def _local(context: AdminContext, conn: AnyConnection) -> str:
    """The engine tells it of Kafka's only; of AMQP's, where the listener is."""
    if isinstance(conn, KafkaConnection):
        return conn.local
    place = context.bound[conn.listener]
    is_six = conn.peer.startswith("[")
    host = next((each for each in place.hosts if (":" in each) == is_six), place.hosts[0])
    return f"[{host}]:{place.address.port}" if ":" in host else f"{host}:{place.address.port}"


def vhost_of(context: AdminContext, conn: AnyConnection) -> str:
    if isinstance(conn, KafkaConnection):
        return context.kafka.context.settings.vhost
    return conn.vhost


def amqp(call: Call) -> list[Connection]:
    """The AMQP connections that the user may see, once they are in a vhost. Not our own, which
    last no longer than a request."""
    found = (
        conn
        for conn in call.context.amqp.connections.values()
        if conn.counted and conn.listener != INTERNAL
    )
    return [conn for conn in found if call.sees_all or conn.user_name == call.user.name]


def visible(call: Call) -> list[AnyConnection]:
    found: list[AnyConnection] = list(amqp(call))
    found += (
        conn
        for conn in call.context.kafka.connections.values()
        if conn.user is not None and (call.sees_all or conn.user_name == call.user.name)
    )
    return found


def row(call: Call, conn: AnyConnection) -> Json:
    context = call.context
    stat = context.engine.conn_stat(conn.id) or ConnStat(*(0 for _ in ConnStat._fields))
    host, _, port = conn.peer.rpartition(":")
    local, _, local_port = _local(context, conn).rpartition(":")
    is_secure = conn.listener in ("amqps", "kafkas")
    own = _of_amqp(conn) if isinstance(conn, Connection) else _of_kafka(conn)
    named = own["client_properties"].get("connection_name")
    return {
        "name": name_of(context, conn),
        "node": node_name(),
        "type": "network",
        "vhost": vhost_of(context, conn),
        "user": conn.user_name,
        "user_who_performed_action": conn.user_name,
        "connected_at": conn.connected_at,
        "host": local.strip("[]"),
        "port": int(local_port),
        "peer_host": host.strip("[]"),
        "peer_port": int(port),
        "ssl": is_secure,
        "ssl_protocol": None,
        "ssl_cipher": None,
        "ssl_hash": None,
        "ssl_key_exchange": None,
        "peer_cert_issuer": None,
        "peer_cert_subject": None,
        "peer_cert_validity": None,
        "state": "blocked" if stat.blocked else "running",
        **({"user_provided_name": named} if isinstance(named, str) else {}),
        **own,
        **stats.with_rates(recv_oct=stat.received_bytes, send_oct=stat.sent_bytes, reductions=0),
        "recv_cnt": stat.published,
        "send_cnt": stat.delivered,
        "send_pend": stat.output_bytes,
        "garbage_collection": {},
    }


def _of_amqp(conn: Connection) -> Json:
    return {
        "protocol": "AMQP 0-9-1",
        "auth_mechanism": conn.mechanism,
        "channels": len(conn.channels),
        "channel_max": conn.channel_max,
        "frame_max": conn.frame_max,
        "timeout": conn.heartbeat,
        "client_properties": dict(conn.properties),
    }


def _of_kafka(conn: KafkaConnection) -> Json:
    properties = {"product": conn.software, "connection_name": conn.client_id}
    return {
        "protocol": "Kafka",
        "auth_mechanism": "ANONYMOUS" if conn.is_anonymous else "SASL",
        "channels": 0,
        "channel_max": 0,
        "frame_max": 0,
        "timeout": 0,
        "client_properties": {name: value for name, value in properties.items() if value},
    }


async def _listed(call: Call, found: Iterable[AnyConnection]) -> Answer:
    ordered = sorted(found, key=lambda conn: conn.peer)
    return await listing(
        call, ordered, lambda conn: row(call, conn), lambda conn: name_of(call.context, conn)
    )


async def all_of_them(call: Call) -> Answer:
    return await _listed(call, visible(call))


async def of_vhost(call: Call) -> Answer:
    found = visible(call)
    return await _listed(
        call, [conn for conn in found if vhost_of(call.context, conn) == call.vhost]
    )


async def of_user(call: Call) -> Answer:
    user = call.path["user"]
    return await _listed(call, [conn for conn in visible(call) if conn.user_name == user])


def find(call: Call) -> AnyConnection:
    name = call.path["name"]
    for conn in visible(call):
        if name_of(call.context, conn) == name:
            return conn
    raise not_found()


def one(call: Call) -> Json:
    return shaped(call, row(call, find(call)))


def delete(call: Call) -> Answer:
    close(call, find(call))
    return DONE


def close_of_user(call: Call) -> Answer:
    for conn in visible(call):
        if conn.user_name == call.path["user"]:
            close(call, conn)
    return DONE


def close(call: Call, conn: AnyConnection) -> None:
    """The client is told why, if its protocol has a word for that."""
    reason = call.headers.get("x-reason") or DEFAULT_REASON
    reason = "".join(char for char in reason if char.isprintable())[:LONGEST_REASON]
    if isinstance(conn, Connection):
        call.context.amqp.close_for_operator(conn, reason)
    else:
        call.context.kafka.close_for_operator(conn)
    call.audit("connection.close", name_of(call.context, conn), reason=reason)


ROUTES = (
    Route("connections", get=all_of_them),
    Route("connections/username/{user}", get=of_user, delete=close_of_user),
    Route("connections/{name}", get=one, delete=delete),
    Route("vhosts/{vhost}/connections", get=of_vhost),
)
