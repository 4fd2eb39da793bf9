"""om_xxh3: the same number as the xxhash package, for every length."""

import random

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tests.csrc.guard import Guard
from tests.internals import lib

NOISE = random.Random(3).randbytes(3 * 1024 * 1024 + 5)
GUARD = Guard(4096)


def test_every_length_up_to_several_blocks_matches_and_reads_nothing_past_it() -> None:
    for length in range(3200):
        at = GUARD.place(NOISE[:length])
        assert lib.om_xxh3(at, length) == xxhash.xxh3_64_intdigest(NOISE[:length]), length


@pytest.mark.parametrize("length", [16384, 65536, 65537, 1 << 20, len(NOISE)])
def test_long_inputs_match(length: int) -> None:
    assert lib.om_xxh3(NOISE[:length], length) == xxhash.xxh3_64_intdigest(NOISE[:length])


@given(st.binary(max_size=2000))
def test_any_bytes_match(data: bytes) -> None:
    assert lib.om_xxh3(data, len(data)) == xxhash.xxh3_64_intdigest(data)
