"""Programs of the C core under AddressSanitizer and UBSan: how they are compiled and run."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CSRC = HERE.parent.parent / "csrc"

sys.path.insert(0, str(CSRC))
import build_objects  # noqa: E402  (csrc is not a package: it is reached by path)

FLAGS = [
    *("-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{CSRC}"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
]
# Targets whose engine has no thread of its own: by_hand.h.
BY_HAND = ("frames", "kafka")
WRAP = "-Wl,--wrap=om_engine_main,--wrap=om_clock_ms,--wrap=om_now_ns"
# A run that is itself under a sanitizer (make asan) must not hand its own on.
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "ASAN_OPTIONS")
}


def core_objects() -> list[Path]:
    """The C core with sanitizers: those that `make asan` runs on, compiled where they are stale."""
    return [Path(made) for made in build_objects.build(sanitized=True)]


def link(name: str, main: str, core: list[Path], out: str, folder: Path) -> Path:
    """The program of a target, with that main()."""
    wrap = [WRAP] if name in BY_HAND else []
    sources = (HERE / f"fuzz_{name}.c", HERE / main)
    run("gcc", *FLAGS, *sources, *core, *wrap, "-lpthread", "-o", out, folder=folder)
    return folder / out


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
