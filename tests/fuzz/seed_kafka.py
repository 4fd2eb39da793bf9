"""Writes the first inputs for fuzz_kafka: whole conversations, as clients have them.

Run from the checkout: python -m tests.fuzz.seed_kafka
"""

from pathlib import Path

from ottermq.kafka.api import Api
from ottermq.kafka.codec import encode_request
from tests.engine.kafka_plane import batch, request

FOLDER = Path(__file__).resolve().parent / "corpus" / "kafka"
LOOSE, UNREAD, BREAKS = 1, 2, 4
ANY, PRODUCE, FETCH, DISTURB = range(4)
ENLIST, END = 5, 6  # what a disturbance does ...
STREAM, COMMIT = 4, 65  # ... and to which topic: STREAM + COMMIT is the stream, too


def step(kind: int, a: int, b: int, payload: bytes = b"") -> bytes:
    """See fuzz_kafka.c."""
    return bytes([kind, a, b, len(payload)]) + payload


def produce(version: int, acks: int, *parts: tuple[str, int]) -> bytes:
    body = {
        "transactional_id": None,
        "acks": acks,
        "timeout_ms": 1000,
        "topic_data": [
            {"name": name, "partition_data": [{"index": index, "records": batch(b"1", b"2")}]}
            for name, index in parts
        ],
    }
    return encode_request(Api.PRODUCE, version, version, "seed", body)


def fetch(version: int, session: tuple[int, int] = (0, -1), wait: int = 1) -> bytes:
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 5000}
    body = {
        "max_wait_ms": wait,
        "min_bytes": 1,
        "max_bytes": 50000,
        "isolation_level": version % 2,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": [{"topic": name, "partitions": [part]} for name in ("a", "f", "zz")],
        "forgotten_topics_data": [{"topic": "a", "partitions": [0, 1]}],
        "rack_id": "",
    }
    return encode_request(Api.FETCH, version, version, "seed", body)


def raw() -> dict[str, bytes]:
    found = {f"produce-{v}": produce(v, -1, ("a", 0), ("f", 0), ("x", 1)) for v in range(3, 12)}
    found |= {f"fetch-{v}": produce(9, 1, ("f", 0)) + fetch(v, (0, 0)) for v in range(4, 13)}
    found |= {
        "acks-0": produce(9, 0, ("a", 0)) + produce(9, 1, ("a", 0)),
        "acks-2": produce(9, 2, ("a", 0)),
        "others": b"".join(request(key, 1, key) for key in (3, 18, 10, 12)),
        "mixed": produce(9, -1, ("f", 0)) + request(3, 1, 5) + fetch(12) + produce(3, 1, ("c", 2)),
        "half": produce(9, -1, ("f", 0))[:-30],
        "http": b"GET / HTTP/1.1\r\n\r\n",
        "size": b"\x7f\xff\xff\xff\0\0\0\x09",
        "old-produce": request(
            0, 1, 5, b"\0\1\0\0\3\xe8\0\0\0\1\0\1a\0\0\0\1\0\0\0\0\xff\xff\xff\xff"
        ),
    }
    return found


def loose() -> dict[str, bytes]:
    sent = batch(b"one", b"two", b"three")
    writes = b"".join(step(PRODUCE, a, b) for a in range(0, 24, 3) for b in (0, 6, 8))
    wanted = bytes([0, 0, 0, 9, 4, 0, 0, 255, 2, 1, 0, 3])
    reads = b"".join(step(FETCH, 7, version, wanted) for version in range(14))
    session = step(FETCH, 4, 32 + 8, wanted) + step(FETCH, 132, 8, wanted[:4]) * 4
    return {
        "writes": writes,
        "records": step(PRODUCE, 18, 6, sent) + step(PRODUCE, 16, 6, sent[:70]),
        "transaction": step(
            PRODUCE, 18, 64 + 6, batch(b"1", producer=(7, 0, 0), transactional=True)
        ),
        "sequence": step(PRODUCE, 18, 6, batch(b"1", producer=(7, 0, 0))) * 3,
        "compressed": step(PRODUCE, 18, 6, batch(b"1" * 50, codec=1)),
        "reads": writes + reads,
        "session": writes + session,
        "session-forgets": session + step(FETCH, 130, 8, wanted) + session,
        "disturbed": b"".join(
            writes[:12] + step(DISTURB, a, b) + session for a in range(8) for b in (0, 4, 9)
        ),
        "transactions": b"".join(
            step(DISTURB, ENLIST, STREAM)
            + step(PRODUCE, 18, 64 + 6, batch(b"1", producer=(7, 0, first), transactional=True))
            + step(FETCH, 71, 8, wanted)
            + step(DISTURB, END, STREAM + commits * COMMIT)
            + step(FETCH, 71, 8, wanted)
            for first, commits in enumerate((0, 1, 0))
        ),
        "any": b"".join(step(ANY, a, 9, bytes(range(40))) for a in range(20)),
    }


def seeds() -> dict[str, bytes]:
    found = {name: bytes([0, 0]) + data for name, data in raw().items()}
    found |= {f"{name}-loose": bytes([LOOSE, 0]) + data for name, data in loose().items()}
    found["byte-by-byte"] = bytes([0, 1]) + raw()["mixed"]
    found["unread"] = bytes([LOOSE | UNREAD, 0]) + loose()["reads"]
    found["breaks"] = bytes([LOOSE | BREAKS, 0]) + loose()["session"]
    return found


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, data in seeds().items():
        (FOLDER / name).write_bytes(data)
