"""The power goes while messages die, and comes back when the rest of them is overdue.

Whatever the disk kept: each confirmed message is in the last queue of its way, once, or among the
few that fit into the one with a limit.
"""

import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.engine.expiring_child import KEPT, LIMITED, OPTIONS, QUEUES, TTL, add_queues
from tests.engine.plane import Plane
from tests.faults.powerloss import EXT4, POSIX, crash_states
from tests.faults.shim import recorded
from tests.faults.trace import Trace

MORTAL = [name for name in QUEUES if name != LIMITED]
MODELS = {"ext4": EXT4, "posix": POSIX, "torn": replace(EXT4, torn_sectors=True)}


def life(folder: Path, seed: int) -> Trace:
    with recorded(folder) as rec:
        command = [sys.executable, "-P", "-m", "tests.engine.expiring_child", str(seed)]
        assert rec.run(command).returncode == 0
    return rec.trace


def taken(plane: Plane, queue: str) -> Iterator[int]:
    client = plane.client()
    for _ in range(plane.ready(queue)):
        got = client.get(queue, no_ack=True)
        assert got is not None
        yield int(got.body.split()[0])


def hold(folder: Path, marks: Sequence[bytes]) -> None:
    """A start on these files, with all queues added before any of them may act."""
    plane = Plane(folder, OPTIONS, paused=True)
    try:
        if not all(("/", name) in plane.store for name in (*QUEUES, KEPT)):
            assert not marks, "a queue is gone, and something was confirmed"
            return
        add_queues(plane)
        plane.engine.start()
        plane.wait(lambda: not any(plane.ready(name) + plane.unacked(name) for name in MORTAL))
        found = Counter(number for name in (KEPT, LIMITED) for number in taken(plane, name))
    finally:
        plane.close()
    confirmed = int(marks[-1]) if marks else 0
    lost = [number for number in range(1, confirmed + 1) if not found[number]]
    assert not lost, f"{lost} of {confirmed} confirmed are lost"
    assert set(found.values()) <= {1}, f"more than once: {found.most_common(3)}"


@pytest.mark.parametrize(
    ("model", "seed"),
    [
        ("ext4", 1),
        ("posix", 2),
        *(pytest.param(m, s, marks=pytest.mark.soak) for m in MODELS for s in range(3, 13)),
    ],
)
def test_what_has_died_meanwhile_is_where_it_belongs(
    memory_path: Path, model: str, seed: int
) -> None:
    trace = life(memory_path, seed)
    assert len(trace.markers()) > 20, "nothing was promised: nothing is proved"
    for state in crash_states(trace, seed=seed, n=10, model=MODELS[model]):
        target = state.materialise(memory_path / "disk")
        try:
            hold(target, state.markers)
        except AssertionError as error:
            raise AssertionError(f"{error}\nafter a {state}") from error
        shutil.rmtree(target)


def test_some_die_in_the_first_life_and_some_between_two(memory_path: Path) -> None:
    """Or the test above would prove less than it says."""
    with recorded(memory_path) as rec:
        rec.run([sys.executable, "-P", "-m", "tests.engine.expiring_child", "1"])
    plane = Plane(rec.root, OPTIONS, paused=True)
    try:
        add_queues(plane)
        assert plane.ready(KEPT) > 10, f"nothing died within {TTL} ms"
        assert sum(plane.ready(name) for name in QUEUES) > 5, "nothing was left to die"
    finally:
        plane.close()
