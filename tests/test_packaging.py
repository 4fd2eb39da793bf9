"""What gets installed, under which names, and what a release holds."""

import configparser
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from ottermq import __version__
from tests.brokers import environment

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = {"ottermq": "ottermq", "amqp": "ottermq.amqp", "cli": "ottermq.cli", "wal": "ottermq.wal"}


def python(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_package_in_the_checkout_is_listed() -> None:
    found = set()
    for folder, name in FOLDERS.items():
        for file in (ROOT / folder).rglob("__init__.py"):
            below = file.parent.relative_to(ROOT / folder).parts
            found.add(".".join((name, *below)))
    assert found == set(PROJECT["tool"]["setuptools"]["packages"])


def test_the_folders_import_below_ottermq(tmp_path: Path) -> None:
    names = ["ottermq.wal", "ottermq.amqp", "ottermq.cli", "ottermq.config", "ottermq._core"]
    python("-c", f"import {', '.join(names)}", cwd=tmp_path)


def test_no_folder_of_ours_is_a_top_level_name(tmp_path: Path) -> None:
    """`amqp` is py-amqp's name, which Celery needs."""
    look = "import importlib.util as u; print([u.find_spec(n) for n in ('amqp', 'cli', 'wal')])"
    assert str(ROOT) + "/amqp" not in python("-c", look, cwd=tmp_path)


def test_in_the_tests_too_the_checkout_comes_after_what_is_installed() -> None:
    installed = sys.path.index(sysconfig.get_path("purelib"))
    assert sys.path.index(str(ROOT)) > installed


def test_another_amqp_keeps_its_name_beside_ours(tmp_path: Path) -> None:
    (tmp_path / "amqp.py").write_text("theirs = True")
    python("-c", "import amqp, ottermq.amqp as ours; assert amqp.theirs and ours", cwd=tmp_path)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy to build in: building writes next to the sources."""
    copy = tmp_path_factory.mktemp("checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def sdist(checkout: Path) -> Path:
    build = "from setuptools import build_meta as b; print(b.build_sdist('dist'))"
    name = python("-c", build, cwd=checkout).split()[-1]
    return checkout / "dist" / name


def test_a_source_release_holds_all_that_building_needs(checkout: Path, sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        held = {Path(*Path(name).parts[1:]) for name in archive.getnames()}
    needed = [
        *checkout.glob("csrc/*.[ch]"),
        *checkout.glob("csrc/*.py"),
        *(file for folder in FOLDERS for file in checkout.joinpath(folder).rglob("*.py")),
        *(checkout / name for name in ("LICENSE", "README.md", "config.yaml", "Makefile")),
    ]
    assert {file.relative_to(checkout) for file in needed} <= held


@pytest.mark.soak
def test_a_wheel_built_from_the_source_release_runs(sdist: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(sdist, tmp_path)
    unpacked = tmp_path / sdist.name.removesuffix(".tar.gz")
    build = "from setuptools import build_meta as b; print(b.build_wheel('dist'))"
    wheel = unpacked / "dist" / python("-c", build, cwd=unpacked).split()[-1]
    with zipfile.ZipFile(wheel) as archive:
        assert {name.split("/")[0] for name in archive.namelist()} == {
            "ottermq",
            f"ottermq-{__version__}.dist-info",
        }
        archive.extractall(tmp_path / "site")
    look = "import ottermq._core as c, ottermq.wal, ottermq.amqp, ottermq.cli; print(c.__file__)"
    found = python("-c", look, cwd=tmp_path / "site")
    assert Path(found.strip()).is_relative_to(tmp_path / "site")


def test_the_command_is_installed() -> None:
    command = Path(sys.executable).with_name("ottermq")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"ottermq {__version__}\n"


def test_the_systemd_unit_is_one_systemd_takes(tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd here")
    unit = (ROOT / "deploy" / "ottermq.service").read_text()
    mine = tmp_path / "ottermq.service"
    command = Path(sys.executable).with_name("ottermq")
    mine.write_text(unit.replace("/opt/ottermq/bin/ottermq", str(command)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", mine], capture_output=True, text=True, timeout=60
    )
    complaints = [line for line in done.stderr.splitlines() if "ottermq.service" in line]
    assert done.returncode == 0 and not complaints, done.stderr


def test_the_systemd_unit_waits_for_us_and_limits_us() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.read(ROOT / "deploy" / "ottermq.service")
    service = unit["Service"]
    assert service["Type"] == "notify"
    assert int(service["LimitNOFILE"]) >= 65536
    assert service["NoNewPrivileges"] == service["PrivateDevices"] == "yes"


def test_ci_is_a_script_that_bash_can_run() -> None:
    done = subprocess.run(["bash", "-n", ROOT / ".ci" / "run"], timeout=60)
    assert done.returncode == 0
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_every_link_in_the_readme_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / "README.md").read_text())
    assert links
    for link in links:
        assert link.startswith("https://") or (ROOT / link).exists(), link
