"""Places in a log: by time, by leader epoch, and cutting off what is before one."""

from ottermq.kafka.api import Api
from ottermq.kafka.schema.table import Message
from ottermq.kafka.schema.table import field as f

LIST_OFFSETS = Message(
    Api.LIST_OFFSETS,
    versions=(1, 10),
    flexible=6,
    request=(
        f("replica_id", "int32"),
        f("isolation_level", "int8", "2+"),
        f(
            "topics",
            [
                f("name", "string"),
                f(
                    "partitions",
                    [
                        f("partition_index", "int32"),
                        f("current_leader_epoch", "int32", "4+", default=-1),
                        f("timestamp", "int64"),
                    ],
                ),
            ],
        ),
        f("timeout_ms", "int32", "10+"),
    ),
    response=(
        f("throttle_time_ms", "int32", "2+"),
        f(
            "topics",
            [
                f("name", "string"),
                f(
                    "partitions",
                    [
                        f("partition_index", "int32"),
                        f("error_code", "int16"),
                        f("timestamp", "int64", default=-1),
                        f("offset", "int64", default=-1),
                        f("leader_epoch", "int32", "4+", default=-1),
                    ],
                ),
            ],
        ),
    ),
)

OFFSET_FOR_LEADER_EPOCH = Message(
    Api.OFFSET_FOR_LEADER_EPOCH,
    versions=(2, 4),
    flexible=4,
    request=(
        f("replica_id", "int32", "3+", default=-2),
        f(
            "topics",
            [
                f("topic", "string"),
                f(
                    "partitions",
                    [
                        f("partition", "int32"),
                        f("current_leader_epoch", "int32", default=-1),
                        f("leader_epoch", "int32"),
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
                f("topic", "string"),
                f(
                    "partitions",
                    [
                        f("error_code", "int16"),
                        f("partition", "int32"),
                        f("leader_epoch", "int32", default=-1),
                        f("end_offset", "int64", default=-1),
                    ],
                ),
            ],
        ),
    ),
)

DELETE_RECORDS = Message(
    Api.DELETE_RECORDS,
    versions=(0, 2),
    flexible=2,
    request=(
        f(
            "topics",
            [
                f("name", "string"),
                f(
                    "partitions",
                    [
                        f("partition_index", "int32"),
                        f("offset", "int64"),
                    ],
                ),
            ],
        ),
        f("timeout_ms", "int32"),
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
                        f("low_watermark", "int64"),
                        f("error_code", "int16"),
                    ],
                ),
            ],
        ),
    ),
)

MESSAGES = (LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, DELETE_RECORDS)
