"""All threads at once under ThreadSanitizer: no race, no answer that can't be."""

import platform
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


def stress(name: str, folder: Path) -> list[str]:
    """Run it for a while; the words of its last line."""
    program = folder / name
    sources = [ROOT / "tests" / "csrc" / f"{name}.c", *(ROOT / "csrc").rglob("*.c")]
    # -Wno-tsan: the SIGBUS guard's fence is one that ThreadSanitizer doesn't model.
    flags = ["-std=gnu11", "-O1", "-g", "-fsanitize=thread", "-Wno-tsan", f"-I{ROOT / 'csrc'}"]
    subprocess.run(["gcc", *flags, *map(str, sources), "-lpthread", "-o", str(program)], check=True)
    # ThreadSanitizer's memory map and a randomised address space don't always fit together.
    command = ["setarch", platform.machine(), "-R", str(program), str(folder / "data"), "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout.splitlines()[-1].split()


@pytest.mark.soak
def test_appenders_consumers_readers_and_checkpoints_get_along(tmp_path: Path) -> None:
    words = stress("stress_store", tmp_path)
    assert words[-2:] == ["closed", "0"]
    assert int(words[1]) > 3  # checkpoints


@pytest.mark.soak
def test_the_engine_its_callers_and_its_clients_get_along(tmp_path: Path) -> None:
    words = stress("stress_engine", tmp_path)
    assert int(words[3]) > 100 and int(words[5]) > 100  # published, delivered
