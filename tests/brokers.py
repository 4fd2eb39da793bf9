"""A broker as users run it: a process of its own, known by what it logs."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType

READY = re.compile(
    r" ready amqp=(?P<amqp>\S+)( amqps=(?P<amqps>\S+))? kafka=(?P<kafka>\S+)"
    r"( kafkas=(?P<kafkas>\S+))? admin=(?P<admin>\S+)( health=\S+)?"
    r" data=(?P<data>\S+)$"
)
ANY_PORT = {"amqp": "127.0.0.1:0", "kafka": "127.0.0.1:0", "admin": "127.0.0.1:0"}
# How librdkafka logs in as an administrator; who doesn't log in is none.
KAFKA_ADMIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "guest",
    "sasl.password": "guest",
}
PATIENCE = 60.0  # seconds: far from what a start takes, even sanitized on a busy machine
# Filling the usual 64 MiB files with zeros is not what these tests are about.
SMALL_WAL = {
    "OTTERMQ_WAL__FILE_SIZE": "1MiB",
    "OTTERMQ_WAL__MAX_SIZE": "4MiB",
    "OTTERMQ_WAL__BATCH_MAX_SIZE": "256KiB",
    "OTTERMQ_WAL__LOW_SPACE_LIMIT": "0",
    "OTTERMQ_WAL__CHECKPOINT_INTERVAL": "3s",  # what retention lets go lies in segments
    "OTTERMQ_WAL__RETENTION__CHECK_INTERVAL": "1s",
}


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Ours without anything that would configure a broker."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTTERMQ_")}
    return {**kept, **(extra or {})}


PROGRAM = ("-m", "ottermq")
LAST_WORDS = 200  # lines: a sanitizer's whole report


def command(
    arguments: Iterable[str], program: Iterable[str] = PROGRAM, python: str = sys.executable
) -> list[str]:
    # -P: as installed, not as it lies in the current folder
    return [python, "-P", *program, *arguments]


def run(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A command that is expected to end by itself."""
    return subprocess.run(
        command(arguments), env=environment(env), capture_output=True, text=True, timeout=PATIENCE
    )


class Broker:
    """`with Broker(data) as broker`: ready on entering, stopped on leaving."""

    def __init__(
        self,
        data: Path,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        program: Iterable[str] = PROGRAM,
        python: str = sys.executable,
    ) -> None:
        self.data = data
        flags = [part for listener, place in ANY_PORT.items() for part in (f"--{listener}", place)]
        self.process = subprocess.Popen(
            command(["serve", "--data", str(data), *flags, *arguments], program, python),
            env=environment({**SMALL_WAL, **(env or {})}),
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait_for(self, pattern: str | re.Pattern[str]) -> re.Match[str]:
        """The first line in the log that matches."""

        def found() -> re.Match[str] | None:
            return next((match for line in self.lines if (match := re.search(pattern, line))), None)

        with self._changed:
            self._changed.wait_for(lambda: self._ended or found(), PATIENCE)
            match = found()
        assert match, f"no line {pattern} in {self.lines}"
        return match

    def address(self, listener: str) -> tuple[str, int]:
        ready = self.wait_for(READY)
        host, _, port = ready[listener].rpartition(":")
        return host, int(port)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(PATIENCE)
        finally:
            self.process.kill()  # only if it didn't end by itself
            self.process.wait()
            self._reader.join()
            assert self.process.stderr
            self.process.stderr.close()

    def __enter__(self) -> "Broker":
        try:
            self.wait_for(READY)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        code = self.stop()
        if error:
            error.add_note(f"the broker ended with {code}; its last words:")
            error.add_note("\n".join(self.lines[-LAST_WORDS:]))
