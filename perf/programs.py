"""The C programs that measure: compiled into build/perf, again whenever a source changed."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "perf"
FLAGS = ["-std=gnu11", "-O3", "-g", "-Wall", "-Wextra", "-Werror"]


def program(name: str, *with_sources: Path, folder: Path = BUILD) -> Path:
    """The program of perf/<name>.c, together with these sources."""
    target = folder / name
    main = ROOT / "perf" / f"{name}.c"
    headers = [header for source in (main, *with_sources) for header in source.parent.glob("*.h")]
    newest = max(path.stat().st_mtime for path in (main, *with_sources, *headers))
    if not target.exists() or target.stat().st_mtime < newest:
        folder.mkdir(parents=True, exist_ok=True)
        includes = [f"-I{place}" for place in sorted({str(path.parent) for path in with_sources})]
        sources = [str(path) for path in (main, *with_sources)]
        # Under another name first: whoever runs it meanwhile keeps the old one.
        fresh = target.with_suffix(f".{os.getpid()}")
        command = ["gcc", *FLAGS, *includes, *sources, "-lpthread", "-lm", "-o", str(fresh)]
        subprocess.run(command, check=True)
        fresh.replace(target)
    return target
