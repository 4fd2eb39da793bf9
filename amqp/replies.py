"""Reply codes: their names, what they close, and the texts clients look for.

A rule that is broken raises a class of ottermq.errors; this turns it into the close that RabbitMQ
would send: `NOT_FOUND - no queue 'x' in vhost '/'`, with the class and method that were refused.
"""

from dataclasses import dataclass

from pamqp.commands import Channel, Connection

from ottermq.amqp.frames import encode_method
from ottermq.errors import AMQP_NAMES, codes_of

# The others end the whole connection.
ENDS_CHANNEL = frozenset({311, 313, 403, 404, 405, 406})
TEXT_LIMIT = 255


@dataclass(frozen=True)
class Reply:
    """Why a channel or a connection ends."""

    code: int
    text: str
    method: int = 0  # class id << 16 | method id of what was refused

    @property
    def ends_channel(self) -> bool:
        return self.code in ENDS_CHANNEL

    def close_channel(self, channel: int) -> bytes:
        return encode_method(channel, Channel.Close, *self._fields)

    def close_connection(self) -> bytes:
        return encode_method(0, Connection.Close, *self._fields)

    @property
    def _fields(self) -> tuple[int, str, int, int]:
        return self.code, self.full_text, self.method >> 16, self.method & 0xFFFF

    @property
    def full_text(self) -> str:
        """What fits a short string, cut as RabbitMQ cuts it."""
        text = f"{AMQP_NAMES.get(self.code, 'INTERNAL_ERROR')} - {self.text}"
        raw = text.encode(errors="replace")  # it may quote a name that wasn't UTF-8
        if len(raw) <= TEXT_LIMIT:
            return raw.decode()
        return raw[: TEXT_LIMIT - 3].decode(errors="ignore") + "..."


class Refused(Exception):
    """A rule of the protocol itself is broken: the reply says which."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def reply_to(error: Exception, method: int = 0) -> Reply:
    """For what a rule raised."""
    code = error.code if isinstance(error, Refused) else codes_of(error).amqp
    return Reply(code, str(error), method)


def our_mistake(method: int = 0) -> Reply:
    """For an unexpected error: the log says more than a client should know."""
    return Reply(541, "the broker made a mistake; its log tells", method)


def reply_of_engine(code: int, text: str, method: int) -> Reply:
    """For a rule that C checks, whose texts begin with the code's name."""
    name = AMQP_NAMES.get(code, "")
    return Reply(code, text.removeprefix(f"{name} - "), method)
