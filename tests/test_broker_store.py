"""A broker process and its log: what survives, what is said, what is refused."""

import errno
import json
import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottermq.wal import LogOptions, Record, Store
from ottermq.wal.verify import verify
from tests import brokers
from tests.brokers import Broker
from tests.faults.rules import Op
from tests.faults.shim import Recording, recorded
from tests.wal.stores import SMALL, die

DAY = 86_400_000


def numbered(store: Store, name: str, count: int) -> None:
    log = store.create(name)
    for i in range(count):
        seq = log.append([Record(b"%d" % i)]).seq
    store.wait(seq)


def read_back(data: Path, name: str) -> list[int]:
    with Store.open(data, SMALL) as store:
        return [int(record.value or b"") for record in store.get(name).records()]


def health(broker: Broker) -> tuple[int, dict[str, Any]]:
    host, port = broker.address("admin")
    try:
        with urllib.request.urlopen(f"http://{host}:{port}/health", timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)


def health_becomes(broker: Broker, status: int) -> dict[str, Any]:
    """The disk is looked at once a second; nothing tells us when."""
    deadline = time.monotonic() + 60
    while (answer := health(broker))[0] != status:
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)
    return answer[1]


# -- what survives


def test_what_was_confirmed_survives_kill_9_of_broker_after_broker(tmp_path: Path) -> None:
    data = tmp_path / "data"
    die(data, lambda store: numbered(store, "orders", 500))
    for _ in range(3):
        with Broker(data) as broker:
            broker.wait_for(r" recovered logs=\d+ ")
            broker.process.send_signal(signal.SIGKILL)
            broker.process.wait(20)
    assert read_back(data, "orders") == list(range(500))


def test_a_clean_stop_leaves_nothing_to_replay(tmp_path: Path) -> None:
    data = tmp_path / "data"
    die(data, lambda store: numbered(store, "orders", 500))
    with Broker(data) as broker:
        line = broker.wait_for(r" INFO recovered logs=\d+ bytes=\d+ replayed=(\d+) took=[\d.]+s$")
        assert int(line[1]) >= 500
        assert broker.stop() == 0
    found = verify(data)
    assert list(found.findings) == []
    assert found.wal and found.wal.records == 0
    with Broker(data) as broker:
        broker.wait_for(r" recovered logs=\d+ bytes=0 replayed=0 ")


def test_queues_go_by_their_rules(tmp_path: Path) -> None:
    """An audit trail keeps what was settled; other queues let it go."""
    data, file = tmp_path / "data", tmp_path / "config.yaml"
    file.write_text(
        "wal: {retention: {check_interval: 1s}}\n"
        "queues: [{match: 'audit.*', retention: {keep_settled: true}}]\n"
    )
    with Store.open(data, SMALL) as store:
        for name in ("audit.orders", "orders"):
            log = store.create(name, options=LogOptions(segment_size=65536, keep_settled=True))
            for _ in range(20):
                store.wait(log.append([Record(bytes(10_000))]).seq)
            store.checkpoint()
            log.settle(0, 19)
    before = {log.name: log.segments for log in verify(data).logs}
    assert before == {"audit.orders": 4, "orders": 4}
    with Broker(data, "--config", str(file), env={"OTTERMQ_LOG__LEVEL": "debug"}) as broker:
        line = broker.wait_for(r" DEBUG segments expired log=(\S+) rule=settled segments=3 ")
        assert line[1] == "orders"
    after = {log.name: log.segments for log in verify(data).logs}
    assert after == {"audit.orders": 4, "orders": 1}


def test_what_is_too_old_goes_and_is_told(tmp_path: Path) -> None:
    data = tmp_path / "data"
    old = time.time_ns() // 1_000_000 - 2 * DAY
    with Store.open(data, SMALL) as store:
        store.wait(store.create("orders").append([Record(b"late", timestamp=old)]).seq)
    assert [log.segments for log in verify(data).logs] == [1]
    with Broker(data, env={"OTTERMQ_WAL__RETENTION__MAX_AGE": "1d"}) as broker:
        broker.wait_for(" INFO segments expired log=orders rule=max_age segments=1 first=0 last=0 ")
    assert [log.segments for log in verify(data).logs] in ([], [0])


# -- what is refused


def test_a_damaged_checkpoint_is_one_line_and_ends_with_1(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Store.open(data, SMALL) as store:
        numbered(store, "orders", 5)
    data.chmod(0o750)
    checkpoint = data / "checkpoint"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1] + b"?")
    ended = brokers.run("serve", "--data", str(data), "--amqp", "127.0.0.1:0",
                        "--kafka", "127.0.0.1:0", "--admin", "127.0.0.1:0")  # fmt: skip
    assert ended.returncode == 1, ended.stderr
    assert ended.stderr.count("\n") == 1
    assert re.match(rf"ottermq: data directory {data}: .*checkpoint is damaged", ended.stderr)


def test_corruption_is_reported_and_the_rest_serves(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Store.open(data, SMALL) as store:
        log = store.create("orders", options=LogOptions(segment_size=65536))
        for _ in range(20):
            store.wait(log.append([Record(bytes(10_000))]).seq)
            store.checkpoint()
        second = log.segments()[1]
    [path] = data.rglob(f"{second.base_offset:020}.log")
    path.unlink()
    with Broker(data) as broker:
        last = second.next_offset - 1
        broker.wait_for(
            f" ERROR log corrupt log=orders first={second.base_offset} last={last} text="
        )
        status, body = health(broker)
        assert (status, body["status"]) == (503, "damaged")


# -- recovery that takes its time


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Recording]:
    """A data directory with many logs to scan, on a disk that takes long to open each."""
    data = tmp_path / "data"

    def life(store: Store) -> None:
        logs = store.create_many([f"q{i}" for i in range(100)])
        for log in logs:
            seq = log.append([Record(b"hello")], unlogged=True).seq
        store.wait(seq)
        while any(log.stat().hot_batches for log in logs):
            time.sleep(0.001)

    die(data, life)
    with recorded(tmp_path, root=data, real_sync=True) as recording:
        recording.faults.delay(Op.OPEN, "vhosts/*.log", seconds=0.05)
        yield recording


def environment(recording: Recording) -> dict[str, str]:
    ours = recording.environment()
    return {name: ours[name] for name in ours if name.startswith(("OTTERMQ_SHIM", "LD_", "PYTHON"))}


def test_a_long_recovery_is_told_as_it_goes(slow: Recording) -> None:
    with Broker(slow.root, env=environment(slow)) as broker:
        lines = [line for line in broker.lines if " recover" in line]
    assert all(" INFO recovering done=" in line for line in lines[:-1]) and len(lines) >= 2
    assert " INFO recovered logs=100 " in lines[-1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_recovery_ends_it_soon_and_cleanly(
    slow: Recording, number: signal.Signals
) -> None:
    slow.faults.clear()
    slow.faults.delay(Op.OPEN, "vhosts/*.log", seconds=1)  # nearly a minute, left alone
    broker = Broker(slow.root, env=environment(slow))
    broker.wait_for(" recovering done=")
    asked = time.monotonic()
    assert broker.stop(number) == 0
    assert time.monotonic() - asked < 20
    said = [line.split(" ", 2)[2] for line in broker.lines]
    said = [text for text in said if not text.startswith("recovering done=")]
    assert said[-3:] == [f"stopping signal={number.name}", "recovery interrupted", "stopped"]
    slow.faults.clear()
    with Broker(slow.root) as broker:
        broker.wait_for(" recovered logs=100 ")


# -- a disk in trouble


def test_health_tells_of_a_disk_that_fills_and_of_its_recovery(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with recorded(tmp_path, root=data, real_sync=True) as recording:
        env = {**environment(recording), "OTTERMQ_WAL__LOW_SPACE_LIMIT": "16MiB"}
        with Broker(data, env=env) as broker:
            assert health(broker)[0] == 200
            recording.faults.report_free_space(1 << 20)
            assert health_becomes(broker, 503) == {
                "status": "refusing appends",
                "reason": "too little space left on the disk",
            }
            broker.wait_for(' ERROR no disk space text="1 MiB left')
            recording.faults.report_free_space(None)
            health_becomes(broker, 200)
            broker.wait_for(" INFO disk space back text=")


def test_health_tells_of_a_fence(tmp_path: Path) -> None:
    """What is written here is retention's: one queue after the other expires."""
    data = tmp_path / "data"
    now = time.time_ns() // 1_000_000
    with Store.open(data, SMALL) as store:
        for i, log in enumerate(store.create_many([f"q{i}" for i in range(40)])):
            store.wait(log.append([Record(b"soon", timestamp=now + 500 * i)]).seq)
    with recorded(tmp_path, root=data, real_sync=True) as recording:
        env = {
            **environment(recording),
            "OTTERMQ_WAL__RETENTION__MAX_AGE": "1s",
            "OTTERMQ_WAL__RETENTION__CHECK_INTERVAL": "1s",
            "OTTERMQ_WAL__DIRECT_IO": "off",
        }
        broker = Broker(data, env=env)
        broker.wait_for(brokers.READY)
        recording.faults.fail(Op.FDATASYNC, "wal/0*.wal", error=errno.EIO)
        broker.wait_for(" ERROR wal fenced text=")
        assert "fenced" in health_becomes(broker, 503)["reason"]
        assert broker.stop() == 1
    assert broker.lines[-1].startswith("ottermq: stopped without a checkpoint: ")
