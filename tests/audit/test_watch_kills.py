"""A watch that is killed, and the broker it publishes to: everything is told, once; or once more
with the same message-id, where nobody could know that it had been."""

import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.audit import sample_data
from tests.audit.sample_data import STREAMS, SampleData
from tests.audit.watch_harness import (
    A_MINUTE,
    STARTS_IN,
    PublishedFinding,
    once,
    soon,
    start_watch,
    told,
    url_of,
    watching,
)
from tests.brokers import Broker

# The watch itself, killed with the signal that can't be caught right before it notes something.
DIES_BEFORE = """
import os, signal, sys
from ottermq.audit.watch.ledger import Ledger
setattr(Ledger, {name!r}, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
from ottermq.cli.main import main
main()
"""


@pytest.mark.long
def test_a_violation_is_in_the_queue_within_a_minute_and_once_over_kills(
    whole: SampleData, tmp_path: Path
) -> None:
    audited, checkpoint = whole.copy(tmp_path / "data"), tmp_path / "watch"
    with Broker(tmp_path / "desk") as desk:
        url, (host, port) = url_of(desk), desk.address("amqp")
        with watching(audited.data, checkpoint, url) as watch:
            audited.remove_a_segment("views")
            [first] = soon(desk)
            assert (first.kind, first.queue) == ("segment-gone", "views")
            assert watch.stdout and " queue=views partition=0 " in watch.stdout.readline()
            desk.stop(signal.SIGKILL)
            audited.remove_a_segment("visits")
            assert " queue=visits " in watch.stdout.readline(), "told while the broker is away"
            time.sleep(random.random())
            watch.kill()
            watch.wait()
    audited.remove_a_segment("taps")
    with (
        Broker(tmp_path / "desk", "--amqp", f"{host}:{port}") as desk,
        watching(audited.data, checkpoint, url) as watch,
    ):
        found: list[PublishedFinding] = []
        deadline = time.monotonic() + A_MINUTE
        while len(found) < 2 and time.monotonic() < deadline:
            # A killed broker forgets acks of the last second: we may get the first again, too.
            found += [each for each in soon(desk) if each.id != first.id]
        assert sorted(each.queue for each in found) == ["taps", "visits"]
        assert watch.stdout
        line = watch.stdout.readline()
        if " queue=visits " in line:  # killed before it could note that it had told
            line = watch.stdout.readline()
        assert " queue=taps " in line
        time.sleep(3)  # some more looks
        assert told(desk) == []


@pytest.mark.long
def test_what_was_confirmed_and_not_noted_comes_again_with_the_same_id(
    spark: SparkSession, whole: SampleData, tmp_path: Path
) -> None:
    harmed = whole.copy(tmp_path / "data")
    harmed.flip_a_bit("clicks")
    harmed.remove_a_segment("likes")
    program = "-c", DIES_BEFORE.format(name="published")
    with Broker(tmp_path / "desk") as desk:
        checkpoint = tmp_path / "watch"
        watch = start_watch(harmed.data, checkpoint, url_of(desk), "--once", program=program)
        assert watch.wait(STARTS_IN) == -signal.SIGKILL
        watch.communicate()
        [first] = told(desk)
        assert once(harmed.data, checkpoint, url_of(desk)) == 1
        again = told(desk)
        assert Counter(each.id for each in again)[first.id] == 1
        assert len({each.id for each in again}) == len(again)
        assert {("damage", "clicks"), ("segment-gone", "likes")} <= {
            (each.kind, each.queue) for each in again
        }


@pytest.mark.soak
def test_a_watch_that_is_killed_at_random_again_and_again_loses_nothing(tmp_path: Path) -> None:
    random.seed(seed := random.randrange(1 << 32))
    print(f"seed {seed}")
    sample = sample_data.fill(tmp_path / "data")
    checkpoint, kills = tmp_path / "watch", 0
    desk = Broker(tmp_path / "desk").__enter__()
    url, (host, port) = url_of(desk), desk.address("amqp")
    lines: list[str] = []
    try:
        for stream in STREAMS:
            watch = start_watch(sample.data, checkpoint, url)
            time.sleep(random.uniform(0, 12))
            sample.remove_a_segment(stream)
            time.sleep(random.uniform(0, 4))
            if random.random() < 0.5:
                desk.stop(signal.SIGKILL)
                kills += 1
                time.sleep(random.uniform(0, 2))
                desk = Broker(tmp_path / "desk", "--amqp", f"{host}:{port}").__enter__()
                time.sleep(random.uniform(0, 4))
            watch.kill()
            watch.wait()
            kills += 1
            words, complaints = watch.communicate()
            assert "Traceback" not in complaints
            lines += words.splitlines()
        watch = start_watch(sample.data, checkpoint, url, "--once")
        words, complaints = watch.communicate(timeout=STARTS_IN)
        assert watch.returncode in (0, 1) and complaints == ""
        found = told(desk)
    finally:
        desk.stop()
    lines += words.splitlines()
    assert sorted({each.queue for each in found}) == sorted(STREAMS)
    ids = Counter(each.id for each in found)
    assert len(ids) == len(STREAMS), "the same violation, the same id"
    assert ids.total() - len(ids) <= kills and max(ids.values()) <= 2, ids
    for stream in STREAMS:
        assert 1 <= sum(f" queue={stream} " in line for line in lines) <= 2
    print(f"{kills} kills, {ids.total() - len(ids)} messages again")
