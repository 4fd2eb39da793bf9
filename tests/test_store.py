"""The broker's seam to its log: settings in, progress and reports out, an end with a checkpoint."""

import dataclasses
import logging
import os
import textwrap
import threading
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from ottermq import store as seam
from ottermq.config import Config, load
from ottermq.errors import StartupError
from ottermq.wal import FlushMode, Options, Record, Report, ReportKind, Store
from ottermq.wal.store import Progress
from tests.brokers import SMALL_WAL


def settings(data: Path, rules: str = "") -> Config:
    file = data.with_suffix(".yaml")
    file.write_text(rules)
    return load(file, SMALL_WAL | {"OTTERMQ_DATA": str(data)})


def test_the_logs_own_defaults_are_the_configurations() -> None:
    """But for two that a library leaves open and a broker doesn't."""
    ours = seam.store_options(Config())
    expected = dataclasses.replace(
        Options(),
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
    same = {"recovery_threads"}  # the one that is no setting
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
    async with seam.open_store(config) as store:
        store.wait(store.create("orders").append([Record(b"hello")]).seq)
    async with seam.open_store(config) as store:
        assert store.get("orders").stat().next_offset >= 1


async def test_the_store_is_closed_even_when_all_is_cancelled(tmp_path: Path) -> None:
    config = settings(tmp_path / "data")
    with trio.CancelScope() as scope:
        async with seam.open_store(config) as store:
            scope.cancel()
            await trio.sleep_forever()
    assert store._handle is None


async def test_a_queue_with_a_rule_goes_by_it_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings(tmp_path / "data", "queues: [{match: 'audit.*', flush_mode: async}]")
    async with seam.open_store(config) as store:
        store.create_many(["audit.logins", "orders"])
    given = {}
    monkeypatch.setattr(Store, "set_options", lambda _, log, said: given.update({log.name: said}))
    async with seam.open_store(config):
        pass
    assert given["audit.logins"].flush_mode is FlushMode.ASYNC
    assert given["orders"].flush_mode is FlushMode.BATCH


async def test_a_catalogue_that_is_none_is_one_line(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(StartupError) as caught:
        async with seam.open_store(settings(data)):
            pass
    assert str(caught.value) == f"data directory {data}: file is not a database"


async def test_the_example_in_the_readme_works(tmp_path: Path) -> None:
    text = (Path(__file__).parent.parent / "README.md").read_text()
    lines = text[text.index("    from pathlib") : text.index("# on disk now")].splitlines()
    example = textwrap.dedent("\n".join(lines)).replace("Options()", "small")
    small = seam.store_options(settings(tmp_path / "data"))
    names = {"small": small}
    exec(example.replace('Path("data")', f"Path({str(tmp_path / 'data')!r})"), names)
    async with seam.open_store(settings(tmp_path / "data")) as store:
        assert store.get("orders").stat().next_offset >= 1


class Slow:
    """A store whose recovery takes until told, and which has reports to give."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.said: list[Report] = []
        self.event_fd = os.eventfd(0, os.EFD_NONBLOCK)

    def start(self) -> None:
        assert self.go.wait(20)

    def progress(self) -> Progress:
        self.go.set()  # it has been asked: that is all the test waits for
        return Progress(done=30, total=120, logs_done=1, logs_total=4, replayed=7)

    def reports(self) -> list[Report]:
        said, self.said = self.said, []
        return said


async def test_a_recovery_that_takes_its_time_tells_how_far_it_is(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "ottermq")
    monkeypatch.setattr(seam, "PATIENCE", 0.01)
    await seam._recover(cast(Any, Slow()))
    assert "recovering done=25% logs=1/4 replayed=7" in caplog.messages


async def test_on_a_terminal_a_recovery_is_a_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seam, "PATIENCE", 0.01)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    await seam._recover(cast(Any, Slow()))
    assert "recovering" in capsys.readouterr().err


async def test_what_the_log_reports_is_logged_as_it_happens(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "ottermq")
    store = Slow()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(seam.tell_reports, cast(Any, store))
        await trio.testing.wait_all_tasks_blocked()
        store.said = [
            Report(ReportKind.CORRUPT, 7, 10, 19, "00.log: wrong checksum"),
            Report(ReportKind.SPACE_BACK, 0, 0, 0, "1GiB left"),
        ]
        os.eventfd_write(store.event_fd, 1)
        with trio.fail_after(20):
            while len(caplog.records) < 2:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    os.close(store.event_fd)
    assert [(line.levelname, line.getMessage()) for line in caplog.records] == [
        ("ERROR", 'corrupt log=7 first=10 last=19 text="00.log: wrong checksum"'),
        ("INFO", 'space back log=0 first=0 last=0 text="1GiB left"'),
    ]
