"""Run a program with the shim loaded, and get its trace.

    with recorded(tmp_path) as rec:
        rec.run([sys.executable, "-c", PROGRAM])     # its files go below $OTTERMQ_SHIM_ROOT
    for state in crash_states(rec.trace, seed=1, n=200): ...

The child tells what it has promised by writing to the file named in $OTTERMQ_SHIM_MARK: one
write, one marker, in order with everything else in the trace.

    mark = os.open(os.environ["OTTERMQ_SHIM_MARK"], os.O_WRONLY)
    os.write(mark, b"confirmed 17")

Faults are set through `rec.faults` by the parent, or `Faults.from_environment()` in the child.
"""

import contextlib
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.faults.rules import Faults
from tests.faults.trace import Trace, pack, snapshot

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
BUILD = PROJECT / "build" / "tests"
FLAGS = ("-std=gnu11", "-O2", "-g", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror")


def build_shim() -> Path:
    return build("shim", [*sorted(HERE.glob("shim*.c")), HERE / "shim.h"])


def build(name: str, files: Sequence[Path]) -> Path:
    """A library to be preloaded, built once for each content of its files."""
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for file in files:
        digest.update(file.read_bytes())
    target = BUILD / f"{name}_{digest.hexdigest()[:16]}.so"
    if not target.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        fresh = target.with_suffix(f".{os.getpid()}")
        sources = [str(file) for file in files if file.suffix == ".c"]
        command = ["gcc", *FLAGS, "-o", str(fresh), *sources, "-ldl", "-pthread"]
        subprocess.run(command, check=True)
        fresh.rename(target)
    return target


class Recording:
    """A folder whose every change is written down: `root`, its `trace`, its `faults`."""

    def __init__(self, folder: Path, root: Path, real_sync: bool) -> None:
        self.root = root
        self._trace_file = folder / "trace"
        self._mark_file = folder / "mark"
        self._faults_file = folder / "faults"
        self._shim = build_shim()
        with self._trace_file.open("wb") as file:
            for record in snapshot(root):
                file.write(pack(record))
            end = file.tell()
        self._mark_file.touch()
        self.faults = Faults.create(self._faults_file, end, real_sync)
        self._trace: Trace | None = None
        self._trace_end = -1

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """What makes a program run under the shim. A preload already there (a sanitizer's, which
        must come first) stays in front, as does the path: a sanitized core is found there."""
        env = {**os.environ, **(extra or {})}
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (env.get("PYTHONPATH"), str(PROJECT))))
        env["LD_PRELOAD"] = " ".join(filter(None, (env.get("LD_PRELOAD"), str(self._shim))))
        env["OTTERMQ_SHIM_ROOT"] = str(self.root)
        env["OTTERMQ_SHIM_TRACE"] = str(self._trace_file)
        env["OTTERMQ_SHIM_MARK"] = str(self._mark_file)
        env["OTTERMQ_SHIM_FAULTS"] = str(self._faults_file)
        return env

    def run(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        check: bool = True,
        timeout: float = 240,
    ) -> subprocess.CompletedProcess[str]:
        """Run it to its end. May be called again: the trace goes on."""
        return subprocess.run(
            command,
            env=self.environment(env),
            check=check,
            timeout=timeout,
            stdout=subprocess.PIPE,
            text=True,
        )

    def popen(
        self, command: Sequence[str | os.PathLike[str]], *, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start it with pipes to talk through; faults can be switched while it runs."""
        return subprocess.Popen(
            command,
            env=self.environment(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def trace(self) -> Trace:
        """All that has happened so far."""
        if self._trace is None or self.faults.trace_end != self._trace_end:
            self.load_trace()
        assert self._trace is not None
        return self._trace

    def load_trace(self) -> None:
        self._trace_end = self.faults.trace_end
        self._trace = Trace.load(self._trace_file, self._trace_end)


@contextlib.contextmanager
def recorded(
    tmp_path: Path, *, root: Path | None = None, real_sync: bool = False
) -> Iterator[Recording]:
    """Record what happens to `root` (a new folder, unless one is given: what lies in it is taken
    as safely on disk). Syncs needn't reach the real disk for the simulator's sake. The trace can
    still be read afterwards."""
    folder = tmp_path / "recording"
    folder.mkdir(parents=True)
    if root is None:
        root = tmp_path / "data"
        root.mkdir()
    recording = Recording(folder, root.resolve(), real_sync)
    try:
        yield recording
        recording.load_trace()
    finally:
        shutil.rmtree(folder)
