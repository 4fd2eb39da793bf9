"""Looking at groups, and removing them."""

from ottermq.kafka.api import Api
from ottermq.kafka.schema.table import Message
from ottermq.kafka.schema.table import field as f

DESCRIBE_GROUPS = Message(
    Api.DESCRIBE_GROUPS,
    versions=(0, 6),
    flexible=5,
    request=(
        f("groups", ["string"]),
        f("include_authorized_operations", "bool", "3+"),
    ),
    response=(
        f("throttle_time_ms", "int32", "1+"),
        f(
            "groups",
            [
                f("error_code", "int16"),
                f("error_message", "string", "6+", nullable=True, default=None),
                f("group_id", "string"),
                f("group_state", "string"),
                f("protocol_type", "string"),
                f("protocol_data", "string"),
                f(
                    "members",
                    [
                        f("member_id", "string"),
                        f("group_instance_id", "string", "4+", nullable=True, default=None),
                        f("client_id", "string"),
                        f("client_host", "string"),
                        f("member_metadata", "bytes"),
                        f("member_assignment", "bytes"),
                    ],
                ),
                f("authorized_operations", "int32", "3+", default=-2147483648),
            ],
        ),
    ),
)

LIST_GROUPS = Message(
    Api.LIST_GROUPS,
    versions=(0, 5),
    flexible=3,
    request=(
        f("states_filter", ["string"], "4+"),
        f("types_filter", ["string"], "5+"),
    ),
    response=(
        f("throttle_time_ms", "int32", "1+"),
        f("error_code", "int16"),
        f(
            "groups",
            [
                f("group_id", "string"),
                f("protocol_type", "string"),
                f("group_state", "string", "4+"),
                f("group_type", "string", "5+"),
            ],
        ),
    ),
)

DELETE_GROUPS = Message(
    Api.DELETE_GROUPS,
    versions=(0, 2),
    flexible=2,
    request=(f("groups_names", ["string"]),),
    response=(
        f("throttle_time_ms", "int32"),
        f(
            "results",
            [
                f("group_id", "string"),
                f("error_code", "int16"),
            ],
        ),
    ),
)

MESSAGES = (DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS)
