"""Names: in sentences, those the server makes up, and those it keeps for itself."""

import base64
import secrets

from ottermq.errors import AccessRefused, PreconditionFailed

RESERVED = "amq."
LONGEST = 255  # bytes: of a short string, which carries names and routing keys
LINE_ENDS = str.maketrans("", "", "\r\n")


def label(kind: str, name: str, vhost: str) -> str:
    return f"{kind} '{name}' in vhost '{vhost}'"


def stripped(name: str) -> str:
    """RabbitMQ drops line ends from declared names, so that no log line can be forged."""
    return name.translate(LINE_ENDS)


def has_control(name: str) -> bool:
    """Characters that nobody sees, and that our own names of logs are made with."""
    return any(char < " " or char == "\x7f" for char in name)


def refuse_control(kind: str, name: str) -> None:
    if has_control(name):
        raise PreconditionFailed(f"{kind} name {ascii(name)} holds control characters")


def refuse_long(what: str, name: str) -> None:
    """No AMQP client could name it."""
    if len(name.encode()) > LONGEST:
        raise PreconditionFailed(f"{what} is longer than {LONGEST} bytes")


def refuse_reserved(kind: str, name: str) -> None:
    if name.startswith(RESERVED):
        raise AccessRefused(f"{kind} name '{name}' contains reserved prefix 'amq.*'")


def generated(prefix: str = "amq.gen-") -> str:
    """128 random bits in 22 characters of base64url."""
    return prefix + base64.urlsafe_b64encode(secrets.token_bytes(16))[:22].decode()
