"""Client quotas."""

from ottermq.kafka.api import Api
from ottermq.kafka.schema.table import Message
from ottermq.kafka.schema.table import field as f

DESCRIBE_CLIENT_QUOTAS = Message(
    Api.DESCRIBE_CLIENT_QUOTAS,
    versions=(0, 1),
    flexible=1,
    request=(
        f(
            "components",
            [
                f("entity_type", "string"),
                f("match_type", "int8"),
                f("match", "string", nullable=True),
            ],
        ),
        f("strict", "bool"),
    ),
    response=(
        f("throttle_time_ms", "int32"),
        f("error_code", "int16"),
        f("error_message", "string", nullable=True),
        f(
            "entries",
            [
                f(
                    "entity",
                    [
                        f("entity_type", "string"),
                        f("entity_name", "string", nullable=True),
                    ],
                ),
                f(
                    "values",
                    [
                        f("key", "string"),
                        f("value", "float64"),
                    ],
                ),
            ],
            nullable=True,
        ),
    ),
)

ALTER_CLIENT_QUOTAS = Message(
    Api.ALTER_CLIENT_QUOTAS,
    versions=(0, 1),
    flexible=1,
    request=(
        f(
            "entries",
            [
                f(
                    "entity",
                    [
                        f("entity_type", "string"),
                        f("entity_name", "string", nullable=True),
                    ],
                ),
                f(
                    "ops",
                    [
                        f("key", "string"),
                        f("value", "float64"),
                        f("remove", "bool"),
                    ],
                ),
            ],
        ),
        f("validate_only", "bool"),
    ),
    response=(
        f("throttle_time_ms", "int32"),
        f(
            "entries",
            [
                f("error_code", "int16"),
                f("error_message", "string", nullable=True),
                f(
                    "entity",
                    [
                        f("entity_type", "string"),
                        f("entity_name", "string", nullable=True),
                    ],
                ),
            ],
        ),
    ),
)

MESSAGES = (DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS)
