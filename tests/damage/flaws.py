"""Flaws in the files of a data directory, and what a broker makes of them."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ottermq._core import ffi, lib
from tests.brokers import Broker


def flip(path: Path, position: int, bit: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))


def batches(path: Path) -> Iterator[tuple[int, Any]]:
    """(position, header) of each batch of a segment that is whole."""
    raw, at = path.read_bytes(), 0
    data = ffi.from_buffer("uint8_t[]", raw)
    while at < len(raw):
        info = ffi.new("om_batch_info *")
        assert lib.om_batch_check(data + at, len(raw) - at, info) == lib.OM_OK
        yield at, info
        at += info.size


def segments(data: Path, name: str, vhost: str = "%2F") -> list[Path]:
    return sorted(data.glob(f"vhosts/{vhost}/queues/{name}.*/*.log"))


def health(broker: Broker) -> tuple[int, dict[str, str]]:
    host, port = broker.address("admin")
    try:
        with urllib.request.urlopen(f"http://{host}:{port}/health", timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def metric(broker: Broker, name: str) -> float:
    host, port = broker.address("admin")
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=30) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
    raise AssertionError(f"no {name}")
