"""aio-pika, plain and robust."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractQueue
from aio_pika.exceptions import DeliveryError
from aiormq.exceptions import ChannelNotFoundEntity

from tests.clients.proxy import Proxy

Unique = Callable[[str], str]
PATIENCE = 20.0


def talk(url: str, act: Callable[[Any], Awaitable[None]], **options: Any) -> None:
    """Run `act` with a channel of a connection of its own."""

    async def whole() -> None:
        async with asyncio.timeout(PATIENCE):
            async with await aio_pika.connect(url) as connection:
                await act(await connection.channel(**options))

    asyncio.run(whole())


async def declare(channel: AbstractChannel, **arguments: Any) -> AbstractQueue:
    return await channel.declare_queue(exclusive=True, arguments=arguments)


async def send(channel: AbstractChannel, queue: AbstractQueue, *bodies: bytes, **how: Any) -> None:
    for body in bodies:
        await channel.default_exchange.publish(aio_pika.Message(body, **how), queue.name)


async def must_get(queue: AbstractQueue, **how: Any) -> Any:
    while True:
        if message := await queue.get(fail=False, **how):
            return message
        await asyncio.sleep(0.01)


def test_publish_and_consume(url: str) -> None:
    async def act(channel: AbstractChannel) -> None:
        queue = await declare(channel)
        await send(channel, queue, *(b"%d" % number for number in range(20)))
        got = []
        async with queue.iterator() as messages:
            async for message in messages:
                async with message.process():
                    got.append(message.body)
                if len(got) == 20:
                    break
        assert got == [b"%d" % number for number in range(20)]

    talk(url, act)


def test_confirm_and_return(url: str) -> None:
    async def act(channel: AbstractChannel) -> None:
        queue = await declare(channel)
        answer = await channel.default_exchange.publish(aio_pika.Message(b"x"), queue.name)
        assert answer
        with pytest.raises(DeliveryError):
            await channel.default_exchange.publish(aio_pika.Message(b"back"), "nobody")

    talk(url, act, on_return_raises=True)


def test_a_full_queue_nacks(url: str) -> None:
    async def act(channel: AbstractChannel) -> None:
        queue = await declare(channel, **{"x-max-length": 1, "x-overflow": "reject-publish"})
        await send(channel, queue, b"fits")
        with pytest.raises(DeliveryError):
            await send(channel, queue, b"does not")

    talk(url, act)


def test_nack_and_requeue(url: str) -> None:
    async def act(channel: AbstractChannel) -> None:
        queue = await declare(channel)
        await send(channel, queue, b"x")
        first = await must_get(queue)
        await first.nack(requeue=True)
        again = await must_get(queue)
        assert (first.redelivered, again.redelivered) == (False, True)
        await again.reject(requeue=False)
        assert await queue.get(fail=False) is None

    talk(url, act)


def test_priority(url: str) -> None:
    async def act(channel: AbstractChannel) -> None:
        queue = await declare(channel, **{"x-max-priority": 5})
        for priority in (1, 5, 3):
            await send(channel, queue, b"%d" % priority, priority=priority)
        assert [(await must_get(queue, no_ack=True)).body for _ in range(3)] == [b"5", b"3", b"1"]

    talk(url, act)


def test_dead_letters(url: str) -> None:
    async def act(channel: AbstractChannel) -> None:
        grave = await declare(channel)
        queue = await declare(
            channel,
            **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": grave.name},
        )
        await send(channel, queue, b"x")
        await (await must_get(queue)).reject(requeue=False)
        dead = await must_get(grave, no_ack=True)
        assert dead.headers["x-death"][0]["reason"] == "rejected"

    talk(url, act)


def test_tx(url: str) -> None:
    async def act(channel: AbstractChannel) -> None:
        queue = await declare(channel)
        async with channel.transaction():
            await send(channel, queue, b"yes")
        with pytest.raises(ZeroDivisionError):
            async with channel.transaction():
                await send(channel, queue, b"no")
                raise ZeroDivisionError
        assert (await must_get(queue, no_ack=True)).body == b"yes"
        assert await queue.get(fail=False) is None

    talk(url, act, publisher_confirms=False)


def test_rpc_by_direct_reply_to(url: str) -> None:
    async def act(channel: AbstractChannel) -> None:
        queue = await declare(channel)
        replies: asyncio.Queue[bytes] = asyncio.Queue()

        async def answered(message: Any) -> None:
            await replies.put(message.body)

        await (await channel.get_queue("amq.rabbitmq.reply-to", ensure=False)).consume(
            answered, no_ack=True
        )
        await send(channel, queue, b"question", reply_to="amq.rabbitmq.reply-to")
        request = await must_get(queue, no_ack=True)
        await channel.default_exchange.publish(aio_pika.Message(b"answer"), request.reply_to)
        assert await replies.get() == b"answer"

    talk(url, act)


def test_channel_errors_are_told(url: str) -> None:
    async def act(channel: AbstractChannel) -> None:
        with pytest.raises(ChannelNotFoundEntity, match="no queue 'no-such' in vhost '/'"):
            await channel.get_queue("no-such")

    talk(url, act)


def test_a_robust_connection_comes_back_with_its_queues_and_consumers(
    proxy: Proxy, unique: Unique
) -> None:
    host, port = proxy.address

    async def whole() -> None:
        async with asyncio.timeout(PATIENCE * 2):
            connection = await aio_pika.connect_robust(
                f"amqp://guest:guest@{host}:{port}/", reconnect_interval=0.2
            )
            async with connection:
                channel = await connection.channel()
                queue = await channel.declare_queue(unique("robust"), auto_delete=True)
                got: asyncio.Queue[bytes] = asyncio.Queue()

                async def arrived(message: Any) -> None:
                    async with message.process():
                        await got.put(message.body)

                await queue.consume(arrived)
                await send(channel, queue, b"before")
                assert await got.get() == b"before"
                lost = asyncio.Event()
                connection.close_callbacks.add(lambda *_: lost.set())
                proxy.cut()
                await lost.wait()
                await connection.ready()
                body = b"after"
                while True:  # published until one arrives: the first may meet the old channel
                    try:
                        await send(channel, queue, body)
                        assert await asyncio.wait_for(got.get(), 2) == body
                        break
                    except (aio_pika.exceptions.AMQPError, RuntimeError, TimeoutError):
                        await asyncio.sleep(0.1)

    asyncio.run(whole())
    assert proxy.accepted >= 2
