"""Build ottermq._core from csrc/: the cffi definitions come from ottermq.h and its headers."""

import re
from pathlib import Path

from build_objects import flags
from cffi import FFI

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


def declarations(header: str) -> str:
    """The header as cffi wants it: no preprocessor lines but plain integer #defines."""
    kept = []
    for line in header.splitlines():
        constant = re.match(r"#define \w+ -?\d+(?=\s*(/\*|$))", line)
        if constant:
            kept.append(constant.group())
            line = line[constant.end() :]
        if not line.startswith("#"):
            kept.append(line)
    return "\n".join(kept)


def border(header: str = "ottermq.h") -> list[str]:
    """The headers that Python may call, each behind those that it includes."""
    found: list[str] = []
    for below in re.findall(r'#include "(\w+\.h)"', (HERE / header).read_text()):
        found += [name for name in border(below) if name not in found]
    return [*found, header]


compile_args, link_args = flags()
ffi = FFI()
ffi.cdef("\n".join(declarations((HERE / name).read_text()) for name in border()))
ffi.set_source(
    "ottermq._core",
    '#include "ottermq.h"',
    # The sources themselves are compiled by build_objects.py, and linked by setup.py.
    sources=[],
    include_dirs=["csrc"],
    depends=sorted(str(path.relative_to(ROOT)) for path in HERE.rglob("*.[ch]")),
    libraries=["pthread"],
    extra_compile_args=compile_args,
    extra_link_args=link_args,
)
