"""What the documentation says of files, held against the files."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.brokers import Broker
from tests.test_layers import C_LAYERS, PYTHON_LAYERS

ROOT = Path(__file__).parent.parent
FORMAT = (ROOT / "docs" / "log-format.md").read_text()


def test_every_table_of_meta_db_is_documented(tmp_path: Path) -> None:
    with Broker(tmp_path / "data"):
        pass
    with closing(sqlite3.connect(tmp_path / "data" / "meta.db")) as database:
        listed = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        tables = {name for (name,) in listed if not name.startswith("sqlite_")}
    section = FORMAT.partition("\n## meta.db\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == tables


def test_the_size_of_a_checkpoint_s_entry_is_the_one_that_is_written() -> None:
    source = (ROOT / "csrc" / "store" / "checkpoint_file.c").read_text()
    defined = re.search(r"^#define ENTRY (\d+)$", source, re.MULTILINE)
    assert defined
    assert f"\n    entry    {defined[1]} bytes, then the cursor" in FORMAT
    assert f"| {defined[1]} | | cursor |" in FORMAT
    design = " ".join((ROOT / "docs" / "design.md").read_text().split())
    assert f"One file with one entry of {defined[1]} bytes" in design


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()


def table_of(title: str) -> dict[str, str]:
    """Of the architecture page: a folder and what it may use."""
    rows = ARCHITECTURE.partition(f"\n| {title} | what |")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return {name.strip("`"): below for name, _, below in cells}


def test_the_architecture_page_shows_the_layers_that_are_held() -> None:
    assert table_of("`csrc/`") == C_LAYERS
    assert table_of("Python") == PYTHON_LAYERS


@pytest.mark.parametrize(("page", "least"), [("docs/architecture.md", 40), ("CONTRIBUTING.md", 20)])
def test_what_a_newcomer_s_pages_link_is_there(page: str, least: int) -> None:
    place = ROOT / page
    linked = re.findall(r"\]\(([^)#]+)\)", place.read_text())
    assert len(linked) >= least
    assert [name for name in linked if not (place.parent / name).exists()] == []
