"""SIGTERM and SIGINT stop the broker, SIGHUP asks it to read its configuration again."""

import signal
from collections.abc import AsyncIterator
from contextlib import suppress

import trio

from ottermq import eventlog

HEEDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def ignore_signals() -> None:
    """Until somebody listens for them, and after: the default would end the process."""
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)


async def heed(
    signals: AsyncIterator[int], stop: trio.Event, reload: "trio.MemorySendChannel[None]"
) -> None:
    """The first signal that stops us does; more of them don't make it faster, nor unclean."""
    async for number in signals:
        name = signal.Signals(number).name
        if number == signal.SIGHUP:
            if stop.is_set():
                eventlog.info("configuration not reloaded", signal=name, reason="stopping")
            else:
                eventlog.info("configuration reloading", signal=name)
            with suppress(trio.WouldBlock):  # one waits already: it sees what this one would
                reload.send_nowait(None)
        elif not stop.is_set():
            eventlog.info("stopping", signal=name)
            stop.set()
