"""This node: what it has, what it uses, where it listens."""

import os
import platform
import resource
import shutil
import socket
import time
from functools import cache

from ottermq import __version__
from ottermq.admin.api import stats
from ottermq.admin.api.call import Call, Json, existing
from ottermq.admin.api.router import Route, Rule
from ottermq.admin.context import AdminContext
from ottermq.engine.alarms import LOW_ON_MEMORY
from ottermq.topology.exchange import DELAYED_TYPE, TYPES

PYTHON = f"{platform.python_implementation()} {platform.python_version()}"
EXCHANGE_TYPES = [
    {"name": name, "description": f"{name} exchange", "enabled": True}
    for name in (*TYPES, DELAYED_TYPE)
]
MECHANISMS = ("PLAIN", "AMQPLAIN", "EXTERNAL", "SCRAM-SHA-256", "SCRAM-SHA-512")
# A listener's name here, and the protocol that RabbitMQ's tools call it.
PROTOCOLS = {
    "amqp": "amqp", "amqps": "amqp/ssl", "kafka": "kafka", "kafkas": "kafka/ssl", "admin": "http",
    "health": "http/health",
}  # fmt: skip
# What came and went; nobody counts it yet.
CHURN = dict.fromkeys(
    (
        "connection_created", "connection_closed", "channel_created", "channel_closed",
        "queue_declared", "queue_created", "queue_deleted",
    ),
    0,
)  # fmt: skip
PAGE = os.sysconf("SC_PAGE_SIZE")


@cache
def node_name() -> str:
    return f"ottermq@{socket.gethostname().partition('.')[0]}"


def listeners(context: AdminContext) -> list[Json]:
    return [
        {
            "node": node_name(),
            "protocol": PROTOCOLS[name],
            "ip_address": host,
            "port": place.address.port,
            "socket_opts": {},
        }
        for name, place in context.bound.items()
        for host in place.hosts
    ]


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE


def _free(context: AdminContext) -> int:
    try:
        return shutil.disk_usage(context.store.data).free
    except OSError:  # as broken as the disk
        return 0


def node(call: Call) -> Json:
    context = call.context
    now, log = context.engine.stat(), context.store.stat()
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    alarm = context.amqp.alarm_reason
    return {
        "name": node_name(),
        "type": "disc",
        "running": True,
        "being_drained": False,
        "os_pid": str(os.getpid()),
        "uptime": int((time.time() - context.started) * 1000),
        "processors": os.cpu_count() or 1,
        "run_queue": 0,
        "rates_mode": "basic",
        "net_ticktime": 60,
        "fd_total": files,
        "sockets_total": context.engine.options.max_connections,
        "proc_total": context.engine.options.max_connections,
        "mem_limit": context.engine.memory_limit,
        "mem_alarm": alarm == LOW_ON_MEMORY,
        "mem_calculation_strategy": "rss",
        "disk_free_limit": context.store.options.low_space_limit,
        "disk_free_alarm": bool(alarm) and alarm != LOW_ON_MEMORY,
        **stats.with_rates(
            mem_used=resident(),
            fd_used=now.connections + log.open_files,
            sockets_used=now.connections,
            proc_used=now.connections,
            disk_free=_free(context),
            gc_num=0,
            gc_bytes_reclaimed=0,
            context_switches=0,
            io_read_count=0,
            io_read_bytes=0,
            io_read_avg_time=0.0,
            io_write_count=log.wal_groups,
            io_write_bytes=log.wal_bytes + log.written_bytes,
            io_write_avg_time=0.0,
            io_sync_count=log.wal_groups,
            io_sync_avg_time=log.wal_sync_ns / 1e6 / max(log.wal_groups, 1),
            **CHURN,
        ),
        "partitions": [],
        "cluster_links": [],
        "exchange_types": EXCHANGE_TYPES,
        "auth_mechanisms": [
            {"name": name, "description": name, "enabled": True} for name in MECHANISMS
        ],
        "applications": [{"name": "ottermq", "description": "OtterMQ", "version": __version__}],
        "contexts": [],
        "enabled_plugins": ["rabbitmq_management"],
        "log_files": ["<stderr>"],
        "db_dir": str(context.store.data.resolve()),
        "config_files": [],
    }


def one(call: Call) -> Json:
    return existing(node(call) if call.path["name"] == node_name() else None)


def memory(call: Call) -> Json:
    """What RabbitMQ divides there is Erlang's."""
    one(call)
    return {"memory": "not_available"}


ROUTES = (
    Route("nodes", Rule.MONITORING, get=lambda call: [node(call)]),
    Route("nodes/{name}", Rule.MONITORING, get=one),
    Route("nodes/{name}/memory", Rule.MONITORING, get=memory),
    Route("nodes/{name}/memory/relative", Rule.MONITORING, get=memory),
)
