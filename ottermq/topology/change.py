"""A change of the topology: done in memory, not yet on disk.

A change carries the rows that make it last and the steps that take it back. The caller saves it
(`topology.pending.save`) before answering; when the disk refuses, it is undone as if it had never
been. Steps are taken back last first.

Save a change before you await anything else.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ottermq.topology.exchange import Binding, Exchange
from ottermq.topology.queue import Queue
from ottermq.wal.errors import LogError

Statement = tuple[str, tuple[Any, ...]]
Thing = Queue | Exchange | Binding


@dataclass(slots=True, eq=False)
class Change:
    queue: Queue | None = None  # the one declared or deleted; None: there was none to delete
    exchange: Exchange | None = None
    created: bool = False  # False: it was there already, and equivalent
    removed: list[Queue] = field(default_factory=list)  # queues that are gone by it
    touched: set[int] = field(default_factory=set)  # exchanges whose routes may differ now
    statements: list[Statement] = field(default_factory=list)
    made: list[Thing] = field(default_factory=list)  # durable things that are not on disk yet
    steps: list[Callable[[], None]] = field(default_factory=list)
    # It only found an object of this change, which isn't on disk yet: wait for it, share its fate.
    maker: "Change | None" = None
    taken: bool = False  # another change took its rows along: wait for that one
    undone: bool = False
    refusal: LogError | None = None  # why, if it was the disk
