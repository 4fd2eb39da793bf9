"""Settings of topics and of the broker."""

from ottermq.kafka.api import Api
from ottermq.kafka.schema.table import Message
from ottermq.kafka.schema.table import field as f

DESCRIBE_CONFIGS = Message(
    Api.DESCRIBE_CONFIGS,
    versions=(1, 4),
    flexible=4,
    request=(
        f(
            "resources",
            [
                f("resource_type", "int8"),
                f("resource_name", "string"),
                f("configuration_keys", ["string"], nullable=True),
            ],
        ),
        f("include_synonyms", "bool"),
        f("include_documentation", "bool", "3+"),
    ),
    response=(
        f("throttle_time_ms", "int32"),
        f(
            "results",
            [
                f("error_code", "int16"),
                f("error_message", "string", nullable=True),
                f("resource_type", "int8"),
                f("resource_name", "string"),
                f(
                    "configs",
                    [
                        f("name", "string"),
                        f("value", "string", nullable=True),
                        f("read_only", "bool"),
                        f("config_source", "int8", default=-1),
                        f("is_sensitive", "bool"),
                        f(
                            "synonyms",
                            [
                                f("name", "string"),
                                f("value", "string", nullable=True),
                                f("source", "int8"),
                            ],
                        ),
                        f("config_type", "int8", "3+"),
                        f("documentation", "string", "3+", nullable=True),
                    ],
                ),
            ],
        ),
    ),
)

ALTER_CONFIGS = Message(
    Api.ALTER_CONFIGS,
    versions=(0, 2),
    flexible=2,
    request=(
        f(
            "resources",
            [
                f("resource_type", "int8"),
                f("resource_name", "string"),
                f(
                    "configs",
                    [
                        f("name", "string"),
                        f("value", "string", nullable=True),
                    ],
                ),
            ],
        ),
        f("validate_only", "bool"),
    ),
    response=(
        f("throttle_time_ms", "int32"),
        f(
            "responses",
            [
                f("error_code", "int16"),
                f("error_message", "string", nullable=True),
                f("resource_type", "int8"),
                f("resource_name", "string"),
            ],
        ),
    ),
)

INCREMENTAL_ALTER_CONFIGS = Message(
    Api.INCREMENTAL_ALTER_CONFIGS,
    versions=(0, 1),
    flexible=1,
    request=(
        f(
            "resources",
            [
                f("resource_type", "int8"),
                f("resource_name", "string"),
                f(
                    "configs",
                    [
                        f("name", "string"),
                        f("config_operation", "int8"),
                        f("value", "string", nullable=True),
                    ],
                ),
            ],
        ),
        f("validate_only", "bool"),
    ),
    response=(
        f("throttle_time_ms", "int32"),
        f(
            "responses",
            [
                f("error_code", "int16"),
                f("error_message", "string", nullable=True),
                f("resource_type", "int8"),
                f("resource_name", "string"),
            ],
        ),
    ),
)

MESSAGES = (DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS)
