"""A consumer group and its members."""

from ottermq.kafka.api import Api
from ottermq.kafka.schema.table import Message
from ottermq.kafka.schema.table import field as f

FIND_COORDINATOR = Message(
    Api.FIND_COORDINATOR,
    versions=(0, 6),
    flexible=3,
    request=(
        f("key", "string", "0-3"),
        f("key_type", "int8", "1+"),
        f("coordinator_keys", ["string"], "4+"),
    ),
    response=(
        f("throttle_time_ms", "int32", "1+"),
        f("error_code", "int16", "0-3"),
        f("error_message", "string", "1-3", nullable=True),
        f("node_id", "int32", "0-3"),
        f("host", "string", "0-3"),
        f("port", "int32", "0-3"),
        f(
            "coordinators",
            [
                f("key", "string"),
                f("node_id", "int32"),
                f("host", "string"),
                f("port", "int32"),
                f("error_code", "int16"),
                f("error_message", "string", nullable=True),
            ],
            "4+",
        ),
    ),
)

JOIN_GROUP = Message(
    Api.JOIN_GROUP,
    versions=(0, 9),
    flexible=6,
    request=(
        f("group_id", "string"),
        f("session_timeout_ms", "int32"),
        f("rebalance_timeout_ms", "int32", "1+", default=-1),
        f("member_id", "string"),
        f("group_instance_id", "string", "5+", nullable=True, default=None),
        f("protocol_type", "string"),
        f(
            "protocols",
            [
                f("name", "string"),
                f("metadata", "bytes"),
            ],
        ),
        f("reason", "string", "8+", nullable=True, default=None),
    ),
    response=(
        f("throttle_time_ms", "int32", "2+"),
        f("error_code", "int16"),
        f("generation_id", "int32", default=-1),
        f("protocol_type", "string", "7+", nullable=True, default=None),
        f("protocol_name", "string", nullable="7+"),
        f("leader", "string"),
        f("skip_assignment", "bool", "9+"),
        f("member_id", "string"),
        f(
            "members",
            [
                f("member_id", "string"),
                f("group_instance_id", "string", "5+", nullable=True, default=None),
                f("metadata", "bytes"),
            ],
        ),
    ),
)

SYNC_GROUP = Message(
    Api.SYNC_GROUP,
    versions=(0, 5),
    flexible=4,
    request=(
        f("group_id", "string"),
        f("generation_id", "int32"),
        f("member_id", "string"),
        f("group_instance_id", "string", "3+", nullable=True, default=None),
        f("protocol_type", "string", "5+", nullable=True, default=None),
        f("protocol_name", "string", "5+", nullable=True, default=None),
        f(
            "assignments",
            [
                f("member_id", "string"),
                f("assignment", "bytes"),
            ],
        ),
    ),
    response=(
        f("throttle_time_ms", "int32", "1+"),
        f("error_code", "int16"),
        f("protocol_type", "string", "5+", nullable=True, default=None),
        f("protocol_name", "string", "5+", nullable=True, default=None),
        f("assignment", "bytes"),
    ),
)

HEARTBEAT = Message(
    Api.HEARTBEAT,
    versions=(0, 4),
    flexible=4,
    request=(
        f("group_id", "string"),
        f("generation_id", "int32"),
        f("member_id", "string"),
        f("group_instance_id", "string", "3+", nullable=True, default=None),
    ),
    response=(
        f("throttle_time_ms", "int32", "1+"),
        f("error_code", "int16"),
    ),
)

LEAVE_GROUP = Message(
    Api.LEAVE_GROUP,
    versions=(0, 5),
    flexible=4,
    request=(
        f("group_id", "string"),
        f("member_id", "string", "0-2"),
        f(
            "members",
            [
                f("member_id", "string"),
                f("group_instance_id", "string", nullable=True, default=None),
                f("reason", "string", "5+", nullable=True, default=None),
            ],
            "3+",
        ),
    ),
    response=(
        f("throttle_time_ms", "int32", "1+"),
        f("error_code", "int16"),
        f(
            "members",
            [
                f("member_id", "string"),
                f("group_instance_id", "string", nullable=True),
                f("error_code", "int16"),
            ],
            "3+",
        ),
    ),
)

MESSAGES = (FIND_COORDINATOR, JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP)
