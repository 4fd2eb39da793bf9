"""`ottermq segment repair`: what can't be read is cut out, and all the rest is as it was."""

import json
import shutil
import time
from pathlib import Path

import pytest

from tests.amqp.wire import Client
from tests.brokers import Broker, run
from tests.damage.flaws import batches, flip, health, segments
from tests.damage.test_one_flipped_bit import COUNT, PATIENCE, consume, harm, publish


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def files(data: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in data.rglob("*.log*")}


@pytest.mark.parametrize("kind", ["classic", "stream"])
def test_a_bad_batch_is_cut_out_and_the_rest_serves(data: Path, kind: str) -> None:
    with Broker(data) as broker:
        publish(broker, "orders", kind)
    (path,) = segments(data, "orders")
    raw = path.read_bytes()
    lost = harm(path)
    spoilt = path.read_bytes()
    assert run("segment", "verify", str(data)).returncode == 1

    before = files(data)
    said = run("segment", "repair", "--dry-run", "--json", str(data))
    (cut,) = map(json.loads, said.stdout.splitlines())
    assert (cut["first_offset"], cut["last_offset"]) == (min(lost), max(lost))
    assert files(data) == before

    assert run("segment", "repair", str(data)).returncode == 0
    assert path.with_name(f"{path.name}.corrupt-1").read_bytes() == spoilt
    position, size = cut["position"], cut["bytes"]
    pieces = [each.read_bytes() for each in segments(data, "orders")]
    assert b"".join(pieces) == raw[:position] + raw[position + size :]
    checked = run("segment", "verify", str(data))
    assert checked.returncode == 0, checked.stdout
    assert "nothing to repair" in run("segment", "repair", str(data)).stdout

    left = sorted(set(range(COUNT)) - lost)
    with Broker(data) as broker:
        with Client(broker.address("amqp")) as client:
            if kind == "stream":
                assert client.channel().look("orders")[0] == len(left)
        arguments = {"x-stream-offset": "first"} if kind == "stream" else {}
        assert consume(broker, "orders", len(left), **arguments) == left
        assert health(broker)[0] == 200
        limit = time.monotonic() + PATIENCE
        while kind == "classic" and path.exists():  # removed as ever
            assert time.monotonic() < limit
            time.sleep(0.1)


def test_it_refuses_while_a_broker_runs(data: Path) -> None:
    with Broker(data):
        said = run("segment", "repair", str(data))
    assert said.returncode == 2 and "in use" in said.stderr


def test_verify_sees_a_log_whose_folder_is_missing(data: Path) -> None:
    with Broker(data) as broker:
        publish(broker, "orders", "classic")
    (path,) = segments(data, "orders")
    assert run("segment", "verify", str(data)).returncode == 0
    shutil.rmtree(path.parent)
    said = run("segment", "verify", str(data))
    assert said.returncode == 1 and "orders" in said.stdout and "missing" in said.stdout


def test_damage_before_the_recovery_point_is_no_torn_tail(data: Path) -> None:
    """A header below the recovery point that is none: a start once cut off all behind it."""
    with Broker(data) as broker:
        publish(broker, "orders", "classic")
    (path,) = segments(data, "orders")
    size = path.stat().st_size
    position, info = list(batches(path))[-2]
    lost = set(range(info.base_offset, info.base_offset + info.last_offset_delta + 1))
    flip(path, position + 16)  # its magic
    left = sorted(set(range(COUNT)) - lost)
    with Broker(data) as broker:
        assert not [line for line in broker.lines if "184467" in line or "tail cut" in line]
        assert path.stat().st_size == size
        assert consume(broker, "orders", len(left)) == left
