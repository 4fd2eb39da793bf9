"""Workers that have nothing of ours: the code comes with the job."""

import json
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from ottermq.audit.failures import first_line
from ottermq.audit.java import java_home
from ottermq.audit.run import AuditRequest, run
from ottermq.audit.shipping import pack as packing
from ottermq.audit.shipping.bootstrap import fits
from ottermq.config import load
from tests.audit import sample_data
from tests.audit.cluster import Cluster
from tests.audit.sample_data import SampleData
from tests.brokers import environment

SPARK = Path(pyspark.__file__).parent
JOB = Path(__file__).with_name("submitted_job.py")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with no packages at all, not even pip."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    for package in ("ottermq", "pyarrow", "xxhash", "pyspark"):
        asked = subprocess.run([python, "-P", "-c", f"import {package}"], capture_output=True)
        assert asked.returncode == 1, package
    return python


@pytest.fixture(scope="module")
def harmed(tmp_path_factory: pytest.TempPathFactory) -> SampleData:
    sample = sample_data.fill(tmp_path_factory.mktemp("sample") / "data")
    sample.flip_a_bit("clicks")
    sample.remove_a_segment("views")
    return sample


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of the run's own, as XDG_CACHE_HOME."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def at_rest(
    spark: SparkSession, harmed: SampleData, tmp_path_factory: pytest.TempPathFactory
) -> object:
    """What an audit finds on this machine."""
    out = tmp_path_factory.mktemp("here")
    request = AuditRequest(
        "integrity", harmed.data, out, "local[2]", load(), ["violation"], {}, quiet=True
    )
    return judged(json.loads((run(request).folder / "summary.json").read_text()))


def judged(summary: dict[str, object]) -> object:
    findings = summary["findings"]
    assert isinstance(findings, list) and findings
    return sorted(json.dumps(each, sort_keys=True) for each in findings), summary["logs"]


def audit(
    python: Path | str, packs: Path, folder: Path, *arguments: object, path: str = ""
) -> subprocess.CompletedProcess[str]:
    """A command line of ours, whose workers run on `python`."""
    env = {"PYSPARK_PYTHON": str(python), "XDG_CACHE_HOME": str(packs)}
    if path:
        env["PATH"] = path
    return subprocess.run(
        [sys.executable, "-P", "-m", "ottermq", "audit", *map(str, arguments)],
        env=environment(env),
        cwd=folder,  # not the checkout, from where a worker could import it
        capture_output=True,
        text=True,
        timeout=600,
    )


def unpacked_by(cluster: Cluster, package: str) -> set[str]:
    """The workers in whose folders a pack opened itself."""
    found = cluster.folder.glob(f"work*/app-*/*/{package}-*")
    return {each.relative_to(cluster.folder).parts[0] for each in found if each.is_dir()}


@pytest.mark.long
def test_workers_with_nothing_installed_find_the_same(
    at_rest: object, harmed: SampleData, cluster: Cluster, bare: Path, packs: Path, tmp_path: Path
) -> None:
    where = ("--data", harmed.data, "--master", cluster.url, "--out", tmp_path / "there")
    done = audit(bare, packs, tmp_path, "integrity", *where, "--json")
    assert (done.returncode, done.stderr) == (1, "")
    assert judged(json.loads(done.stdout)) == at_rest
    assert unpacked_by(cluster, "ottermq") == unpacked_by(cluster, "pyarrow") == {"work0", "work1"}


@pytest.mark.long
def test_a_watch_ships_too(
    harmed: SampleData, cluster: Cluster, bare: Path, packs: Path, tmp_path: Path
) -> None:
    done = audit(
        bare, packs, tmp_path, "watch", "--data", harmed.data, "--master", cluster.url, "--once"
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "damage" in done.stdout and "clicks" in done.stdout


@pytest.mark.long
def test_a_job_by_spark_submit_whose_driver_has_nothing_either(
    at_rest: object, harmed: SampleData, cluster: Cluster, bare: Path, packs: Path, tmp_path: Path
) -> None:
    packed = audit(bare, packs, tmp_path, "pack", "--pyarrow").stdout.strip()
    submit = [SPARK / "bin" / "spark-submit", "--master", cluster.url, "--py-files", packed]
    done = subprocess.run(
        [*map(str, submit), str(JOB), str(harmed.data), str(tmp_path / "there")],
        env=environment(
            {
                "JAVA_HOME": str(java_home()),
                "SPARK_HOME": str(SPARK),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "PYSPARK_PYTHON": str(bare),
                "PYSPARK_DRIVER_PYTHON": str(bare),
            }
        ),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert judged(told["summary"]) == at_rest
    assert told["orders"] == sample_data.ORDERS


@pytest.mark.long
def test_workers_without_the_interpreter_are_one_line(
    harmed: SampleData, cluster: Cluster, bare: Path, packs: Path, tmp_path: Path
) -> None:
    """`our-python` is on our PATH, and not on theirs."""
    (tmp_path / "our-python").symlink_to(bare)
    where = ("--data", harmed.data, "--master", cluster.url)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = audit("our-python", packs, tmp_path, "integrity", *where, path=path)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    line = f"the workers have no our-python; set PYSPARK_PYTHON to their Python {version}"
    assert (done.returncode, done.stderr) == (2, f"ottermq: {line}\n")


# -- packs


def opened(
    python: Path, pack: Path, program: str = "import ottermq._core"
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [python, "-c", f"import sys; sys.path.insert(0, {str(pack)!r}); {program}"],
        cwd="/",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(processes: Sequence["subprocess.Popen[str]"]) -> list[tuple[str, str]]:
    return [process.communicate(timeout=120) for process in processes]


def test_a_pack_is_made_once(tmp_path: Path) -> None:
    first = packing.pack(folder=tmp_path)
    made = first.stat().st_ino, first.read_bytes()
    again = packing.pack(folder=tmp_path)
    assert (again, (again.stat().st_ino, again.read_bytes())) == (first, made)
    assert [each.name for each in tmp_path.iterdir()] == [first.name]


def test_workers_that_come_together_share_what_one_unpacked(bare: Path, tmp_path: Path) -> None:
    pack = packing.pack(folder=tmp_path)
    program = "import ottermq._core as core; print(core.__file__)"
    told = ended([opened(bare, pack, program) for _ in range(6)])
    places = {Path(said.strip()).parent.parent for said, _ in told}
    assert places == {pack.with_suffix("")}
    assert {each.name for each in tmp_path.iterdir()} == {pack.stem, pack.name}


def test_where_nothing_can_be_written_it_unpacks_elsewhere(bare: Path, tmp_path: Path) -> None:
    pack = packing.pack(folder=tmp_path)
    pack.with_suffix("").write_bytes(b"in the way")
    [(said, _)] = ended([opened(bare, pack, "import ottermq._core as core; print(core.__file__)")])
    place = Path(said.strip())
    assert place.name.startswith("_core") and not place.is_relative_to(tmp_path)
    assert not place.exists()  # it went with the process


def test_a_pack_for_another_python_or_processor_says_so(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = fits()
    monkeypatch.setattr(packing, "fits", lambda: "cpython-399-riscv64-linux-gnu")
    pack = packing.pack(folder=tmp_path)
    [(_, said)] = ended([opened(bare, pack)])
    assert first_line(Exception(said)) == (
        "this job's pack of ottermq is for cpython-399-riscv64-linux-gnu, "
        f"and the worker's Python {bare} is {ours}"
    )
