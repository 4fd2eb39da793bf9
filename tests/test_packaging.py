"""What gets installed, under which names, and what a release holds."""

import configparser
import hashlib
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
import trio

from ottermq import __version__
from tests.brokers import environment
from tests.examples import shortened
from tests.installed import serves_a_message

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
        *checkout.glob("csrc/**/*.[ch]"),
        *checkout.glob("csrc/*.py"),
        *(file for folder in FOLDERS for file in checkout.joinpath(folder).rglob("*.py")),
        *(checkout / name for name in ("LICENSE", "README.md", "config.yaml", "Makefile")),
    ]
    assert {file.relative_to(checkout) for file in needed} <= held


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the source release, as a package index's users would."""
    place = tmp_path_factory.mktemp("wheel")
    shutil.unpack_archive(sdist, place)
    unpacked = place / sdist.name.removesuffix(".tar.gz")
    build = "from setuptools import build_meta as b; print(b.build_wheel('dist'))"
    return unpacked / "dist" / python("-c", build, cwd=unpacked).split()[-1]


def test_a_wheel_is_for_every_python_from_3_11_on(wheel: Path) -> None:
    assert wheel.name.startswith(f"ottermq-{__version__}-cp311-abi3-linux_")


def test_a_wheel_holds_the_package_the_configuration_and_the_unit(wheel: Path) -> None:
    shared = f"ottermq-{__version__}.data/data/share/ottermq"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        for file in (ROOT / "config.yaml", ROOT / "deploy" / "ottermq.service"):
            assert archive.read(f"{shared}/{file.name}") == file.read_bytes()
    assert {name.split("/")[0] for name in names} == {
        "ottermq",
        f"ottermq-{__version__}.data",
        f"ottermq-{__version__}.dist-info",
    }
    assert "ottermq/_core.abi3.so" in names


@pytest.fixture
def core(wheel: Path, tmp_path: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        return archive.extract("ottermq/_core.abi3.so", tmp_path)


def read_elf(core: str, what: str) -> str:
    return subprocess.run(
        ["readelf", what, "--wide", core], capture_output=True, text=True, check=True
    ).stdout


def test_the_core_in_a_wheel_is_stripped(core: str) -> None:
    sections = read_elf(core, "--section-headers")
    assert ".dynsym" in sections
    assert ".symtab" not in sections and ".debug_info" not in sections


def test_the_core_is_hardened(core: str) -> None:
    symbols = read_elf(core, "--dyn-syms")
    assert "__stack_chk_fail" in symbols
    assert "__memcpy_chk" in symbols or "__snprintf_chk" in symbols
    assert "GNU_RELRO" in read_elf(core, "--program-headers")
    assert "BIND_NOW" in read_elf(core, "--dynamic")


def interpreter(version: str) -> Path:
    """A Python of that version: this one, one on the PATH, or one of pyenv's."""
    candidates = [
        sys.executable,
        shutil.which(f"python{version}") or "",
        *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")),
    ]
    ask = "import ensurepip, sysconfig; print(sysconfig.get_python_version())"
    for candidate in filter(None, candidates):
        told = subprocess.run([candidate, "-c", ask], capture_output=True, text=True, timeout=60)
        if told.stdout.strip() == version:
            return Path(candidate)
    pytest.skip(f"no Python {version} here")


def requirements(version: str) -> Path:
    """A folder with what we require for that Python. Ours serves our own; others' are fetched once
    and stay in build/, named by what was asked for."""
    if version == sysconfig.get_python_version():
        return Path(trio.__file__).parent.parent
    wanted = PROJECT["project"]["dependencies"]
    name = hashlib.sha256(repr(wanted).encode()).hexdigest()[:12]
    folder = ROOT / "build" / "requirements" / f"{version}-{name}"
    if not folder.exists():
        partial = folder.with_name(f"{folder.name}.{os.getpid()}")
        pip = [str(interpreter(version)), "-m", "pip", "install", "-q", "--target", str(partial)]
        done = subprocess.run([*pip, *wanted], capture_output=True, text=True, timeout=300)
        if done.returncode:
            shutil.rmtree(partial, ignore_errors=True)
            pytest.skip(f"pip can't fetch what we require: {done.stderr.splitlines()[-1:]}")
        try:
            partial.rename(folder)
        except OSError:  # another test run was first
            shutil.rmtree(partial)
    return folder


@pytest.mark.parametrize("version", shortened(["3.11", "3.12", "3.13"], 1))
def test_a_wheel_installs_and_serves_a_message(version: str, wheel: Path, tmp_path: Path) -> None:
    """In an environment that knows nothing of this checkout."""
    home = tmp_path / "environment"
    subprocess.run([interpreter(version), "-m", "venv", home], check=True, timeout=120)
    site = home / "lib" / f"python{version}" / "site-packages"
    (site / "requirements.pth").write_text(f"{requirements(version)}\n")
    own = str(home / "bin" / "python")
    done = subprocess.run(
        [own, "-m", "pip", "install", "-q", "--no-index", "--no-deps", wheel],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    told = subprocess.run([home / "bin" / "ottermq", "--version"], capture_output=True, text=True)
    assert told.stdout == f"ottermq {__version__}\n", told.stderr
    config = home / "share" / "ottermq" / "config.yaml"
    core = serves_a_message(own, tmp_path / "data", "--config", str(config))
    assert core == str(site / "ottermq" / "_core.abi3.so")


def test_nobody_is_told_to_install_from_an_index_before_there_is_a_release() -> None:
    """Whoever has the name there then would be run as root."""
    told = re.compile(r"pip install (-\S+ )*'?ottermq")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    texts = [
        name
        for name in filter(None, listed.stdout.split("\0"))
        if Path(name).suffix in (".py", ".md", ".yaml", ".service") and (ROOT / name).is_file()
        if name != "CHANGELOG.md"  # what was, stays
    ]
    assert [name for name in texts if told.search((ROOT / name).read_text())] == []


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
