"""Spark over the log: `python -m perf.bench audit`, or `make bench ARGS=audit`.

Messages come from a real broker. The same sums over the same rows are made from the data source,
from a plain Python decoder in a mapPartitions, and from a Parquet file of those rows; figures are
ratios of rows a second within one run, each between two runs of its peer. Run it alone.
"""

import argparse
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ottermq.audit import snapshot
from ottermq.audit.source.datasource import register
from ottermq.audit.spark import start
from perf import load, plain_decoder
from perf.log_bench import Result, show
from perf.ottermq import OtterMQ
from perf.programs import BUILD, ROOT

MIB = 1 << 20
COLUMNS = "vhost,queue,partition,offset,timestamp,size,settled,crc_ok"
PLAIN = "vhost string, queue string, partition int, offset bigint, timestamp bigint, size int"
ROUNDS = 3
ENOUGH = 200_000  # rows for the decoder that takes its time
SIZE, QUEUES = 100, 4


def fill(folder: Path, messages: int) -> Path:
    """The data directory of a broker that was given so many messages."""
    with OtterMQ(folder) as broker:
        what = ("--messages", messages, "--size", SIZE, "--queues", QUEUES, "--persistent")
        load.run(broker.address, *what, "--confirms", 2000, "--consumers", 0, "--keep")
    return folder / "data"


class Bench:
    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder

    def source(self, data: Path) -> DataFrame:
        return self.spark.read.format("ottermq").option("columns", COLUMNS).load(str(data))

    def parquet(self, data: Path) -> DataFrame:
        place = self.folder / "parquet"
        if not place.exists():
            self.source(data).write.parquet(str(place))
        return self.spark.read.parquet(str(place))

    def plain(self, data: Path) -> DataFrame:
        """Of as many segments as hold enough rows."""
        picture = snapshot.take(data)
        places, rows = [], 0
        for log in picture.logs:
            for segment in log.segments:
                if rows < ENOUGH:
                    path = data / log.folder / segment.file
                    places.append((log.vhost, log.queue, log.partition, path))
                    rows += segment.next_offset - segment.base_offset
        tasks = self.spark.sparkContext.parallelize(places, len(places))
        return self.spark.createDataFrame(tasks.mapPartitions(plain_decoder.rows), PLAIN)

    def rate(self, frame: DataFrame) -> float:
        began = time.perf_counter()
        sums = frame.groupBy("vhost", "queue", "partition").agg(
            f.count("*").alias("rows"), f.sum("size"), f.max("offset"), f.max("timestamp")
        )
        rows: int = sum(row["rows"] for row in sums.collect())
        return rows / (time.perf_counter() - began)

    def beside(
        self, ours: Callable[[], float], peer: Callable[[], float]
    ) -> tuple[float, float, float]:
        """(ratio, our rate, the peer's), the median of some rounds."""
        rounds = []
        for _ in range(ROUNDS):
            before = peer()
            rate = ours()
            other = (before + peer()) / 2
            rounds.append((rate / other, rate, other))
        return sorted(rounds)[ROUNDS // 2]

    # -- what is measured

    def against_python(self, data: Path) -> Result:
        frame, plain = self.source(data), self.plain(data)
        ratio, rate, other = self.beside(lambda: self.rate(frame), lambda: self.rate(plain))
        note = f"{rate:,.0f} rows/s beside {other:,.0f}"
        return Result("without bodies", ratio, "× plain Python", "≥ 5", ratio >= 5, note)

    def against_parquet(self, data: Path) -> Result:
        frame, parquet = self.source(data), self.parquet(data)
        ratio, rate, other = self.beside(lambda: self.rate(frame), lambda: self.rate(parquet))
        note = f"{rate:,.0f} rows/s beside {other:,.0f}"
        return Result("without bodies", ratio, "× Parquet", "≥ 0.3", ratio >= 0.3, note)

    def growth(self, few: Path, many: Path, factor: float) -> Result:
        """Seconds for many rows, beside as many times those for few."""
        memory = Memory()
        ratio, rate, other = self.beside(
            lambda: self.rate(self.source(many)), lambda: self.rate(self.source(few))
        )
        peaks = memory.stop()
        note = f"{rate:,.0f} rows/s beside {other:,.0f}; at most {peaks}"
        name = f"{factor:g} times the messages"
        return Result(name, 1 / ratio, "× linear", "≤ 1.2", 1 / ratio <= 1.2, note)


class Memory:
    """The most that this process's children held at once: Java, and Spark's Python workers."""

    def __init__(self) -> None:
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
        while not self._ended.wait(0.1):
            held: dict[str, int] = {}
            for name, size in children(os.getpid()):
                held[name] = held.get(name, 0) + size
            for name, size in held.items():
                self._peaks[name] = max(self._peaks.get(name, 0), size)


def children(of: int) -> Iterator[tuple[str, int]]:
    """Name and resident bytes of all processes below that one."""
    parents: dict[int, list[tuple[int, str, int]]] = {}
    page = os.sysconf("SC_PAGE_SIZE")
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, _, rest = stat.read_text().partition(" (")
        except OSError:
            continue  # it ended
        name, _, rest = rest.rpartition(") ")
        fields = rest.split()
        parents.setdefault(int(fields[1]), []).append((int(pid), name, int(fields[21]) * page))
    waiting = [of]
    while waiting:
        for child, program, size in parents.get(waiting.pop(), []):
            waiting.append(child)
            yield ("java" if program == "java" else "Python workers"), size


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.py audit", description=__doc__)
    parser.add_argument("--data", type=Path, help="where to write (default: a temporary folder)")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--times", type=float, default=10, help="as many more for the large run")
    chosen = parser.parse_args(arguments)
    base = chosen.data or BUILD
    base.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=base))
    try:
        few = fill(folder / "few", chosen.messages)
        many = fill(folder / "many", int(chosen.messages * chosen.times))
        spark = start(folder / "spark.log", "local[2]", {"spark.sql.shuffle.partitions": "2"})
        register(spark)
        bench = Bench(spark, folder)
        bench.rate(bench.source(few))  # the first one loads Java's classes, and compiles them
        results = [
            bench.against_python(many),
            bench.against_parquet(many),
            bench.growth(few, many, chosen.times),
        ]
        spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show(results, "Spark over the log, in one run")
    report = BUILD / "audit_bench.json"
    report.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n")
    print(f"written to {report.relative_to(ROOT)}")
