"""Headers tables that no client library would write: names doubled, mistyped, nested.

They are about the names that the broker itself acts on. Two parsers look at them, one in C and one
in Python: whatever they hold, both must see the same.
"""

import struct


def entry(name: str, value: bytes) -> bytes:
    return bytes([len(name)]) + name.encode() + value


def text(value: str) -> bytes:
    return b"S" + struct.pack(">I", len(value)) + value.encode()


def array(*values: bytes) -> bytes:
    inside = b"".join(values)
    return b"A" + struct.pack(">I", len(inside)) + inside


def inner(*entries: bytes) -> bytes:
    inside = b"".join(entries)
    return b"F" + struct.pack(">I", len(inside)) + inside


def number(value: int) -> bytes:
    return b"I" + struct.pack(">i", value)


DELAY = entry("x-delay", number(1))
DEATH = inner(
    entry("queue", text("b")), entry("reason", text("expired")), entry("count", number(7))
)
ODD = {
    "cc-text-then-list": entry("CC", text("b")) + entry("CC", array(text("b"))),
    "cc-list-then-text": entry("CC", array(text("b"))) + entry("CC", text("b")),
    "cc-twice": entry("CC", array(text("a"))) + entry("CC", array(text("b"))),
    "cc-number": entry("CC", number(3)),
    "cc-table": entry("CC", inner(entry("CC", array(text("a"))))),
    "cc-nested": entry("CC", array(array(text("a")), inner(entry("BCC", text("a"))), text("b"))),
    "bcc-text-then-list": entry("BCC", text("b")) + entry("BCC", array(text("b"))),
    "bcc-twice": entry("BCC", array(text("a"))) + entry("BCC", array(text("b"))),
    "bcc-nothing": entry("BCC", b"V"),
    "bcc-empty": entry("BCC", array()),
    "x-delay-twice": entry("x-delay", text("1")) + entry("x-delay", number(-5)),
    "x-delay-table": entry("x-delay", inner(DELAY)),
    "x-death-text": entry("x-death", text("b")),
    "x-death-twice": entry("x-death", array(DEATH)) + entry("x-death", array(DEATH, DEATH)),
    "x-death-nested": entry("x-death", array(array(DEATH), inner(entry("queue", DEATH)), DEATH)),
    "no-utf-8": b"\x01\xff" + text("x"),
}


def tables() -> dict[str, bytes]:
    """Each by itself, and in the company in which one of them once cost a use after free."""
    company = entry("BCC", array(text("a"))) + DELAY
    delayed = {f"{name}-delayed": odd + company for name, odd in ODD.items()}
    return ODD | delayed | {"all-of-them": b"".join(ODD.values()) + company}
