"""Logs that lie on disk and that meta.db doesn't name.

| what there is of it                                    | what it is            | then        |
|--------------------------------------------------------|-----------------------|-------------|
| a row in `deleted_logs`, or a delete record in the WAL | a deletion, cut short | removed     |
| no segments in its folder                              | nothing               | removed     |
| no word, in checkpoint and WAL, that it ever had a row | a log never finished  | set aside   |
| all else                                               | its row was lost      | we refuse   |

A row is lost with meta.db, with its -wal after a kill, or when an older or another broker's meta.db
is put in its place. To go on then would cost every message of that log. So the start ends before
anything is changed. An operator who knows that no better meta.db will come lets the logs be set
aside, in data/orphaned-<time>/, which is laid out as a data directory: a meta.db that turns up
later can be put into it.
"""

import os
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ottermq._core import lib
from ottermq.wal import orphans
from ottermq.wal.catalog import Entry, open_to_look
from ottermq.wal.errors import StorageFailure

FLAG = "--accept-missing-metadata"
STATE = ("checkpoint", "checkpoint.tmp", "handed", "removals", "wal", "vhosts")
META = ("meta.db", "meta.db-wal", "meta.db-shm")
SHOWN = 5  # names in a message


class MissingMetadata(StorageFailure):
    """There are logs whose rows are lost: the start refuses."""


def folders(data: Path) -> set[str]:
    """Of all logs, below the data directory."""
    return {
        str(folder.relative_to(data))
        for folder in data.glob("vhosts/*/queues/*")
        if folder.is_dir()
    }


def is_catalogue_lost(data: Path, existing: set[str]) -> bool:
    """There is no meta.db, or nothing in it, though somebody has kept logs here: the first start
    makes the catalogue's table before a WAL. It is only looked at: SQLite would drop a -wal without
    a database next to it, and that may be all that is left."""
    was_in_use = bool(existing) or (data / "checkpoint").exists()
    path = data / META[0]
    if not path.exists() or not path.stat().st_size:
        return was_in_use or any((data / "wal").glob("[0-9]*.wal"))
    if not was_in_use:
        return False
    with closing(open_to_look(data)) as db:
        return db.execute("SELECT 1 FROM sqlite_master WHERE name = 'logs'").fetchone() is None


@dataclass(frozen=True, slots=True)
class UnknownLogs:
    left: list[str]  # folders
    unfinished: list[str]
    lost: list[str]
    lost_ids: list[int]  # those that have no folder

    def refusal(self) -> MissingMetadata:
        names = [Path(folder).name for folder in self.lost]
        names += [f"the log with id {id}" for id in self.lost_ids]
        return refusal("is older than that or another broker's", names)


def refusal(why: str, names: list[str]) -> MissingMetadata:
    count = f"{len(names)} log{'s' if len(names) != 1 else ''}"
    shown = ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
    what = f"it holds {count} that meta.db doesn't know ({shown})" if names else "it was in use"
    return MissingMetadata(
        f"{what}, and meta.db {why}. Put the right one back, with its"
        f" meta.db-wal if it has one; or start once with {FLAG}, which sets the logs aside and"
        " begins without them. Nothing was changed"
    )


def sort_out(
    data: Path,
    unnamed: Iterable[str],
    deleted: Iterable[Entry],
    seen: Mapping[int, int],
) -> UnknownLogs:
    """unnamed: folders that no row has. seen: logs that checkpoint or WAL mention, with flags."""
    found = UnknownLogs([], [], [], [])
    gone = {entry.id: entry.folder for entry in deleted}
    for folder in sorted(unnamed):
        id, _ = orphans.identity(folder)
        flags = seen.get(id)
        if gone.get(id) == folder or not any((data / folder).glob("*.log*")):
            found.left.append(folder)
        elif flags is not None and flags & lib.OM_UNKNOWN_DELETED:
            found.left.append(folder)
        elif flags is not None and not flags & lib.OM_UNKNOWN_NAMED:
            found.unfinished.append(folder)
        else:
            found.lost.append(folder)
    told = {orphans.identity(folder)[0] for folder in found.lost}
    found.lost_ids.extend(
        id
        for id, flags in sorted(seen.items())
        if flags == lib.OM_UNKNOWN_NAMED and id not in gone and id not in told
    )
    return found


def set_all_aside(data: Path) -> Path:
    """Everything that a meta.db would be needed for; what is left is a data directory as new."""
    aside = _folder(data)
    for name in (*STATE, *META):
        if (data / name).exists():
            os.rename(data / name, aside / name)
    _sync(aside, data)
    return aside


def set_aside(data: Path, some: Iterable[str], *, with_wal: bool) -> Path:
    """These folders. with_wal: and copies of the other files about them, which the rest needs."""
    aside = _folder(data)
    if with_wal:
        for name in ("checkpoint", "handed"):
            if (data / name).exists():
                shutil.copy2(data / name, aside / name)
        shutil.copytree(data / "wal", aside / "wal", ignore=shutil.ignore_patterns("spare-*"))
        os.sync()
    for folder in some:
        (aside / folder).parent.mkdir(parents=True, exist_ok=True)
        os.rename(data / folder, aside / folder)
        _sync((aside / folder).parent, (data / folder).parent)
    _sync(aside, data)
    return aside


def _folder(data: Path) -> Path:
    name = time.strftime("orphaned-%Y%m%dT%H%M%SZ", time.gmtime())
    made = next(
        path
        for path in (data / f"{name}{suffix}" for suffix in ("", *(f"-{n}" for n in range(2, 999))))
        if not path.exists()
    )
    made.mkdir(mode=0o750)
    return made


def _sync(*made: Path) -> None:
    for folder in made:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sync_names(data: Path, some: Iterable[str]) -> None:
    """That these folders are gone is on disk when it returns."""
    _sync(*{parent for folder in some if (parent := (data / folder).parent).is_dir()})
