"""How a pack opens itself: this text is the `__init__` of the package in it, and its last line
there calls `open_pack`. Nothing but Python's own library can be imported here."""

import atexit
import importlib
import os
import shutil
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

PAYLOAD = "payload"


class DoesNotFit(ImportError):
    """The pack was made for another Python, or another machine."""


def fits() -> str:
    """What extension modules must be made for to load here: `cpython-311-x86_64-linux-gnu`."""
    return str(sysconfig.get_config_var("SOABI"))


def open_pack(package: str, file: str, made_for: str) -> None:
    """Instead of `package`, whose `__init__` this is, the one in the payload is imported."""
    if fits() != made_for:
        raise DoesNotFit(
            f"this job's pack of {package} is for {made_for}, "
            f"and the worker's Python {sys.executable} is {fits()}"
        )
    sys.path.insert(0, str(_unpacked(Path(file).parent.parent)))
    importlib.invalidate_caches()
    del sys.modules[package]
    importlib.import_module(package)


def _unpacked(pack: Path) -> Path:
    """Beside the pack, where Spark's own files are: they go together. Workers that come at the same
    time each unpack, and one of them is first to give it its name."""
    folder = pack.with_suffix("")
    if _is_ours(folder):
        return folder
    if folder.exists() or not os.access(folder.parent, os.W_OK):  # a driver's --py-files
        folder = Path(tempfile.mkdtemp(prefix=f"{folder.name}-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _unpack(pack, folder)
        return folder / PAYLOAD
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        _unpack(pack, fresh)
        (fresh / PAYLOAD).rename(folder)
    except OSError:
        if not _is_ours(folder):
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


def _is_ours(folder: Path) -> bool:
    """Nobody else put it there for us to run."""
    return folder.is_dir() and folder.stat().st_uid == os.geteuid()


def _unpack(pack: Path, folder: Path) -> None:
    with zipfile.ZipFile(pack) as archive:
        names = [name for name in archive.namelist() if name.startswith(f"{PAYLOAD}/")]
        archive.extractall(folder, names)
