"""csrc's internal headers for tests: `from tests.internals import ffi, lib`.

The product's border is ottermq.h and what it includes. Tests want to reach the WAL, a segment
or an index by themselves, so this builds a second cffi module from the internal headers, once,
into build/.
"""

import hashlib
import importlib.util
import os
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

from cffi import FFI

ROOT = Path(__file__).resolve().parent.parent
CSRC = ROOT / "csrc"
INTERNAL = (
    "base/checksum.h", "base/copy_nt.h", "base/buffer.h", "format/batch.h", "format/content.h",
    "cursor/offset_chunk.h", "cursor/offset_set.h", "cursor/offset_counts.h", "cursor/cursor.h",
    "net/tick_coalesce.h",
    "segment/index.h", "segment/segment.h", "net/socket.h", "wal/wal.h", "base/timing_wheel.h",
)  # fmt: skip
PRELUDE = "struct iovec { void *iov_base; size_t iov_len; };\n"

sys.path.insert(0, str(CSRC))
import build_core  # noqa: E402  (csrc is not a package: it is reached by path)
import build_objects  # noqa: E402

BORDER = tuple(build_core.border())  # in the order in which they need each other
HEADERS = (*BORDER, *INTERNAL)


def _fingerprint(files: list[Path]) -> str:
    digest = hashlib.sha256(" ".join(build_core.compile_args).encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _build() -> ModuleType:
    sources = sorted(CSRC.rglob("*.c"))
    name = f"_internals_{_fingerprint([*sources, *sorted(CSRC.rglob('*.h')), Path(__file__)])}"
    folder = ROOT / "build" / "tests"
    target = folder / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        builder = FFI()
        texts = [(CSRC / header).read_text() for header in HEADERS]
        builder.cdef(PRELUDE + "\n".join(build_core.declarations(text) for text in texts))
        builder.set_source(
            name,
            # Python.h, which comes before, has defined _GNU_SOURCE already.
            "#include <sys/uio.h>\n" + "\n".join(f'#include "{header}"' for header in HEADERS),
            extra_objects=[str(made) for made in build_objects.build()],
            include_dirs=[str(CSRC)],
            libraries=["pthread"],
            extra_compile_args=build_core.compile_args,
            extra_link_args=build_core.link_args,
        )
        # A build folder of its own: test runs side by side must not share object files.
        builder.compile(tmpdir=str(folder / f"tmp{os.getpid()}"))
        (folder / f"tmp{os.getpid()}" / target.name).rename(target)
    spec = importlib.util.spec_from_file_location(name, target)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_module = _build()
ffi = _module.ffi
lib = _module.lib
