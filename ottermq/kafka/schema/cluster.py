"""The APIs, the broker, its topics and where they lie on disk."""

from ottermq.kafka.api import Api
from ottermq.kafka.schema.table import Message
from ottermq.kafka.schema.table import field as f

API_VERSIONS = Message(
    Api.API_VERSIONS,
    versions=(0, 4),
    flexible=3,
    request=(
        f("client_software_name", "string", "3+"),
        f("client_software_version", "string", "3+"),
    ),
    response=(
        f("error_code", "int16"),
        f(
            "api_keys",
            [
                f("api_key", "int16"),
                f("min_version", "int16"),
                f("max_version", "int16"),
            ],
        ),
        f("throttle_time_ms", "int32", "1+"),
        f(
            "supported_features",
            [
                f("name", "string"),
                f("min_version", "int16"),
                f("max_version", "int16"),
            ],
            "3+",
            tag=0,
        ),
        f("finalized_features_epoch", "int64", "3+", default=-1, tag=1),
        f(
            "finalized_features",
            [
                f("name", "string"),
                f("max_version_level", "int16"),
                f("min_version_level", "int16"),
            ],
            "3+",
            tag=2,
        ),
        f("zk_migration_ready", "bool", "3+", tag=3),
    ),
)

METADATA = Message(
    Api.METADATA,
    versions=(0, 13),
    flexible=9,
    request=(
        f(
            "topics",
            [
                f("topic_id", "uuid", "10+"),
                f("name", "string", nullable="10+"),
            ],
            nullable="1+",
        ),
        f("allow_auto_topic_creation", "bool", "4+", default=True),
        f("include_cluster_authorized_operations", "bool", "8-10"),
        f("include_topic_authorized_operations", "bool", "8+"),
    ),
    response=(
        f("throttle_time_ms", "int32", "3+"),
        f(
            "brokers",
            [
                f("node_id", "int32"),
                f("host", "string"),
                f("port", "int32"),
                f("rack", "string", "1+", nullable=True, default=None),
            ],
        ),
        f("cluster_id", "string", "2+", nullable=True, default=None),
        f("controller_id", "int32", "1+", default=-1),
        f(
            "topics",
            [
                f("error_code", "int16"),
                f("name", "string", nullable="12+"),
                f("topic_id", "uuid", "10+"),
                f("is_internal", "bool", "1+"),
                f(
                    "partitions",
                    [
                        f("error_code", "int16"),
                        f("partition_index", "int32"),
                        f("leader_id", "int32"),
                        f("leader_epoch", "int32", "7+", default=-1),
                        f("replica_nodes", ["int32"]),
                        f("isr_nodes", ["int32"]),
                        f("offline_replicas", ["int32"], "5+"),
                    ],
                ),
                f("topic_authorized_operations", "int32", "8+", default=-2147483648),
            ],
        ),
        f("cluster_authorized_operations", "int32", "8-10", default=-2147483648),
        f("error_code", "int16", "13+"),
    ),
)

DESCRIBE_CLUSTER = Message(
    Api.DESCRIBE_CLUSTER,
    versions=(0, 1),
    flexible=0,
    request=(
        f("include_cluster_authorized_operations", "bool"),
        f("endpoint_type", "int8", "1+", default=1),
    ),
    response=(
        f("throttle_time_ms", "int32"),
        f("error_code", "int16"),
        f("error_message", "string", nullable=True, default=None),
        f("endpoint_type", "int8", "1+", default=1),
        f("cluster_id", "string"),
        f("controller_id", "int32", default=-1),
        f(
            "brokers",
            [
                f("broker_id", "int32"),
                f("host", "string"),
                f("port", "int32"),
                f("rack", "string", nullable=True, default=None),
            ],
        ),
        f("cluster_authorized_operations", "int32", default=-2147483648),
    ),
)

DESCRIBE_TOPIC_PARTITIONS = Message(
    Api.DESCRIBE_TOPIC_PARTITIONS,
    versions=(0, 0),
    flexible=0,
    request=(
        f(
            "topics",
            [
                f("name", "string"),
            ],
        ),
        f("response_partition_limit", "int32", default=2000),
        f(
            "cursor",
            (
                f("topic_name", "string"),
                f("partition_index", "int32"),
            ),
            nullable=True,
            default=None,
        ),
    ),
    response=(
        f("throttle_time_ms", "int32"),
        f(
            "topics",
            [
                f("error_code", "int16"),
                f("name", "string", nullable=True),
                f("topic_id", "uuid"),
                f("is_internal", "bool"),
                f(
                    "partitions",
                    [
                        f("error_code", "int16"),
                        f("partition_index", "int32"),
                        f("leader_id", "int32"),
                        f("leader_epoch", "int32", default=-1),
                        f("replica_nodes", ["int32"]),
                        f("isr_nodes", ["int32"]),
                        f("eligible_leader_replicas", ["int32"], nullable=True, default=None),
                        f("last_known_elr", ["int32"], nullable=True, default=None),
                        f("offline_replicas", ["int32"]),
                    ],
                ),
                f("topic_authorized_operations", "int32", default=-2147483648),
            ],
        ),
        f(
            "next_cursor",
            (
                f("topic_name", "string"),
                f("partition_index", "int32"),
            ),
            nullable=True,
            default=None,
        ),
    ),
)

DESCRIBE_LOG_DIRS = Message(
    Api.DESCRIBE_LOG_DIRS,
    versions=(1, 4),
    flexible=2,
    request=(
        f(
            "topics",
            [
                f("topic", "string"),
                f("partitions", ["int32"]),
            ],
            nullable=True,
        ),
    ),
    response=(
        f("throttle_time_ms", "int32"),
        f("error_code", "int16", "3+"),
        f(
            "results",
            [
                f("error_code", "int16"),
                f("log_dir", "string"),
                f(
                    "topics",
                    [
                        f("name", "string"),
                        f(
                            "partitions",
                            [
                                f("partition_index", "int32"),
                                f("partition_size", "int64"),
                                f("offset_lag", "int64"),
                                f("is_future_key", "bool"),
                            ],
                        ),
                    ],
                ),
                f("total_bytes", "int64", "4+", default=-1),
                f("usable_bytes", "int64", "4+", default=-1),
            ],
        ),
    ),
)

MESSAGES = (API_VERSIONS, METADATA, DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS, DESCRIBE_LOG_DIRS)
