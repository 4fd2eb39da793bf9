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


PAGES = sorted(
    path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))
)


SOURCES = ("csrc", "ottermq", "wal", "amqp", "cli", "tests", "perf")


def anchors_of(page: Path) -> set[str]:
    """A heading's anchor, as GitHub makes it."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_links_is_there(page: str) -> None:
    place = ROOT / page
    missing = []
    for link in re.findall(r"\]\(([^)\s]+)\)", place.read_text()):
        name, _, anchor = link.partition("#")
        if re.match(r"\w+:", name):
            continue
        target = place.parent / name if name else place
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            missing.append(link)
    assert missing == []


@pytest.mark.parametrize("page", PAGES)
def test_the_sources_that_a_page_names_are_there(page: str) -> None:
    """By the path from the root or from csrc/, or by the bare name."""
    named = re.findall(r"`([\w/*-]+\.(?:c|h|py))`", (ROOT / page).read_text())
    there = [name for folder in SOURCES for name in (ROOT / folder).rglob("*.*")]
    assert [name for name in named if not any(path.match(name) for path in there)] == []


@pytest.mark.parametrize(("page", "least"), [("docs/architecture.md", 40), ("CONTRIBUTING.md", 20)])
def test_a_newcomer_s_pages_link_what_they_speak_of(page: str, least: int) -> None:
    assert len(re.findall(r"\]\([^)]+\)", (ROOT / page).read_text())) >= least


def test_every_page_of_docs_stands_in_its_table_of_contents() -> None:
    contents = (ROOT / "docs" / "README.md").read_text()
    pages = {path.removeprefix("docs/") for path in PAGES if path.startswith("docs/")}
    assert {page for page in pages if f"]({page})" not in contents} == {"README.md"}
