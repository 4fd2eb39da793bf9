"""A server under measurement: processes of one group that can be frozen while another has its turn.

With two cores, even an idle peer that wakes for its housekeeping shows in the numbers of the
contestant. So a peer is stopped (SIGSTOP) as a whole, and continues at its turn.
"""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

PATIENCE = 90.0


class NotServing(Exception):
    """It ended, or didn't answer in time; the message ends with what it wrote."""


class Served:
    """`with Served(...) as server`: ready on entering, gone on leaving."""

    def __init__(
        self, name: str, command: list[str], env: Mapping[str, str] | None, output: Path
    ) -> None:
        self.name = name
        self.address = ("127.0.0.1", 0)
        self._command = command
        self._env = env
        self._output = output
        self._process: subprocess.Popen[bytes] | None = None
        self.took = 0.0  # seconds from its start until it was ready

    def start(self) -> None:
        began = time.monotonic()
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                self._command,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # a group of its own: signals reach all of it
            )
        try:
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise
        self.took = time.monotonic() - began

    def wait_until_ready(self) -> None:
        """Until it speaks AMQP on its address; subclasses know a better sign."""
        self.wait_for(lambda: speaks_amqp(self.address))

    def wait_for(self, ready: Callable[[], bool], patience: float = PATIENCE) -> None:
        assert self._process
        limit = time.monotonic() + patience
        while not ready():
            if self._process.poll() is not None:
                raise NotServing(f"{self.name} ended ({self._process.returncode}): {self.tail()}")
            if time.monotonic() > limit:
                raise NotServing(f"{self.name} isn't ready after {patience:g} s: {self.tail()}")
            time.sleep(0.02)

    def ended(self) -> bool:
        """Without having been asked."""
        return self._process is not None and self._process.poll() is not None

    def tail(self) -> str:
        return self._output.read_text(errors="replace")[-2000:].strip()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._process is None:
            return
        self.resume()
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self._signal(signal.SIGKILL)  # what is left of the group
            self._process.wait()
            self._process = None

    @property
    def group(self) -> int:
        """Its process group."""
        assert self._process
        return self._process.pid

    def peak_memory(self) -> int:
        """The most bytes that were resident, of all processes of the group together."""
        return self._memory("VmHWM")

    def own_memory(self) -> int:
        """Bytes that are no file's: what the page cache can't give back."""
        return self._memory("RssAnon")

    def _memory(self, kind: str) -> int:
        total = 0
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, IndexError):  # it may end while we look
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == self.group:
                    status = (entry / "status").read_text()
                    total += int(status.partition(f"{kind}:")[2].split()[0]) * 1024
        return total

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.group, number)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def speaks_amqp(address: tuple[str, int]) -> bool:
    """It answers a protocol header with connection.start."""
    try:
        with socket.create_connection(address, timeout=5) as link:
            link.sendall(b"AMQP\x00\x00\x09\x01")
            return link.recv(11)[:1] == b"\x01"
    except OSError:
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
