"""What a disk may hold after the power went: legal post-crash folders from a trace.

    for state in crash_states(rec.trace, seed=1, n=200):
        state.materialise(target)             # a folder as the disk may look
        check(target, state.markers)          # what had been promised by then

A crash at index i means: records [0, i) have happened, record i has not. Calls are atomic in the
trace, but not on the disk: a write at i - 1 may be there, not there, or there in parts.

**Bytes.** A write goes to the page cache. The kernel writes pages out when it likes and in any
order, and the disk has a volatile cache of its own, O_DIRECT or not. So:

- A sector (512 bytes) of a file holds, after the crash, what the page cache held for it at *some*
  moment since it was last made sure of: the bytes of its first k pending writes, for any k, each
  sector for itself. Writes to different sectors are thus dropped and kept in any order, while
  a later write to a sector never comes without the earlier ones it was laid over.
- A sector is written whole or not at all; with Model(torn_sectors=True) it may be torn at any byte.
- fsync, fdatasync and syncfs that return 0 make sure of every write whose record lies before the
  sync's *start*. What another thread wrote while it ran is not covered. An O_DSYNC write makes
  sure of the pages it touched, and of nothing else in the file.
- A sync that fails makes sure of nothing, and worse: the kernel marks the pages clean, so that a
  later sync returns 0 without writing them (ext4 and XFS since 4.13, "fsyncgate"). They stay
  uncertain until they are written again (Model.failed_sync_forgets).
- sync_file_range makes sure of nothing. Writes through a mapping aren't seen: the shim notes the
  mapping and the simulator refuses the trace (UntracedChange), SQLite's -shm excepted.

**Sizes.** A file ends where its last surviving byte does, or where a surviving truncate or
fallocate put its end. ext4 moves i_disksize when it writes pages out (delayed allocation), so an
unsynced append may leave the old size, the new one, or one in between; pages that didn't make it
read as zeros, never as an earlier owner's bytes. fdatasync makes sure of the size as well: it is
needed to read the data. A lost truncate takes with it all that was later written beyond its
cut, since those blocks were the old ones, or not yet given. Ranges that were fallocated and never
written read as zeros.

**Names.** create, mkdir, link, symlink, rename, unlink, rmdir, truncate and fallocate are changes
in the journal, each atomic. By default (ext4, data=ordered) changes get committed in order:
a crash keeps a *prefix* of them. What makes sure of a prefix:

- fsync of a folder: up to the last change of its entries. (So does fdatasync: entries are
  a folder's data. SQLite relies on it.)
- fsync of a file: up to its last change, its creation and renames included, since ext4 keeps with
  each inode the transaction that touched it last. fdatasync: its creation and its size only.
- syncfs: everything. A sync also may commit more than that; nothing relies on it here.

Names and bytes don't wait for each other. This is the classical trap: after write, rename, crash
without a sync, the new name may stand there with an empty file. ext4's auto_da_alloc hides that
for some programs; it is a heuristic, and assumed off.

Model(reorder_metadata=True) lets changes of different folders and files survive independently
(within one folder, or one file's sizes, they stay in order; a rename between two folders follows
both and is atomic still). Model(file_sync_keeps_name=False) makes names a matter of the folder's
sync alone. Both together are POSIX: what a program may rely on anywhere.

More is allowed here than ext4 does in fact, for instance a long append whose journal commit would
have taken earlier renames along. What isn't allowed: losing what a sync made sure of, bytes
that were never written there, half a rename, reordered changes (unless asked for).

**What is tried.** Crash points lean towards the moments just after a marker, around syncs and
after changes of names. At each, one of the STYLES below says what survives: the extremes
(nothing, everything, names without bytes, bytes without names), one write missing, one write
only, and random mixtures by file, write, page and sector. The same arguments give the same states.
"""

import functools
import math
import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.disk import (
    EXT4,
    PAGE,
    POSIX,
    Change,
    Disk,
    File,
    Folder,
    Model,
    Node,
    Resize,
    Symlink,
    UntracedChange,
    Write,
)
from tests.faults.sparse import Sparse
from tests.faults.trace import Event, Trace

__all__ = ["EXT4", "POSIX", "STYLES", "CrashState", "Model", "UntracedChange", "crash_states"]

SECTOR = 512


# -- what survives --


#: The share of a write's units that survives: 0 nothing, 1 all, else drawn unit by unit.
Keep = Callable[[File, Write], float]


@dataclass(frozen=True)
class Style:
    """keep: how to choose, given all that is pending, oldest first. names: how much of the journal
    survives: 0 nothing, 1 all, else a random part. sizes: files are as long as ever, with zeros
    for the bytes that are missing. fixed: nothing is left to chance."""

    keep: Callable[[random.Random, list[Write]], Keep]
    names: float = 0.5
    unit: int = SECTOR
    sizes: bool = False
    fixed: bool = False


def _nothing(rng: random.Random, writes: list[Write]) -> Keep:
    return lambda file, write: 0


def _everything(rng: random.Random, writes: list[Write]) -> Keep:
    return lambda file, write: 1


def _all_but_the_oldest(rng: random.Random, writes: list[Write]) -> Keep:
    return lambda file, write: write is not writes[0]


def _all_but_one(rng: random.Random, writes: list[Write]) -> Keep:
    lost = rng.choice(writes) if writes else None
    return lambda file, write: write is not lost


def _only_the_newest(rng: random.Random, writes: list[Write]) -> Keep:
    return lambda file, write: write is writes[-1]


def _a_recent_one_torn(rng: random.Random, writes: list[Write]) -> Keep:
    torn = rng.choice(writes[-4:]) if writes else None
    return lambda file, write: 0.5 if write is torn else 1


def _file_by_file(rng: random.Random, writes: list[Write]) -> Keep:
    drawn = functools.cache(lambda file: rng.random() < 0.5)
    return lambda file, write: drawn(file)


def _write_by_write(rng: random.Random, writes: list[Write]) -> Keep:
    share = rng.choice((0.1, 0.5, 0.9))
    return lambda file, write: rng.random() < share


def _unit_by_unit(rng: random.Random, writes: list[Write]) -> Keep:
    share = rng.choice((0.1, 0.5, 0.9))
    return lambda file, write: share


def _each_file_at_its_own_time(rng: random.Random, writes: list[Write]) -> Keep:
    moments = [write.index for write in writes] + [math.inf]
    moment = functools.cache(lambda file: rng.choice(moments))
    return lambda file, write: write.index < moment(file)


STYLES: dict[str, Style] = {
    "nothing unsynced": Style(_nothing, names=0, fixed=True),
    "everything": Style(_everything, names=1, fixed=True),
    "names without bytes": Style(_nothing, names=1, fixed=True),
    "bytes without names": Style(_everything, names=0, fixed=True),
    "sizes without bytes": Style(_nothing, names=1, sizes=True, fixed=True),
    "all but the oldest write": Style(_all_but_the_oldest, names=1, fixed=True),
    "only the newest write": Style(_only_the_newest, names=1, fixed=True),
    "all but one write": Style(_all_but_one, names=1),
    "a recent write torn": Style(_a_recent_one_torn, names=1),
    "file by file": Style(_file_by_file),
    "write by write": Style(_write_by_write),
    "page by page": Style(_unit_by_unit, unit=PAGE),
    "sector by sector": Style(_unit_by_unit),
    "each file at its own time": Style(_each_file_at_its_own_time),
}


# -- what it looks like then --


def _surviving_changes(disk: Disk, names: float, rng: random.Random) -> list[Change]:
    if names in (0, 1):
        return disk.journal if names else []
    share = rng.choice((0.5, 0.9, 1))
    if not disk.model.reorder_metadata:
        return disk.journal[: rng.randint(0, len(disk.journal)) if share < 1 else None]
    survivors: list[Change] = []
    ended: set[Node] = set()
    for change in disk.journal:
        if ended.isdisjoint(change.queues) and rng.random() < share:
            survivors.append(change)
        else:
            ended.update(change.queues)
    return survivors


def _surviving_bytes(
    file: File, resizes: set[Resize], style: Style, keep: Keep, rng: random.Random, model: Model
) -> Sparse:
    image = file.stored.fork()
    lost: set[int] = set()
    limit: float = math.inf
    for pending in file.pending:
        if isinstance(pending, Resize):
            if pending in resizes:
                pending.apply(image)
            elif not pending.grows_only:
                limit = min(limit, pending.size)
        elif pending.offset < limit:
            write = pending if pending.end <= limit else pending.part(pending.offset, int(limit))
            if style.sizes:
                image.size = max(image.size, write.end)
            share = keep(file, pending)
            if share == 1 and not lost:
                write.store(image)
            elif share == 0:
                lost.update(_sectors(write))
            else:
                _store_some(image, write, share, style.unit, lost, rng, model.torn_sectors)
    return image


def _store_some(
    image: Sparse,
    write: Write,
    share: float,
    unit: int,
    lost: set[int],
    rng: random.Random,
    torn_sectors: bool,
) -> None:
    """Store the sectors that are drawn and whose earlier bytes aren't lost, in long runs."""
    start: int | None = None
    per_unit = unit // SECTOR
    drawn, drawn_for = True, -1
    for sector in _sectors(write):
        if sector // per_unit != drawn_for:
            drawn, drawn_for = share == 1 or rng.random() < share, sector // per_unit
        if drawn and sector not in lost:
            if start is None:
                start = max(write.offset, sector * SECTOR)
            continue
        if start is not None:
            write.part(start, sector * SECTOR).store(image)
            start = None
        if torn_sectors and sector not in lost:
            begin = max(write.offset, sector * SECTOR)
            end = rng.randint(begin, min(write.end, (sector + 1) * SECTOR))
            if end > begin:
                write.part(begin, end).store(image)
        lost.add(sector)
    if start is not None:
        write.part(start, write.end).store(image)


def _sectors(write: Write) -> range:
    return range(write.offset // SECTOR, (write.end - 1) // SECTOR + 1)


class _Replay:
    """One disk for many states: going forward is cheap, going back starts anew."""

    def __init__(self, trace: Trace, model: Model) -> None:
        self._disk = Disk(trace, model)

    def at(self, index: int) -> Disk:
        if self._disk.index > index:
            self._disk = Disk(self._disk.trace, self._disk.model)
        self._disk.advance(index)
        return self._disk


@dataclass(frozen=True)
class CrashState:
    """One legal outcome. A value: it may be kept, and looked at in any order."""

    index: int
    style: str
    seed: str
    trace: Trace
    model: Model
    replay: _Replay

    @property
    def markers(self) -> list[bytes]:
        """What the program had promised when the power went."""
        return self.trace.markers(before=self.index)

    def files(self) -> dict[str, bytes]:
        """Every file by its path, for checks that need no real folder."""
        return {
            path: content.read() for path, content in self._walk() if isinstance(content, Sparse)
        }

    def materialise(self, target: Path) -> Path:
        """Write it out as a folder, which must be new or empty."""
        target.mkdir(parents=True, exist_ok=True)
        if any(target.iterdir()):
            raise FileExistsError(f"{target} is not empty")
        first: dict[Sparse, Path] = {}
        for path, content in self._walk():
            place = target / path
            if content is None:
                place.mkdir()
            elif isinstance(content, Symlink):
                os.symlink(content.target, os.fsencode(place))
            elif content in first:
                os.link(first[content], place)
            else:
                content.save(place)
                first[content] = place
        return target

    def _walk(self) -> Iterable[tuple[str, Sparse | Symlink | None]]:
        """Folders (None) before what is in them."""
        disk = self.replay.at(self.index)
        rng = random.Random(self.seed)
        style = STYLES[self.style]
        changes = _surviving_changes(disk, style.names, rng)
        entries: dict[Folder, dict[str, Node]] = {}

        def entries_of(folder: Folder) -> dict[str, Node]:
            if folder not in entries:
                entries[folder] = dict(folder.stored)
            return entries[folder]

        for change in changes:
            change.name(entries_of)
        resizes = {change.resize[1] for change in changes if change.resize}
        tree = list(_tree(disk.root, entries_of))
        files = {node: None for _, node in tree if isinstance(node, File)}
        writes = [p for file in files for p in file.pending if isinstance(p, Write)]
        keep = style.keep(rng, sorted(writes, key=lambda write: write.index))
        images = {
            file: _surviving_bytes(file, resizes, style, keep, rng, self.model) for file in files
        }
        for path, node in tree:
            if isinstance(node, File):
                yield path, images[node]
            else:
                yield path, node if isinstance(node, Symlink) else None

    def __str__(self) -> str:
        last = self.trace[self.index - 1] if self.index else "the beginning"
        return f"crash at {self.index}, after {last}; kept: {self.style} (seed {self.seed})"


def _tree(
    folder: Folder, entries_of: Callable[[Folder], dict[str, Node]], path: str = ""
) -> Iterator[tuple[str, Node]]:
    for name, node in sorted(entries_of(folder).items()):
        yield path + name, node
        if isinstance(node, Folder):
            yield from _tree(node, entries_of, f"{path}{name}/")


# -- where to crash --

_NAMING = frozenset(
    (
        Event.CREATE,
        Event.MKDIR,
        Event.SYMLINK,
        Event.LINK,
        Event.RENAME,
        Event.UNLINK,
        Event.TRUNCATE,
        Event.GROW,
    )
)
_SYNCING = frozenset((Event.SYNC_START, Event.SYNC_END))


def _interesting_points(trace: Trace) -> list[Sequence[int]]:
    own = range(trace.begin, len(trace))
    marked = [i + 1 for i in own if trace[i].event is Event.MARK]
    synced = [j for i in own if trace[i].event in _SYNCING for j in (i, i + 1)]
    named = [i + 1 for i in own if trace[i].event in _NAMING]
    anywhere = range(trace.begin, len(trace) + 1)
    return [points for points in (marked, synced, named, anywhere) if points]


def crash_states(
    trace: Trace,
    seed: int,
    n: int,
    model: Model = EXT4,
    styles: Iterable[str] = tuple(STYLES),
    points: Sequence[int] | None = None,
) -> Iterator[CrashState]:
    """`n` legal outcomes in order of their crash points: the end of the trace and what is chosen
    among the interesting ones, or only those given as `points`."""
    styles = tuple(styles)
    replay = _Replay(trace, model)
    rng = random.Random(seed)
    kinds = [points] if points else _interesting_points(trace)
    last = max(points) if points else len(trace)
    chosen: list[tuple[int, str]] = [(last, style) for style in styles[:2]][:n]
    seen = set(chosen)
    while len(chosen) < n:
        among = kinds[len(chosen) % len(kinds)]
        for _ in range(20):
            pick = rng.choice(among), rng.choice(styles)
            if not STYLES[pick[1]].fixed or pick not in seen:
                break
        chosen.append(pick)
        seen.add(pick)
    numbered = sorted((index, number, style) for number, (index, style) in enumerate(chosen))
    for index, number, style in numbered:
        yield CrashState(index, style, f"{seed}/{number}", trace, model, replay)
