"""One run of the load generator, and its results."""

import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perf.programs import program


class LoadFailed(Exception):
    """The broker hung up, lost or altered messages, or stood still; the message says which."""


@dataclass(frozen=True)
class Confirms:
    """Microseconds from when a message was due to its confirm."""

    p50: float
    p90: float
    p99: float
    p999: float
    max: float


@dataclass(frozen=True)
class Sample:
    """Counts so far, some seconds after the start."""

    time: float
    published: int
    confirmed: int
    delivered: int


@dataclass(frozen=True)
class Load:
    seconds: float
    published: int
    confirmed: int
    delivered: int
    published_rate: float
    confirmed_rate: float
    delivered_rate: float
    passed_rate: float  # everything, from the first publish to the last delivery
    all_seconds: float
    cpu: float  # cores the generator itself took
    watched_cpu: float  # and those of the process group it was told to watch
    series: tuple[Sample, ...]
    confirm_us: Confirms | None = None


def run(address: tuple[str, int], *options: object, time_limit: float = 600) -> Load:
    """Options as `amqp_load --help` lists them."""
    generator = program("amqp_load", "load_*.c", "measure.c")
    return decode(play(generator, address, options, time_limit))


def play(
    generator: Path, address: tuple[str, int], options: Iterable[object], time_limit: float
) -> dict[str, Any]:
    """The results of a generator."""
    place = f"{address[0]}:{address[1]}"
    command = [str(generator), "--address", place, *map(str, options)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=time_limit)
    except subprocess.TimeoutExpired as error:
        raise LoadFailed(f"no end after {time_limit:g} s") from error
    if done.returncode:
        raise LoadFailed(done.stderr.strip() or f"exit code {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def decode(found: dict[str, Any]) -> Load:
    confirms = Confirms(**found.pop("confirm_us")) if "confirm_us" in found else None
    series = tuple(Sample(*each) for each in found.pop("series"))
    return Load(**found, series=series, confirm_us=confirms)
