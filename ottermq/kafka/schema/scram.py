"""SCRAM credentials of users."""

from ottermq.kafka.api import Api
from ottermq.kafka.schema.table import Message
from ottermq.kafka.schema.table import field as f

DESCRIBE_USER_SCRAM_CREDENTIALS = Message(
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS,
    versions=(0, 0),
    flexible=0,
    request=(
        f(
            "users",
            [
                f("name", "string"),
            ],
            nullable=True,
        ),
    ),
    response=(
        f("throttle_time_ms", "int32"),
        f("error_code", "int16"),
        f("error_message", "string", nullable=True),
        f(
            "results",
            [
                f("user", "string"),
                f("error_code", "int16"),
                f("error_message", "string", nullable=True),
                f(
                    "credential_infos",
                    [
                        f("mechanism", "int8"),
                        f("iterations", "int32"),
                    ],
                ),
            ],
        ),
    ),
)

ALTER_USER_SCRAM_CREDENTIALS = Message(
    Api.ALTER_USER_SCRAM_CREDENTIALS,
    versions=(0, 0),
    flexible=0,
    request=(
        f(
            "deletions",
            [
                f("name", "string"),
                f("mechanism", "int8"),
            ],
        ),
        f(
            "upsertions",
            [
                f("name", "string"),
                f("mechanism", "int8"),
                f("iterations", "int32"),
                f("salt", "bytes"),
                f("salted_password", "bytes"),
            ],
        ),
    ),
    response=(
        f("throttle_time_ms", "int32"),
        f(
            "results",
            [
                f("user", "string"),
                f("error_code", "int16"),
                f("error_message", "string", nullable=True),
            ],
        ),
    ),
)

MESSAGES = (DESCRIBE_USER_SCRAM_CREDENTIALS, ALTER_USER_SCRAM_CREDENTIALS)
