"""The broker's seam to its log: settings in, progress and reports out, an end with a checkpoint."""

import dataclasses
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from ottermq.config import Config, load
from ottermq.errors import StartupError
from ottermq.storage import recovery
from ottermq.storage import store as seam
from ottermq.wal import FlushMode, Options, Record, Report, ReportKind, Store
from ottermq.wal.store import Interrupted, Progress
from tests.brokers import SMALL_WAL


def settings(data: Path, rules: str = "") -> Config:
    file = data.with_suffix(".yaml")
    file.write_text(rules)
    return load(file, SMALL_WAL | {"OTTERMQ_DATA": str(data)})


@asynccontextmanager
async def opened(config: Config, stop: trio.Event | None = None) -> AsyncIterator[Store]:
    async with seam.open_store(config) as store:
        async with seam.recovering(config, store, trio.Event() if stop is None else stop):
            pass
        yield store


def test_the_logs_own_defaults_are_the_configurations() -> None:
    """But for two that a library leaves open and a broker doesn't, and for the descriptors: most
    of a broker's are its connections'."""
    ours = seam.store_options(Config())
    assert ours.open_files <= Config().wal.page_cache.open_files
    expected = dataclasses.replace(
        Options(),
        open_files=ours.open_files,
        low_space_limit=256 << 20,
        log=dataclasses.replace(Options().log, segment_max_age_ms=7 * 86_400_000),
    )
    assert ours == expected


def test_every_setting_reaches_the_log() -> None:
    changed = {
        "FILE_SIZE": "2MiB", "MAX_SIZE": "8MiB", "BATCH_MAX_SIZE": "128KiB",
        "BATCH_MAX_WAIT": "1500us", "FLUSH_MODE": "immediate", "DIRECT_IO": "off",
        "PAGE_CACHE__HOT_BUFFER_SIZE": "2MiB", "PAGE_CACHE__MMAP_CACHE_SIZE": "3MiB",
        "PAGE_CACHE__OPEN_FILES": "17", "LOW_SPACE_LIMIT": "1MiB", "CHECKPOINT_INTERVAL": "2s",
        "SEGMENT_SIZE": "1MiB", "SEGMENT_MAX_AGE": "1h", "PRE_ALLOCATE": "false",
        "RETENTION__KEEP_SETTLED": "true",
    }  # fmt: skip
    config = load(environ={f"OTTERMQ_WAL__{name}": value for name, value in changed.items()})
    options, usual = seam.store_options(config), seam.store_options(Config())
    same = {"recovery_threads", "removals_file_size"}  # no settings
    for ours, theirs in ((options, usual), (options.log, usual.log)):
        for field in dataclasses.fields(ours):
            differs = getattr(ours, field.name) != getattr(theirs, field.name)
            assert differs != (field.name in same), field.name
    assert options.batch_max_wait_us == 1500
    assert options.log.flush_mode is FlushMode.IMMEDIATE


def test_no_age_is_no_limit() -> None:
    config = load(environ={"OTTERMQ_WAL__SEGMENT_MAX_AGE": "null"})
    assert seam.store_options(config).log.segment_max_age_ms == 0


async def test_what_was_appended_is_there_at_the_next_start(tmp_path: Path) -> None:
    config = settings(tmp_path / "data")
    async with opened(config) as store:
        store.wait(store.create("orders").append([Record(b"hello")]).seq)
    async with opened(config) as store:
        assert store.get("orders").stat().next_offset >= 1


async def test_the_store_is_closed_even_when_all_is_cancelled(tmp_path: Path) -> None:
    config = settings(tmp_path / "data")
    with trio.CancelScope() as scope:
        async with opened(config) as store:
            scope.cancel()
            await trio.sleep_forever()
    assert store._handle is None


async def test_a_queue_goes_by_the_rule_for_its_name(tmp_path: Path) -> None:
    """One that is `async` writes no record of its own into the WAL."""
    config = settings(tmp_path / "data", "queues: [{match: 'audit.*', flush_mode: async}]")
    async with opened(config) as store:
        store.create_many(["audit.logins", "orders"])
    async with opened(config) as store:
        for name, logged in (("audit.logins", False), ("orders", True)):
            store.get(name).append([Record(b"first")])  # and a lease
            before = store.stat().wal_bytes
            done = store.get(name).append([Record(bytes(20_000))])
            store.wait(done.seq)
            assert (store.stat().wal_bytes > before + 20_000) == logged


async def test_a_catalogue_that_is_none_is_one_line(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(StartupError) as caught:
        async with opened(settings(data)):
            pass
    assert str(caught.value).startswith(f"data directory {data}: ")
    assert "meta.db" in str(caught.value) and "\n" not in str(caught.value)


class Slow:
    """A store whose recovery takes until it was asked how far it is, or is called off."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.called_off = False

    def start(self) -> None:
        assert self.go.wait(20)
        if self.called_off:
            raise Interrupted

    def interrupt(self) -> None:
        self.called_off = True
        self.go.set()

    def progress(self) -> Progress:
        self.go.set()
        return Progress(done=30, total=120, logs_done=4, logs_total=4, replayed=7)


async def test_a_recovery_that_takes_its_time_tells_how_far_it_is(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "ottermq")
    monkeypatch.setattr(recovery, "PATIENCE", 0.01)
    await recovery.recover(cast(Any, Slow()), trio.Event())
    assert caplog.messages[0] == "recovering done=62% logs=4/4 bytes=30 replayed=7"
    assert caplog.messages[-1].startswith("recovered logs=4 bytes=30 replayed=7 took=")


async def test_on_a_terminal_a_recovery_is_a_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "PATIENCE", 0.01)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    await recovery.recover(cast(Any, Slow()), trio.Event())
    assert "62%  4/4 logs" in capsys.readouterr().err


async def test_a_recovery_is_called_off_when_the_broker_is_told_to_stop() -> None:
    store, stop = Slow(), trio.Event()
    stop.set()
    with pytest.RaisesGroup(Interrupted):
        await recovery.recover(cast(Any, store), stop)


async def test_a_start_that_was_called_off_loses_nothing(tmp_path: Path) -> None:
    config = settings(tmp_path / "data")
    async with opened(config) as store:
        store.wait(store.create("orders").append([Record(b"hello")]).seq)
    stop = trio.Event()
    stop.set()
    with pytest.RaisesGroup(Interrupted, flatten_subgroups=True):
        async with opened(config, stop):
            raise AssertionError("it must not open")
    async with opened(config) as store:
        assert store.get("orders").cursor().ready_count == 1


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        (Progress(0, 0, 0, 0, 0), 50),
        (Progress(0, 0, 0, 4, 0), 0),
        (Progress(900, 900, 3, 4, 0), 37),
        (Progress(900, 900, 4, 4, 0), 100),
        (Progress(900, 1800, 4, 4, 5), 75),
    ],
)
def test_progress_is_half_the_logs_and_half_the_wal(progress: Progress, expected: int) -> None:
    assert recovery.percent(progress) == expected


async def test_what_the_log_reports_is_a_line_with_a_level(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ottermq")
    async with opened(settings(tmp_path / "data")) as store:
        log = store.create("orders")
        caplog.clear()
        seam.tell(store, Report(ReportKind.CORRUPT, log.id, 10, 19, "00.log: wrong checksum"))
        seam.tell(store, Report(ReportKind.SPACE_BACK, 0, 0, 0, "1GiB left"))
        seam.tell(store, Report(ReportKind.TAIL_CUT, 99, 5, 5, "cut"))
        told = [(line.levelname, line.getMessage()) for line in caplog.records]
    assert told == [
        ("ERROR", 'log corrupt log=orders first=10 last=19 text="00.log: wrong checksum"'),
        ("INFO", 'disk space back text="1GiB left"'),
        ("INFO", "segment tail cut log=99 first=5 last=5 text=cut"),
    ]


def test_every_kind_of_report_has_a_level_and_an_event() -> None:
    assert set(seam.REPORTS) == set(ReportKind)
    for kind in (ReportKind.FENCED, ReportKind.CORRUPT):
        assert seam.REPORTS[kind][0] == logging.ERROR
