"""What Kafka clients compress comes out whole, or not at all; never more than there is room for."""

import struct
from collections.abc import Callable
from typing import Any

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottermq.storage import codecs
from ottermq.storage.codecs import (
    XERIAL,
    Codec,
    NotDecompressed,
    compress_records,
    decompress_records,
)

PACK: dict[Codec, Callable[[bytes], Any]] = {
    Codec.GZIP: cramjam.gzip.compress,
    Codec.SNAPPY: cramjam.snappy.compress_raw,
    Codec.LZ4: cramjam.lz4.compress,
    Codec.ZSTD: cramjam.zstd.compress,
}


@pytest.mark.parametrize("codec", PACK)
@given(data=st.binary(max_size=2000), times=st.integers(1, 300))
def test_what_went_in_comes_out(codec: Codec, data: bytes, times: int) -> None:
    assert decompress_records(codec, bytes(PACK[codec](data * times))) == data * times


@pytest.mark.parametrize("codec", PACK)
def test_a_bomb_does_not_go_off(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = bytes(PACK[codec](bytes(20 << 20)))
    monkeypatch.setattr(codecs, "SIZE_LIMIT", 1 << 20)
    with pytest.raises(NotDecompressed, match="more than 1048576 bytes"):
        decompress_records(codec, bomb)
    monkeypatch.undo()
    monkeypatch.setattr(codecs, "ANY_RATIO", 1 << 20)
    monkeypatch.setattr(codecs, "RATIO_LIMIT", 2)
    with pytest.raises(NotDecompressed, match="more than"):
        decompress_records(codec, bomb)


@pytest.mark.parametrize("codec", [*PACK, 5, 7])
@given(data=st.binary(max_size=200))
def test_noise_is_refused_and_nothing_else_happens(codec: int, data: bytes) -> None:
    try:
        decompress_records(codec, data)
    except NotDecompressed:
        pass


@given(blocks=st.lists(st.binary(min_size=1, max_size=500), max_size=5), cut=st.integers(0, 9))
def test_snappy_in_the_java_clients_frames(blocks: list[bytes], cut: int) -> None:
    raw = [bytes(cramjam.snappy.compress_raw(block)) for block in blocks]
    framed = XERIAL + b"\0\0\0\1\0\0\0\1" + b"".join(struct.pack(">i", len(r)) + r for r in raw)
    assert decompress_records(Codec.SNAPPY, framed) == b"".join(blocks)
    if cut and blocks:
        with pytest.raises(NotDecompressed):
            decompress_records(Codec.SNAPPY, framed[:-cut] if cut < len(raw[-1]) else framed[:-1])


LEVELS = {Codec.GZIP: (-1, 0, 9), Codec.LZ4: (1, 9, 17), Codec.ZSTD: (-131072, 3, 22)}


@pytest.mark.parametrize("codec", PACK)
@given(data=st.binary(max_size=2000), times=st.integers(0, 300))
def test_what_is_closed_here_opens_again_at_every_level(
    codec: Codec, data: bytes, times: int
) -> None:
    for level in (None, *LEVELS.get(codec, ())):
        assert (
            decompress_records(codec, compress_records(codec, data * times, level)) == data * times
        )


def test_lz4_has_blocks_that_stand_for_themselves() -> None:
    """Java's client refuses all others."""
    frame = compress_records(Codec.LZ4, bytes(200_000))
    assert frame[4] & 0x20


def test_a_gzip_of_several_members_is_one() -> None:
    members = bytes(cramjam.gzip.compress(b"one")) + bytes(cramjam.gzip.compress(b"two"))
    assert decompress_records(Codec.GZIP, members) == b"onetwo"
