"""Offsets a group has committed."""

from ottermq.kafka.api import Api
from ottermq.kafka.schema.table import Message
from ottermq.kafka.schema.table import field as f

OFFSET_COMMIT = Message(
    Api.OFFSET_COMMIT,
    versions=(2, 9),
    flexible=8,
    request=(
        f("group_id", "string"),
        f("generation_id_or_member_epoch", "int32", default=-1),
        f("member_id", "string"),
        f("group_instance_id", "string", "7+", nullable=True, default=None),
        f("retention_time_ms", "int64", "2-4", default=-1),
        f(
            "topics",
            [
                f("name", "string"),
                f(
                    "partitions",
                    [
                        f("partition_index", "int32"),
                        f("committed_offset", "int64"),
                        f("committed_leader_epoch", "int32", "6+", default=-1),
                        f("committed_metadata", "string", nullable=True),
                    ],
                ),
            ],
        ),
    ),
    response=(
        f("throttle_time_ms", "int32", "3+"),
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

OFFSET_FETCH = Message(
    Api.OFFSET_FETCH,
    versions=(1, 9),
    flexible=6,
    request=(
        f("group_id", "string", "1-7"),
        f(
            "topics",
            [
                f("name", "string"),
                f("partition_indexes", ["int32"]),
            ],
            "1-7",
            nullable="2+",
        ),
        f(
            "groups",
            [
                f("group_id", "string"),
                f("member_id", "string", "9+", nullable=True, default=None),
                f("member_epoch", "int32", "9+", default=-1),
                f(
                    "topics",
                    [
                        f("name", "string"),
                        f("partition_indexes", ["int32"]),
                    ],
                    nullable=True,
                ),
            ],
            "8+",
        ),
        f("require_stable", "bool", "7+"),
    ),
    response=(
        f("throttle_time_ms", "int32", "3+"),
        f(
            "topics",
            [
                f("name", "string"),
                f(
                    "partitions",
                    [
                        f("partition_index", "int32"),
                        f("committed_offset", "int64"),
                        f("committed_leader_epoch", "int32", "5+", default=-1),
                        f("metadata", "string", nullable=True),
                        f("error_code", "int16"),
                    ],
                ),
            ],
            "1-7",
        ),
        f("error_code", "int16", "2-7"),
        f(
            "groups",
            [
                f("group_id", "string"),
                f(
                    "topics",
                    [
                        f("name", "string"),
                        f(
                            "partitions",
                            [
                                f("partition_index", "int32"),
                                f("committed_offset", "int64"),
                                f("committed_leader_epoch", "int32", default=-1),
                                f("metadata", "string", nullable=True),
                                f("error_code", "int16"),
                            ],
                        ),
                    ],
                ),
                f("error_code", "int16"),
            ],
            "8+",
        ),
    ),
)

OFFSET_DELETE = Message(
    Api.OFFSET_DELETE,
    versions=(0, 0),
    flexible=None,
    request=(
        f("group_id", "string"),
        f(
            "topics",
            [
                f("name", "string"),
                f(
                    "partitions",
                    [
                        f("partition_index", "int32"),
                    ],
                ),
            ],
        ),
    ),
    response=(
        f("error_code", "int16"),
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

MESSAGES = (OFFSET_COMMIT, OFFSET_FETCH, OFFSET_DELETE)
