"""Logs whose rows are part of somebody else's commit: a queue's and its log's are one."""

import sqlite3
from pathlib import Path

from ottermq.wal import Store
from ottermq.wal.catalog import Statement
from tests.wal.stores import SMALL


def commit(data: Path, rows: list[Statement]) -> None:
    with sqlite3.connect(data / "meta.db") as db:
        for sql, values in rows:
            db.execute(sql, values)


def names(store: Store) -> list[str]:
    return sorted(log.name for log in store)


def test_a_reserved_log_lasts_once_its_rows_are_committed(tmp_path: Path) -> None:
    with Store.open(tmp_path, SMALL) as store:
        _, rows = store.reserve(["orders", "jobs"])
        commit(tmp_path, rows)
    with Store.open(tmp_path, SMALL) as store:
        assert names(store) == ["jobs", "orders"]


def test_without_that_commit_it_is_gone_and_its_id_is_never_given_again(tmp_path: Path) -> None:
    with Store.open(tmp_path, SMALL) as store:
        (first,), _ = store.reserve(["orders"])
        assert store.create("made").id > first.id
        lost = first.id
    with Store.open(tmp_path, SMALL) as store:
        assert names(store) == ["made"]
        (second,), _ = store.reserve(["orders"])
        assert second.id > lost


def test_a_discarded_log_is_gone_when_its_sequence_and_its_rows_are(tmp_path: Path) -> None:
    with Store.open(tmp_path, SMALL) as store:
        orders = store.create("orders")
        seq, rows = store.discard(orders)
        assert ("/", "orders") not in store
        store.wait(seq)
        commit(tmp_path, rows)
    with Store.open(tmp_path, SMALL) as store:
        assert names(store) == []
