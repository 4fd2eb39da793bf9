"""Debian's RabbitMQ as a process of ours: the peer to measure and to compare answers with.

    with RabbitMQ(folder) as rabbit:
        connect(rabbit.address)         # guest/guest
        rabbit.control("add_vhost", "x")

Everything it writes lies below the folder; node name, ports and epmd are its own, so that it
meets neither a RabbitMQ of the machine nor a second one of ours.
"""

import os
import shutil
import subprocess
from pathlib import Path

from perf.served import NotServing, Served, free_port, speaks_amqp

# Not /usr/sbin: those wrappers change to the user and folder of the machine's own RabbitMQ.
PROGRAMS = Path("/usr/lib/rabbitmq/bin")
ATTEMPTS = 3


def installed() -> bool:
    return (PROGRAMS / "rabbitmq-server").exists() and shutil.which("epmd") is not None


class RabbitMQ(Served):
    """Ready on entering, gone on leaving; `settings` are lines of rabbitmq.conf."""

    def __init__(
        self,
        folder: Path,
        *settings: str,
        name: str = "RabbitMQ",
        plugins: tuple[str, ...] = (),
    ) -> None:
        self.folder = folder
        self.settings = settings
        self.plugins = plugins
        self._epmd: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(name, [str(PROGRAMS / "rabbitmq-server")], None, folder / "output")

    def start(self) -> None:
        # A free port is only free until someone takes it.
        for attempt in range(ATTEMPTS):
            self._choose_ports()
            self._epmd = subprocess.Popen(
                ["epmd", "-address", "127.0.0.1", "-port", self.environment["ERL_EPMD_PORT"]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                return super().start()
            except NotServing:
                if attempt == ATTEMPTS - 1:
                    raise

    def _choose_ports(self) -> None:
        port = free_port()
        self.address = ("127.0.0.1", port)
        plugins, config = self.folder / "enabled_plugins", self.folder / "rabbitmq.conf"
        plugins.write_text(f"[{','.join(self.plugins)}].\n")
        listen = (f"listeners.tcp.local = 127.0.0.1:{port}", "log.file.level = warning")
        config.write_text("\n".join((*listen, *self.settings)) + "\n")
        kept = {key: value for key, value in os.environ.items() if not key.startswith("RABBITMQ_")}
        self.environment = {
            **kept,
            "HOME": str(self.folder),  # where the Erlang cookie is made
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "no-rabbitmq-env.conf"),
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_NODENAME": f"peer{port}@localhost",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            "ERL_EPMD_PORT": str(free_port()),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }
        self._env = self.environment

    def wait_until_ready(self) -> None:
        self.wait_for(lambda: speaks_amqp(self.address))
        # The listener opens before the last boot steps are done.
        self.control("await_startup")

    def control(self, *arguments: str) -> str:
        """What rabbitmqctl says."""
        done = subprocess.run(
            [str(PROGRAMS / "rabbitmqctl"), "-q", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise NotServing(f"rabbitmqctl {arguments[0]}: {done.stderr.strip()}")
        return done.stdout

    def stop(self) -> None:
        super().stop()
        if self._epmd:
            self._epmd.terminate()
            self._epmd.wait()
            self._epmd = None
