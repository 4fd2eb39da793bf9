"""Apache Kafka as a process of ours: the peer on the Kafka side. One node, KRaft, its defaults.

    with ApacheKafka(folder) as kafka:
        connect(kafka.address)

Its jars come from Maven, once, some 150 MB, to build/kafka-tools; its tools, Streams, Connect and
MirrorMaker are among them.
"""

import shutil
import socket
import subprocess
from pathlib import Path

from perf.programs import ROOT
from perf.served import NotServing, Served, free_port

VERSION = "4.3.1"
JARS = ROOT / "build" / "kafka-tools"
ARTIFACTS = ("kafka_2.13", "kafka-tools", "kafka-streams", "connect-file", "connect-mirror")
DEPENDENCY = """<dependency><groupId>org.apache.kafka</groupId><artifactId>{}</artifactId>
<version>{}</version></dependency>"""
POM = f"""<project><modelVersion>4.0.0</modelVersion>
<groupId>ottermq</groupId><artifactId>tools</artifactId><version>1</version>
<dependencies>
{"".join(DEPENDENCY.format(name, VERSION) for name in ARTIFACTS)}
</dependencies></project>"""
CLUSTER = "4L6g3nShT-eMCtK--X86sw"
HEAP = ("-Xmx1G", "-Xms1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-server")  # as its scripts
SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""


class NotFetched(Exception):
    """Its jars can't be had here; the message says why."""


def jars() -> Path:
    """The folder of jars, fetched if need be."""
    if not shutil.which("java"):
        raise NotFetched("no java here to run Apache Kafka")
    if not is_fetched():
        _fetch()
    return JARS


def is_fetched() -> bool:
    """All of them are there; a folder that an older list filled is not enough."""
    pom = JARS / "pom.xml"
    return pom.exists() and pom.read_text() == POM


def _fetch() -> None:
    if not shutil.which("mvn"):
        raise NotFetched("no Maven here to fetch Apache Kafka")
    fresh = JARS.with_name("kafka-tools.tmp")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    (fresh / "pom.xml").write_text(POM)
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={fresh}"]
    done = subprocess.run(["mvn", "-q", "-B", *goal], cwd=fresh, capture_output=True, timeout=900)
    if done.returncode:
        told = done.stdout.decode(errors="replace")[-200:]
        raise NotFetched(f"Maven can't be reached: {told}")
    shutil.rmtree(JARS, ignore_errors=True)
    fresh.rename(JARS)


class ApacheKafka(Served):
    """Ready on entering, gone on leaving; `settings` are lines of server.properties."""

    def __init__(self, folder: Path, *settings: str, name: str = "Apache Kafka") -> None:
        self.folder = folder
        self.settings = settings
        folder.mkdir(parents=True, exist_ok=True)
        self._properties = folder / "server.properties"
        command = ["java", *HEAP, "-cp", f"{jars()}/*", "kafka.Kafka", str(self._properties)]
        super().__init__(name, command, None, folder / "output")

    def start(self) -> None:
        port, controller = free_port(), free_port()
        self.address = ("127.0.0.1", port)
        basis = SETTINGS.format(port=port, controller=controller, data=self.folder / "data")
        self._properties.write_text("\n".join((basis, *self.settings)) + "\n")
        tool = ["java", "-cp", f"{jars()}/*", "kafka.tools.StorageTool"]
        formatted = subprocess.run(
            [*tool, "format", "-t", CLUSTER, "-c", str(self._properties)], capture_output=True
        )
        if formatted.returncode:
            raise NotServing(f"{self.name}: {formatted.stderr.decode(errors='replace')[-500:]}")
        super().start()

    def wait_until_ready(self) -> None:
        self.wait_for(lambda: speaks_kafka(self.address))


def speaks_kafka(address: tuple[str, int]) -> bool:
    """It answers ApiVersions."""
    request = b"\x00\x12\x00\x00\x00\x00\x00\x07\x00\x04load"
    try:
        with socket.create_connection(address, timeout=5) as link:
            link.sendall(len(request).to_bytes(4, "big") + request)
            return link.recv(8)[4:] == b"\x00\x00\x00\x07"
    except OSError:
        return False
