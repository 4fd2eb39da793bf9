"""All of the store's threads at once under ThreadSanitizer: no race, no answer that can't be."""

import platform
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.soak
def test_appenders_consumers_readers_and_checkpoints_get_along(tmp_path: Path) -> None:
    program = tmp_path / "stress_store"
    sources = [ROOT / "tests" / "csrc" / "stress_store.c", *(ROOT / "csrc").glob("*.c")]
    # -Wno-tsan: the SIGBUS guard's fence is one that ThreadSanitizer doesn't model.
    flags = ["-std=gnu11", "-O1", "-g", "-fsanitize=thread", "-Wno-tsan", f"-I{ROOT / 'csrc'}"]
    subprocess.run(["gcc", *flags, *map(str, sources), "-lpthread", "-o", str(program)], check=True)
    # ThreadSanitizer's memory map and a randomised address space don't always fit together.
    command = ["setarch", platform.machine(), "-R", str(program), str(tmp_path / "data"), "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "closed 0" in done.stdout
    assert int(done.stdout.split()[1]) > 3  # checkpoints
