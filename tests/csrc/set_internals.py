"""csrc's offset sets and tallies for tests: `from tests.csrc.set_internals import ffi, lib`.

They lie below every other part, so they are built from their own three files, in a moment,
whatever state the rest of the core is in. The folder and the flags are tests/internals.py's.
"""

import hashlib
import importlib.util
import os
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

from cffi import FFI

ROOT = Path(__file__).resolve().parent.parent.parent
CSRC = ROOT / "csrc"
PARTS = ("offset_chunk", "offset_set", "offset_counts")

sys.path.insert(0, str(CSRC))
import build_core  # noqa: E402  (csrc is not a package: it is reached by path)


def _build() -> ModuleType:
    headers = [CSRC / "cursor" / f"{part}.h" for part in PARTS]
    sources = [CSRC / "cursor" / f"{part}.c" for part in PARTS]
    digest = hashlib.sha256(" ".join(build_core.compile_args).encode())
    for file in (*headers, *sources, CSRC / "om_base.h"):
        digest.update(file.read_bytes())
    name = f"_sets_{digest.hexdigest()[:16]}"
    folder = ROOT / "build" / "tests"
    target = folder / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not target.exists():
        own = folder / f"sets{os.getpid()}"
        own.mkdir(parents=True, exist_ok=True)
        builder = FFI()
        results = "enum om_result { OM_E_INVALID = ..., OM_E_NO_MEMORY = ..., ... };\n"
        builder.cdef(
            results + "\n".join(build_core.declarations(header.read_text()) for header in headers)
        )
        builder.set_source(
            name,
            '#include "om_base.h"\n' + "\n".join(f'#include "cursor/{part}.h"' for part in PARTS),
            sources=[str(source) for source in sources],
            include_dirs=[str(CSRC)],
            extra_compile_args=build_core.compile_args,
            extra_link_args=build_core.link_args,
        )
        builder.compile(tmpdir=str(own))
        (own / target.name).rename(target)
    spec = importlib.util.spec_from_file_location(name, target)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_module = _build()
ffi = _module.ffi
lib = _module.lib
