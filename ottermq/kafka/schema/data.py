"""Records in and out: Produce and Fetch.

The engine reads and writes these itself. The tables serve requests that wait for a login or for
the rights on a topic, and tests.
"""

from ottermq.kafka.api import Api
from ottermq.kafka.schema.table import Message
from ottermq.kafka.schema.table import field as f

PRODUCE = Message(
    Api.PRODUCE,
    versions=(3, 11),
    flexible=9,
    request=(
        f("transactional_id", "string", nullable=True, default=None),
        f("acks", "int16"),
        f("timeout_ms", "int32"),
        f(
            "topic_data",
            [
                f("name", "string"),
                f(
                    "partition_data",
                    [
                        f("index", "int32"),
                        f("records", "records", nullable=True),
                    ],
                ),
            ],
        ),
    ),
    response=(
        f(
            "responses",
            [
                f("name", "string"),
                f(
                    "partition_responses",
                    [
                        f("index", "int32"),
                        f("error_code", "int16"),
                        f("base_offset", "int64"),
                        f("log_append_time_ms", "int64", default=-1),
                        f("log_start_offset", "int64", "5+", default=-1),
                        f(
                            "record_errors",
                            [
                                f("batch_index", "int32"),
                                f(
                                    "batch_index_error_message",
                                    "string",
                                    nullable=True,
                                    default=None,
                                ),
                            ],
                            "8+",
                        ),
                        f("error_message", "string", "8+", nullable=True, default=None),
                        f(
                            "current_leader",
                            (
                                f("leader_id", "int32", default=-1),
                                f("leader_epoch", "int32", default=-1),
                            ),
                            "10+",
                            tag=0,
                        ),
                    ],
                ),
            ],
        ),
        f("throttle_time_ms", "int32"),
        f(
            "node_endpoints",
            [
                f("node_id", "int32"),
                f("host", "string"),
                f("port", "int32"),
                f("rack", "string", nullable=True, default=None),
            ],
            "10+",
            tag=0,
        ),
    ),
)

FETCH = Message(
    Api.FETCH,
    versions=(4, 17),
    flexible=12,
    request=(
        f("cluster_id", "string", "12+", nullable=True, default=None, tag=0),
        f("replica_id", "int32", "4-14", default=-1),
        f(
            "replica_state",
            (
                f("replica_id", "int32", default=-1),
                f("replica_epoch", "int64", default=-1),
            ),
            "15+",
            tag=1,
        ),
        f("max_wait_ms", "int32"),
        f("min_bytes", "int32"),
        f("max_bytes", "int32", default=2147483647),
        f("isolation_level", "int8"),
        f("session_id", "int32", "7+"),
        f("session_epoch", "int32", "7+", default=-1),
        f(
            "topics",
            [
                f("topic", "string", "4-12"),
                f("topic_id", "uuid", "13+"),
                f(
                    "partitions",
                    [
                        f("partition", "int32"),
                        f("current_leader_epoch", "int32", "9+", default=-1),
                        f("fetch_offset", "int64"),
                        f("last_fetched_epoch", "int32", "12+", default=-1),
                        f("log_start_offset", "int64", "5+", default=-1),
                        f("partition_max_bytes", "int32"),
                        f("replica_directory_id", "uuid", "17+", tag=0),
                    ],
                ),
            ],
        ),
        f(
            "forgotten_topics_data",
            [
                f("topic", "string", "7-12"),
                f("topic_id", "uuid", "13+"),
                f("partitions", ["int32"]),
            ],
            "7+",
        ),
        f("rack_id", "string", "11+"),
    ),
    response=(
        f("throttle_time_ms", "int32"),
        f("error_code", "int16", "7+"),
        f("session_id", "int32", "7+"),
        f(
            "responses",
            [
                f("topic", "string", "4-12"),
                f("topic_id", "uuid", "13+"),
                f(
                    "partitions",
                    [
                        f("partition_index", "int32"),
                        f("error_code", "int16"),
                        f("high_watermark", "int64"),
                        f("last_stable_offset", "int64", default=-1),
                        f("log_start_offset", "int64", "5+", default=-1),
                        f(
                            "diverging_epoch",
                            (
                                f("epoch", "int32", default=-1),
                                f("end_offset", "int64", default=-1),
                            ),
                            "12+",
                            tag=0,
                        ),
                        f(
                            "current_leader",
                            (
                                f("leader_id", "int32", default=-1),
                                f("leader_epoch", "int32", default=-1),
                            ),
                            "12+",
                            tag=1,
                        ),
                        f(
                            "snapshot_id",
                            (
                                f("end_offset", "int64", default=-1),
                                f("epoch", "int32", default=-1),
                            ),
                            "12+",
                            tag=2,
                        ),
                        f(
                            "aborted_transactions",
                            [
                                f("producer_id", "int64"),
                                f("first_offset", "int64"),
                            ],
                            nullable=True,
                        ),
                        f("preferred_read_replica", "int32", "11+", default=-1),
                        f("records", "records", nullable=True),
                    ],
                ),
            ],
        ),
        f(
            "node_endpoints",
            [
                f("node_id", "int32"),
                f("host", "string"),
                f("port", "int32"),
                f("rack", "string", nullable=True, default=None),
            ],
            "16+",
            tag=0,
        ),
    ),
)

MESSAGES = (PRODUCE, FETCH)
