"""docs/kafka.md tells which versions are served; so do the tables. They agree."""

import re
from pathlib import Path

from ottermq.kafka.schema import MESSAGES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "kafka.md"


def test_the_page_lists_every_api_with_its_versions() -> None:
    text = PAGE.read_text().split("## What is spoken")[1].split("\n## ")[0]
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    told = {
        name: (int(first), int(last or first))
        for row in rows
        for name, first, last in re.findall(r"([A-Z]\w+) (\d+)(?:–(\d+))?", row)
    }
    assert told == {
        "".join(part.capitalize() for part in api.name.split("_")): message.versions
        for api, message in MESSAGES.items()
    }
