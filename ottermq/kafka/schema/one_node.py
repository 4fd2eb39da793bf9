"""Requests about a cluster of many nodes: elections, reassignments, the quorum, features."""

from ottermq.kafka.api import Api
from ottermq.kafka.schema.table import Message
from ottermq.kafka.schema.table import field as f

CLIENT_METRICS = 16

ALTER_REPLICA_LOG_DIRS = Message(
    Api.ALTER_REPLICA_LOG_DIRS,
    versions=(1, 2),
    flexible=2,
    request=(
        f(
            "dirs",
            [
                f("path", "string"),
                f(
                    "topics",
                    [
                        f("name", "string"),
                        f("partitions", ["int32"]),
                    ],
                ),
            ],
        ),
    ),
    response=(
        f("throttle_time_ms", "int32"),
        f(
            "results",
            [
                f("topic_name", "string"),
                f(
                    "partitions",
                    [
                        f("partition_index", "int32"),
                        f("error_code", "int16"),
                    ],
                ),
            ],
        ),
    ),
)

ELECT_LEADERS = Message(
    Api.ELECT_LEADERS,
    versions=(0, 2),
    flexible=2,
    request=(
        f("election_type", "int8", "1+"),
        f(
            "topic_partitions",
            [
                f("topic", "string"),
                f("partitions", ["int32"]),
            ],
            nullable=True,
        ),
        f("timeout_ms", "int32", default=60000),
    ),
    response=(
        f("throttle_time_ms", "int32"),
        f("error_code", "int16", "1+"),
        f(
            "replica_election_results",
            [
                f("topic", "string"),
                f(
                    "partition_result",
                    [
                        f("partition_id", "int32"),
                        f("error_code", "int16"),
                        f("error_message", "string", nullable=True, default=None),
                    ],
                ),
            ],
        ),
    ),
)

ALTER_PARTITION_REASSIGNMENTS = Message(
    Api.ALTER_PARTITION_REASSIGNMENTS,
    versions=(0, 1),
    flexible=0,
    request=(
        f("timeout_ms", "int32", default=60000),
        f("allow_replication_factor_change", "bool", "1+", default=True),
        f(
            "topics",
            [
                f("name", "string"),
                f(
                    "partitions",
                    [
                        f("partition_index", "int32"),
                        f("replicas", ["int32"], nullable=True, default=None),
                    ],
                ),
            ],
        ),
    ),
    response=(
        f("throttle_time_ms", "int32"),
        f("allow_replication_factor_change", "bool", "1+", default=True),
        f("error_code", "int16"),
        f("error_message", "string", nullable=True, default=None),
        f(
            "responses",
            [
                f("name", "string"),
                f(
                    "partitions",
                    [
                        f("partition_index", "int32"),
                        f("error_code", "int16"),
                        f("error_message", "string", nullable=True, default=None),
                    ],
                ),
            ],
        ),
    ),
)

LIST_PARTITION_REASSIGNMENTS = Message(
    Api.LIST_PARTITION_REASSIGNMENTS,
    versions=(0, 0),
    flexible=0,
    request=(
        f("timeout_ms", "int32", default=60000),
        f(
            "topics",
            [
                f("name", "string"),
                f("partition_indexes", ["int32"]),
            ],
            nullable=True,
            default=None,
        ),
    ),
    response=(
        f("throttle_time_ms", "int32"),
        f("error_code", "int16"),
        f("error_message", "string", nullable=True, default=None),
        f(
            "topics",
            [
                f("name", "string"),
                f(
                    "partitions",
                    [
                        f("partition_index", "int32"),
                        f("replicas", ["int32"]),
                        f("adding_replicas", ["int32"]),
                        f("removing_replicas", ["int32"]),
                    ],
                ),
            ],
        ),
    ),
)

REPLICA_STATE = [
    f("replica_id", "int32"),
    f("replica_directory_id", "uuid", "2+"),
    f("log_end_offset", "int64"),
    f("last_fetch_timestamp", "int64", "1+", default=-1),
    f("last_caught_up_timestamp", "int64", "1+", default=-1),
]

DESCRIBE_QUORUM = Message(
    Api.DESCRIBE_QUORUM,
    versions=(0, 2),
    flexible=0,
    request=(
        f(
            "topics",
            [
                f("topic_name", "string"),
                f("partitions", [f("partition_index", "int32")]),
            ],
        ),
    ),
    response=(
        f("error_code", "int16"),
        f("error_message", "string", "2+", nullable=True, default=None),
        f(
            "topics",
            [
                f("topic_name", "string"),
                f(
                    "partitions",
                    [
                        f("partition_index", "int32"),
                        f("error_code", "int16"),
                        f("error_message", "string", "2+", nullable=True, default=None),
                        f("leader_id", "int32"),
                        f("leader_epoch", "int32"),
                        f("high_watermark", "int64"),
                        f("current_voters", REPLICA_STATE),
                        f("observers", REPLICA_STATE),
                    ],
                ),
            ],
        ),
        f(
            "nodes",
            [
                f("node_id", "int32"),
                f(
                    "listeners",
                    [
                        f("name", "string"),
                        f("host", "string"),
                        f("port", "uint16"),
                    ],
                ),
            ],
            "2+",
        ),
    ),
)

UPDATE_FEATURES = Message(
    Api.UPDATE_FEATURES,
    versions=(0, 2),
    flexible=0,
    request=(
        f("timeout_ms", "int32", default=60000),
        f(
            "feature_updates",
            [
                f("feature", "string"),
                f("max_version_level", "int16"),
                f("allow_downgrade", "bool", "0"),
                f("upgrade_type", "int8", "1+", default=1),
            ],
        ),
        f("validate_only", "bool", "1+"),
    ),
    response=(
        f("throttle_time_ms", "int32"),
        f("error_code", "int16"),
        f("error_message", "string", nullable=True, default=None),
        f(
            "results",
            [
                f("feature", "string"),
                f("error_code", "int16"),
                f("error_message", "string", nullable=True, default=None),
            ],
            "0-1",
        ),
    ),
)

LIST_CONFIG_RESOURCES = Message(
    Api.LIST_CONFIG_RESOURCES,
    versions=(0, 1),
    flexible=0,
    request=(f("resource_types", ["int8"], "1+"),),
    response=(
        f("throttle_time_ms", "int32"),
        f("error_code", "int16"),
        f(
            "config_resources",
            [
                f("resource_name", "string"),
                f("resource_type", "int8", "1+", default=CLIENT_METRICS),
            ],
        ),
    ),
)

MESSAGES = (
    ALTER_REPLICA_LOG_DIRS,
    ELECT_LEADERS,
    ALTER_PARTITION_REASSIGNMENTS,
    LIST_PARTITION_REASSIGNMENTS,
    DESCRIBE_QUORUM,
    UPDATE_FEATURES,
    LIST_CONFIG_RESOURCES,
)
