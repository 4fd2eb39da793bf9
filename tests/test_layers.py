"""A call goes down the layers, never up: one table for C, one for Python.

C: what a file includes, and which functions of another folder it names. Python: what a module
imports. There are no exceptions.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CSRC = ROOT / "csrc"

# A folder may use what stands in its row, and nothing else.
C_LAYERS = {
    "base": "",
    "format": "base",
    "wal": "base",
    "segment": "base format",
    "cursor": "base",
    "store": "base format wal segment cursor",
    "inspect": "base format wal segment cursor",
    "net": "base segment store",
    "queue": "base format wal cursor store net",
    "amqp": "base format wal cursor store net queue",
    "kafka": "base format wal segment store net queue",
    "engine": "base format wal store net queue amqp kafka",
}
# Which of the border's headers a folder may know besides om_base.h.
BORDER_USES = {
    "wal": "om_inspect", "segment": "om_inspect", "inspect": "om_inspect", "store": "om_store",
    "net": "om_engine", "queue": "om_engine", "amqp": "om_engine", "kafka": "om_engine",
    "engine": "om_engine",
}  # fmt: skip

# Loose modules of ottermq/ that all others may use.
COMMON = "_core contained errors eventlog auditlog metrics patterns ottermq"
PYTHON_LAYERS = {
    "wal": "",
    "config": "",
    "topology": "wal",
    "storage": "wal config topology",
    "engine": "wal config storage",
    "net": "wal config engine",
    "process": "",
    "queue_runtime": "wal topology storage engine",
    "auth": "wal config topology",
    "definitions": "topology auth queue_runtime",
    "operations": "wal config topology engine queue_runtime auth",
    "amqp": "wal config topology storage engine net queue_runtime auth operations",
    "kafka": "wal config topology storage engine net queue_runtime auth",
    "admin": "wal config topology storage engine net queue_runtime auth definitions operations "
    "amqp kafka",
    "audit": "wal config topology storage process",
    "reload": "config net amqp kafka definitions wal storage",
    "broker": "wal config topology storage engine net process queue_runtime auth definitions amqp "
    "kafka admin reload",
    "cli": "wal config process audit admin broker",
    "__main__": "cli",
}
COMMON_LAYERS = {  # they use each other only so
    "ottermq": "", "_core": "", "eventlog": "", "metrics": "", "patterns": "", "errors": "wal",
    "contained": "eventlog", "auditlog": "eventlog",
}  # fmt: skip


# -- C


def without_comments(text: str) -> str:
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    return re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)


@cache
def c_files() -> dict[Path, str]:
    return {path: path.read_text() for path in sorted(CSRC.glob("*/*.[ch]"))}


@cache
def c_functions() -> dict[str, str]:
    """Each function that isn't static, and the folder it is defined in."""
    found = {}
    begins = re.compile(
        r"^(?!static|typedef|return|else)[A-Za-z_][^\n;={}()]*?\b(om_\w+)\([^;{}]*\)\s*\{",
        re.MULTILINE,
    )
    for path, text in c_files().items():
        for match in begins.finditer(without_comments(text)):
            found[match[1]] = path.parent.name
    return found


def c_uses() -> Iterator[tuple[Path, str, str]]:
    """(file, folder it uses, what of it)"""
    functions = c_functions()
    for path, text in c_files().items():
        for folder, header in re.findall(r'#include "(\w+)/(\w+\.h)"', text):
            yield path, folder, header
        for word in set(re.findall(r"\bom_\w+\b", without_comments(text))):
            if word in functions:
                yield path, functions[word], word


def test_every_folder_of_c_stands_in_the_table() -> None:
    assert {path.parent.name for path in c_files()} == set(C_LAYERS)


def test_no_name_of_a_c_file_comes_twice() -> None:
    names = [path.name for path in c_files()]
    assert len(names) == len(set(names)), "objects of one name would overwrite each other"


def test_includes_name_the_folder() -> None:
    bare = [
        f"{path.name}: {header}"
        for path, text in c_files().items()
        for header in re.findall(r'#include "(\w+\.h)"', text)
        if not header.startswith("om_")
    ]
    assert bare == []


def test_the_border_is_known_by_what_a_folder_needs_of_it() -> None:
    wrong = [
        f"{path.parent.name}/{path.name} includes {header}"
        for path, text in c_files().items()
        for header in re.findall(r'#include "(om_\w+)\.h"', text)
        if header not in ("om_base", BORDER_USES.get(path.parent.name))
    ]
    assert wrong == []


def test_c_calls_go_down() -> None:
    assert len(c_functions()) > 500, "the functions aren't found any more"
    wrong = []
    for path, folder, what in c_uses():
        own = path.parent.name
        if folder != own and folder not in C_LAYERS[own].split():
            wrong.append(f"{own}/{path.name} uses {what} of {folder}/")
    assert sorted(wrong) == []


# -- Python


@cache
def modules() -> dict[str, Path]:
    """Each module of the product by the name it is imported by."""
    found = {}
    for top, prefix in (
        ("ottermq", "ottermq"),
        *((name, f"ottermq.{name}") for name in ("wal", "amqp", "cli")),
    ):
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT / top).with_suffix("").parts
            found[".".join((prefix, *parts)).removesuffix(".__init__")] = path
    return found


def layer_of(module: str) -> str:
    """Its package below ottermq, or the module itself if it is a loose one."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for each in node.names:
                full = f"{node.module}.{each.name}"
                yield full if full in modules() or full == "ottermq._core" else node.module


def test_every_package_of_python_stands_in_the_table() -> None:
    there = {layer_of(module) for module in modules()}
    assert there == {*PYTHON_LAYERS, *COMMON_LAYERS} - {"_core"}


def test_python_imports_go_down() -> None:
    common = set(COMMON.split())
    wrong = []
    for module, path in modules().items():
        own = layer_of(module)
        allowed = (
            set(COMMON_LAYERS[own].split())
            if own in COMMON_LAYERS
            else common | set(PYTHON_LAYERS[own].split())
        )
        for target in imported(path):
            if target.split(".")[0] != "ottermq" or (other := layer_of(target)) == own:
                continue
            if other not in allowed:
                wrong.append(f"{module} imports {target}")
    assert sorted(wrong) == []


@pytest.mark.parametrize("layers", [C_LAYERS, PYTHON_LAYERS])
def test_the_table_itself_has_no_circle(layers: dict[str, str]) -> None:
    above: list[str] = []
    for name, below in layers.items():
        assert set(below.split()) <= set(above), f"{name} stands before what it uses"
        above.append(name)
