"""The stored inputs of every fuzz target, run again under AddressSanitizer and UBSan.

A target is fuzz_<name>.c here, its inputs lie in corpus/<name>/. Whatever a fuzzing run found
is kept there, so it stays found.
"""

from pathlib import Path

import pytest

from tests.fuzz.sanitized import HERE, link, run

NAMES = sorted(path.stem.removeprefix("fuzz_") for path in HERE.glob("fuzz_*.c"))


@pytest.mark.parametrize("name", NAMES)
def test_nothing_the_fuzzer_once_found_comes_back(
    name: str, core: list[Path], tmp_path: Path
) -> None:
    inputs = [path for path in (HERE / "corpus" / name).iterdir() if path.is_file()]
    assert inputs, "a fuzz target without a corpus"
    replay = link(name, "replay_main.c", core, "replay", tmp_path)
    output = run(replay, HERE / "corpus" / name, folder=tmp_path)
    assert output == f"{len(inputs)} inputs\n"
