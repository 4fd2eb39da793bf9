"""Logs that meta.db doesn't name: lost rows stop the start, what a crash leaves doesn't."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ottermq.wal import Record, ReportKind, Store
from ottermq.wal.catalog import Catalog
from ottermq.wal.unknown import MissingMetadata
from tests.wal.stores import SMALL, die, numbered, put, values

COUNT = 50


def fill(store: Store, name: str) -> None:
    put(store, store.create(name), numbered(COUNT))


def a_life(store: Store) -> None:
    fill(store, "orders")
    store.checkpoint()
    fill(store, "newer")  # only the WAL and its folder tell of it


@pytest.fixture(params=["stopped", "killed"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    data = tmp_path / "data"
    if request.param == "killed":
        die(data, a_life)
    else:
        with Store.open(data, SMALL) as store:
            a_life(store)
    return data


def tree(data: Path) -> dict[str, bytes]:
    """What must not change. Spare files and the like come and go with any start."""
    return {
        str(path.relative_to(data)): path.read_bytes()
        for path in sorted(data.rglob("*"))
        if path.is_file() and ("vhosts" in path.parts or path.name in ("checkpoint", "meta.db"))
    }


def gone(data: Path) -> None:
    for path in data.glob("meta.db*"):
        path.unlink()


def empty(data: Path) -> None:
    gone(data)
    (data / "meta.db").touch()


def without_tables(data: Path) -> None:
    gone(data)
    with closing(sqlite3.connect(data / "meta.db")) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE other (id)")
        db.commit()


def of_another_broker(data: Path) -> None:
    gone(data)
    with Store.open(data.parent / "other", SMALL) as other:
        fill(other, "theirs")
    shutil.copy(data.parent / "other" / "meta.db", data / "meta.db")


def before_its_first_log(data: Path) -> None:
    """A backup that is too old."""
    gone(data)
    Store.open(data.parent / "young", SMALL).close()
    shutil.copy(data.parent / "young" / "meta.db", data / "meta.db")


WAYS = [gone, empty, without_tables, of_another_broker, before_its_first_log]


@pytest.mark.parametrize("lose", WAYS)
def test_a_start_without_the_right_meta_db_refuses_and_changes_nothing(
    data: Path, lose: Callable[[Path], None]
) -> None:
    shutil.copytree(data, data.parent / "kept")
    lose(data)
    before = tree(data)
    for _ in range(2):
        with pytest.raises(MissingMetadata, match="--accept-missing-metadata"):
            Store.open(data, SMALL)
    assert tree(data) == before
    for path in (data.parent / "kept").glob("meta.db*"):
        shutil.copy(path, data / path.name)
    with Store.open(data, SMALL) as store:
        assert len(values(store.get("orders"))) == len(values(store.get("newer"))) == COUNT


@pytest.mark.parametrize("lose", [gone, before_its_first_log])
def test_also_when_the_checkpoint_is_gone_too(data: Path, lose: Callable[[Path], None]) -> None:
    lose(data)
    (data / "checkpoint").unlink()
    with pytest.raises(MissingMetadata):
        Store.open(data, SMALL)


def a_newer_log(store: Store) -> None:
    fill(store, "newer")
    store.checkpoint()
    put(store, store.get("newer"), numbered(COUNT))


def test_a_lost_wal_of_meta_db_is_noticed_after_a_kill(tmp_path: Path) -> None:
    """What SQLite has not yet put into meta.db itself: the newest rows."""
    data = tmp_path / "data"
    with Store.open(data, SMALL) as store:
        fill(store, "older")
    die(data, a_newer_log)
    (data / "meta.db-wal").unlink()
    with pytest.raises(MissingMetadata, match=r"1 log that meta.db doesn't know \(newer\.\d+\)"):
        Store.open(data, SMALL)


def test_a_log_that_only_the_wal_tells_of_is_noticed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Store.open(data, SMALL) as store:
        fill(store, "older")
    die(data, lambda store: fill(store, "newer"))
    for folder in data.glob("vhosts/%2F/queues/newer.*"):
        shutil.rmtree(folder)
    (data / "meta.db-wal").unlink()
    with pytest.raises(MissingMetadata, match="the log with id"):
        Store.open(data, SMALL)


@pytest.mark.parametrize("lose", WAYS)
def test_what_is_accepted_is_set_aside_and_can_be_had_again(
    data: Path, lose: Callable[[Path], None]
) -> None:
    shutil.copytree(data, data.parent / "kept")
    lose(data)
    with Store.open(data, SMALL, accept_missing_metadata=True) as store:
        told = [each for each in store.reports() if each.kind is ReportKind.ORPHANED]
        assert len(told) == 1 and "orphaned-" in told[0].text
        assert ("/", "orders") not in store
        fill(store, "afterwards")
    with Store.open(data, SMALL) as store:
        assert len(values(store.get("afterwards"))) == COUNT
    (aside,) = data.glob("orphaned-*")
    for path in (data.parent / "kept").glob("meta.db*"):
        shutil.copy(path, aside / path.name)
    with Store.open(aside, SMALL) as store:
        assert len(values(store.get("orders"))) == len(values(store.get("newer"))) == COUNT


def test_only_the_unknown_ones_are_set_aside(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Store.open(data, SMALL) as store:
        fill(store, "older")
    die(data, a_newer_log)
    (data / "meta.db-wal").unlink()
    with Store.open(data, SMALL, accept_missing_metadata=True) as store:
        assert len(values(store.get("older"))) == COUNT
        again = store.create("newer")
        assert values(again) == []
        put(store, again, [Record(b"again")])
        lost = next(data.glob("orphaned-*/vhosts/%2F/queues/newer.*"))
        assert again.id > int(lost.suffix[1:])  # its records are still in the WAL
    with Store.open(data, SMALL) as store:
        assert values(store.get("newer")) == [b"again"]


def test_a_deletion_that_was_cut_short_stops_nobody(tmp_path: Path) -> None:
    """The row is gone, its files, its checkpoint entry and its records aren't."""
    data = tmp_path / "data"

    def life(store: Store) -> None:
        fill(store, "kept")
        fill(store, "gone")
        store.checkpoint()
        put(store, store.get("gone"), numbered(COUNT))
        db = sqlite3.connect(data / "meta.db")
        db.execute(*Catalog.removal(store.get("gone").id))
        db.commit()

    die(data, life)
    for _ in range(3):
        with Store.open(data, SMALL) as store:
            assert len(values(store.get("kept"))) == COUNT
            assert ("/", "gone") not in store
        assert not list(data.glob("vhosts/*/queues/gone.*"))


def test_a_log_whose_row_was_never_written_is_set_aside(tmp_path: Path) -> None:
    """Killed between a queue's first message and the commit of its declaration."""
    data = tmp_path / "data"

    def life(store: Store) -> None:
        fill(store, "kept")
        logs, _ = store.reserve(["unfinished"])
        put(store, logs[0], numbered(COUNT))
        store.checkpoint()

    die(data, life)
    with Store.open(data, SMALL) as store:
        (told,) = (each for each in store.reports() if each.kind is ReportKind.ORPHANED)
        assert "never finished" in told.text
        assert len(values(store.get("kept"))) == COUNT
    assert list(data.glob("orphaned-*/vhosts/%2F/queues/unfinished.*/*.log"))


def test_an_empty_folder_is_nobodys_log(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Store.open(data, SMALL) as store:
        fill(store, "kept")
    (data / "vhosts/%2F/queues/empty.77").mkdir()
    Store.open(data, SMALL).close()
    assert not (data / "vhosts/%2F/queues/empty.77").exists()


def deleted_rows(data: Path) -> int:
    with closing(sqlite3.connect(data / "meta.db")) as db:
        count: int = db.execute("SELECT count(*) FROM deleted_logs").fetchone()[0]
        return count


def test_rows_of_deleted_logs_dont_pile_up(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Store.open(data, SMALL) as store:
        for n in range(10):
            fill(store, f"q{n}")
            store.delete(store.get(f"q{n}"))
        assert deleted_rows(data) == 10
        for _ in range(4):
            store.forget_removed()
            store.checkpoint()
        store.forget_removed()
        assert deleted_rows(data) == 0
        fill(store, "last")
        store.delete(store.get("last"))
    for _ in range(2):
        Store.open(data, SMALL).close()
    assert deleted_rows(data) == 0


def test_a_kill_while_logs_come_and_go_leaves_nothing_that_stops_a_start(tmp_path: Path) -> None:
    data = tmp_path / "data"

    def life(store: Store) -> None:
        for n in range(200):
            fill(store, f"{os.getpid()}.{n}")
            if n % 3:
                store.delete(store.get(f"{os.getpid()}.{n}"))
            if n % 50 == 49:
                store.checkpoint()

    for _ in range(3):
        die(data, life)
        with Store.open(data, SMALL) as store:
            assert not [each for each in store.reports() if each.kind is ReportKind.ORPHANED]
