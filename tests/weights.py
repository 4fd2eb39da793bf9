"""What a broker takes of the machine, weighed on its process.

    with takes_at_most(broker, mib=64, cpu_s=2.0):
        ...                       what somebody does to it

Memory is RssAnon, looked at all the while: its peak counts. With a sanitizer neither says much, and
nothing is asked of them.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.amqp.crowd import memory
from tests.brokers import Broker

MIB = 1 << 20
LOOK = 0.01  # seconds between two looks at the memory


def cpu_seconds(broker: Broker) -> float:
    """The kernel's for it, too."""
    fields = Path(f"/proc/{broker.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Peak(threading.Thread):
    """The most memory that it had meanwhile."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(daemon=True)
        self._pid, self._most, self._over = broker.process.pid, 0, threading.Event()
        self.start()

    def run(self) -> None:
        while not self._over.wait(LOOK):
            self._most = max(self._most, memory(self._pid))

    def end(self) -> int:
        self._over.set()
        self.join()
        return max(self._most, memory(self._pid))


@contextmanager
def takes_at_most(broker: Broker, mib: int, cpu_s: float) -> Iterator[None]:
    """More than before. The broker must still be there at the end."""
    bytes_before, cpu_before, peak = memory(broker.process.pid), cpu_seconds(broker), Peak(broker)
    try:
        yield
    finally:
        most = peak.end()
    if not os.environ.get("OTTERMQ_SANITIZE"):
        took_mib, took_s = (most - bytes_before) / MIB, cpu_seconds(broker) - cpu_before
        assert took_mib <= mib and took_s <= cpu_s, f"{took_mib:.0f} MiB, {took_s:.2f} s of CPU"
