"""A broker as its operator meets it: start, listeners, signals, refusals."""

import http.client
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottermq.errors import StartupError
from ottermq.process.lockfile import claim
from tests import brokers
from tests.brokers import ANY_PORT, PATIENCE, Broker


def all_that_comes(address: tuple[str, int], sent: bytes = b"") -> bytes:
    """Send, and read up to the end that the broker makes."""
    with socket.create_connection(address, timeout=PATIENCE) as sock:
        sock.sendall(sent)
        received = b""
        while part := sock.recv(4096):
            received += part
        return received


# -- the listeners


@pytest.mark.parametrize("hello", [b"AMQP\x00\x00\x09\x00", b"AMQP\x03\x01\x00\x00", b"GET /"])
def test_the_amqp_port_answers_any_other_protocol_with_its_header(
    broker: Broker, hello: bytes
) -> None:
    assert all_that_comes(broker.address("amqp"), hello) == b"AMQP\x00\x00\x09\x01"


@pytest.mark.parametrize("hello", [b"AMQP\x00\x00\x09\x01", b"GET / HTTP/1.1\r\n\r\n"])
def test_the_kafka_port_closes_without_a_reset(broker: Broker, hello: bytes) -> None:
    assert all_that_comes(broker.address("kafka"), hello) == b""


def test_each_connection_leaves_one_line(broker: Broker) -> None:
    for listener, line in (
        ("amqp", 'WARNING connection rejected listener=amqp peer={} reason="wrong protocol"'),
        ("kafka", 'WARNING connection rejected listener=kafka peer={} reason="wrong protocol"'),
    ):
        with socket.create_connection(broker.address(listener), timeout=PATIENCE) as sock:
            sock.sendall(b"12345678")
            host, port = sock.getsockname()
            while sock.recv(100):
                pass
        broker.wait_for(line.format(f"{host}:{port}"))


def test_the_admin_port_tells_that_all_is_well(broker: Broker) -> None:
    connection = http.client.HTTPConnection(*broker.address("admin"), timeout=PATIENCE)
    connection.request("GET", "/health")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b'{"status":"ok"}')
    connection.close()


def test_the_ready_line_tells_where_the_data_is(broker: Broker) -> None:
    assert broker.wait_for(brokers.READY)["data"] == str(broker.data)
    assert (broker.data / "lock").read_text() == f"{broker.process.pid}\n"


# -- the end


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with Broker(tmp_path / "data") as broker:
        # Whoever is still talking doesn't hold it up.
        with socket.create_connection(broker.address("amqp"), timeout=PATIENCE):
            assert broker.stop(number) == 0
    assert [line.split(" ", 2)[2] for line in broker.lines[-2:]] == [
        f"stopping signal={number.name}",
        "stopped",
    ]
    assert (tmp_path / "data" / "lock").read_text() == ""


def test_after_a_kill_the_data_directory_can_be_claimed_again(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        assert broker.stop(signal.SIGKILL) == -signal.SIGKILL
    with Broker(tmp_path / "data") as broker:
        assert broker.stop() == 0


def test_systemd_hears_when_it_is_ready_and_when_it_stops(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE)
        broker = Broker(tmp_path / "data", env={"NOTIFY_SOCKET": str(tmp_path / "notify")})
        try:
            assert manager.recv(100) == b"READY=1"
            assert all_that_comes(broker.address("kafka"), b"GET /HTTP") == b""
        finally:
            assert broker.stop() == 0
        assert manager.recv(100) == b"STOPPING=1"


def test_a_service_manager_that_is_gone_stops_nobody(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", env={"NOTIFY_SOCKET": "@nobody-listens-here"}) as broker:
        assert broker.stop() == 0


# -- refusals


def test_a_second_broker_on_the_same_data_is_refused(broker: Broker) -> None:
    second = brokers.run("serve", "--data", str(broker.data))
    assert second.returncode == 1
    assert second.stderr == (
        f"ottermq: data directory {broker.data}:"
        f" in use by the broker with pid {broker.process.pid}\n"
    )


@pytest.mark.parametrize("listener", ANY_PORT)
def test_a_port_in_use_is_one_line(broker: Broker, tmp_path: Path, listener: str) -> None:
    taken = "{}:{}".format(*broker.address(listener))
    flags = [
        part
        for name, place in (ANY_PORT | {listener: taken}).items()
        for part in (f"--{name}", place)
    ]
    second = brokers.run("serve", "--data", str(tmp_path), *flags)
    assert second.returncode == 1
    assert second.stderr == f"ottermq: {listener}: can't listen on {taken}: the port is in use\n"


def test_a_host_that_is_not_ours_is_one_line(tmp_path: Path) -> None:
    second = brokers.run("serve", "--data", str(tmp_path), "--amqp", "192.0.2.1:5672")
    assert second.returncode == 1
    assert second.stderr == (
        "ottermq: amqp: can't listen on 192.0.2.1:5672: Cannot assign requested address\n"
    )


def test_a_wrong_variable_is_one_line_and_ends_with_2(tmp_path: Path) -> None:
    wrong = brokers.run("serve", "--data", str(tmp_path), env={"OTTERMQ_LOG__LEVL": "info"})
    assert wrong.returncode == 2
    assert wrong.stderr == (
        "ottermq: OTTERMQ_LOG__LEVL: log.levl = info: no such key;"
        " the nearest is log.level: debug, info, warning or error\n"
    )


# -- the data directory


def refusal(data: Path) -> str:
    with pytest.raises(StartupError) as caught, claim(data):
        pass
    return str(caught.value)


def test_a_file_is_no_data_directory(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    assert refusal(tmp_path / "data") == f"data directory {tmp_path / 'data'}: a file, not a folder"


def test_a_data_directory_needs_its_parent(tmp_path: Path) -> None:
    data = tmp_path / "typo" / "data"
    assert refusal(data) == f"data directory {data}: {data.parent} doesn't exist"
    assert refusal(Path("/proc/self/status/data")).endswith("can't make it: Not a directory")


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "precious")
    assert "can't write" in refusal(tmp_path)
    assert not (tmp_path / "precious").exists()


def test_a_holder_without_a_pid_is_another_broker(tmp_path: Path) -> None:
    with claim(tmp_path):
        (tmp_path / "lock").write_text("")
        assert refusal(tmp_path) == f"data directory {tmp_path}: in use by another broker"


@pytest.fixture
def read_only() -> Iterator[Path]:
    """A folder we may look into but not write to; root becomes someone else for a moment."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)
    yield folder
    if was_root:
        os.seteuid(0)
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_data_directory_must_be_writable(read_only: Path) -> None:
    assert refusal(read_only) == f"data directory {read_only}: can't write: Permission denied"
    inner = read_only / "data"
    assert refusal(inner) == f"data directory {inner}: can't make it: Permission denied"
