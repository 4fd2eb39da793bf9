"""pika's SelectConnection and its asyncio adapter: the same conversation by callbacks.

A conversation is a generator: it yields what to start, with a callback to be added, and is
resumed with what that callback was called with.
"""

import asyncio
from collections.abc import Callable, Generator
from typing import Any

import pika
import pytest
from pika.adapters.asyncio_connection import AsyncioConnection

from tests.clients.proxy import Address, Proxy

Unique = Callable[[str], str]
Step = Callable[[Callable[..., None]], Any]
Conversation = Generator[Step, Any, None]
PATIENCE = 20.0


class Talk:
    """Runs a conversation on a connection and ends its loop, whatever happens."""

    def __init__(self, kind: type, address: Address) -> None:
        self.failure: BaseException | None = None
        host, port = address
        self.loop = asyncio.new_event_loop() if kind is AsyncioConnection else None
        extra = {"custom_ioloop": self.loop} if self.loop else {}
        self.connection = kind(
            pika.ConnectionParameters(host, port),
            on_open_callback=lambda connection: self._resume(None),
            on_open_error_callback=lambda _connection, error: self._end(error),
            on_close_callback=lambda _connection, reason: self._closed(reason),
            **extra,
        )

    def run(self, conversation: Callable[[Any], Conversation], cut_is_fine: bool = False) -> None:
        self.cut_is_fine = cut_is_fine
        self._steps = conversation(self.connection)
        ioloop = self.connection.ioloop
        give_up = lambda: self._end(TimeoutError())  # noqa: E731
        if self.loop:
            self.loop.call_later(PATIENCE, give_up)
            self.loop.run_forever()
            self.loop.close()
        else:
            ioloop.call_later(PATIENCE, give_up)
            ioloop.start()
        if self.failure:
            raise self.failure

    def _resume(self, *answer: Any) -> None:
        try:
            step = self._steps.send(answer[0] if len(answer) == 1 else answer)
        except StopIteration:
            if self.connection.is_open:
                self.connection.close()
        except BaseException as failure:
            self._end(failure)
        else:
            step(self._resume)

    def _closed(self, reason: BaseException) -> None:
        normal = isinstance(reason, pika.exceptions.ConnectionClosedByClient)
        self._end(None if normal or self.cut_is_fine else reason)

    def _end(self, failure: BaseException | None) -> None:
        self.failure = self.failure or failure
        self.connection.ioloop.stop()


@pytest.fixture(params=[pika.SelectConnection, AsyncioConnection], ids=["select", "asyncio"])
def kind(request: pytest.FixtureRequest) -> type:
    assert isinstance(request.param, type)
    return request.param


def opened(connection: Any) -> Step:
    return lambda resume: connection.channel(on_open_callback=resume)


def declare(channel: Any, **arguments: Any) -> Step:
    return lambda resume: channel.queue_declare(
        "", exclusive=True, arguments=arguments or None, callback=resume
    )


def consume(channel: Any, queue: str, inbox: list[Any], count: int, auto_ack: bool = False) -> Step:
    """Resumes once `count` messages are in the inbox."""

    def start(resume: Callable[..., None]) -> None:
        def arrived(_channel: Any, method: Any, properties: Any, body: bytes) -> None:
            inbox.append((method, properties, body))
            if len(inbox) == count:
                resume(None)

        channel.basic_consume(queue, arrived, auto_ack=auto_ack)

    return start


def bodies(inbox: list[Any]) -> list[bytes]:
    return [body for _, _, body in inbox]


def test_publish_consume_and_confirm(kind: type, amqp_address: Address) -> None:
    confirmed: list[Any] = []
    inbox: list[Any] = []

    def talk(connection: Any) -> Conversation:
        channel = yield opened(connection)
        answer = yield declare(channel)
        queue = answer.method.queue
        yield lambda resume: channel.confirm_delivery(confirmed.append, callback=resume)
        for number in range(20):
            channel.basic_publish("", queue, b"%d" % number)
        yield consume(channel, queue, inbox, 20)
        channel.basic_ack(20, multiple=True)
        answer = yield lambda resume: channel.queue_declare(queue, passive=True, callback=resume)
        assert answer.method.message_count == 0

    Talk(kind, amqp_address).run(talk)
    assert bodies(inbox) == [b"%d" % number for number in range(20)]
    assert max(frame.method.delivery_tag for frame in confirmed) == 20
    assert all(isinstance(frame.method, pika.spec.Basic.Ack) for frame in confirmed)


def test_return(kind: type, amqp_address: Address) -> None:
    back: list[Any] = []

    def talk(connection: Any) -> Conversation:
        channel = yield opened(connection)

        def publish(resume: Callable[..., None]) -> None:
            channel.add_on_return_callback(lambda *returned: resume(returned))
            channel.basic_publish("", "nobody", b"back", mandatory=True)

        back.append((yield publish))

    Talk(kind, amqp_address).run(talk)
    ((_, method, _, body),) = back
    assert (method.reply_code, body) == (312, b"back")


def test_nack_requeue_and_dead_letters(kind: type, amqp_address: Address) -> None:
    first: list[Any] = []
    again: list[Any] = []
    dead: list[Any] = []

    def talk(connection: Any) -> Conversation:
        channel = yield opened(connection)
        grave = (yield declare(channel)).method.queue
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": grave}
        queue = (yield declare(channel, **arguments)).method.queue
        channel.basic_publish("", queue, b"x")
        yield consume(channel, queue, first, 1)
        yield lambda resume: channel.basic_cancel(first[0][0].consumer_tag, callback=resume)
        channel.basic_nack(first[0][0].delivery_tag, requeue=True)
        yield consume(channel, queue, again, 1)
        channel.basic_reject(again[0][0].delivery_tag, requeue=False)
        yield consume(channel, grave, dead, 1, auto_ack=True)

    Talk(kind, amqp_address).run(talk)
    assert (first[0][0].redelivered, again[0][0].redelivered) == (False, True)
    assert dead[0][1].headers["x-death"][0]["reason"] == "rejected"


def test_priority(kind: type, amqp_address: Address) -> None:
    inbox: list[Any] = []

    def talk(connection: Any) -> Conversation:
        channel = yield opened(connection)
        queue = (yield declare(channel, **{"x-max-priority": 5})).method.queue
        acks: list[Any] = []

        def publish(resume: Callable[..., None]) -> None:
            def confirmed(frame: Any) -> None:
                acks.append(frame)
                if frame.method.delivery_tag == 3:
                    resume(None)

            channel.confirm_delivery(confirmed)
            for priority in (1, 5, 3):
                channel.basic_publish(
                    "", queue, b"%d" % priority, pika.BasicProperties(priority=priority)
                )

        yield publish
        yield consume(channel, queue, inbox, 3, auto_ack=True)

    Talk(kind, amqp_address).run(talk)
    assert bodies(inbox) == [b"5", b"3", b"1"]


def test_tx(kind: type, amqp_address: Address) -> None:
    counts: list[int] = []

    def talk(connection: Any) -> Conversation:
        channel = yield opened(connection)
        other = yield opened(connection)
        queue = (yield declare(other)).method.queue
        look: Step = lambda resume: other.queue_declare(  # noqa: E731
            queue, passive=True, callback=resume
        )
        yield lambda resume: channel.tx_select(resume)
        channel.basic_publish("", queue, b"no")
        yield lambda resume: channel.tx_rollback(resume)
        channel.basic_publish("", queue, b"yes")
        counts.append((yield look).method.message_count)
        yield lambda resume: channel.tx_commit(resume)
        counts.append((yield look).method.message_count)

    Talk(kind, amqp_address).run(talk)
    assert counts == [0, 1]


def test_reconnect(kind: type, proxy: Proxy, unique: Unique) -> None:
    queue = unique("lasting")
    first: list[Any] = []
    again: list[Any] = []

    def before(connection: Any) -> Conversation:
        channel = yield opened(connection)
        yield lambda resume: channel.queue_declare(queue, durable=True, callback=resume)
        channel.basic_publish("", queue, b"x", pika.BasicProperties(delivery_mode=2))
        yield consume(channel, queue, first, 1)
        yield lambda resume: proxy.cut()  # and never resumes: the connection is lost

    def after(connection: Any) -> Conversation:
        channel = yield opened(connection)
        yield consume(channel, queue, again, 1)
        channel.basic_ack(again[0][0].delivery_tag)
        yield lambda resume: channel.queue_delete(queue, callback=resume)

    Talk(kind, proxy.address).run(before, cut_is_fine=True)
    Talk(kind, proxy.address).run(after)
    assert (again[0][0].redelivered, bodies(again)) == (True, [b"x"])
