"""Errors as classes, and one table with each protocol's code for them.

A rule that is broken raises one of these wherever it is checked, without knowing who asked.
The protocol that asked looks the class up in CODES: AMQP closes a channel or connection with a
reply code, Kafka answers an error code, HTTP a status.
"""

from typing import NamedTuple

from ottermq.wal import errors as log


class OtterError(Exception):
    """The text is one line that a user can act on."""


class StartupError(OtterError):
    """The broker can't start: said in one line, and the process ends with `exit_code`."""

    exit_code = 1


class ConfigError(StartupError):
    exit_code = 2


class NotFound(OtterError):
    """No such queue, exchange, vhost, topic, page."""


class AccessRefused(OtterError):
    """Known, but not allowed to."""


class LoginRefused(AccessRefused):
    """Not let in. The text keeps from the client what `reason` says in the log."""

    def __init__(self, mechanism: str, reason: str) -> None:
        super().__init__(
            f"Login was refused using authentication mechanism {mechanism}."
            " For details see the broker logfile."
        )
        self.reason = reason


class UnknownMechanism(OtterError):
    """A way to log in that we don't offer."""


class Malformed(OtterError):
    """Bytes that aren't what the protocol says they are."""


class PreconditionFailed(OtterError):
    """It exists, and is not what the caller takes it for."""


class UnderLegalHold(OtterError):
    """A legal hold stands: nothing of it may go."""


class ResourceLocked(OtterError):
    """Someone else holds it exclusively."""


class InvalidRequest(OtterError):
    """A name, number or argument that can't be right."""


class NotAllowed(OtterError):
    """Not allowed by a rule of ours: no such vhost, a limit is reached."""


class NotSupported(OtterError):
    """Understood, and not done here."""


class FeatureDenied(OtterError):
    """Deprecated, and switched off by a setting of ours."""


class TooLarge(OtterError):
    """A message or request over its limit."""


class InternalError(OtterError):
    """Our own mistake."""


class Codes(NamedTuple):
    amqp: int  # reply code, AMQP 0.9.1 section 1.2
    kafka: int  # error code, org.apache.kafka.common.protocol.Errors
    http: int


CODES: dict[type[Exception], Codes] = {
    NotFound: Codes(amqp=404, kafka=3, http=404),  # UNKNOWN_TOPIC_OR_PARTITION
    AccessRefused: Codes(amqp=403, kafka=29, http=403),  # TOPIC_AUTHORIZATION_FAILED
    LoginRefused: Codes(amqp=403, kafka=58, http=401),  # SASL_AUTHENTICATION_FAILED
    UnknownMechanism: Codes(amqp=503, kafka=33, http=401),  # UNSUPPORTED_SASL_MECHANISM
    Malformed: Codes(amqp=502, kafka=42, http=400),  # INVALID_REQUEST
    PreconditionFailed: Codes(amqp=406, kafka=40, http=409),  # INVALID_CONFIG
    UnderLegalHold: Codes(amqp=406, kafka=44, http=409),  # POLICY_VIOLATION
    ResourceLocked: Codes(amqp=405, kafka=29, http=423),  # TOPIC_AUTHORIZATION_FAILED
    InvalidRequest: Codes(amqp=406, kafka=42, http=400),  # INVALID_REQUEST
    NotAllowed: Codes(amqp=530, kafka=29, http=403),  # TOPIC_AUTHORIZATION_FAILED
    NotSupported: Codes(amqp=540, kafka=35, http=501),  # UNSUPPORTED_VERSION
    FeatureDenied: Codes(amqp=541, kafka=44, http=400),  # POLICY_VIOLATION
    TooLarge: Codes(amqp=311, kafka=10, http=413),  # MESSAGE_TOO_LARGE
    InternalError: Codes(amqp=541, kafka=-1, http=500),  # UNKNOWN_SERVER_ERROR
    # What the log itself refuses:
    log.CorruptData: Codes(amqp=541, kafka=2, http=500),  # CORRUPT_MESSAGE
    log.Deleted: Codes(amqp=404, kafka=3, http=404),  # UNKNOWN_TOPIC_OR_PARTITION
    log.Fenced: Codes(amqp=541, kafka=56, http=503),  # KAFKA_STORAGE_ERROR
    log.Gone: Codes(amqp=404, kafka=3, http=404),  # UNKNOWN_TOPIC_OR_PARTITION
    log.Full: Codes(amqp=506, kafka=7, http=503),  # REQUEST_TIMED_OUT: try again
    log.InvalidArgument: Codes(amqp=406, kafka=42, http=400),  # INVALID_REQUEST
    log.Refused: Codes(amqp=541, kafka=48, http=409),  # INVALID_TXN_STATE; it has a code of its own
    log.NoSpace: Codes(amqp=506, kafka=56, http=507),  # KAFKA_STORAGE_ERROR
    log.NotResident: Codes(amqp=506, kafka=7, http=503),  # REQUEST_TIMED_OUT: try again
    log.OutOfRange: Codes(amqp=406, kafka=1, http=416),  # OFFSET_OUT_OF_RANGE
    log.StaleEpoch: Codes(amqp=406, kafka=74, http=409),  # FENCED_LEADER_EPOCH
    log.StorageFailure: Codes(amqp=541, kafka=56, http=500),  # KAFKA_STORAGE_ERROR
    log.TimedOut: Codes(amqp=541, kafka=7, http=504),  # REQUEST_TIMED_OUT
    log.Unreadable: Codes(amqp=541, kafka=56, http=500),  # KAFKA_STORAGE_ERROR
}


def codes_of(error: BaseException) -> Codes:
    """Its own, else its nearest parent's; whatever is none of these is our own mistake."""
    for cls in type(error).__mro__:
        if issubclass(cls, Exception) and cls in CODES:
            return CODES[cls]
    return CODES[InternalError]


AMQP_NAMES = {
    311: "CONTENT_TOO_LARGE",
    312: "NO_ROUTE",
    313: "NO_CONSUMERS",
    320: "CONNECTION_FORCED",
    402: "INVALID_PATH",
    403: "ACCESS_REFUSED",
    404: "NOT_FOUND",
    405: "RESOURCE_LOCKED",
    406: "PRECONDITION_FAILED",
    501: "FRAME_ERROR",
    502: "SYNTAX_ERROR",
    503: "COMMAND_INVALID",
    504: "CHANNEL_ERROR",
    505: "UNEXPECTED_FRAME",
    506: "RESOURCE_ERROR",
    530: "NOT_ALLOWED",
    540: "NOT_IMPLEMENTED",
    541: "INTERNAL_ERROR",
}


def reply_of(error: BaseException) -> tuple[int, str]:
    """Code and text of the close that answers it: 404, "NOT_FOUND - no queue 'q' in vhost '/'"."""
    code = codes_of(error).amqp
    return code, f"{AMQP_NAMES[code]} - {error}"
