"""The broker as a whole; who asks; what a page asks before it shows anything."""

from ottermq import __version__
from ottermq.admin.api import health, stats
from ottermq.admin.api.call import DONE, Call, Json, bad_request
from ottermq.admin.api.connections import amqp, visible
from ottermq.admin.api.nodes import CHURN, EXCHANGE_TYPES, PYTHON, listeners, node_name
from ottermq.admin.api.router import Route, Rule
from ottermq.admin.api.vhosts import entered
from ottermq.topology import Change

CLUSTER_NAME = "cluster_name"
# Lists of what isn't here; monitors ask for them all the same.
EMPTY = (
    "federation-links", "shovels", "stream/connections", "stream/consumers", "stream/publishers",
)  # fmt: skip
FLAGS = (
    "classic_queue_type_delivery_support", "detailed_queues_endpoint", "direct_exchange_routing_v2",
    "drop_unroutable_metric", "empty_basic_get_metric", "feature_flags_v2",
    "implicit_default_bindings", "listener_records_in_ets", "message_containers", "quorum_queue",
    "rabbitmq_4.0.0", "rabbitmq_4.1.0", "restart_streams", "stream_filtering", "stream_queue",
    "stream_single_active_consumer", "stream_update_config_command", "tracking_records_in_ets",
    "user_limits", "virtual_host_metadata",
)  # fmt: skip


async def overview(call: Call) -> Json:
    context = call.context
    version = context.config().admin.rabbitmq_version
    now = context.engine.stat()
    hosts = [context.topology.vhosts[name] for name in entered(call)]
    queues = [queue for host in hosts for queue in host.queues.values()]
    seen = await stats.stats_of(context.engine, queues)
    ready, unacked = sum(each.ready for each in seen), sum(each.unacked for each in seen)
    connections = visible(call)
    return {
        "management_version": version,
        "rates_mode": "basic",
        "sample_retention_policies": {"global": [], "basic": [], "detailed": []},
        "exchange_types": EXCHANGE_TYPES,
        "product_version": __version__,
        "product_name": "OtterMQ",
        "rabbitmq_version": version,
        "cluster_name": cluster_name(call)["name"],
        "cluster_tags": [],
        "node_tags": [],
        "erlang_version": "0.0",
        "erlang_full_version": PYTHON,
        "release_series_support_status": "supported",
        "disable_stats": False,
        "default_queue_type": "classic",
        "enable_queue_totals": False,
        "is_op_policy_updating_enabled": True,
        "statistics_level": "fine",
        "message_stats": stats.of_broker(now) if call.sees_all else stats.of_queues(seen),
        "churn_rates": stats.with_rates(**CHURN),
        "queue_totals": stats.with_rates(
            messages=ready + unacked, messages_ready=ready, messages_unacknowledged=unacked
        ),
        "object_totals": {
            "channels": sum(len(conn.channels) for conn in amqp(call)),
            "connections": len(connections),
            "consumers": sum(each.consumers for each in seen),
            "exchanges": sum(len(host.exchanges) for host in hosts),
            "queues": len(queues),
        },
        "statistics_db_event_queue": 0,
        "node": node_name(),
        "listeners": listeners(call.context) if call.sees_all else [],
        "contexts": [],
    }


def whoami(call: Call) -> Json:
    return {"name": call.user.name, "tags": list(call.user.tags)}


def cluster_name(call: Call) -> Json:
    return {"name": call.context.topology.global_parameters.get(CLUSTER_NAME, node_name())}


async def set_cluster_name(call: Call) -> object:
    name = call.body().text("name")
    change: Change = call.context.topology.set_global_parameter(CLUSTER_NAME, name)
    await call.context.topology.pending.save(change)
    call.audit("global_parameter.set", CLUSTER_NAME)
    return DONE


def auth(call: Call) -> Json:
    return {"oauth_enabled": False, "enable_uaa": False, "uaa_client_id": "", "uaa_location": ""}


def feature_flags(call: Call) -> list[Json]:
    return [
        {
            "name": name,
            "desc": "",
            "doc_url": "",
            "state": "enabled",
            "stability": "required",
            "provided_by": "ottermq",
        }
        for name in FLAGS
    ]


def enable_flag(call: Call) -> object:
    """All there are are enabled."""
    if call.path["name"] not in FLAGS:
        raise bad_request("unsupported")
    return DONE


def aliveness(call: Call) -> object:
    """RabbitMQ sends itself a message; here it is whether messages are taken."""
    return health.alarms(call)


def version(call: Call) -> Json:
    return {
        "version": __version__,
        "rabbitmq_version": call.context.config().admin.rabbitmq_version,
    }


ROUTES = (
    Route("overview", get=overview),
    Route("whoami", get=whoami),
    Route("cluster-name", get=cluster_name, put=set_cluster_name, writing=Rule.ADMINISTRATOR),
    Route("auth", Rule.OPEN, get=auth),
    Route("extensions", get=lambda call: []),
    Route("version", get=version),
    Route("feature-flags", Rule.ADMINISTRATOR, get=feature_flags),
    Route("feature-flags/{name}/enable", Rule.ADMINISTRATOR, put=enable_flag),
    Route("deprecated-features", get=lambda call: []),
    Route("deprecated-features/used", get=lambda call: []),
    *(Route(path, Rule.MONITORING, get=lambda call: []) for path in EMPTY),
    *(Route(path + "/{vhost}", Rule.MONITORING, get=lambda call: []) for path in EMPTY),
    Route("aliveness-test/{vhost}", get=aliveness),
    Route("rebalance/queues", Rule.ADMINISTRATOR, post=lambda call: DONE),
)
