"""Our broker as users run it: a process of its own, with the defaults of a fresh data directory."""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from perf.served import Served

READY = re.compile(r" ready .* data=\S")  # the last word of its line


class OtterMQ(Served):
    """Ready on entering, gone on leaving."""

    def __init__(
        self,
        folder: Path,
        env: Mapping[str, str] | None = None,
        *,
        listener: str = "amqp",
        python: Path = Path(sys.executable),
    ) -> None:
        self._listener = listener
        folder.mkdir(parents=True, exist_ok=True)
        listeners = ["--amqp", "127.0.0.1:0", "--kafka", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
        # -P: as installed, not as it lies in the current folder
        command = [str(python), "-P", "-m", "ottermq", "serve", "--data", str(folder / "data")]
        kept = {key: value for key, value in os.environ.items() if not key.startswith("OTTERMQ_")}
        super().__init__(
            "OtterMQ", [*command, *listeners], {**kept, **(env or {})}, folder / "output"
        )

    def wait_until_ready(self) -> None:
        self.wait_for(lambda: READY.search(self.tail()) is not None)
        ready = READY.search(self.tail())
        assert ready
        port = re.search(rf" {self._listener}=\S+:(\d+)", ready[0])
        assert port
        self.address = ("127.0.0.1", int(port[1]))
