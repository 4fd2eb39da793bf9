"""The log beside raw C loops: `make bench ARGS="log"`. Figures are ratios within one run.

Absolute times mean little on a shared machine, so each measurement stands between two runs of
its peer, and the ratio is to their mean. Run it alone: two cores are few.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from perf.programs import BUILD, ROOT, machine, now, program

MIB = 1 << 20
ROUNDS = 5


@dataclass(frozen=True)
class Result:
    name: str
    figure: float
    unit: str
    bar: str
    met: bool
    note: str


def build() -> Path:
    """The C core and the benchmark in one program."""
    return program("log_bench", "csrc/*/*.c")


def prime(size: float | None = None) -> None:
    """A virtual machine gets its memory from the host at the first touch only, at a tenth of the
    speed; page cache is memory, so the first writer would pay for all. Touches half of the memory
    there is, or so many bytes of that: freed memory may soon be the host's again."""
    half = available_memory() * 0.5
    command = [str(build()), "touch", "-", str(int(min(half, size or half)))]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


class Bench:
    def __init__(self, program: Path, folder: Path, seconds: float, scale: float) -> None:
        self.program = program
        self.folder = folder
        self.seconds = seconds
        self.scale = scale

    def run(self, mode: str, *arguments: object, killed: bool = False) -> dict[str, float]:
        command = [self.program, mode, *arguments]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        if done.returncode != (-9 if killed else 0):
            sys.exit(f"{mode}: {done.stderr.strip() or done.returncode}")
        words = done.stdout.split()
        return {key: float(value) for key, value in zip(words[::2], words[1::2], strict=True)}

    def fresh(self, name: str) -> Path:
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        return folder

    def between(
        self, peer: Callable[[], dict[str, float]], ours: Callable[[], dict[str, float]]
    ) -> tuple[float, dict[str, float], float]:
        """(ratio, our figures, the peer's rate)"""
        before = peer()["rate"]
        measured = ours()
        rate = (before + peer()["rate"]) / 2
        return measured["rate"] / rate, measured, rate

    def often(
        self, peer: Callable[[], dict[str, float]], ours: Callable[[], dict[str, float]]
    ) -> tuple[float, dict[str, float], float]:
        """The median of several: for what is over in a second."""
        rounds = [self.between(peer, ours) for _ in range(ROUNDS)]
        return sorted(rounds, key=lambda round: round[0])[ROUNDS // 2]

    def in_fresh_folder(self, mode: str, *arguments: object) -> dict[str, float]:
        """Its files are gone afterwards: their memory and blocks are the next one's."""
        folder = self.fresh(mode)
        folder.mkdir()
        figures = self.run(mode, folder, *arguments)
        self.fresh(mode)
        return figures

    # -- what is measured

    def durable(self, logs: int, bar: float) -> Result:
        ratio, ours, peer = self.between(
            lambda: self.in_fresh_folder("ceiling", self.seconds / 2),
            lambda: self.in_fresh_folder("durable", self.seconds, logs),
        )
        note = (
            f"{ours['rate'] / MIB:.0f} MiB/s beside {peer / MIB:.0f}; "
            f"{ours['checkpoints']:.0f} checkpoints; {ours['cpu'] / ours['seconds']:.2f} cores; "
            f"O_DIRECT {'on' if ours['direct_io'] else 'off'}"
        )
        met = ratio >= bar and ours["checkpoints"] >= 3
        return Result(f"durable 1 KiB into {logs:,} logs", ratio, "× raw", f"≥ {bar}", met, note)

    def asynchronous(self) -> Result:
        size = int(1024 * MIB * self.scale)
        ratio, ours, peer = self.often(
            lambda: self.in_fresh_folder("pagecache", size),
            lambda: self.in_fresh_folder("async", size),
        )
        note = f"{ours['rate'] / MIB:.0f} MiB/s beside {peer / MIB:.0f}"
        return Result("async 1 KiB appends", ratio, "× raw", "≥ 0.6", ratio >= 0.6, note)

    def reading(self) -> list[Result]:
        folder = self.fresh("store")
        self.run("fill", folder, int(1_000_000 * self.scale), 1024)
        segments = sorted(folder.glob("vhosts/*/queues/*/*.log"))
        size = sum(segment.stat().st_size for segment in segments)

        def cat() -> dict[str, float]:
            evict(segments)
            began = time.perf_counter()
            subprocess.run(["cat", *map(str, segments)], stdout=subprocess.DEVNULL, check=True)
            return {"rate": size / (time.perf_counter() - began)}

        def ours() -> dict[str, float]:
            evict(segments)
            return self.run("read", folder)

        ratio, measured, peer = self.often(cat, ours)
        note = f"{measured['rate'] / MIB:.0f} MiB/s beside {peer / MIB:.0f}, every CRC checked"
        looked = self.run("look", folder, 2_000_000)
        return [
            Result("sequential read, cold", ratio, "× cat", "≥ 0.7", ratio >= 0.7, note),
            Result(
                "point look-ups by offset",
                looked["rate"] / 1e6,
                "M/s",
                "≥ 1",
                looked["rate"] >= 1e6 and looked["found"] >= looked["look_ups"],
                "random offsets over all segments, one thread",
            ),
        ]

    def memory_and_restart(self) -> list[Result]:
        results = []
        for count, size, most in ((1_000_000, 1024, 2.0), (10_000_000, 100, 5.0)):
            count = int(count * self.scale)
            folder = self.fresh("store")
            filled = self.run("crash", folder, count, size, killed=True)
            opened = self.run("open", folder)
            again = self.run("open", folder)
            name = f"{count / 1e6:g} M × {size} B"
            whole = opened["ready"] == again["ready"] == count
            anon = filled["rss_anon_kib"] / 1024
            replayed = f"{opened['replayed']:.0f} WAL records replayed"
            results += [
                Result(f"memory with {name}", anon, "MiB", "< 100", anon < 100, "RssAnon"),
                Result(
                    f"ready after SIGKILL, {name}", opened["seconds"], "s", f"< {most:g}",
                    opened["seconds"] < most and whole, replayed,
                ),
                Result(
                    f"ready after a clean stop, {name}", again["seconds"], "s", "< 1",
                    again["seconds"] < 1 and whole, "",
                ),
            ]  # fmt: skip
        return results


def available_memory() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["MemAvailable"].split()[0]) * 1024


def evict(files: list[Path]) -> None:
    """Out of the page cache, so that a read is a read."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def show(results: list[Result], title: str = "The log beside raw C loops, in one run") -> None:
    table = Table(title=title)
    for column in ("what", "figure", "bar", "", "how"):
        table.add_column(column, justify="right" if column == "figure" else "left")
    for result in results:
        mark = "[green]✓[/]" if result.met else "[red]✗[/]"
        figure = f"{result.figure:.2f} {result.unit}"
        table.add_row(result.name, figure, result.bar, mark, result.note)
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.py log", description=__doc__)
    parser.add_argument("--data", type=Path, help="where to write (default: a temporary folder)")
    parser.add_argument("--seconds", type=float, default=10, help="a throughput run's length")
    parser.add_argument("--scale", type=float, default=1, help="share of the full amounts")
    parser.add_argument("--only", default="", help="durable, async, read or restart")
    chosen = parser.parse_args(arguments)
    # Not /tmp: that may be memory, and a sync of it nothing.
    base = chosen.data or BUILD
    base.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=base))
    bench = Bench(build(), folder, chosen.seconds, chosen.scale)
    parts: dict[str, Callable[[], list[Result]]] = {
        "durable": lambda: [
            bench.durable(logs, bar) for logs, bar in ((1, 0.55), (100, 0.5), (10_000, 0.35))
        ],
        "async": lambda: [bench.asynchronous()],
        "read": bench.reading,
        "restart": bench.memory_and_restart,
    }
    try:
        prime()
        wanted = [part for name, part in parts.items() if chosen.only in ("", name)]
        results = [result for part in wanted for result in part()]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show(results)
    report = BUILD / "log_bench.json"
    listed = {"taken": now(), "machine": machine(), "results": [asdict(each) for each in results]}
    report.write_text(json.dumps(listed, indent=2, ensure_ascii=False) + "\n")
    print(f"written to {report.relative_to(ROOT)}")
