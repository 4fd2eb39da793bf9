"""`ottermq segment`: what it prints, for people and for programs, and the code it ends with."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ottermq.cli.main import ottermq
from ottermq.wal import RemovalReason, Store
from tests import brokers
from tests.brokers import Broker
from tests.wal.stopped_store import StoppedStore, fill, flip
from tests.wal.stores import SMALL


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> StoppedStore:
    return fill(tmp_path_factory.mktemp("stopped") / "data")


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(ottermq, ["segment", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def items(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.output.splitlines()]


# -- dump


def test_a_dump_is_a_heading_and_a_line_a_batch(whole: StoppedStore) -> None:
    result = run("dump", whole.segments()[0])
    heading, first, *_ = result.output.splitlines()
    assert result.exit_code == 0
    assert heading.split()[:4] == ["position", "bytes", "offsets", "records"]
    assert first.split()[0] == "0" and "0–9" in first and first.endswith("ok")


def test_records_show_key_value_and_headers(whole: StoppedStore) -> None:
    lines = run("dump", "--records", whole.segments()[0]).output.splitlines()
    assert 'offset 0  2027-01-15 08:00:00.000  key "key"  value 1,010 bytes "order 0000' in lines[2]
    assert lines[2].endswith('…  headers {"n": "1"}')


def test_json_is_an_object_a_line(whole: StoppedStore) -> None:
    found = items(run("dump", "--json", "--records", whole.segments()[0]))
    assert [item["kind"] for item in found[:3]] == ["batch", "record", "record"]
    assert found[0]["last_offset"] == 9 and found[0]["problem"] is None
    assert found[1]["key"] == "key" and found[1]["headers"] == [{"key": "n", "value": "1"}]


def test_bytes_that_are_no_text_are_base64_in_json(tmp_path: Path) -> None:
    from ottermq.wal import Record

    with Store.open(tmp_path, SMALL) as store:
        store.wait(store.create("raw").append([Record(b"\xff\x00")]).seq)
    [path] = tmp_path.rglob("*.log")
    assert items(run("dump", "--json", "--records", path))[1]["value"] == {"base64": "/wA="}
    assert "value 2 bytes 0xff00" in run("dump", "--records", path).output


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("vhosts/*/queues/orders.1/*060.index", "offset     position"),
        ("vhosts/*/queues/orders.1/*060.timeindex", "timestamp (UTC)"),
        ("vhosts/*/queues/orders.1/manifest", 'log 1, "orders"'),
        ("checkpoint", "2 logs; the WAL is needed from sequence"),
        ("wal/0*.wal", "WAL file 1 of epoch 1"),
        ("wal/spare*.wal", "a spare file"),
        ("removals/*.removals", ""),
    ],
)
def test_every_kind_of_file_can_be_shown(whole: StoppedStore, pattern: str, expected: str) -> None:
    path = next(whole.data.glob(pattern))
    result = run("dump", path)
    assert result.exit_code == 0 and expected in result.output
    assert all(item["kind"] for item in items(run("dump", "--json", path)))


def test_a_removal_is_shown_with_its_rule(whole: StoppedStore, tmp_path: Path) -> None:
    data = whole.copy(tmp_path / "data").data
    with Store.open(data, SMALL) as store:
        store.get("orders").trim(60, RemovalReason.DELETE_RECORDS)
    [path] = data.glob("removals/*.removals")
    heading, life, first = run("dump", path).output.splitlines()
    assert "rule" in heading and " life " in life
    assert "delete_records" in first and "0–59" in first and first.endswith('"orders"')
    [_, item] = items(run("dump", "--json", path))
    assert item["vhost"] == "/" and item["segment"] == 0 and item["size"] > 60_000


def test_damage_is_shown_and_ends_with_1(whole: StoppedStore, tmp_path: Path) -> None:
    path = whole.copy(tmp_path / "data").segments()[0]
    flip(path, 100)
    result = run("dump", path)
    assert result.exit_code == 1
    assert result.output.splitlines()[1].endswith("wrong checksum")


@pytest.mark.parametrize("name", ["missing.log", "notes.txt", "."])
def test_what_cant_be_shown_is_one_line_and_ends_with_2(tmp_path: Path, name: str) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    ended = brokers.run("segment", "dump", str(tmp_path / name))
    assert ended.returncode == 2
    assert ended.stderr.startswith("ottermq: ") and ended.stderr.count("\n") == 1


def test_a_pipe_that_closes_early_is_no_error(whole: StoppedStore) -> None:
    command = brokers.command(["segment", "dump", "--records", str(whole.segments()[0])])
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""


def test_there_is_colour_on_a_terminal_only(whole: StoppedStore) -> None:
    assert "\x1b[" not in run("dump", whole.segments()[0]).output
    coloured = CliRunner().invoke(
        ottermq, ["segment", "dump", str(whole.segments()[0])], color=True
    )
    assert "\x1b[32mok" in coloured.output


# -- verify


def test_a_clean_directory_ends_with_0(whole: StoppedStore) -> None:
    result = run("verify", whole.data)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].split() == ["log", "segments", "batches", "records", "bytes", "state"]
    assert lines[-1].startswith("2 logs, ") and lines[-1].endswith(
        "0 WAL records to replay: all well"
    )


def test_a_problem_is_told_with_its_place_and_ends_with_1(
    whole: StoppedStore, tmp_path: Path
) -> None:
    stopped = whole.copy(tmp_path / "data")
    flip(stopped.segments()[0], 100)
    result = run("verify", stopped.data)
    assert result.exit_code == 1
    place = stopped.segments()[0].relative_to(stopped.data)
    assert f"problem {place} at byte 0: " in result.output
    assert result.output.endswith(": 1 problem\n")


def test_verify_in_json_is_logs_findings_and_a_summary(whole: StoppedStore, tmp_path: Path) -> None:
    stopped = whole.copy(tmp_path / "data")
    flip(stopped.segments()[0], 100)
    found = items(run("verify", "--json", stopped.data))
    assert [item["kind"] for item in found] == ["log", "log", "problem", "summary"]
    assert found[2]["position"] == 0
    assert found[3]["records"] == 320 and found[3]["problems"] == 1


@pytest.mark.parametrize("name", ["missing", "."])
def test_what_cant_be_checked_is_one_line_and_ends_with_2(tmp_path: Path, name: str) -> None:
    ended = brokers.run("segment", "verify", str(tmp_path / name))
    assert ended.returncode == 2
    assert ended.stderr.startswith("ottermq: ") and ended.stderr.count("\n") == 1


def test_a_running_broker_can_be_looked_at(whole: StoppedStore, tmp_path: Path) -> None:
    stopped = whole.copy(tmp_path / "data")
    with Broker(stopped.data):
        assert run("verify", stopped.data).exit_code == 0
        assert run("dump", stopped.segments()[-1]).exit_code == 0
        assert run("dump", stopped.data / "checkpoint").exit_code == 0
