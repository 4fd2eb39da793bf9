"""An engine that is refused memory confirms nothing that it doesn't have, and goes on."""

import re
from pathlib import Path

from tests.fuzz.sanitized import FLAGS, core_objects, run


def test_what_there_was_no_memory_to_append_is_not_confirmed(tmp_path: Path) -> None:
    parts = (Path(__file__).with_name("no_memory.c"), *core_objects())
    wrap = "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=posix_memalign"
    run("gcc", *FLAGS, wrap, *parts, "-lpthread", "-o", "no_memory", folder=tmp_path)
    told = run(tmp_path / "no_memory", tmp_path / "data", folder=tmp_path)
    refused = re.fullmatch(r"(\d+) refused\n", told)
    assert refused and int(refused[1]) > 20
