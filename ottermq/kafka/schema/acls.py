"""ACLs."""

from ottermq.kafka.api import Api
from ottermq.kafka.schema.table import Message
from ottermq.kafka.schema.table import field as f

DESCRIBE_ACLS = Message(
    Api.DESCRIBE_ACLS,
    versions=(1, 3),
    flexible=2,
    request=(
        f("resource_type_filter", "int8"),
        f("resource_name_filter", "string", nullable=True),
        f("pattern_type_filter", "int8", default=3),
        f("principal_filter", "string", nullable=True),
        f("host_filter", "string", nullable=True),
        f("operation", "int8"),
        f("permission_type", "int8"),
    ),
    response=(
        f("throttle_time_ms", "int32"),
        f("error_code", "int16"),
        f("error_message", "string", nullable=True),
        f(
            "resources",
            [
                f("resource_type", "int8"),
                f("resource_name", "string"),
                f("pattern_type", "int8", default=3),
                f(
                    "acls",
                    [
                        f("principal", "string"),
                        f("host", "string"),
                        f("operation", "int8"),
                        f("permission_type", "int8"),
                    ],
                ),
            ],
        ),
    ),
)

CREATE_ACLS = Message(
    Api.CREATE_ACLS,
    versions=(1, 3),
    flexible=2,
    request=(
        f(
            "creations",
            [
                f("resource_type", "int8"),
                f("resource_name", "string"),
                f("resource_pattern_type", "int8", default=3),
                f("principal", "string"),
                f("host", "string"),
                f("operation", "int8"),
                f("permission_type", "int8"),
            ],
        ),
    ),
    response=(
        f("throttle_time_ms", "int32"),
        f(
            "results",
            [
                f("error_code", "int16"),
                f("error_message", "string", nullable=True),
            ],
        ),
    ),
)

DELETE_ACLS = Message(
    Api.DELETE_ACLS,
    versions=(1, 3),
    flexible=2,
    request=(
        f(
            "filters",
            [
                f("resource_type_filter", "int8"),
                f("resource_name_filter", "string", nullable=True),
                f("pattern_type_filter", "int8", default=3),
                f("principal_filter", "string", nullable=True),
                f("host_filter", "string", nullable=True),
                f("operation", "int8"),
                f("permission_type", "int8"),
            ],
        ),
    ),
    response=(
        f("throttle_time_ms", "int32"),
        f(
            "filter_results",
            [
                f("error_code", "int16"),
                f("error_message", "string", nullable=True),
                f(
                    "matching_acls",
                    [
                        f("error_code", "int16"),
                        f("error_message", "string", nullable=True),
                        f("resource_type", "int8"),
                        f("resource_name", "string"),
                        f("pattern_type", "int8", default=3),
                        f("principal", "string"),
                        f("host", "string"),
                        f("operation", "int8"),
                        f("permission_type", "int8"),
                    ],
                ),
            ],
        ),
    ),
)

MESSAGES = (DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS)
