"""Record batches that were cut, damaged or made to deceive: told apart, and never overread."""

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.csrc.batches import (
    OVERHEAD,
    Record,
    check,
    encode,
    peek,
    raw_batch,
    raw_record,
    records,
    seal,
    validate,
    varint,
    walk,
)
from tests.csrc.guard import Guard
from tests.internals import lib

GUARD = Guard(1 << 16)
WHOLE = encode(
    [
        Record(key=b"key", value=b"value", headers=(("name", b"x"), ("none", None))),
        Record(key=None, value=None),
        Record(value=b"v" * 100),
    ],
    base_offset=1_000,
    leader_epoch=3,
)


# ---- cut --------------------------------------------------------------------------------


def test_every_cut_asks_for_more_and_reads_nothing_past_it() -> None:
    for length in range(len(WHOLE)):
        at = GUARD.place(WHOLE[:length])
        info = peek(at, length)
        assert info.result == (lib.OM_E_SHORT if length < OVERHEAD else lib.OM_OK), length
        assert info.size == (len(WHOLE) if length >= 12 else 0), length
        assert check(at, length).result == lib.OM_E_SHORT, length
        assert validate(at, length).result == lib.OM_E_SHORT, length
        assert walk(at, length) == (lib.OM_E_SHORT, []), length


def test_bytes_after_the_batch_are_not_looked_at() -> None:
    data = WHOLE + b"\xff" * 100
    assert check(data, len(data)).size == len(WHOLE)
    assert validate(data, len(data)).result == lib.OM_OK
    assert walk(data, len(data)) == walk(WHOLE, len(WHOLE))


def test_zeros_are_no_batch() -> None:
    """What lies in a pre-allocated file after the last batch."""
    assert peek(bytes(12), 12).result == lib.OM_E_CORRUPT
    assert peek(bytes(4096), 4096).result == lib.OM_E_CORRUPT
    assert peek(bytes(11), 11).result == lib.OM_E_SHORT


# ---- flipped ----------------------------------------------------------------------------


@pytest.mark.parametrize("bit", range(8))
def test_every_flipped_bit_is_caught_or_lies_where_the_crc_does_not_reach(bit: int) -> None:
    for place in range(len(WHOLE)):
        damaged = bytearray(WHOLE)
        damaged[place] ^= 1 << bit
        info = check(GUARD.place(bytes(damaged)), len(damaged))
        if place < 8 and (place, bit) != (0, 7):
            # The base offset: the broker's own to set, so not under the CRC.
            assert info.result == lib.OM_OK
            assert info.base_offset != 1_000
        elif 12 <= place < 16:
            # The leader epoch: the same.
            assert info.result == lib.OM_OK
            assert info.leader_epoch != 3
        elif 8 <= place < 12 and info.size > len(WHOLE):
            # A length that grew asks for bytes that aren't there.
            assert info.result == lib.OM_E_SHORT
        else:
            assert info.result == lib.OM_E_CORRUPT, (place, bit)


def test_every_byte_of_the_records_flipped_under_a_right_crc_reads_nothing_outside() -> None:
    for place in range(21, len(WHOLE)):
        for flip in (0x01, 0x02, 0x80, 0xFF):
            damaged = bytearray(WHOLE)
            damaged[place] ^= flip
            batch = seal(bytes(damaged))
            at = GUARD.place(batch)
            for compacted in (False, True):
                validate(at, len(batch), compacted)
            walk(at, len(batch))


# ---- made to deceive: the CRC is right, the contents are not -------------------------------

ONE = raw_record()
LONG_VARINT = b"\xff" * 10 + b"\x01"
HUGE = varint(2**31 - 1)

HEADER_DECEITS = {
    "magic 0": raw_batch(ONE, 1, magic=0),
    "magic 1": raw_batch(ONE, 1, magic=1),
    "magic 3": raw_batch(ONE, 1, magic=3),
    "a length below the header": raw_batch(b"", 0, last_offset_delta=0, length=48),
    "a length of zero": raw_batch(ONE, 1, length=0),
    "a negative length": raw_batch(ONE, 1, length=-1),
    "a length that overflows": raw_batch(ONE, 1, length=2**31 - 1),
    "a negative base offset": raw_batch(ONE, 1, base_offset=-1),
    "offsets past the last there is": raw_batch(ONE * 2, 2, base_offset=2**63 - 1),
    "a negative count": raw_batch(b"", -1, last_offset_delta=0),
    "the lowest count": raw_batch(b"", -(2**31), last_offset_delta=0),
    "a negative last offset": raw_batch(ONE, 1, last_offset_delta=-1),
    "a negative last offset, and no records": raw_batch(b"", 0, last_offset_delta=-1),
    "more records than offsets": raw_batch(ONE * 2, 2, last_offset_delta=0),
    "two records in the room of one": raw_batch(ONE, 2),
    "more records than bytes": raw_batch(ONE, 1_000_000),
    "the highest count": raw_batch(ONE, 2**31 - 1),
}
RECORD_DECEITS = {
    "fewer records than the count": raw_batch(raw_record(value=varint(90) + b"v" * 90), 2),
    "bytes after the last record": raw_batch(ONE + b"\0", 1),
    "records but a count of none": raw_batch(ONE, 0, last_offset_delta=0),
    "codec 5": raw_batch(ONE, 1, attributes=5),
    "codec 7": raw_batch(ONE, 1, attributes=7),
    "a record longer than the batch": raw_batch(raw_record(length=100), 1),
    "a record of 2 GiB": raw_batch(raw_record(length=2**31 - 1), 1),
    "a negative record length": raw_batch(raw_record(length=-1), 1),
    "a record of no bytes": raw_batch(varint(0) + ONE, 1),
    "a record shorter than its fields": raw_batch(raw_record(length=6), 1),
    "a record longer than its fields": raw_batch(raw_record(length=8) + b"\0", 1),
    "a length that never ends": raw_batch(LONG_VARINT, 1),
    "a length of 33 bits": raw_batch(b"\xff\xff\xff\xff\x1f" + ONE, 1),
    "a timestamp that never ends": raw_batch(raw_record(time_delta=LONG_VARINT), 1),
    "a timestamp of 65 bits": raw_batch(raw_record(time_delta=b"\xff" * 9 + b"\x03"), 1),
    "a timestamp past the last there is": raw_batch(
        raw_record(time_delta=varint(1)), 1, base_timestamp=2**63 - 1
    ),
    "an offset that never ends": raw_batch(raw_record(offset_delta=LONG_VARINT), 1),
    "a first offset that is not the base": raw_batch(raw_record(offset_delta=varint(1)), 1),
    "a negative offset delta": raw_batch(raw_record(offset_delta=varint(-1)), 1),
    "the same offset twice": raw_batch(ONE + ONE, 2),
    "offsets that go down": raw_batch(raw_record(offset_delta=varint(1)) + ONE, 2),
    "a key longer than the record": raw_batch(raw_record(key=varint(9)), 1),
    "a key of 2 GiB": raw_batch(raw_record(key=HUGE), 1),
    "a key length of 33 bits": raw_batch(raw_record(key=b"\x81\x80\x80\x80\x20"), 1),
    "a key length of six bytes": raw_batch(raw_record(key=b"\x81\x80\x80\x80\x80\x00"), 1),
    "a key length below null": raw_batch(raw_record(key=varint(-2)), 1),
    "a value longer than the record": raw_batch(raw_record(value=varint(9)), 1),
    "a value length below null": raw_batch(raw_record(value=varint(-2)), 1),
    "a negative header count": raw_batch(raw_record(headers=varint(-1)), 1),
    "a huge header count": raw_batch(raw_record(headers=HUGE), 1),
    "fewer headers than the count": raw_batch(
        raw_record(headers=varint(2) + varint(1) + b"k" + varint(1) + b"v"), 1
    ),
    "a header without a key": raw_batch(raw_record(headers=varint(1) + varint(-1) * 2), 1),
    "a header key longer than the record": raw_batch(
        raw_record(headers=varint(1) + varint(5) + b"k"), 1
    ),
    "a header value longer than the record": raw_batch(
        raw_record(headers=varint(1) + varint(1) + b"k" + varint(5) + b"v"), 1
    ),
    "a header value length below null": raw_batch(
        raw_record(headers=varint(1) + varint(1) + b"k" + varint(-2)), 1
    ),
}
DECEITS = HEADER_DECEITS | RECORD_DECEITS


def test_what_is_not_spoilt_passes() -> None:
    for batch in (raw_batch(ONE, 1), raw_batch(ONE + raw_record(offset_delta=varint(1)), 2)):
        assert validate(batch, len(batch)).result == lib.OM_OK


@pytest.mark.parametrize("name", HEADER_DECEITS)
def test_a_look_at_the_header_is_enough_to_refuse(name: str) -> None:
    assert peek(GUARD.place(HEADER_DECEITS[name][:OVERHEAD]), OVERHEAD).result == lib.OM_E_CORRUPT


@pytest.mark.parametrize("name", DECEITS)
def test_a_stranger_cannot_pass_off(name: str) -> None:
    batch = DECEITS[name]
    at = GUARD.place(batch)
    assert validate(at, len(batch)).result == lib.OM_E_CORRUPT
    assert validate(at, len(batch), compacted=True).result == lib.OM_E_CORRUPT


def test_a_varint_longer_than_it_need_be_is_read_as_kafka_reads_it() -> None:
    batch = raw_batch(raw_record(offset_delta=b"\x80\x00", key=b"\x81\x80\x80\x80\x00"), 1)
    assert validate(batch, len(batch)).result == lib.OM_OK
    assert walk(batch, len(batch))[1][0].key is None


def test_a_bad_record_answers_the_same_again_and_the_good_ones_before_it_are_read() -> None:
    batch = raw_batch(ONE + raw_record(offset_delta=varint(1), key=varint(-2)), 2)
    result, found = walk(batch, len(batch))
    assert result == lib.OM_E_CORRUPT
    assert [item.offset for item in found] == [0]


# ---- anything ---------------------------------------------------------------------------


@given(st.binary(max_size=400))
def test_any_bytes_are_answered(data: bytes) -> None:
    at = GUARD.place(data)
    for result in (peek(at, len(data)), check(at, len(data)), validate(at, len(data))):
        assert result.result in (lib.OM_OK, lib.OM_E_SHORT, lib.OM_E_CORRUPT)
    walk(at, len(data))


@given(st.binary(max_size=200), st.integers(0, 30), st.integers(0, 127))
@example(ONE, 1, 0)
def test_any_records_under_a_right_crc_are_answered_alike_by_validate_and_walk(
    body: bytes, count: int, attributes: int
) -> None:
    batch = raw_batch(body, count, last_offset_delta=max(count - 1, 0), attributes=attributes & ~7)
    at = GUARD.place(batch)
    valid = validate(at, len(batch), compacted=True).result
    result, found = walk(at, len(batch))
    assert (valid == lib.OM_OK) == (result == lib.OM_END)
    assert result != lib.OM_END or len(found) == count


@given(records(), st.data())
def test_a_real_batch_with_a_few_bytes_changed_is_answered(
    items: list[Record], data: st.DataObject
) -> None:
    batch = bytearray(encode(items))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(16, len(batch) - 1))] = data.draw(st.integers(0, 255))
    struct.pack_into(">b", batch, 16, 2)
    sealed = seal(bytes(batch))
    at = GUARD.place(sealed)
    valid = validate(at, len(sealed)).result
    assert valid in (lib.OM_OK, lib.OM_E_CORRUPT)
    if valid == lib.OM_OK and walk(at, len(sealed))[0] != lib.OM_E_COMPRESSED:
        result, found = walk(at, len(sealed))
        assert result == lib.OM_END
        assert [item.offset for item in found] == list(range(len(found)))
