"""A cursor that is refused memory says so, and is what it was."""

import re
import subprocess
from pathlib import Path

from tests.csrc.set_internals import CSRC

SOURCES = ("offset_chunk.c", "offset_set.c", "offset_counts.c", "cursor.c", "cursor_codec.c")


def test_a_cursor_survives_any_allocation_that_fails(tmp_path: Path) -> None:
    program = tmp_path / "cursor_no_memory"
    subprocess.run(
        [
            *("cc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"),
            *("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
            "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc",
            f"-I{CSRC}",
            *("-o", str(program)),
            str(Path(__file__).with_name("cursor_no_memory.c")),
            *(str(CSRC / "cursor" / source) for source in SOURCES),
        ],
        check=True,
    )
    run = subprocess.run([program], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    refused = re.fullmatch(r"(\d+) refused\n", run.stdout)
    assert refused and int(refused[1]) > 100
