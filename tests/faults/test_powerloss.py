"""The simulator lets happen what may happen, and nothing else."""

import errno
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.faults.powerloss import EXT4, POSIX, SECTOR, STYLES, Model, crash_states
from tests.faults.trace import Event, Record, SyncKind, Trace

# -- traces made by hand --


class TraceBuilder:
    """A trace, made call by call. Files are known by name; a rename moves the name along."""

    def __init__(self) -> None:
        self.records = [Record(Event.MKDIR, inode=1)]
        self.inodes = {"": 1}
        self._ids = itertools.count(2)
        self.then(Event.BEGIN)

    def then(self, event: Event, path: str = "", **fields: object) -> None:
        record = Record(event, inode=self.inodes.get(path, 0), path=path, **fields)  # type: ignore[arg-type]
        self.records.append(record)

    def make(self, *paths: str, folder: bool = False) -> None:
        for path in paths:
            self.inodes[path] = next(self._ids)
            self.then(Event.MKDIR if folder else Event.CREATE, path)

    def write(self, path: str, data: bytes, offset: int = 0) -> None:
        self.then(Event.WRITE, path, offset=offset, size=len(data), data=data)

    def cut(self, path: str, size: int) -> None:
        self.then(Event.TRUNCATE, path, size=size)

    def rename(self, old: str, new: str) -> None:
        self.then(Event.RENAME, old, other=new)
        self.inodes[new] = self.inodes.pop(old)

    def sync_start(self, path: str, kind: SyncKind = SyncKind.FSYNC) -> int:
        number = next(self._ids)
        self.then(Event.SYNC_START, path, detail=kind, size=-1, sync=number)
        return number

    def sync_end(self, path: str, number: int, error: int = 0) -> None:
        kind = next(r.detail for r in reversed(self.records) if r.sync == number)
        self.then(Event.SYNC_END, path, detail=kind, size=-1, sync=number, error=error)

    def sync(self, path: str, kind: SyncKind = SyncKind.FSYNC, error: int = 0) -> None:
        self.sync_end(path, self.sync_start(path, kind), error)

    def sync_range(self, path: str, offset: int, size: int) -> None:
        for event in (Event.SYNC_START, Event.SYNC_END):
            self.then(
                event, path, detail=SyncKind.FDATASYNC, offset=offset, size=size, sync=1_000_000
            )

    def ends(self, n: int = 200, model: Model = EXT4) -> list[dict[str, bytes]]:
        """Ways in which it may end, seen after the last call."""
        trace = Trace(self.records)
        states = crash_states(trace, seed=1, n=n, model=model, points=[len(trace)])
        return [state.files() for state in states]


def letters(text: str) -> bytes:
    """A sector for each letter."""
    return b"".join(letter.encode() * SECTOR for letter in text)


def test_each_sector_holds_one_of_its_versions_and_all_combinations_occur() -> None:
    builder = TraceBuilder()
    builder.make("f")
    builder.write("f", letters("ab"))
    builder.sync("f")
    builder.write("f", letters("A"))
    builder.write("f", letters("B"), SECTOR)
    builder.write("f", letters("1"))
    assert {end["f"] for end in builder.ends()} == {
        letters(first + second) for first in "aA1" for second in "bB"
    }


def test_a_later_write_to_a_sector_never_comes_without_the_earlier_one() -> None:
    builder = TraceBuilder()
    builder.make("f")
    builder.sync("")
    builder.write("f", b"one")
    builder.write("f", b"two", 3)
    assert {end["f"] for end in builder.ends()} == {b"", b"one", b"onetwo", bytes(6)}


def test_only_what_was_written_before_a_sync_began_is_sure() -> None:
    builder = TraceBuilder()
    builder.make("f")
    builder.write("f", letters("a"))
    running = builder.sync_start("f")
    builder.write("f", letters("b"), SECTOR)
    builder.sync_end("f", running)
    assert {end["f"] for end in builder.ends()} == {
        letters("a"),
        letters("ab"),
        letters("a") + bytes(SECTOR),
    }


def test_a_sync_that_has_not_returned_covers_nothing() -> None:
    builder = TraceBuilder()
    builder.make("f")
    builder.sync("")
    builder.write("f", letters("a"))
    builder.sync_start("f")
    assert b"" in {end["f"] for end in builder.ends()}


def test_a_write_that_syncs_itself_leaves_the_others_in_doubt() -> None:
    builder = TraceBuilder()
    builder.make("f")
    builder.write("f", letters("a" * 8))
    builder.write("f", letters("b" * 8), 4096)
    builder.sync_range("f", 4096, 4096)
    ends = {end["f"] for end in builder.ends()}
    assert all(end[4096:] == letters("b" * 8) for end in ends)
    assert {end[:SECTOR] for end in ends} == {letters("a"), bytes(SECTOR)}


def test_after_a_failed_sync_a_later_one_that_succeeds_covers_new_writes_only() -> None:
    builder = TraceBuilder()
    builder.make("f")
    builder.write("f", letters("a" * 8))
    builder.sync("f", error=errno.EIO)
    builder.write("f", letters("b" * 8), 4096)
    builder.sync("f")
    ends = {end["f"] for end in builder.ends()}
    assert all(end[4096:] == letters("b" * 8) for end in ends)
    assert {end[:SECTOR] for end in ends} == {letters("a"), bytes(SECTOR)}
    kind = Model(failed_sync_forgets=False)
    assert {end["f"] for end in builder.ends(model=kind)} == {letters("a" * 8 + "b" * 8)}


def test_a_page_written_again_after_a_failed_sync_takes_its_old_bytes_along() -> None:
    builder = TraceBuilder()
    builder.make("f")
    builder.write("f", letters("ab"))
    builder.sync("f", error=errno.EIO)
    builder.write("f", letters("c"), 2 * SECTOR)
    builder.sync("f")
    assert {end["f"] for end in builder.ends()} == {letters("abc")}


def test_sectors_are_torn_only_when_asked_for() -> None:
    builder = TraceBuilder()
    builder.make("f")
    builder.write("f", letters("a"))
    builder.sync("f")
    builder.write("f", letters("b"))
    assert {end["f"] for end in builder.ends()} == {letters("a"), letters("b")}
    torn = {end["f"] for end in builder.ends(model=Model(torn_sectors=True))}
    assert len(torn) > 10
    assert all(end == b"b" * end.count(b"b") + b"a" * end.count(b"a") for end in torn)
    builder.write("f", letters("c"))
    twice = {end["f"] for end in builder.ends(model=Model(torn_sectors=True))}
    assert not any(b"a" in end and b"c" in end for end in twice)


def test_a_lost_truncate_takes_along_what_was_written_beyond_its_cut() -> None:
    builder = TraceBuilder()
    builder.make("f")
    builder.write("f", letters("abc"))
    builder.sync("f")
    builder.cut("f", SECTOR)
    builder.write("f", letters("B"), SECTOR)
    ends = {end["f"] for end in builder.ends()}
    assert ends == {
        letters("abc"),
        letters("a"),
        letters("aB"),
        letters("a") + bytes(SECTOR),
    }


def test_bytes_cut_off_for_sure_do_not_come_back() -> None:
    builder = TraceBuilder()
    builder.make("f", "other")
    builder.write("f", letters("abc"))
    builder.cut("f", SECTOR)
    builder.make("later")
    builder.sync("later")
    assert {end["f"] for end in builder.ends()} == {letters("a"), bytes(SECTOR)}


def test_an_allocated_range_reads_as_zeros_or_is_not_there() -> None:
    builder = TraceBuilder()
    builder.make("f")
    builder.sync("f")
    builder.then(Event.GROW, "f", size=1000)
    assert {end["f"] for end in builder.ends()} == {b"", bytes(1000)}
    builder.sync("f", SyncKind.FDATASYNC)
    assert {end["f"] for end in builder.ends()} == {bytes(1000)}


def test_names_survive_in_order_on_ext4_and_by_folder_on_any_disk() -> None:
    builder = TraceBuilder()
    builder.make("x", "y", folder=True)
    builder.sync("")
    builder.make("x/1", "y/2", "x/3")
    ext4 = {frozenset(end) for end in builder.ends()}
    assert ext4 == {
        frozenset(names) for names in ([], ["x/1"], ["x/1", "y/2"], ["x/1", "y/2", "x/3"])
    }
    anywhere = {frozenset(end) for end in builder.ends(model=POSIX)}
    assert anywhere == ext4 | {frozenset(["y/2"]), frozenset(["x/1", "x/3"])}


def test_a_rename_between_folders_is_atomic_and_follows_both() -> None:
    builder = TraceBuilder()
    builder.make("x", "y", folder=True)
    builder.sync("")
    builder.make("x/1", "y/2")
    builder.rename("x/1", "y/3")
    assert {frozenset(end) for end in builder.ends(model=POSIX)} == {
        frozenset(names) for names in ([], ["x/1"], ["y/2"], ["x/1", "y/2"], ["y/2", "y/3"])
    }


def test_a_folders_sync_keeps_a_rename_into_it_and_all_that_the_rename_follows() -> None:
    builder = TraceBuilder()
    builder.make("x", "y", "z", folder=True)
    builder.sync("")
    builder.make("x/1", "z/1", "x/2")
    builder.rename("x/2", "y/2")
    builder.make("x/3")
    builder.sync("y")
    sure = {"x/1", "y/2"}
    assert {frozenset(end) for end in builder.ends(model=POSIX)} == {
        frozenset(sure | more) for more in (set(), {"z/1"}, {"x/3"}, {"z/1", "x/3"})
    }


@pytest.mark.parametrize("kind", [SyncKind.FSYNC, SyncKind.SYNCFS])
@pytest.mark.parametrize("model", [EXT4, POSIX])
def test_a_name_given_while_a_sync_runs_is_not_covered(kind: SyncKind, model: Model) -> None:
    builder = TraceBuilder()
    builder.make("early")
    running = builder.sync_start("", kind)
    builder.make("late")
    builder.sync_end("", running)
    assert {frozenset(end) for end in builder.ends(model=model)} == {
        frozenset(["early"]),
        frozenset(["early", "late"]),
    }


def test_a_files_sync_keeps_its_name_on_ext4_but_not_on_any_disk() -> None:
    builder = TraceBuilder()
    builder.make("f")
    builder.sync("f")
    assert {frozenset(end) for end in builder.ends()} == {frozenset(["f"])}
    assert {frozenset(end) for end in builder.ends(model=POSIX)} == {frozenset(), frozenset(["f"])}
    builder.sync("")
    assert {frozenset(end) for end in builder.ends(model=POSIX)} == {frozenset(["f"])}


@pytest.mark.parametrize(
    ("kind", "names"),
    [(SyncKind.FSYNC, {"new"}), (SyncKind.FDATASYNC, {"old", "new"}), (SyncKind.SYNCFS, {"new"})],
)
def test_which_sync_of_a_file_keeps_its_rename(kind: SyncKind, names: set[str]) -> None:
    builder = TraceBuilder()
    builder.make("old")
    builder.sync("")
    builder.rename("old", "new")
    builder.sync("new", kind)
    assert {name for end in builder.ends() for name in end} == names


def test_a_renamed_file_that_was_not_synced_may_be_empty() -> None:
    builder = TraceBuilder()
    builder.make("old")
    builder.write("old", letters("a"))
    builder.rename("old", "new")
    builder.sync("")
    assert {b"", letters("a")} <= {end["new"] for end in builder.ends()}


def test_a_removed_name_may_come_back_until_its_folder_is_synced() -> None:
    builder = TraceBuilder()
    builder.make("f")
    builder.sync("")
    builder.then(Event.UNLINK, "f")
    assert {frozenset(end) for end in builder.ends()} == {frozenset(), frozenset(["f"])}
    builder.sync("")
    assert {frozenset(end) for end in builder.ends()} == {frozenset()}


# -- against a plain model of one file --

WRITES = st.tuples(st.integers(0, 4000), st.integers(1, 2000))
STEPS = st.lists(st.one_of(WRITES, st.sampled_from(["start", "end", "fail"])), max_size=25)


@given(STEPS, st.integers(0, 1000), st.booleans())
def test_every_sector_is_as_the_cache_had_it_at_some_time_since_it_was_made_sure_of(
    steps: list[tuple[int, int] | str], seed: int, forgets: bool
) -> None:
    size = 6144
    builder = TraceBuilder()
    builder.make("f")
    builder.write("f", b"\xff" * size)
    builder.sync("f")
    cache = bytearray(b"\xff" * size)
    history = [bytes(cache)]  # what the cache held, write by write
    sure = 0  # the oldest version that may still be on disk
    running: tuple[int, int] | None = None
    for number, step in enumerate(steps):
        if isinstance(step, tuple):
            offset, length = step
            data = bytes([number]) * length
            builder.write("f", data, offset)
            cache[offset : offset + length] = data
            history.append(bytes(cache))
        elif step == "start":
            running = running or (builder.sync_start("f"), len(history) - 1)
        elif running:
            builder.sync_end("f", running[0], errno.EIO if step == "fail" else 0)
            if step == "end":
                sure = running[1]
            elif forgets:
                break  # from here on sectors go their own ways: other tests tell which
            running = None
    trace = Trace(builder.records)
    model = Model(failed_sync_forgets=forgets)
    for state in crash_states(trace, seed, n=12, model=model, points=[len(trace)]):
        (content,) = state.files().values()
        assert len(content) == size
        for at in range(0, size, SECTOR):
            versions = {version[at : at + SECTOR] for version in history[sure:]}
            assert content[at : at + SECTOR] in versions, str(state)
        if state.style == "everything":
            assert content == history[-1]
        if state.style == "nothing unsynced":
            assert content == history[sure]


# -- the states themselves --


def busy_builder() -> TraceBuilder:
    builder = TraceBuilder()
    builder.make("d", folder=True)
    builder.make("d/a", "b")
    for number in range(30):
        builder.write("d/a", bytes([number]) * 700, number * 700)
        builder.write("b", bytes([number]) * 100, number * 50)
        builder.then(Event.MARK, data=b"%d" % number)
        if number % 7 == 0:
            builder.sync("d/a")
    builder.then(Event.LINK, "c")
    builder.records[-1] = Record(Event.LINK, inode=builder.inodes["b"], path="c")
    builder.then(Event.SYMLINK, "s", data=b"d/a")
    return builder


def test_the_same_seed_gives_the_same_states_in_whatever_order_they_are_looked_at() -> None:
    trace = Trace(busy_builder().records)
    forward = [state.files() for state in crash_states(trace, seed=5, n=60)]
    kept = list(crash_states(trace, seed=5, n=60))
    assert [state.files() for state in reversed(kept)] == forward[::-1]
    assert [state.files() for state in crash_states(trace, seed=6, n=60)] != forward


def test_every_style_is_drawn_and_the_end_is_among_the_points() -> None:
    trace = Trace(busy_builder().records)
    states = list(crash_states(trace, seed=5, n=200))
    assert len(states) == 200
    assert {state.style for state in states} == STYLES.keys()
    assert [state.index for state in states] == sorted(state.index for state in states)
    assert min(state.index for state in states) >= trace.begin
    assert states[-1].index == len(trace)
    after_markers = [s for s in states if trace[s.index - 1].event is Event.MARK]
    assert len(after_markers) > 50


def test_a_state_knows_what_had_been_said() -> None:
    trace = Trace(busy_builder().records)
    for state in crash_states(trace, seed=5, n=40):
        said = [r.data for r in trace[: state.index] if r.event is Event.MARK]
        assert state.markers == said


def test_a_materialised_folder_is_what_the_state_told(tmp_path: Path) -> None:
    trace = Trace(busy_builder().records)
    for number, state in enumerate(crash_states(trace, seed=5, n=40)):
        target = state.materialise(tmp_path / f"{number}")
        found = {
            str(path.relative_to(target)): path.read_bytes()
            for path in target.rglob("*")
            if path.is_file() and not path.is_symlink()
        }
        assert found == state.files(), str(state)
        if (target / "c").exists():
            assert (target / "c").samefile(target / "b")
    (whole,) = crash_states(trace, seed=5, n=1, styles=["everything"])
    target = whole.materialise(tmp_path / "whole")
    assert (target / "s").readlink() == Path("d/a")
    with pytest.raises(FileExistsError):
        state.materialise(target)
