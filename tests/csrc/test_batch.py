"""Record batches, written and read: byte for byte what kafka-python writes and reads."""

import os
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import (  # type: ignore[import-untyped,unused-ignore]
    DefaultRecordBatch,
    DefaultRecordBatchBuilder,
)

from tests.csrc.batches import (
    OVERHEAD,
    Info,
    Record,
    build,
    c_records,
    check,
    encode,
    new_info,
    peek,
    raw_batch,
    raw_record,
    read_info,
    records,
    taken,
    validate,
    varint,
    walk,
)
from tests.internals import ffi, lib

NOW = 1_700_000_000_000


def by_kafka(items: list[Record], codec: int = 0, **producer: Any) -> bytes:
    settings = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1}
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=producer.pop("is_transactional", False),
        batch_size=1 << 30,
        **{**settings, **producer},
    )
    for offset, item in enumerate(items):
        added = builder.append(offset, item.timestamp, item.key, item.value, list(item.headers))
        assert added is not None
    return bytes(builder.build())


def read_by_kafka(batch: bytes) -> tuple[Any, list[Record]]:
    reader = DefaultRecordBatch(batch)
    assert reader.validate_crc()
    found = [
        Record(item.timestamp, item.key, item.value, tuple(item.headers), item.offset)
        for item in reader
    ]
    return reader, found


def numbered(items: list[Record], base: int = 0) -> list[Record]:
    return [replace(item, offset=base + n) for n, item in enumerate(items)]


# ---- against kafka-python ---------------------------------------------------------------


@given(records())
def test_a_batch_is_written_byte_for_byte_as_kafka_python_writes_it(items: list[Record]) -> None:
    expected = by_kafka(items)
    assert encode(items) == expected
    assert build(items) == expected


@given(
    records(max_size=3),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
    st.integers(0, 2**31 - 1),
    st.booleans(),
)
def test_producer_fields_are_written_as_kafka_python_writes_them(
    items: list[Record], producer_id: int, epoch: int, sequence: int, transactional: bool
) -> None:
    producer = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    attributes = lib.OM_ATTR_TRANSACTIONAL if transactional else 0
    expected = by_kafka(items, is_transactional=transactional, **producer)
    assert encode(items, attributes=attributes, **producer) == expected
    assert build(items, attributes=attributes, **producer) == expected


@given(records(), st.integers(0, 2**62), st.integers(-1, 2**31 - 1))
def test_kafka_python_reads_what_was_written(
    items: list[Record], base_offset: int, epoch: int
) -> None:
    reader, found = read_by_kafka(encode(items, base_offset=base_offset, leader_epoch=epoch))
    assert found == numbered(items, base_offset)
    assert reader.base_offset == base_offset
    assert reader.leader_epoch == epoch
    assert reader.first_timestamp == items[0].timestamp
    assert reader.max_timestamp == max(item.timestamp for item in items)
    assert reader.last_offset == base_offset + len(items) - 1


@given(records(max_size=20))
def test_what_kafka_python_wrote_is_read_back(items: list[Record]) -> None:
    batch = by_kafka(items)
    assert validate(batch, len(batch)).result == lib.OM_OK
    assert walk(batch, len(batch)) == (lib.OM_END, numbered(items))


def test_a_compressed_batch_is_checked_but_not_opened() -> None:
    gzip = 1
    batch = by_kafka([Record(value=b"x" * 1000)] * 5, gzip)
    info = validate(batch, len(batch))
    assert info.result == lib.OM_OK
    assert info.attributes & lib.OM_ATTR_CODEC_MASK == gzip
    assert info.record_count == 5
    assert walk(batch, len(batch)) == (lib.OM_E_COMPRESSED, [])


# ---- round trips ------------------------------------------------------------------------


@given(records(timestamps=st.integers(-(2**62), 2**62 - 1)), st.integers(0, 2**62))
def test_records_come_back_as_they_went_in(items: list[Record], base_offset: int) -> None:
    batch = encode(items, base_offset=base_offset)
    assert walk(batch, len(batch)) == (lib.OM_END, numbered(items, base_offset))
    assert validate(batch, len(batch)).result == lib.OM_OK


@given(records())
def test_the_info_written_back_is_what_peek_reads(items: list[Record]) -> None:
    array, alive = c_records(items)
    info = new_info(base_offset=9, leader_epoch=4, attributes=lib.OM_ATTR_CONTROL)
    out = ffi.new("uint8_t[]", 1 << 16)
    size = lib.om_batch_encode(info, array, len(items), out, 1 << 16)
    assert peek(out, size) == read_info(lib.OM_OK, info)
    assert info.size == size
    assert info.record_count == len(items)


@pytest.mark.parametrize("length", [0, 1, 62, 63, 64, 65, 8190, 8191, 8192, 1_048_575, 1_048_576])
def test_lengths_where_a_varint_grows_come_back(length: int) -> None:
    """Values, header keys and whole records at the borders of 1, 2, 3 and 4 varint bytes."""
    item = Record(value=b"v" * length, headers=(("h" * length, b"x"),))
    batch = build([item])
    assert batch == by_kafka([item])
    assert walk(batch, len(batch)) == (lib.OM_END, numbered([item]))


def test_a_large_batch_grows_its_buffer_as_it_goes() -> None:
    items = [Record(timestamp=NOW + n, value=b"x" * n) for n in range(3000)]
    batch = build(items)
    assert batch == encode(items)
    assert walk(batch, len(batch)) == (lib.OM_END, numbered(items))


def test_a_build_may_end_anywhere_around_its_first_allocation() -> None:
    for length in range(900, 1000):
        items = [Record(), Record(value=b"x" * length)]
        assert build(items) == encode(items)


def test_a_build_that_was_taken_starts_afresh() -> None:
    growing = ffi.new("om_build *")
    for value in (b"first", b"second"):
        array, alive = c_records([Record(timestamp=len(value), value=value)])
        assert lib.om_build_add(growing, array) == lib.OM_OK
        assert taken(growing) == encode([Record(len(value), None, value)])
        assert (growing.bytes, growing.len, growing.count) == (ffi.NULL, 0, 0)
    assert lib.om_build_take(growing, new_info()) == ffi.NULL


@given(
    st.binary(max_size=20_000), st.integers(0, 100), st.integers(0, 100), st.integers(0, 2**32 - 1)
)
def test_a_copy_past_the_cache_is_a_copy(data: bytes, at: int, room: int, crc: int) -> None:
    """Wherever it begins and ends; and its checksum is what it would be without it."""
    to = ffi.new("uint8_t[]", at + len(data) + room)
    assert lib.om_copy_nt(crc, to + at, data, len(data)) == lib.om_crc32c(crc, data, len(data))
    assert bytes(ffi.buffer(to)) == bytes(at) + data + bytes(room)


@given(st.lists(st.sampled_from([0, 5, 300, 32_767, 32_768, 70_000]), min_size=1, max_size=6))
def test_large_bodies_among_small_ones_make_a_right_batch(lengths: list[int]) -> None:
    growing = ffi.new("om_build *")
    key, tail = b"key", b"\x00"  # no headers
    kept = []
    for number, length in enumerate(lengths):
        body = bytes([number + 1]) * length
        kept.append(body)
        spans = [
            ffi.new("om_span *", (ffi.from_buffer(each), len(each)))[0]
            for each in (key, body, tail)
        ]
        assert lib.om_build_add_content(growing, 1000 + number, *spans) == lib.OM_OK
    batch = taken(growing)
    validate(batch, len(batch))
    assert [record.value for record in walk(batch, len(batch))[1]] == kept


@pytest.mark.parametrize("length", [100, 20_000, 40_000, 70_000, 300_000])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_built_batch_holds_little_more_than_it_counts(length: int, count: int) -> None:
    """And a large one lies where the WAL can let the disk take it: 32 bytes past a page."""
    growing = ffi.new("om_build *")
    for _ in range(count):
        array, alive = c_records([Record(value=b"x" * length)])
        assert lib.om_build_add(growing, array) == lib.OM_OK
    whole = lib.om_build_take(growing, new_info())
    assert whole.len <= whole.room <= whole.len * 9 // 8
    moves = "OTTERMQ_SANITIZE" in os.environ  # whatever its realloc shortens
    if whole.len >= lib.OM_BUFFER_LARGE and not moves:
        assert int(ffi.cast("uintptr_t", whole.data)) % lib.OM_BUFFER_PAGE == 32
    lib.om_buffer_unref(whole)


def test_headers_beyond_the_room_given_are_counted_but_not_stored() -> None:
    item = Record(headers=tuple((f"h{n}", b"x") for n in range(5)))
    batch = encode([item])
    iterator, record = ffi.new("om_record_iter *"), ffi.new("om_record *")
    headers = ffi.new("om_header[]", 3)
    assert lib.om_record_iter_init(iterator, batch, len(batch)) == lib.OM_OK
    assert lib.om_record_next(iterator, record, headers, 2) == lib.OM_OK
    assert record.header_count == 5
    assert headers[1].key.len == 2
    assert headers[2].key.data == ffi.NULL
    assert walk(batch, len(batch), header_cap=0)[0] == lib.OM_END


# ---- timestamps and attributes ----------------------------------------------------------


def test_the_base_timestamp_is_the_first_and_the_maximum_any() -> None:
    info = peek(encode([Record(NOW), Record(NOW + 50), Record(NOW - 50)]), OVERHEAD)
    assert (info.base_timestamp, info.max_timestamp) == (NOW, NOW + 50)


def test_with_log_append_time_every_record_has_the_time_of_the_batch() -> None:
    items = [Record(NOW), Record(NOW + 7)]
    fields = {"attributes": lib.OM_ATTR_LOG_APPEND_TIME, "max_timestamp": NOW + 99}
    batch = encode(items, **fields)
    assert build(items, **fields) == batch
    info = peek(batch, len(batch))
    assert (info.base_timestamp, info.max_timestamp) == (NOW, NOW + 99)
    assert [item.timestamp for item in walk(batch, len(batch))[1]] == [NOW + 99] * 2
    reader, found = read_by_kafka(batch)
    assert reader.timestamp_type == reader.LOG_APPEND_TIME
    assert [item.timestamp for item in found] == [NOW + 99] * 2


def test_a_delete_horizon_stands_in_for_the_base_timestamp() -> None:
    items = numbered([Record(NOW), Record(NOW + 7)])
    batch = encode(items, attributes=lib.OM_ATTR_DELETE_HORIZON, base_timestamp=NOW + 86_400_000)
    info = check(batch, len(batch))
    assert (info.base_timestamp, info.max_timestamp) == (NOW + 86_400_000, NOW + 7)
    assert walk(batch, len(batch)) == (lib.OM_END, items)
    assert read_by_kafka(batch)[1] == items


def test_a_control_batch_is_read_as_one_by_kafka_python() -> None:
    commit = Record(NOW, key=b"\0\0\0\x01", value=b"\0\0\0\0\0\0")
    bits = lib.OM_ATTR_CONTROL | lib.OM_ATTR_TRANSACTIONAL
    batch = encode([commit], attributes=bits, producer_id=7, producer_epoch=1)
    reader = DefaultRecordBatch(batch)
    assert reader.is_control_batch and reader.is_transactional
    assert next(iter(reader)).commit


def test_an_empty_batch_keeps_the_offsets_and_times_it_stood_for() -> None:
    kept = {"base_offset": 100, "last_offset_delta": 9, "base_timestamp": -1, "max_timestamp": NOW}
    batch = encode([], producer_id=5, producer_epoch=1, base_sequence=3, **kept)
    assert len(batch) == OVERHEAD
    info = validate(batch, len(batch), compacted=True)
    assert info.result == lib.OM_OK
    assert {name: getattr(info, name) for name in kept} == kept
    assert walk(batch, len(batch)) == (lib.OM_END, [])
    assert validate(batch, len(batch)).result == lib.OM_E_CORRUPT


def test_offset_gaps_are_for_compacted_batches_only() -> None:
    body = raw_record(offset_delta=varint(1)) + raw_record(offset_delta=varint(4))
    batch = raw_batch(body, 2, last_offset_delta=6, base_offset=10)
    assert validate(batch, len(batch)).result == lib.OM_E_CORRUPT
    assert validate(batch, len(batch), compacted=True).result == lib.OM_OK
    assert [item.offset for item in walk(batch, len(batch))[1]] == [11, 14]


def test_patching_offset_and_epoch_leaves_the_rest_and_the_crc_right() -> None:
    items = [Record(value=b"fan"), Record(value=b"out")]
    batch = ffi.new("uint8_t[]", encode(items))
    size = len(batch) - 1  # cffi adds a zero
    lib.om_batch_patch(batch, 5_000_000_000, 77)
    assert bytes(ffi.buffer(batch, size)) == encode(
        items, base_offset=5_000_000_000, leader_epoch=77
    )
    assert check(batch, size).result == lib.OM_OK


# ---- what can't be written --------------------------------------------------------------


def test_a_buffer_one_byte_too_small_is_refused_and_one_just_right_is_not() -> None:
    items = [Record(headers=(("h", b"v"),))] * 3
    expected = encode(items)
    array, alive = c_records(items)
    for cap in range(len(expected) + 1):
        out = ffi.new("uint8_t[]", cap)
        size = lib.om_batch_encode(new_info(), array, 3, out, cap)
        assert size == (lib.OM_E_SHORT if cap < len(expected) else len(expected))


@given(records(timestamps=st.integers(0, 2**63 - 1)))
def test_the_bound_is_always_enough(items: list[Record]) -> None:
    array, alive = c_records(items)
    assert lib.om_batch_size_bound(array, len(items)) >= len(encode(items))


def attempt(items: list[Record], spoil: Any = None, **fields: int) -> int:
    array, alive = c_records(items)
    if spoil is not None:
        spoil(array)
    out = ffi.new("uint8_t[]", 4096)
    result: int = lib.om_batch_encode(new_info(**fields), array, len(items), out, 4096)
    return result


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"attributes": 1}, id="a codec"),
        pytest.param({"attributes": 128}, id="an attribute without a name"),
        pytest.param({"attributes": -32768}, id="the top attribute"),
        pytest.param({"base_offset": -1}, id="a negative offset"),
        pytest.param({"base_offset": 2**63 - 1}, id="offsets past the last there is"),
    ],
)
def test_a_header_that_makes_no_sense_is_refused(fields: dict[str, int]) -> None:
    assert attempt([Record(), Record()], **fields) == lib.OM_E_INVALID


def set_length(path: str, value: int) -> Any:
    def spoil(array: Any) -> None:
        target = array[0]
        *steps, last = path.split(".")
        for step in steps:
            target = target.headers[0] if step == "header" else getattr(target, step)
        setattr(target, last, value)

    return spoil


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(set_length("key.len", -2), id="key length"),
        pytest.param(set_length("value.len", -2), id="value length"),
        pytest.param(set_length("header_count", -1), id="header count"),
        pytest.param(set_length("header.key.len", -1), id="a header without a key"),
        pytest.param(set_length("header.value.len", -2), id="header value length"),
        pytest.param(set_length("value.len", 2**31 - 1), id="a record past 2 GiB"),
    ],
)
def test_a_record_without_an_encoding_is_refused_everywhere(spoil: Any) -> None:
    items = [Record(headers=(("h", b"v"),))]
    assert attempt(items, spoil) == lib.OM_E_INVALID
    array, alive = c_records(items)
    growing = ffi.new("om_build *")
    assert lib.om_build_add(growing, array) == lib.OM_OK
    before = encode(items)
    spoil(array)
    assert lib.om_batch_size_bound(array, 1) == lib.OM_E_INVALID
    assert lib.om_build_add(growing, array) == lib.OM_E_INVALID
    assert taken(growing) == before


def test_timestamps_too_far_apart_for_a_delta_are_refused() -> None:
    items = [Record(timestamp=-(2**63)), Record(timestamp=2**63 - 1)]
    assert attempt(items) == lib.OM_E_INVALID
    growing = ffi.new("om_build *")
    array, alive = c_records(items)
    assert lib.om_build_add(growing, array) == lib.OM_OK
    assert lib.om_build_add(growing, array + 1) == lib.OM_E_INVALID
    assert growing.count == 1
    lib.om_build_free(growing)


def test_counts_below_zero_are_refused() -> None:
    array, alive = c_records([Record()])
    assert lib.om_batch_size_bound(array, -1) == lib.OM_E_INVALID
    assert lib.om_batch_encode(new_info(), array, -1, ffi.NULL, 0) == lib.OM_E_INVALID
    assert attempt([], last_offset_delta=-1) == lib.OM_E_INVALID


def test_an_empty_build_and_one_with_a_delete_horizon_cannot_be_taken() -> None:
    growing = ffi.new("om_build *")
    assert lib.om_build_take(growing, new_info()) == ffi.NULL
    array, alive = c_records([Record()])
    assert lib.om_build_add(growing, array) == lib.OM_OK
    horizon = new_info(attributes=lib.OM_ATTR_DELETE_HORIZON)
    assert lib.om_build_take(growing, horizon) == ffi.NULL
    assert growing.count == 1
    lib.om_build_free(growing)


def test_reading_a_header_needs_no_more_than_the_header() -> None:
    batch = encode([Record()], base_offset=3)
    info = peek(batch, OVERHEAD)
    assert isinstance(info, Info)
    assert (info.result, info.size, info.base_offset) == (lib.OM_OK, len(batch), 3)
