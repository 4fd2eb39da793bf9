"""amqp-tools: librabbitmq's command line programs, as Debian packs them."""

import shutil
import subprocess
from collections.abc import Callable

import pytest

pytestmark = pytest.mark.skipif(
    not shutil.which("amqp-publish"), reason="no amqp-tools; .ci/clients installs them"
)

Unique = Callable[[str], str]
Tool = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture
def tool(url: str) -> Tool:
    """`tool("get", "-q", name)` runs amqp-get."""

    def run(name: str, *arguments: str, sent: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [f"amqp-{name}", "-u", url, *arguments], input=sent, capture_output=True, timeout=60
        )

    return run


@pytest.fixture
def queue(tool: Tool, unique: Unique) -> str:
    name = unique("tools")
    declared = tool("declare-queue", "-q", name, "-d")
    assert declared.stdout.decode().strip() == name
    return name


def test_publish_and_get(tool: Tool, queue: str) -> None:
    assert tool("publish", "-r", queue, "-p", "-b", "hello").returncode == 0
    got = tool("get", "-q", queue)
    assert (got.returncode, got.stdout) == (0, b"hello")
    assert tool("get", "-q", queue).returncode != 0  # empty
    assert tool("delete-queue", "-q", queue).stdout.strip() == b"0"


def test_a_large_body_goes_through(tool: Tool, queue: str) -> None:
    body = bytes(range(256)) * 4000
    assert tool("publish", "-r", queue, sent=body).returncode == 0
    assert tool("get", "-q", queue).stdout == body


def test_consume_hands_each_message_to_a_command(tool: Tool, queue: str) -> None:
    for number in range(3):
        tool("publish", "-r", queue, "-b", f"{number}\n")
    got = tool("consume", "-q", queue, "-c", "3", "-p", "1", "cat")
    assert (got.returncode, got.stdout) == (0, b"0\n1\n2\n")


def test_consume_by_an_exchange_and_its_own_queue(tool: Tool, url: str, unique: Unique) -> None:
    key = unique("key")
    consumer = subprocess.Popen(
        ["amqp-consume", "-u", url, "-e", "amq.topic", "-r", key, "-c", "1", "cat"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert consumer.stderr
        consumer.stderr.readline()  # "Server provided queue name: …": it is declared
        while consumer.poll() is None:  # bound a moment later: publish until it has one
            tool("publish", "-e", "amq.topic", "-r", key, "-b", "x")
            try:
                consumer.wait(0.2)
            except subprocess.TimeoutExpired:
                pass
        assert consumer.stdout
        assert consumer.stdout.read() == b"x"
    finally:
        consumer.kill()
        consumer.communicate()


def test_errors_are_told(tool: Tool) -> None:
    got = tool("get", "-q", "no-such-queue")
    assert got.returncode != 0
    assert b"NOT_FOUND - no queue 'no-such-queue' in vhost '/'" in got.stderr


def test_delete_tells_how_many_messages_went(tool: Tool, queue: str) -> None:
    tool("publish", "-r", queue, "-b", "x")
    assert tool("delete-queue", "-q", queue).stdout.strip() == b"1"
