"""The C programs that measure: compiled into build/perf, again whenever a source changed; where
and when they do."""

import datetime
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "perf"
BUILD = ROOT / "build" / "perf"
FLAGS = ["-std=gnu11", "-O3", "-g", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'csrc'}"]


def program(name: str, *parts: str) -> Path:
    """The program of perf/<name>.c and of the sources that match: csrc/..., or in perf/."""
    sources = [HERE / f"{name}.c", *(source for part in parts for source in _matching(part))]
    headers = [*HERE.glob("*.h"), *(ROOT / "csrc").rglob("*.h")]
    target = BUILD / name
    newest = max(path.stat().st_mtime for path in (*sources, *headers))
    if not target.exists() or target.stat().st_mtime < newest:
        BUILD.mkdir(parents=True, exist_ok=True)
        # Under another name first: a process that runs it meanwhile keeps the old one.
        fresh = BUILD / f"{name}.{os.getpid()}"
        command = ["gcc", *FLAGS, *map(str, sources), "-lpthread", "-o", str(fresh)]
        subprocess.run(command, check=True)
        fresh.replace(target)
    return target


def _matching(part: str) -> list[Path]:
    root = ROOT if part.startswith("csrc/") else HERE
    return sorted(root.glob(part))


def machine() -> str:
    cpus = len(os.sched_getaffinity(0))
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return f"{cpus} cores, {line.partition(':')[2].strip()}"
    return f"{cpus} cores"


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
