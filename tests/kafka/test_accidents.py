"""What fails for one request ends neither a coordinator nor anybody else's request."""

from typing import Any

import pytest
import trio

from ottermq.kafka.api import Api
from ottermq.kafka.errors import Error
from ottermq.storage import codecs
from tests.kafka.broker_harness import Harness

PROTOCOLS = [{"name": "range", "metadata": b""}]


class Panic(BaseException):
    """As pyo3 raises it for a panic in a Rust library."""


async def join_and_sync(harness: Harness, group: str) -> int:
    wanted = {
        "group_id": group, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000,
        "member_id": "", "protocol_type": "consumer", "protocols": PROTOCOLS,
    }  # fmt: skip
    joined = await harness.ask(Api.JOIN_GROUP, wanted, version=3)
    assert joined["error_code"] == Error.NONE
    who = {"generation_id": joined["generation_id"], "member_id": joined["member_id"]}
    told = await harness.ask(Api.SYNC_GROUP, {"group_id": group, **who}, version=2)
    return int(told["error_code"])


@pytest.mark.parametrize("error", [RuntimeError("our mistake"), Panic("theirs")])
async def test_a_group_that_cannot_be_saved_is_told_and_the_others_go_on(
    harness: Harness, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    state: Any = harness.context.groups._state
    put = state.put

    async def failing(items: dict[bytes, bytes | None], *rest: Any) -> int:
        if any(b"doomed" in key for key in items):
            raise error
        return int(await put(items, *rest))

    monkeypatch.setattr(state, "put", failing)
    with trio.fail_after(10):
        assert await join_and_sync(harness, "doomed") == Error.COORDINATOR_NOT_AVAILABLE
        assert await join_and_sync(harness, "lucky") == Error.NONE
        await harness.context.groups.expire()
        assert await join_and_sync(harness, "another") == Error.NONE


def test_a_panic_in_a_codec_is_a_batch_that_cannot_be_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def panics(data: bytes, out: bytearray) -> int:
        raise Panic("index out of bounds")

    monkeypatch.setitem(codecs.STREAMS, codecs.Codec.ZSTD, panics)
    with pytest.raises(codecs.NotDecompressed):
        codecs.decompress_records(codecs.Codec.ZSTD, b"abc")
