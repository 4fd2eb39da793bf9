"""One request's accident ends neither a task that serves other requests nor the broker.

    while True:
        with contained("compaction failed", log=log.name):
            await look_at(log)
        await trio.sleep(INTERVAL)

`except Exception` isn't enough: a panic in a Rust library (cramjam) is a BaseException. A
cancellation, an interrupt and the end of a generator pass through.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from ottermq import eventlog

ENDS = (trio.Cancelled, KeyboardInterrupt, SystemExit, GeneratorExit)


def is_failure(error: BaseException) -> bool:
    """Is it an accident, and not the way in which tasks end?"""
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(ENDS) is None
    return not isinstance(error, ENDS)


@contextmanager
def contained(event: str, **who: object) -> Iterator[None]:
    """A failure inside is logged, with its cause in the fields, and goes no further."""
    try:
        yield
    except BaseException as error:
        if not is_failure(error):
            raise
        eventlog.failure(event, error, **who)
