"""SASL: choosing a mechanism, and its exchange."""

from ottermq.kafka.api import Api
from ottermq.kafka.schema.table import Message
from ottermq.kafka.schema.table import field as f

SASL_HANDSHAKE = Message(
    Api.SASL_HANDSHAKE,
    versions=(0, 1),
    flexible=None,
    request=(f("mechanism", "string"),),
    response=(
        f("error_code", "int16"),
        f("mechanisms", ["string"]),
    ),
)

SASL_AUTHENTICATE = Message(
    Api.SASL_AUTHENTICATE,
    versions=(0, 2),
    flexible=2,
    request=(f("auth_bytes", "bytes"),),
    response=(
        f("error_code", "int16"),
        f("error_message", "string", nullable=True),
        f("auth_bytes", "bytes"),
        f("session_lifetime_ms", "int64", "1+"),
    ),
)

MESSAGES = (SASL_HANDSHAKE, SASL_AUTHENTICATE)
