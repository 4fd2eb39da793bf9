"""The border between C and Python (csrc/ottermq.h): what it offers is called by the product.

A function that only tests call belongs into a header of its folder, which tests/internals.py
loads.
"""

import re
from pathlib import Path

import pytest

from tests.internals import BORDER

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("ottermq", "wal", "amqp", "cli")


def functions(header: str) -> list[str]:
    text = re.sub(r"/\*.*?\*/", " ", (ROOT / "csrc" / header).read_text(), flags=re.DOTALL)
    return re.findall(r"\b(om_\w+)\(", text)


def test_the_border_is_found() -> None:
    assert BORDER[-1] == "ottermq.h"
    assert sum(len(functions(header)) for header in BORDER) > 130


@pytest.mark.parametrize("header", BORDER)
def test_every_function_of_the_border_is_called_by_the_product(header: str) -> None:
    called = {
        name
        for top in PRODUCT
        for path in (ROOT / top).rglob("*.py")
        for name in re.findall(r"\blib\.(om_\w+)", path.read_text())
    }
    assert [name for name in functions(header) if name not in called] == []


@pytest.mark.parametrize("header", BORDER)
def test_a_header_of_the_border_is_short_and_says_what_it_is(header: str) -> None:
    text = (ROOT / "csrc" / header).read_text()
    assert text.startswith(f"/* {header} -- ")
    assert text.count("\n") < 400


@pytest.mark.parametrize("header", BORDER)
def test_the_values_of_an_enum_stand_in_order(header: str) -> None:
    text = re.sub(r"/\*.*?\*/", " ", (ROOT / "csrc" / header).read_text(), flags=re.DOTALL)
    for body in re.findall(r"\benum \w+ \{(.*?)\}", text, flags=re.DOTALL):
        values = [int(value) for value in re.findall(r"= (-?\d+)", body)]
        negative = [value for value in values if value < 0]
        assert [value for value in values if value >= 0] == sorted({*values} - {*negative})
        assert negative == sorted({*negative}, reverse=True)
