"""A disk with a power switch: what is surely on it, and what is still on its way.

`Disk` replays a trace. At any moment each file has its `stored` bytes (surely on disk) and a list
of what is `pending`; each folder has its `stored` entries; the journal holds the metadata changes
that no sync has made sure of. powerloss.py tells the rules and picks, from what is pending, what
a crash keeps.
"""

import fnmatch
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tests.faults.sparse import Sparse
from tests.faults.trace import Event, Record, SyncKind, Trace

PAGE = 4096


@dataclass(frozen=True)
class Model:
    """Which disks to imagine; the default is ext4 with auto_da_alloc off."""

    #: Metadata of different folders and files may survive independently (ext4: in order).
    reorder_metadata: bool = False
    #: A file's fsync keeps the names it got before; else only its folder's does (as POSIX reads).
    file_sync_keeps_name: bool = True
    #: After a failed sync the kernel calls its pages clean: a later sync doesn't write them.
    failed_sync_forgets: bool = True
    #: A sector may be torn at any byte; else it is written whole or not at all.
    torn_sectors: bool = False
    #: Files whose untraced changes don't matter: SQLite rebuilds its shared memory; what was
    #: handed out is noted for a killed process, and may be anything when the power goes
    #: (tests/wal/test_delivered_mark.py).
    may_be_untraced: tuple[str, ...] = ("*-shm", "handed")


EXT4 = Model()
POSIX = Model(reorder_metadata=True, file_sync_keeps_name=False)


class UntracedChange(Exception):
    """The program changed a file in a way the shim can't follow: no crash of it can be told."""


@dataclass(slots=True)
class Write:
    """Bytes on their way. data None: zeros."""

    index: int
    offset: int
    size: int
    data: memoryview | bytes | None
    #: A sync of it failed: the kernel won't try again.
    forgotten: bool = False

    def part(self, start: int, end: int) -> "Write":
        data = None if self.data is None else self.data[start - self.offset : end - self.offset]
        return Write(self.index, start, end - start, data, self.forgotten)

    def store(self, target: Sparse) -> None:
        if self.data is None:
            target.zero(self.offset, self.size)
        else:
            target.write(self.offset, self.data)

    @property
    def end(self) -> int:
        return self.offset + self.size


@dataclass(slots=True, eq=False)
class Resize:
    """A truncate, or a fallocate that moves the size (grows only)."""

    index: int
    size: int
    grows_only: bool

    def apply(self, target: Sparse) -> None:
        if not self.grows_only or self.size > target.size:
            target.resize(self.size)


@dataclass(slots=True, eq=False)
class File:
    stored: Sparse
    pending: list[Write | Resize]


@dataclass(slots=True, eq=False)
class Symlink:
    target: bytes


@dataclass(slots=True, eq=False)
class Folder:
    stored: "dict[str, Node]"
    live: "dict[str, Node]"


Node = File | Folder | Symlink
Entries = Callable[[Folder], dict[str, Node]]


@dataclass(slots=True, eq=False)
class Change:
    """One metadata change: it happens whole or not at all.

    entries: (folder, name, node) to set, None to remove. A change follows every earlier one of
    the same folder or file (`queues`), whatever the model.
    """

    index: int
    entries: list[tuple[Folder, str, Node | None]]
    resize: tuple[File, Resize] | None
    queues: tuple[Node, ...]
    #: Nodes whose fsync, and whose fdatasync, makes sure of it.
    by_fsync: tuple[Node, ...]
    by_fdatasync: tuple[Node, ...]
    sure: bool = False

    def name(self, entries_of: Entries) -> None:
        for folder, name, node in self.entries:
            if node is None:
                entries_of(folder).pop(name, None)
            else:
                entries_of(folder)[name] = node


class Disk:
    """The trace, replayed up to `index`."""

    def __init__(self, trace: Trace, model: Model) -> None:
        self.trace = trace
        self.model = model
        self.index = 0
        self.root = Folder({}, {})
        self.journal: list[Change] = []
        self._by_inode: dict[int, Node] = {}
        self._dirty: dict[File, None] = {}
        self._syncs: dict[int, int] = {}
        #: By what a sync would name: searching the whole journal would cost a square.
        self._changes: dict[Node, list[Change]] = {}

    def advance(self, index: int) -> None:
        for record in self.trace[self.index : index]:
            self._replay(record)
            self.index += 1

    # -- replaying --

    def _replay(self, record: Record) -> None:
        match record.event:
            case Event.CREATE | Event.MKDIR | Event.SYMLINK | Event.TMPFILE:
                self._create(record)
            case Event.LINK:
                node = self._node(record)
                folder, name = self._locate(record.path)
                self._link(folder, name, node, is_new=False)
            case Event.UNLINK:
                folder, name = self._locate(record.path)
                self._change(entries=[(folder, name, None)], queues=(folder,))
            case Event.RENAME:
                self._rename(record)
            case Event.WRITE:
                data = None if record.zeros else record.data
                write = Write(self.index, record.offset, record.size, data)
                self._pend(self._file(record), write)
            case Event.TRUNCATE | Event.GROW:
                self._resize(record)
            case Event.SYNC_START:
                self._syncs[record.sync] = self.index
            case Event.SYNC_END:
                self._sync(record, self._syncs.pop(record.sync))
            case Event.UNTRACED:
                if not any(fnmatch.fnmatch(record.path, g) for g in self.model.may_be_untraced):
                    raise UntracedChange(str(record))
            case Event.MARK | Event.FAULT | Event.BEGIN:
                pass

    def _create(self, record: Record) -> None:
        node: Node
        if record.event is Event.MKDIR:
            node = Folder({}, {}) if record.path else self.root
        elif record.event is Event.SYMLINK:
            node = Symlink(bytes(record.data))
        else:
            node = File(Sparse(), [])
        self._by_inode[record.inode] = node
        if record.event is not Event.TMPFILE and node is not self.root:
            folder, name = self._locate(record.path)
            self._link(folder, name, node, is_new=True)

    def _link(self, folder: Folder, name: str, node: Node, is_new: bool) -> None:
        own = (node,) if self.model.file_sync_keeps_name else ()
        self._change(
            entries=[(folder, name, node)],
            queues=(folder,),
            by_file=own,
            by_file_data=own if is_new else (),
        )

    def _rename(self, record: Record) -> None:
        old_folder, old = self._locate(record.path)
        new_folder, new = self._locate(record.other)
        node = old_folder.live[old]
        replaced = new_folder.live.get(new)
        if node is replaced:
            return
        self._change(
            entries=[
                (old_folder, old, replaced if record.detail else None),
                (new_folder, new, node),
            ],
            queues=(old_folder, new_folder),
            by_file=(node,) if self.model.file_sync_keeps_name else (),
        )

    def _resize(self, record: Record) -> None:
        file = self._file(record)
        resize = Resize(self.index, record.size, grows_only=record.event is Event.GROW)
        self._change(resize=(file, resize), queues=(file,), by_file_data=(file,))
        self._pend(file, resize)

    def _change(
        self,
        *,
        entries: list[tuple[Folder, str, Node | None]] | None = None,
        resize: tuple[File, Resize] | None = None,
        queues: tuple[Node, ...],
        by_file: tuple[Node, ...] = (),
        by_file_data: tuple[Node, ...] = (),
    ) -> None:
        change = Change(
            self.index,
            entries or [],
            resize,
            queues,
            by_fsync=queues + by_file + by_file_data,
            by_fdatasync=queues + by_file_data,
        )
        change.name(lambda folder: folder.live)
        self.journal.append(change)
        for node in set(change.by_fsync):
            self._changes.setdefault(node, []).append(change)

    def _pend(self, file: File, pending: Write | Resize) -> None:
        file.pending.append(pending)
        self._dirty[file] = None

    # -- syncing --

    def _sync(self, record: Record, start: int) -> None:
        if record.detail == SyncKind.SYNCFS:
            nodes: list[Node] = list(self._dirty)
            if not record.error:
                self._commit([change for change in self.journal if change.index < start])
        else:
            node = self._node(record)
            nodes = [node]
            if not record.error:
                data_only = record.detail == SyncKind.FDATASYNC
                self._commit(self._made_sure_by(node, start, data_only))
        for node in nodes:
            if isinstance(node, File) and record.error:
                self._fail(node, start)
            elif isinstance(node, File):
                self._cover(node, start, record)

    def _made_sure_by(self, node: Node, start: int, data_only: bool) -> list[Change]:
        changes = [change for change in self._changes.pop(node, ()) if not change.sure]
        if changes:
            self._changes[node] = changes
        return [
            change
            for change in changes
            if change.index < start and (not data_only or node in change.by_fdatasync)
        ]

    def _commit(self, changes: list[Change]) -> None:
        """Make sure of these and of all they follow."""
        if not changes:
            return
        if self.model.reorder_metadata:
            keep = with_predecessors(self.journal, changes)
        else:
            keep = {c for c in self.journal if c.index <= changes[-1].index}
        for change in self.journal:
            if change in keep:
                change.sure = True
                change.name(lambda folder: folder.stored)
                if change.resize:
                    self._commit_resize(*change.resize)
        self.journal = [change for change in self.journal if not change.sure]

    def _commit_resize(self, file: File, resize: Resize) -> None:
        resize.apply(file.stored)
        rest: list[Write | Resize] = []
        for pending in file.pending:
            if isinstance(pending, Resize):
                if pending is not resize:
                    rest.append(pending)
            elif resize.grows_only or pending.index > resize.index or pending.end <= resize.size:
                rest.append(pending)
            elif pending.offset < resize.size:
                # What the cut took away can't come back.
                rest.append(pending.part(pending.offset, resize.size))
        self._settle(file, rest)

    def _cover(self, file: File, start: int, sync: Record) -> None:
        """The dirty pages of that moment are on disk now (or those of the synced range)."""
        first, last = 0, None
        if not sync.whole_file:
            first, last = sync.offset // PAGE, (sync.offset + sync.size - 1) // PAGE
        before = [w for w in file.pending if isinstance(w, Write) and w.index < start]
        if last is None and not any(write.forgotten for write in before):
            for write in before:
                write.store(file.stored)
            self._settle(file, [p for p in file.pending if p.index >= start])
            return
        pages = {
            page
            for write in before
            if not write.forgotten
            for page in _pages(write)
            if last is None or first <= page <= last
        }
        rest: list[Write | Resize] = []
        for pending in file.pending:
            if isinstance(pending, Resize) or pending.index >= start:
                rest.append(pending)
                continue
            for covered, part in _split(pending, pages):
                if covered:
                    part.store(file.stored)
                else:
                    rest.append(part)
        self._settle(file, rest)

    def _fail(self, file: File, start: int) -> None:
        if self.model.failed_sync_forgets:
            for pending in file.pending:
                if isinstance(pending, Write) and pending.index < start:
                    pending.forgotten = True

    def _settle(self, file: File, rest: list[Write | Resize]) -> None:
        file.pending = rest
        if not rest:
            self._dirty.pop(file, None)

    # -- looking up --

    def _locate(self, path: str) -> tuple[Folder, str]:
        *folders, name = path.split("/")
        folder = self.root
        for part in folders:
            node = folder.live[part]
            assert isinstance(node, Folder), path
            folder = node
        return folder, name

    def _node(self, record: Record) -> Node:
        node = self._by_inode.get(record.inode)
        if node is None:
            raise UntracedChange(f"nobody saw this file being made: {record}")
        return node

    def _file(self, record: Record) -> File:
        node = self._node(record)
        assert isinstance(node, File), record
        return node


def with_predecessors(journal: list[Change], changes: Iterable[Change]) -> set[Change]:
    """These changes and, by folder and by file, everything before them."""
    keep = set(changes)
    needed: set[Node] = set()
    for change in reversed(journal):
        if change in keep or not needed.isdisjoint(change.queues):
            keep.add(change)
            needed.update(change.queues)
    return keep


def _pages(write: Write) -> range:
    return range(write.offset // PAGE, (write.end - 1) // PAGE + 1)


def _split(write: Write, pages: set[int]) -> Iterable[tuple[bool, Write]]:
    """Cut a write into the runs that lie in these pages and those that don't."""
    start, inside = write.offset, write.offset // PAGE in pages
    for page in _pages(write)[1:]:
        if (page in pages) is not inside:
            yield inside, write.part(start, page * PAGE)
            start, inside = page * PAGE, not inside
    yield inside, write.part(start, write.end)
