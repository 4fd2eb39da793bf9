"""Makes packs: of this package with all that it needs, and of others as they are installed."""

import os
import re
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path, PurePosixPath

import xxhash

from ottermq import __version__
from ottermq.audit.errors import CantRun
from ottermq.audit.shipping.bootstrap import PAYLOAD, fits

OURS = "ottermq"
PARTS = (OURS, "ottermq.amqp", "ottermq.cli", "ottermq.wal")  # a checkout has them side by side
NOT_NEEDED = {"__pycache__", "tests", "_tests", "include", "src"}
KEPT = 30 * 24 * 3600.0  # seconds that a pack stays when nobody asks for it
EPOCH = (1980, 1, 1, 0, 0, 0)  # the same files make the same pack, bit by bit

Files = Mapping[str, Path]  # by the name they are imported under


def pack(package: str = OURS, folder: Path | None = None) -> Path:
    """The pack of a package that is installed here: in `folder`, else in the user's cache."""
    found = _ours() if package == OURS else _installed(package)
    version = __version__ if package == OURS else distribution(package).version
    return _kept(package, version, found, folder or _cache())


def _kept(package: str, version: str, found: Files, folder: Path) -> Path:
    start = _start(package)
    sum = xxhash.xxh3_64(start)
    for name, path in sorted(found.items()):
        content = path.read_bytes()
        sum.update(f"{name} {len(content)} ".encode())
        sum.update(content)
    kept = folder / f"{package}-{version}-{fits()}-{sum.hexdigest()}.zip"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if kept.exists():
            os.utime(kept)
        else:
            _forget_old(folder, package)
            _write(kept, package, start, found)
    except OSError as error:
        raise CantRun(f"{error.filename or kept}: {error.strerror}") from None
    return kept


def _start(package: str) -> bytes:
    text = files("ottermq.audit.shipping").joinpath("bootstrap.py").read_bytes()
    return text + f"\n\nopen_pack({package!r}, __file__, {fits()!r})\n".encode()


def _write(path: Path, package: str, start: bytes, found: Files) -> None:
    number, fresh = tempfile.mkstemp(prefix=f".{package}-", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file, zipfile.ZipFile(file, "w") as archive:
            _add(archive, f"{package}/__init__.py", start)
            for name, each in sorted(found.items()):
                _add(archive, f"{PAYLOAD}/{name}", each.read_bytes())
        os.chmod(fresh, 0o644)  # other users' jobs may take it
        os.rename(fresh, path)
    except BaseException:
        os.unlink(fresh)
        raise


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, EPOCH), content, zipfile.ZIP_DEFLATED, 5)


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / OURS


def _forget_old(folder: Path, package: str) -> None:
    for each in folder.glob(f"{package}-*.zip"):
        if time.time() - each.stat().st_mtime > KEPT:
            each.unlink(missing_ok=True)


# -- what goes in


def _ours() -> Files:
    found = {name: path for name, path in _modules() if path.suffix == ".py"}
    core = Path(str(import_module("ottermq._core").__file__))
    found[f"{OURS}/{core.name}"] = core
    seen = {OURS}
    for needed in _needs(distribution(OURS), seen):
        found |= _files_of(needed)
    return found


def _modules() -> Iterator[tuple[str, Path]]:
    for part in PARTS:
        place = Path(import_module(part).__path__[0])
        for path in place.rglob("*.py"):
            yield f"{part.replace('.', '/')}/{path.relative_to(place)}", path


def _needs(of: Distribution, seen: set[str]) -> Iterator[Distribution]:
    """What it requires, and what that requires, as far as it is installed. No extras."""
    for requirement in of.requires or ():
        name, _, marker = requirement.partition(";")
        name = re.split(r"[^A-Za-z0-9._-]", name.strip(), maxsplit=1)[0].lower()
        if "extra" in marker or name in seen:
            continue
        seen.add(name)
        try:
            needed = distribution(name)
        except PackageNotFoundError:
            continue  # for another system, or another Python
        yield needed
        yield from _needs(needed, seen)


def _installed(package: str) -> Files:
    return _files_of(distribution(package))


def _files_of(of: Distribution) -> Files:
    if of.files is None:
        name = of.metadata["Name"]
        raise CantRun(f"can't send {name} to the workers: its installer left no list of its files")
    return {str(each): Path(str(of.locate_file(each))) for each in of.files if _is_needed(each)}


def _is_needed(path: PurePosixPath) -> bool:
    return path.parts[0] != ".." and NOT_NEEDED.isdisjoint(path.parts)
