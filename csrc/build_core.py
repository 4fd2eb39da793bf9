"""Build ottermq._core from csrc/: the cffi definitions come from ottermq.h and its headers."""

import os
import re
from pathlib import Path

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


# What turns an overflow into an end instead of a way in. A sanitizer sees more by itself, and
# fortified calls would hide from it.
HARDENING = ["-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"]


def flags() -> tuple[list[str], list[str]]:
    # No -Werror: a later compiler's new warning must not keep anyone from installing. `make lint`
    # has it.
    compile_args = ["-std=gnu11", "-O3", "-g", "-Wall", "-Wextra", "-fvisibility=hidden"]
    link_args = ["-Wl,-z,relro,-z,now"]
    if not os.environ.get("OTTERMQ_SANITIZE"):
        compile_args += HARDENING
    else:
        sanitize = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
        compile_args += [*sanitize, "-O1", "-fno-omit-frame-pointer"]
        link_args += sanitize
    return compile_args, link_args


compile_args, link_args = flags()
# setuptools wants paths relative to the project's root, and only those end up in an sdist.
sources = sorted(str(path.relative_to(ROOT)) for path in HERE.rglob("*.c"))

ffi = FFI()
ffi.cdef("\n".join(declarations((HERE / name).read_text()) for name in border()))
ffi.set_source(
    "ottermq._core",
    '#include "ottermq.h"',
    sources=sources,
    include_dirs=["csrc"],
    depends=sorted(str(path.relative_to(ROOT)) for path in HERE.rglob("*.h")),
    libraries=["pthread"],
    extra_compile_args=compile_args,
    extra_link_args=link_args,
)

if __name__ == "__main__":
    ffi.compile(tmpdir=str(ROOT), verbose=True)
