"""Lines about what the engine asks for: which log, whose connection."""

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottermq.engine.decompress import Opener
from ottermq.engine.events import DecompressWanted, KafkaRepackWanted
from ottermq.kafka import repacking
from ottermq.kafka.repacking import Repacker


@pytest.mark.parametrize(("name", "told"), [("orders-0", "orders-0"), (None, "7")])
async def test_a_batch_that_cannot_be_decompressed_names_its_log(
    name: str | None, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[tuple[int, int, bytes | None]] = []
    engine: Any = SimpleNamespace(
        store=SimpleNamespace(name_of=lambda log: name),
        unpacking=trio.CapacityLimiter(1),
        batch_decompressed=lambda *answer: answers.append(answer),
    )
    async with trio.open_nursery() as nursery:
        Opener(engine, nursery).take(DecompressWanted(7, 100, 1, b"no gzip"))
    assert answers == [(7, 100, None)]
    (line,) = caplog.messages
    assert line.startswith(f"batch not decompressed log={told} offset=100 reason=")


@pytest.mark.parametrize("is_there", [True, False])
async def test_batches_that_are_not_taken_end_their_connection(
    is_there: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(payload: bytes, limit: int) -> Any:
        raise RuntimeError("our mistake")

    monkeypatch.setattr(repacking, "repack_all", fails)
    engine: Any = SimpleNamespace(
        options=SimpleNamespace(kafka_max_request=1000),
        unpacking=trio.CapacityLimiter(1),
        kafka_repacked=lambda conn, done: False,
        conn_stat=lambda conn: object() if is_there else None,
    )
    ended: list[tuple[Any, str]] = []
    conn: Any = SimpleNamespace(peer="10.0.0.7:51234")
    repacker = Repacker(engine, lambda *end: ended.append(end))
    await repacker.repack(conn, KafkaRepackWanted(7, b""))
    assert caplog.messages == ["batches not recompressed peer=10.0.0.7:51234"]
    assert ended == ([(conn, "out of memory")] if is_there else [])
