"""The memory of a Spark program: its driver's Python, Java, and Spark's Python workers."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

MIB = 1 << 20
DRIVER, JAVA, WORKERS = "driver's Python", "Java", "Python workers"
INTERVAL = 0.1  # seconds


class Memory:
    """The most that a process and those below it held at once, by kind. Pages that workers share
    count for each of them."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peaks: dict[str, int] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> str:
        self._ended.set()
        self._thread.join()
        told = (f"{name} {size / MIB:,.0f} MiB" for name, size in sorted(self._peaks.items()))
        return ", ".join(told)

    def _watch(self) -> None:
        while not self._ended.wait(INTERVAL):
            held: dict[str, int] = {}
            for name, size in family(self._pid):
                held[name] = held.get(name, 0) + size
            for name, size in held.items():
                self._peaks[name] = max(self._peaks.get(name, 0), size)


def family(pid: int) -> Iterator[tuple[str, int]]:
    """Kind and resident bytes of that process and all below it."""
    children: dict[int, list[int]] = {}
    known: dict[int, tuple[str, int]] = {}
    page = os.sysconf("SC_PAGE_SIZE")
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, _, rest = stat.read_text().partition(" (")
        except OSError:
            continue  # it ended
        name, _, rest = rest.rpartition(") ")
        fields = rest.split()
        children.setdefault(int(fields[1]), []).append(int(number))
        known[int(number)] = (JAVA if name == "java" else WORKERS), int(fields[21]) * page
    if pid in known:
        yield DRIVER, known[pid][1]
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(), []):
            waiting.append(child)
            yield known[child]
