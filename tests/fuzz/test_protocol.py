"""Conversations that no client would have: mutated, cut, reordered, oversized, on the ASan build.

`fuzz_frames` feeds them to a connection of a real engine, in the same process, and checks that
another connection is served behind every single one. `mutate` makes them, so many as asked for:
a few thousand here, a million in `make soak` (about five minutes).
"""

import shutil
from pathlib import Path

import pytest

from tests.fuzz.test_fuzz_corpora import CSRC, FLAGS, HERE, run

SOURCES = (HERE / "fuzz_frames.c", HERE / "mutate_main.c")
CORPUS = HERE / "corpus" / "frames"


@pytest.fixture(scope="module")
def mutate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mutate")
    sources = (*SOURCES, *sorted(CSRC.glob("*.c")))
    run("gcc", *FLAGS, *sources, "-lpthread", "-o", "mutate", folder=folder)
    return folder / "mutate"


def feed(mutate: Path, count: int, seed: int, folder: Path, seconds: float = 300) -> None:
    try:
        output = run(mutate, str(count), str(seed), CORPUS, folder=folder, seconds=seconds)
    except BaseException:
        if (folder / "last-input").exists():
            shutil.copy(folder / "last-input", mutate.parent / f"failed-{seed}")
        raise
    assert output == f"{count} inputs\n"


def test_a_few_thousand_broken_conversations(mutate: Path, tmp_path: Path) -> None:
    feed(mutate, 5000, 1, tmp_path)


@pytest.mark.soak
def test_a_million_broken_conversations(mutate: Path, tmp_path: Path) -> None:
    for seed in range(10):
        feed(mutate, 100_000, seed, tmp_path, seconds=3600)
