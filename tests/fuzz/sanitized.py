"""Programs of the C core under AddressSanitizer and UBSan: how they are compiled and run."""

import os
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
CSRC = HERE.parent.parent / "csrc"
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
