"""The audits themselves, as `ottermq audit NAME` runs them: time, rows a second and memory.

Each run is a process of its own, from its start to its report, on two cores. An audit of an empty
directory shows the cost of a start alone: growth is measured without it.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perf.log_bench import Result
from perf.memory import Memory
from perf.ottermq import OtterMQ

JOBS: dict[str, tuple[str, ...]] = {
    "integrity": (),
    "retention": (),
    "flow": (),
    "cost": (),
    "erase-check": ("--key", "load.1", "--key", "nobody"),  # a queue's routing key, and none
}
COUNT = 2
CORES = f"local[{COUNT}]"
LINEAR = 1.2
TIME_LIMIT = 600.0


class AuditFailed(Exception):
    """It ended with 2; the message is what it said."""


@dataclass(frozen=True)
class Audited:
    seconds: float
    memory: str


def audit(name: str, data: Path, out: Path) -> Audited:
    command = [sys.executable, "-P", "-m", "ottermq", "audit", name, "--data", str(data)]
    command += ["--master", CORES, "--out", str(out), "--json", *JOBS[name]]
    began = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as running:
        memory = Memory(running.pid)
        try:
            _, words = running.communicate(timeout=TIME_LIMIT)
        finally:
            running.kill()
            peaks = memory.stop()
    if running.returncode not in (0, 1):
        raise AuditFailed(f"ottermq audit {name}: {words.strip()}")
    return Audited(time.perf_counter() - began, peaks)


def empty(folder: Path) -> Path:
    """The data directory of a broker that was given nothing."""
    with OtterMQ(folder):
        pass
    return folder / "data"


def results(folder: Path, few: Path, many: Path, messages: int, factor: float) -> Iterator[Result]:
    """few has so many messages, and many as many times more."""
    out, nothing = folder / "audited", empty(folder / "nothing")
    rows = int(messages * factor)
    for name in JOBS:
        start, small, large = (audit(name, data, out) for data in (nothing, few, many))
        work = max(small.seconds - start.seconds, 0.01)
        growth = (large.seconds - start.seconds) / (factor * work)
        note = (
            f"{rows:,} messages in {large.seconds:.1f} s ({rows / large.seconds:,.0f} rows/s), "
            f"{messages:,} in {small.seconds:.1f} s, none in {start.seconds:.1f} s; "
            f"at most {large.memory}"
        )
        bar = f"≤ {LINEAR:g}"
        yield Result(f"audit {name}", growth, "× linear", bar, growth <= LINEAR, note)
