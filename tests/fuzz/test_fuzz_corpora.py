"""The stored inputs of every fuzz target, run again under AddressSanitizer and UBSan.

A target is fuzz_<name>.c here, its inputs lie in corpus/<name>/. Whatever a fuzzing run found
is kept there, so it stays found.
"""

import os
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
CSRC = HERE.parent.parent / "csrc"
NAMES = sorted(path.stem.removeprefix("fuzz_") for path in HERE.glob("fuzz_*.c"))
FLAGS = [
    *("-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{CSRC}"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
]
# A run that is itself under a sanitizer (make asan) must not hand its own on.
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "ASAN_OPTIONS")
}


def run(*command: str | Path, folder: Path, seconds: float = 300) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stderr[-8000:]
    return done.stdout


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The C core with sanitizers: compiled once for all targets."""
    folder = tmp_path_factory.mktemp("core")
    run("gcc", *FLAGS, "-c", *sorted(CSRC.glob("*.c")), folder=folder)
    return sorted(folder.glob("*.o"))


@pytest.mark.parametrize("name", NAMES)
def test_nothing_the_fuzzer_once_found_comes_back(
    name: str, core: list[Path], tmp_path: Path
) -> None:
    inputs = [path for path in (HERE / "corpus" / name).iterdir() if path.is_file()]
    assert inputs, "a fuzz target without a corpus"
    sources = (HERE / f"fuzz_{name}.c", HERE / "replay_main.c")
    run("gcc", *FLAGS, *sources, *core, "-lpthread", "-o", "replay", folder=tmp_path)
    output = run(tmp_path / "replay", HERE / "corpus" / name, folder=tmp_path)
    assert output == f"{len(inputs)} inputs\n"
