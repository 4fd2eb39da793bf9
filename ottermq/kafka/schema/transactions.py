"""Transactions, from the first partition to the end."""

from ottermq.kafka.api import Api
from ottermq.kafka.schema.table import Message
from ottermq.kafka.schema.table import field as f

ADD_PARTITIONS_TO_TXN = Message(
    Api.ADD_PARTITIONS_TO_TXN,
    versions=(0, 3),
    flexible=3,
    request=(
        f("v3_and_below_transactional_id", "string"),
        f("v3_and_below_producer_id", "int64"),
        f("v3_and_below_producer_epoch", "int16"),
        f(
            "v3_and_below_topics",
            [
                f("name", "string"),
                f("partitions", ["int32"]),
            ],
        ),
    ),
    response=(
        f("throttle_time_ms", "int32"),
        f(
            "results_by_topic_v3_and_below",
            [
                f("name", "string"),
                f(
                    "results_by_partition",
                    [
                        f("partition_index", "int32"),
                        f("partition_error_code", "int16"),
                    ],
                ),
            ],
        ),
    ),
)

ADD_OFFSETS_TO_TXN = Message(
    Api.ADD_OFFSETS_TO_TXN,
    versions=(0, 3),
    flexible=3,
    request=(
        f("transactional_id", "string"),
        f("producer_id", "int64"),
        f("producer_epoch", "int16"),
        f("group_id", "string"),
    ),
    response=(
        f("throttle_time_ms", "int32"),
        f("error_code", "int16"),
    ),
)

END_TXN = Message(
    Api.END_TXN,
    versions=(0, 3),
    flexible=3,
    request=(
        f("transactional_id", "string"),
        f("producer_id", "int64"),
        f("producer_epoch", "int16"),
        f("committed", "bool"),
    ),
    response=(
        f("throttle_time_ms", "int32"),
        f("error_code", "int16"),
    ),
)

TXN_OFFSET_COMMIT = Message(
    Api.TXN_OFFSET_COMMIT,
    versions=(0, 3),
    flexible=3,
    request=(
        f("transactional_id", "string"),
        f("group_id", "string"),
        f("producer_id", "int64"),
        f("producer_epoch", "int16"),
        f("generation_id", "int32", "3+", default=-1),
        f("member_id", "string", "3+"),
        f("group_instance_id", "string", "3+", nullable=True, default=None),
        f(
            "topics",
            [
                f("name", "string"),
                f(
                    "partitions",
                    [
                        f("partition_index", "int32"),
                        f("committed_offset", "int64"),
                        f("committed_leader_epoch", "int32", "2+", default=-1),
                        f("committed_metadata", "string", nullable=True),
                    ],
                ),
            ],
        ),
    ),
    response=(
        f("throttle_time_ms", "int32"),
        f(
            "topics",
            [
                f("name", "string"),
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

DESCRIBE_TRANSACTIONS = Message(
    Api.DESCRIBE_TRANSACTIONS,
    versions=(0, 0),
    flexible=0,
    request=(f("transactional_ids", ["string"]),),
    response=(
        f("throttle_time_ms", "int32"),
        f(
            "transaction_states",
            [
                f("error_code", "int16"),
                f("transactional_id", "string"),
                f("transaction_state", "string"),
                f("transaction_timeout_ms", "int32"),
                f("transaction_start_time_ms", "int64"),
                f("producer_id", "int64"),
                f("producer_epoch", "int16"),
                f(
                    "topics",
                    [
                        f("topic", "string"),
                        f("partitions", ["int32"]),
                    ],
                ),
            ],
        ),
    ),
)

LIST_TRANSACTIONS = Message(
    Api.LIST_TRANSACTIONS,
    versions=(0, 2),
    flexible=0,
    request=(
        f("state_filters", ["string"]),
        f("producer_id_filters", ["int64"]),
        f("duration_filter", "int64", "1+", default=-1),
        f("transactional_id_pattern", "string", "2+", nullable=True, default=None),
    ),
    response=(
        f("throttle_time_ms", "int32"),
        f("error_code", "int16"),
        f("unknown_state_filters", ["string"]),
        f(
            "transaction_states",
            [
                f("transactional_id", "string"),
                f("producer_id", "int64"),
                f("transaction_state", "string"),
            ],
        ),
    ),
)

MESSAGES = (
    ADD_PARTITIONS_TO_TXN,
    ADD_OFFSETS_TO_TXN,
    END_TXN,
    TXN_OFFSET_COMMIT,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
)
