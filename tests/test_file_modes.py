"""What lies in the data folder, and in the process, is not for others."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.amqp.wire import Client
from tests.brokers import Broker


def test_files_of_the_data_folder_are_closed_to_others(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)  # such as a volume that was there before
    before = os.umask(0o022)
    try:
        with Broker(data) as broker:
            broker.wait_for(r"WARNING data directory open to others data=\S+ mode=0755")
            channel = Client(broker.address("amqp")).channel()
            channel.declare("work", durable=True)
            channel.confirm()
            channel.publish(b"x", key="work", delivery_mode=2)
            channel.confirmed(1)
    finally:
        os.umask(before)
    found = [path for path in data.rglob("*") if path.exists()]
    assert any(path.name == "meta.db" for path in found)
    assert not [path for path in found if path.stat().st_mode & 0o007]


@pytest.mark.parametrize(("limit", "dumpable"), [(0, 0), (1, 1)])
def test_nobody_looks_into_the_memory_unless_core_dumps_are_wanted(
    limit: int, dumpable: int
) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    if most == 0 and limit:
        pytest.skip("core dumps can't be asked for here")
    program = (
        "import ctypes, resource\n"
        f"resource.setrlimit(resource.RLIMIT_CORE, ({limit}, {most}))\n"
        "from ottermq.process.secrecy import keep_to_ourselves\n"
        "keep_to_ourselves()\n"
        "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))\n"  # PR_GET_DUMPABLE
    )
    told = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True)
    assert (told.stdout.strip(), told.stderr) == (str(dumpable), "")
