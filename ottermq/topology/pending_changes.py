"""Changes on their way to the disk, in the order they happened; and back, if it refuses them.

Rows carry names, and a name may be deleted and declared again: rows in another order than events
would leave another topology on disk than in memory. So a change that is saved takes along those
that happened before it and were not saved yet. Their own save then only waits for that commit; so
does the save of a change that only found an object that isn't on disk yet.
"""

from collections.abc import Callable, Sequence
from functools import partial

from ottermq.topology.change import Change, Statement
from ottermq.topology.graph import Graph
from ottermq.topology.metadb import MetaDb
from ottermq.wal.errors import LogError, StorageFailure


class PendingChanges:
    def __init__(self, db: MetaDb | None, graph: Graph, tell: Callable[[Change], None]) -> None:
        """tell: of a change that was undone. Without a db nothing is kept."""
        self._db = db
        self._graph = graph
        self._tell = tell
        self._pending: dict[Change, None] = {}  # oldest first

    def enter(self, change: Change) -> None:
        if change.statements and not change.taken:
            self._pending[change] = None

    async def save(self, *changes: Change, also: Sequence[Statement] = ()) -> None:
        """On disk when it returns, in one commit with `also`. LogError: all of it is undone.

        Needed for what was found, too: another connection's declaration may still be under way.
        """
        self._check_standing(changes)
        for change in changes:
            self.enter(change)  # it may have been given rows since it was made
        group = self._take_until(changes)
        rows = [row for each in group for row in each.statements] + [*also]
        if self._db and (rows or any(change.taken or change.maker for change in changes)):
            # No rows is fine: it is done when all that was asked for before is.
            await self._db.commit(rows, partial(self._refuse, group))
            self._check_standing(changes)
        self._keep(group)

    def _check_standing(self, changes: Sequence[Change]) -> None:
        for change in changes:
            fate = change.maker or change
            if fate.undone:
                raise fate.refusal or StorageFailure("undone before it was saved")

    def save_now(self, change: Change) -> None:
        """The same, blocking: for the start."""
        group = self._take_until([change])
        if self._db:
            try:
                self._db.commit_now([row for each in group for row in each.statements])
            except LogError as error:
                self._refuse(group, error)
                raise
        self._keep(group)

    def _take_until(self, changes: Sequence[Change]) -> list[Change]:
        """All that are pending up to the last of these and of their makers."""
        wanted = self._pending.keys() & {each for one in changes for each in (one, one.maker)}
        group = []
        for each in self._pending if wanted else ():
            group.append(each)
            wanted.discard(each)
            if not wanted:
                break
        for each in group:
            each.taken = True
            del self._pending[each]
        return group

    def _keep(self, group: Sequence[Change]) -> None:
        for change in group:
            self._graph.saved(change)

    def _refuse(self, group: Sequence[Change], error: LogError) -> None:
        """Pending changes came later, and may build on these: they are undone first."""
        for change in reversed([*group, *self._pending]):
            change.refusal = error
            self.undo(change)

    def undo(self, change: Change) -> None:
        """As if it had never been. For an unsaved change; later ones must be undone first."""
        if change.undone:
            return
        change.undone = True
        self._pending.pop(change, None)
        self._graph.saved(change)
        for step in reversed(change.steps):
            step()
        self._tell(change)
