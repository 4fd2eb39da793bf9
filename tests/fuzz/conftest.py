"""What the targets are linked with."""

from pathlib import Path

import pytest

from tests.fuzz.sanitized import CSRC, FLAGS, run


@pytest.fixture(scope="session")
def core(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The C core with sanitizers: compiled once for all targets."""
    folder = tmp_path_factory.mktemp("core")
    run("gcc", *FLAGS, "-c", *sorted(CSRC.rglob("*.c")), folder=folder)
    return sorted(folder.glob("*.o"))
