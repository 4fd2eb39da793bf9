"""Compile csrc/ once, in parallel, for all that links it: the core, the tests' internals, lint.

    python csrc/build_objects.py [--strict]    # what the compiler warned of is shown, and an end

An object is compiled again when its source, a header that it includes, or the command is not what
it was. What the compiler said stays beside the object, so that lint sees warnings of objects that
others have compiled.
"""

import fcntl
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import setuptools  # noqa: F401  (brings distutils, which Python has no longer)

from distutils.ccompiler import new_compiler  # isort: skip
from distutils.sysconfig import customize_compiler  # isort: skip

HERE = Path(__file__).resolve().parent
OBJECTS = HERE.parent / "build" / "obj"
SANITIZED = bool(os.environ.get("OTTERMQ_SANITIZE"))

# What turns an overflow into an end instead of a way in. A sanitizer sees more by itself, and
# fortified calls would hide from it.
HARDENING = ["-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"]


def flags(sanitized: bool = SANITIZED) -> tuple[list[str], list[str]]:
    # No -Werror: a later compiler's new warning must not keep anyone from installing. `make lint`
    # takes none.
    compile_args = ["-std=gnu11", "-O3", "-g", "-Wall", "-Wextra", "-fvisibility=hidden"]
    link_args = ["-Wl,-z,relro,-z,now"]
    if not sanitized:
        compile_args += HARDENING
    else:
        sanitize = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
        compile_args += [*sanitize, "-O1", "-fno-omit-frame-pointer"]
        link_args += sanitize
    return compile_args, link_args


class Failed(Exception):
    """The compiler's words."""


def build(sanitized: bool = SANITIZED) -> list[Path]:
    """All objects, as the sources are now."""
    compile_args, _ = flags(sanitized)
    folder = OBJECTS / ("asan" if sanitized else "core")
    compiler = new_compiler()
    customize_compiler(compiler)
    command = [*compiler.compiler_so, *compile_args, f"-I{HERE}"]
    sources = sorted(HERE.rglob("*.c"))
    objects = [folder / source.relative_to(HERE).with_suffix(".o") for source in sources]
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        made_by = folder / "command"
        known = made_by.is_file() and made_by.read_text() == shlex.join(command)
        stale = [
            (source, made)
            for source, made in zip(sources, objects, strict=True)
            if not (known and _is_current(source, made))
        ]
        if not known:
            made_by.unlink(missing_ok=True)
            for _, made in stale:
                made.unlink(missing_ok=True)
            made_by.write_text(shlex.join(command))
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            said = pool.map(lambda pair: _compile(command, *pair), stale)
            failures = [each for each in said if each]
    if failures:
        raise Failed("".join(failures))
    return objects


def warnings(objects: Sequence[Path]) -> str:
    return "".join(made.with_suffix(".log").read_text() for made in objects)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Test runs side by side share the objects."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_current(source: Path, made: Path) -> bool:
    try:
        then = made.stat().st_mtime_ns
        # "x.o: x.c a.h b.h", over several lines. A header that went makes its object stale.
        _, _, included = made.with_suffix(".d").read_text().partition(":")
        names = included.replace("\\\n", " ").split()
        return str(source) in names and all(os.stat(name).st_mtime_ns < then for name in names)
    except FileNotFoundError:
        return False


def _compile(command: Sequence[str], source: Path, made: Path) -> str:
    """What the compiler said, if it failed."""
    made.parent.mkdir(parents=True, exist_ok=True)
    fresh = made.with_suffix(".new")
    parts = ["-MMD", "-MF", made.with_suffix(".d"), "-c", source, "-o", fresh]
    done = subprocess.run([*command, *parts], stderr=subprocess.PIPE, text=True)
    if done.returncode:
        return done.stderr or f"{source}: the compiler ended with {done.returncode}\n"
    made.with_suffix(".log").write_text(done.stderr)
    fresh.rename(made)
    return ""


def main() -> int:
    try:
        said = warnings(build())
    except Failed as failed:
        print(failed, end="", file=sys.stderr)
        return 1
    print(said, end="", file=sys.stderr)
    return int(bool(said) and "--strict" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
