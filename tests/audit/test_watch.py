"""`ottermq audit watch`: each violation is in the queue within a minute, and once."""

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottermq.audit.errors import CantRun
from ottermq.audit.findings import Finding, Severity
from ottermq.audit.watch import loop
from ottermq.audit.watch.ledger import Ledger, Reached, Seen, Sequence, identity
from ottermq.config import load
from tests.audit import logs, sample_data
from tests.audit.sample_data import SampleData
from tests.audit.watch_harness import once, told, url_of
from tests.brokers import Broker


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Another broker, where violations are published."""
    with Broker(tmp_path_factory.mktemp("desk") / "data") as broker:
        yield broker


def test_each_harm_is_told_once_and_nothing_else_is(
    spark: SparkSession,
    whole: SampleData,
    desk: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(loop, "MOST_ROWS", 300)  # some micro-batches, not one
    harmed, checkpoint = whole.copy(tmp_path / "data"), tmp_path / "new" / "watch"
    harmed.flip_a_bit("clicks")
    harmed.remove_a_segment("views")
    harmed.forget_a_segment("visits")
    harmed.forget_a_segment("orders")
    assert once(harmed.data, checkpoint, url_of(desk)) == 1
    messages = told(desk)
    assert sorted((each.kind, each.queue) for each in messages) == [
        ("damage", "clicks"),
        ("gap", "orders"),
        ("no-record", "visits"),
        ("segment-gone", "views"),
    ]
    assert len({each.id for each in messages}) == 4
    assert {each.properties.delivery_mode for each in messages} == {2}
    assert {each.properties.content_type for each in messages} == {"application/json"}
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    [damage] = [line for line in lines if " violation damage " in line]
    place = r"vhost=/ queue=clicks partition=0 segment=(\d{20}) offsets=(\d+): "
    named = re.search(place, damage)
    assert named and int(named[1]) < int(named[2])  # its second batch
    assert all(" offsets=" in line for line in lines)
    assert sum(" segment=" in line for line in lines) == 3  # nobody knows the one of `visits`

    assert once(harmed.data, checkpoint, url_of(desk)) == 0
    assert (told(desk), capsys.readouterr()) == ([], ("", ""))

    harmed.write_a_batch_again("payments-0")  # what it repeats came with an earlier micro-batch
    assert once(harmed.data, checkpoint, url_of(desk)) == 1
    assert [(each.kind, each.queue) for each in told(desk)] == [("duplicate-sequence", "payments")]

    # As a kill leaves it, after the batch was noted and before Spark knows it was done.
    batches = [path for path in (checkpoint / "stream/commits").iterdir() if path.name.isdigit()]
    last = max(batches, key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    assert once(harmed.data, checkpoint, url_of(desk)) == 0
    assert told(desk) == []


def test_what_a_broker_that_is_away_missed_it_gets_later(
    spark: SparkSession,
    whole: SampleData,
    desk: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(loop, "ONCE_WAITS", 2.0)
    monkeypatch.setattr(loop, "TRY_AGAIN", 0.1)
    harmed = whole.copy(tmp_path / "data")
    harmed.remove_a_segment("views")
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = server.getsockname()[1]
    with pytest.raises(CantRun, match="1 not published yet"):
        once(harmed.data, tmp_path / "watch", f"amqp://guest:secret@127.0.0.1:{nobody}/")
    out, err = capsys.readouterr()
    assert out.count("segment-gone") == 1
    assert err == (f"ottermq: can't publish to 127.0.0.1:{nobody}: Connection refused; trying on\n")
    assert once(harmed.data, tmp_path / "watch", url_of(desk)) == 0
    assert [(each.kind, each.queue) for each in told(desk)] == [("segment-gone", "views")]
    assert capsys.readouterr() == ("", "")


def test_a_directory_in_use_under_load_is_clean(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, config = tmp_path / "data", load(environ=logs.SMALL_SEGMENTS)
    with Broker(data, env=logs.SMALL_SEGMENTS) as broker:
        sample_data.write_amqp(broker)
        sample_data.write_kafka(broker)
        with sample_data.under_load(broker):
            for _ in range(2):
                code = once(data, tmp_path / "watch", None, config)
                assert (code, capsys.readouterr().out) == (0, "")


# -- the ledger


GONE = Finding("segment-gone", Severity.VIOLATION, "gone", "/", "views", 0, 60, 119, 60)


def test_a_violation_is_noted_once_and_waits_until_it_is_published(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, Path("/data"))
    assert ledger.note({"a": GONE}) == 1
    assert ledger.note({"a": GONE}) == 0
    ledger.close()
    ledger = Ledger(tmp_path, Path("/data"))
    [notice] = ledger.unpublished()
    assert json.loads(notice.body)["segment"] == 60
    ledger.published(notice)
    assert ledger.unpublished() == [] and ledger.unprinted() == [notice]
    ledger.close()


def test_what_is_known_of_a_log_goes_with_it(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, Path("/data"))
    sequences = {(1, 7): Sequence(0, 5, 50), (2, 7): Sequence(0, 6, 60)}
    ledger.note_batch(3, Seen({}, {1: Reached(60, 1), 2: Reached(70, 1)}, sequences))
    ledger.forget_all_but([2])
    assert ledger.reached() == {2: Reached(70, 1)}
    assert (ledger.sequence(1, 7), ledger.sequence(2, 7)) == (None, Sequence(0, 6, 60))
    assert ledger.knows_batch(3) and not ledger.knows_batch(4)
    ledger.close()


def test_a_queue_declared_again_is_another_one() -> None:
    assert identity(GONE, 1) == identity(GONE, 1) != identity(GONE, 2)


def test_a_checkpoint_belongs_to_one_directory(tmp_path: Path) -> None:
    Ledger(tmp_path, Path("/data")).close()
    with pytest.raises(CantRun, match="a watch over /data"):
        Ledger(tmp_path, Path("/other"))
