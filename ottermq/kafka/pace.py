"""Large requests in small steps: other tasks get their turn in between."""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TypeVar

import trio

LARGE = 256  # elements that are answered in one go

T = TypeVar("T")


async def paced(items: Sequence[T], size: int = LARGE) -> AsyncIterator[T]:
    """`async for each in paced(keys)`"""
    for part in batched(items, size):
        for each in part:
            yield each
        await trio.lowlevel.checkpoint()


def batched(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for at in range(0, len(items), size):
        yield items[at : at + size]
