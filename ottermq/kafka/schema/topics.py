"""Making and removing topics and partitions."""

from ottermq.kafka.api import Api
from ottermq.kafka.schema.table import Message
from ottermq.kafka.schema.table import field as f

CREATE_TOPICS = Message(
    Api.CREATE_TOPICS,
    versions=(2, 7),
    flexible=5,
    request=(
        f(
            "topics",
            [
                f("name", "string"),
                f("num_partitions", "int32"),
                f("replication_factor", "int16"),
                f(
                    "assignments",
                    [
                        f("partition_index", "int32"),
                        f("broker_ids", ["int32"]),
                    ],
                ),
                f(
                    "configs",
                    [
                        f("name", "string"),
                        f("value", "string", nullable=True),
                    ],
                ),
            ],
        ),
        f("timeout_ms", "int32", default=60000),
        f("validate_only", "bool"),
    ),
    response=(
        f("throttle_time_ms", "int32"),
        f(
            "topics",
            [
                f("name", "string"),
                f("topic_id", "uuid", "7+"),
                f("error_code", "int16"),
                f("error_message", "string", nullable=True),
                f("topic_config_error_code", "int16", "5+", tag=0),
                f("num_partitions", "int32", "5+", default=-1),
                f("replication_factor", "int16", "5+", default=-1),
                f(
                    "configs",
                    [
                        f("name", "string"),
                        f("value", "string", nullable=True),
                        f("read_only", "bool"),
                        f("config_source", "int8", default=-1),
                        f("is_sensitive", "bool"),
                    ],
                    "5+",
                    nullable=True,
                ),
            ],
        ),
    ),
)

DELETE_TOPICS = Message(
    Api.DELETE_TOPICS,
    versions=(1, 6),
    flexible=4,
    request=(
        f(
            "topics",
            [
                f("name", "string", nullable=True, default=None),
                f("topic_id", "uuid"),
            ],
            "6+",
        ),
        f("topic_names", ["string"], "1-5"),
        f("timeout_ms", "int32"),
    ),
    response=(
        f("throttle_time_ms", "int32"),
        f(
            "responses",
            [
                f("name", "string", nullable="6+"),
                f("topic_id", "uuid", "6+"),
                f("error_code", "int16"),
                f("error_message", "string", "5+", nullable=True, default=None),
            ],
        ),
    ),
)

CREATE_PARTITIONS = Message(
    Api.CREATE_PARTITIONS,
    versions=(0, 3),
    flexible=2,
    request=(
        f(
            "topics",
            [
                f("name", "string"),
                f("count", "int32"),
                f(
                    "assignments",
                    [
                        f("broker_ids", ["int32"]),
                    ],
                    nullable=True,
                ),
            ],
        ),
        f("timeout_ms", "int32"),
        f("validate_only", "bool"),
    ),
    response=(
        f("throttle_time_ms", "int32"),
        f(
            "results",
            [
                f("name", "string"),
                f("error_code", "int16"),
                f("error_message", "string", nullable=True, default=None),
            ],
        ),
    ),
)

MESSAGES = (CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS)
