"""To a queue of a broker: durable, confirmed, with a message-id that stays the same when a message
has to be sent again."""

import logging
import time

import pika
from pika.exceptions import AMQPError, ChannelClosedByBroker

from ottermq.audit.errors import CantRun
from ottermq.audit.watch.ledger import Notice

NOT_FOUND = 404
BLOCKED_FOR = 30.0  # seconds that a broker may block us before it counts as away
TYPE = "ottermq.audit.violation"


class BrokerUnavailable(Exception):
    """The broker can't be reached, or doesn't take it. The text says why."""


class Publisher:
    def __init__(self, url: str, queue: str) -> None:
        logging.getLogger("pika").setLevel(logging.CRITICAL)  # BrokerUnavailable says why
        try:
            if not url.startswith(("amqp://", "amqps://")):
                raise ValueError
            self._where = pika.URLParameters(url)
        except Exception:  # pika's own checks raise all sorts; the URL has a password, so no echo
            raise CantRun("--publish is amqp://USER:PASSWORD@HOST:PORT/VHOST") from None
        if self._where.blocked_connection_timeout is None:
            self._where.blocked_connection_timeout = BLOCKED_FOR
        self._queue = queue
        self._connection: pika.BlockingConnection | None = None
        self._channel: pika.adapters.blocking_connection.BlockingChannel | None = None

    @property
    def name(self) -> str:
        return f"{self._where.host}:{self._where.port}"

    def publish(self, notice: Notice) -> None:
        """When it returns, the broker has it. BrokerUnavailable: it may have it, too."""
        properties = pika.BasicProperties(
            content_type="application/json",
            delivery_mode=pika.DeliveryMode.Persistent.value,
            message_id=notice.id,
            timestamp=int(time.time()),
            type=TYPE,
            app_id="ottermq audit watch",
        )
        try:
            if self._channel is None:
                self._channel = self._open()
            body = notice.body.encode()
            self._channel.basic_publish("", self._queue, body, properties, mandatory=True)
        except (AMQPError, OSError) as error:
            self.close()
            raise BrokerUnavailable(_reason(error)) from None

    def stay(self) -> None:
        """Heartbeats, while there is nothing to publish."""
        if self._connection is not None:
            try:
                self._connection.process_data_events(0)
            except (AMQPError, OSError):
                self.close()  # noticed again when there is something to say

    def close(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        try:
            if connection is not None and connection.is_open:
                connection.close()
        except (AMQPError, OSError):
            pass  # it is gone all the same

    def _open(self) -> "pika.adapters.blocking_connection.BlockingChannel":
        self._connection = pika.BlockingConnection(self._where)
        channel = self._connection.channel()
        try:
            channel.queue_declare(self._queue, passive=True)  # whatever kind of queue it is
        except ChannelClosedByBroker as error:
            if error.reply_code != NOT_FOUND:
                raise
            channel = self._connection.channel()
            channel.queue_declare(self._queue, durable=True)
        channel.confirm_delivery()
        return channel


def _reason(error: BaseException) -> str:
    """pika wraps what the system said, and says little itself."""
    inner = error
    while inner.args and isinstance(inner.args[0], BaseException):
        inner = inner.args[0]
    nested = getattr(inner, "exceptions", None) or getattr(inner, "exception", None)
    if nested:
        return _reason(nested[0] if isinstance(nested, list | tuple) else nested)
    if isinstance(inner, OSError) and inner.strerror:
        return inner.strerror
    return " ".join(str(inner).split()) or type(inner).__name__
