"""aiokafka, as its users use it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

PATIENCE = 60.0
Unique = Callable[[str], str]


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE))


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_codec_and_every_acks_level(
    kafka: str, unique: Unique, codec: str | None, acks: int | str
) -> None:
    topic = unique("aio")
    values = [b"value %d " % n * 20 for n in range(100)]

    async def work() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=kafka, compression_type=codec, acks=acks)
        await producer.start()
        for value in values:
            await producer.send(topic, value)
        await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=kafka, auto_offset_reset="earliest")
        await consumer.start()
        consumer.assign([TopicPartition(topic, 0)])
        assert [(await consumer.getone()).value for _ in values] == values
        await consumer.stop()

    run(work())
