"""kcat, the command line's Kafka client, as Debian packs it: an older librdkafka."""

import shutil
import subprocess
from collections.abc import Callable

import pytest

pytestmark = pytest.mark.skipif(not shutil.which("kcat"), reason="no kcat; .ci/clients installs it")

Unique = Callable[[str], str]


def kcat(kafka: str, *arguments: str, sent: str = "") -> str:
    done = subprocess.run(
        ["kcat", "-b", kafka, *arguments], input=sent, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_in_lines_out(kafka: str, unique: Unique, codec: str) -> None:
    topic = unique("kcat")
    lines = [f"key{n}:value {n}" for n in range(50)]
    kcat(kafka, "-P", "-t", topic, "-K:", "-z", codec, sent="\n".join(lines))
    read = kcat(kafka, "-C", "-t", topic, "-e", "-q", "-o", "beginning", "-f", "%k:%s\n")
    assert read.splitlines() == lines
    tail = kcat(kafka, "-C", "-t", topic, "-e", "-q", "-o", "-3", "-f", "%o\n")
    assert tail.splitlines() == ["47", "48", "49"]


def test_it_lists_what_there_is(kafka: str, unique: Unique) -> None:
    topic = unique("listed")
    kcat(kafka, "-P", "-t", topic, sent="one\n")
    assert f'topic "{topic}" with 1 partitions' in kcat(kafka, "-L")
    assert kcat(kafka, "-Q", "-t", f"{topic}:0:-1").strip().endswith("offset 1")
