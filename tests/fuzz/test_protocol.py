"""Conversations that no client would have: mutated, cut, reordered, oversized, on the ASan build.

`fuzz_frames` and `fuzz_kafka` feed them to a connection of a real engine, in the same process, and
check that another connection is served behind every single one. `mutate` makes them, so many as
asked for: a few thousand here, a million in `make soak` (five to ten minutes each).
"""

import shutil
from pathlib import Path

import pytest

from tests.fuzz.sanitized import HERE, link, run


@pytest.fixture(scope="module", params=["frames", "kafka"])
def target(
    request: pytest.FixtureRequest, core: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The program of a target, named after it."""
    folder = tmp_path_factory.mktemp("mutate")
    return link(request.param, "mutate_main.c", core, request.param, folder)


def feed(target: Path, count: int, seed: int, folder: Path, seconds: float = 300) -> None:
    corpus = HERE / "corpus" / target.name
    try:
        output = run(target, str(count), str(seed), corpus, folder=folder, seconds=seconds)
    except BaseException:
        if (folder / "last-input").exists():
            shutil.copy(folder / "last-input", target.parent / f"failed-{seed}")
        raise
    assert output == f"{count} inputs\n"


def test_a_few_thousand_broken_conversations(target: Path, tmp_path: Path) -> None:
    feed(target, 5000, 1, tmp_path)


@pytest.mark.soak
def test_a_million_broken_conversations(target: Path, tmp_path: Path) -> None:
    for seed in range(10):
        feed(target, 100_000, seed, tmp_path, seconds=3600)
