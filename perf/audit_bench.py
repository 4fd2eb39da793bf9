"""Spark over the log: `python -m perf.bench audit`, or `make bench ARGS=audit`.

Messages come from a real broker. The same sums over the same rows are made from the data source,
from a plain Python decoder in a mapPartitions, and from a Parquet file of those rows; figures are
ratios of rows a second within one run, each between two runs of its peer. Then the audits
themselves go over the same directories (perf/audit_jobs.py). Run it alone.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ottermq.audit import snapshot
from ottermq.audit.source.datasource import register
from ottermq.audit.spark import start
from perf import audit_jobs, load, plain_decoder
from perf.audit_jobs import CORES, COUNT
from perf.log_bench import Result, show
from perf.memory import Memory
from perf.ottermq import OtterMQ
from perf.programs import BUILD, ROOT

COLUMNS = "vhost,queue,partition,offset,timestamp,size,settled,crc_ok"
PLAIN = "vhost string, queue string, partition int, offset bigint, timestamp bigint, size int"
ROUNDS = 3
ENOUGH = 200_000  # rows for the decoder that takes its time
SIZE, QUEUES = 100, 4


def fill(folder: Path, messages: int) -> Path:
    """The data directory of a broker that was given so many messages."""
    with OtterMQ(folder) as broker:
        what = ("--messages", messages, "--size", SIZE, "--persistent", "--confirms", 2000)
        where = ("--queues", QUEUES, "--publishers", QUEUES, "--consumers", 0, "--keep")
        load.run(broker.address, *what, *where)
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
        """Of as many segments as hold enough rows, and one for each core at least."""
        picture = snapshot.take(data)
        places: list[tuple[str, str, int, Path]] = []
        rows = 0
        for log in picture.logs:
            for segment in log.segments:
                if rows < ENOUGH or len(places) < COUNT:
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
        memory = Memory(os.getpid())
        ratio, rate, other = self.beside(
            lambda: self.rate(self.source(many)), lambda: self.rate(self.source(few))
        )
        peaks = memory.stop()
        note = f"{rate:,.0f} rows/s beside {other:,.0f}; at most {peaks}"
        name = f"{factor:g} times the messages"
        return Result(name, 1 / ratio, "× linear", "≤ 1.2", 1 / ratio <= 1.2, note)


def of_source(folder: Path, few: Path, many: Path, factor: float) -> list[Result]:
    spark = start(folder / "spark.log", CORES, {"spark.sql.shuffle.partitions": "2"})
    try:
        register(spark)
        bench = Bench(spark, folder)
        bench.rate(bench.source(few))  # the first one loads Java's classes, and compiles them
        return [
            bench.against_python(many),
            bench.against_parquet(many),
            bench.growth(few, many, factor),
        ]
    finally:
        spark.stop()


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.py audit", description=__doc__)
    parser.add_argument("--data", type=Path, help="where to write (default: a temporary folder)")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--times", type=float, default=10, help="as many more for the large run")
    parser.add_argument("--only", choices=("source", "jobs"), help="the data source, or the audits")
    chosen = parser.parse_args(arguments)
    base = chosen.data or BUILD
    base.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=base))
    try:
        few = fill(folder / "few", chosen.messages)
        many = fill(folder / "many", int(chosen.messages * chosen.times))
        results = []
        if chosen.only != "jobs":
            results += of_source(folder, few, many, chosen.times)
        if chosen.only != "source":
            results += audit_jobs.results(folder, few, many, chosen.messages, chosen.times)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show(results, "Spark over the log, in one run")
    report = BUILD / "audit_bench.json"
    report.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n")
    print(f"written to {report.relative_to(ROOT)}")
