"""Writes the first inputs for fuzz_content: properties, records and batches. See fuzz_content.c.

Run from the checkout: python -m tests.fuzz.seed_content
"""

import struct
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from tests.csrc.batches import OVERHEAD, Record, encode
from tests.csrc.contents import property_part, record, template
from tests.csrc.test_content import nested
from tests.csrc.test_x_death import Death, die
from tests.fuzz.odd_tables import tables

FOLDER = Path(__file__).resolve().parent / "corpus" / "content"
PROPERTIES, RECORD, BATCH = b"\0", b"\1", b"\2"
NOW = 1_700_000_000_000

RICH = property_part(
    content_type="application/json",
    content_encoding="gzip",
    delivery_mode=2,
    priority=7,
    correlation_id="c-1",
    reply_to="replies",
    expiration="60000",
    message_id="m-1",
    timestamp=datetime.fromtimestamp(NOW // 1000, tz=UTC),
    message_type="order",
    user_id="guest",
    app_id="shop",
    headers={
        "bool": True,
        "byte": 1,
        "short": 300,
        "int": 70_000,
        "long": 2**40,
        "float": 1.5,
        "decimal": Decimal("3.14"),
        "time": datetime.fromtimestamp(1, tz=UTC),
        "nothing": None,
        "bytes": bytearray(b"\xff\0"),
        "text": "grün",
        "CC": ["a", "b"],
        "BCC": ["c"],
        "x-delay": 5000,
        "nested": {"list": [1, "two", {"three": [3]}]},
    },
)


def table(data: bytes) -> bytes:
    return struct.pack(">HI", 0x2000, len(data)) + data


def body_of(whole: bytes) -> bytes:
    """A record without its length, which these have in one byte or two."""
    return whole[1:] if whole[0] < 0x80 else whole[2:]


def seeds() -> dict[str, bytes]:
    dead = die(die(RICH, Death("work", "expired")), Death("other", "rejected"))
    own = record(b"eu.new", b"body", template(b"orders", RICH))
    small = record(b"k", b"body", template(b"", b"\x10\0\x02"))
    again = record(b"k", b"more", template(b"", b"\x10\0\x02"), offset_delta=1)
    foreign = encode([Record(NOW, b"\xff", None, (("a", b"b"), ("n", None), ("x", b"\xfe")))])
    forged = encode([Record(NOW, b"k", b"v", (("amqp", b"\x01\x00\x80\x00\x02"),))])
    return {
        "none": PROPERTIES + b"\0\0",
        "rich": PROPERTIES + RICH,
        "dead": PROPERTIES + dead,
        "small": PROPERTIES + b"\x10\0\x02",
        "continued": PROPERTIES + b"\x10\x01\0\x01\0\0\x02",
        "cut": PROPERTIES + RICH[:-3],
        "long-headers": PROPERTIES + property_part(headers={"a": "x" * 5000, "b": "y"}),
        "deep-enough": PROPERTIES + table(nested(32, b"F")),
        "too-deep": PROPERTIES + table(nested(1000, b"F")),
        "too-deep-array": PROPERTIES + table(nested(1000, b"A")),
        "odd-delay": PROPERTIES + table(b"\x07x-delayd\x40\x59\0\0\0\0\0\0"),
        "many-delays": PROPERTIES + table(b"\x07x-delayb\x01" * 20),
        "odd-death": PROPERTIES + table(b"\x07x-deathA\0\0\0\x0cV" + b"F\0\0\0\x06\x05countV"[:11]),
        **{name: PROPERTIES + table(odd) for name, odd in tables().items()},
        "record": RECORD + body_of(own),
        "record-foreign": RECORD + body_of(foreign[OVERHEAD:]),
        "record-forged": RECORD + body_of(forged[OVERHEAD:]),
        "batch": BATCH + b"\x02" + small + again,
        "batch-mixed": BATCH + b"\x01" + foreign[OVERHEAD:],
        "batch-rich": BATCH + b"\x01" + own,
        "batch-cut": BATCH + b"\x02" + small + again[:-2],
    }


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, data in seeds().items():
        (FOLDER / name).write_bytes(data)
