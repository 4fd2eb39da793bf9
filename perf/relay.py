"""The two ceilings: a relay that only forwards, and one that syncs before it confirms."""

import re
from pathlib import Path

from perf.programs import program
from perf.served import Served

READY = re.compile(r"^ready (\d+)$", re.MULTILINE)


class Relay(Served):
    """Ready on entering, gone on leaving. Durable: its file lies in the folder."""

    def __init__(self, folder: Path, *, durable: bool = False, hold: int = 64 << 20) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        command = [str(program("amqp_relay", "relay_*.c")), "0", "--hold", str(hold)]
        if durable:
            command += ["--durable", str(folder / "relay.log")]
        name = "durable relay" if durable else "relay"
        super().__init__(name, command, None, folder / "output")

    def wait_until_ready(self) -> None:
        self.wait_for(lambda: READY.search(self.tail()) is not None)
        ready = READY.search(self.tail())
        assert ready
        self.address = ("127.0.0.1", int(ready[1]))
