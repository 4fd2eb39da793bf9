"""om_crc32c: the right number, and the same from the hardware and the portable path."""

import platform
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.csrc.guard import Guard
from tests.internals import lib

# Longer than the longest interleaved block, three times over, and all the remainders.
LONGEST = 2 * 3 * 1024 + 3 * 128 + 64
NOISE = random.Random(20).randbytes(LONGEST)
GUARD = Guard(LONGEST)

# RFC 3720, appendix B.4, and the check value of the CRC catalogues.
KNOWN = [
    (b"", 0),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(reversed(range(32))), 0x113FDB5C),
]


def bit_by_bit(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize(("data", "crc"), KNOWN)
def test_the_published_values_come_out(data: bytes, crc: int) -> None:
    assert lib.om_crc32c(0, data, len(data)) == crc
    assert lib.om_crc32c_portable(0, data, len(data)) == crc


@given(st.binary(max_size=200))
def test_both_paths_agree_with_the_definition(data: bytes) -> None:
    expected = bit_by_bit(data)
    assert lib.om_crc32c(0, data, len(data)) == expected
    assert lib.om_crc32c_portable(0, data, len(data)) == expected


def test_both_paths_agree_at_every_length_and_read_nothing_past_it() -> None:
    for length in range(LONGEST + 1):
        at = GUARD.place(NOISE[:length])
        assert lib.om_crc32c(7, at, length) == lib.om_crc32c_portable(7, at, length), length


@pytest.mark.parametrize("shift", range(8))
def test_alignment_does_not_matter(shift: int) -> None:
    at = GUARD.place(bytes(16 - shift) + NOISE[:4000] + bytes(shift))
    expected = lib.om_crc32c_portable(0, NOISE[:4000], 4000)
    assert lib.om_crc32c(0, at + 16 - shift, 4000) == expected


@given(st.integers(0, LONGEST))
def test_a_crc_can_go_on_where_another_ended(cut: int) -> None:
    whole = lib.om_crc32c(0, NOISE, LONGEST)
    for function in (lib.om_crc32c, lib.om_crc32c_portable):
        assert function(function(0, NOISE[:cut], cut), NOISE[cut:], LONGEST - cut) == whole


@pytest.mark.skipif(platform.machine() != "x86_64", reason="reads x86 flags")
def test_the_hardware_path_is_taken_where_the_processor_has_it() -> None:
    flags = set(Path("/proc/cpuinfo").read_text().split())
    assert bool(lib.om_crc32c_is_hardware()) == ({"sse4_2", "pclmulqdq"} <= flags)


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_the_crcs_of_two_pieces_make_that_of_both(left: bytes, right: bytes) -> None:
    joined = lib.om_crc32c_join(bit_by_bit(left), bit_by_bit(right), len(right))
    assert joined == bit_by_bit(left + right)


@pytest.mark.parametrize("length", [1, 4095, 65_597, 262_144, 1_000_003])
def test_long_pieces_join_too(length: int) -> None:
    right = (NOISE * (length // LONGEST + 1))[:length]
    joined = lib.om_crc32c_join(
        lib.om_crc32c(0, NOISE, LONGEST), lib.om_crc32c(0, right, length), length
    )
    assert joined == lib.om_crc32c(0, NOISE + right, LONGEST + length)
