"""The table-driven codec: nothing is lost on the way, and no bytes do harm."""

import random
import struct
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottermq.errors import Malformed
from ottermq.kafka import codec
from ottermq.kafka.api import Api
from ottermq.kafka.codec import TAGS, UnknownVersion
from ottermq.kafka.request import Body, Connection, Request
from ottermq.kafka.schema import MESSAGES
from tests.examples import examples
from tests.kafka.bodies import VERSIONS, bodies, without_defaults

NOBODY: Connection = None  # type: ignore[assignment]
QUICK = settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
THOROUGH = settings(QUICK, max_examples=examples(400))
each_version = pytest.mark.parametrize(
    ("api", "version"), VERSIONS, ids=[f"{api.name.lower()}-{version}" for api, version in VERSIONS]
)


@each_version
def test_what_is_written_is_read_again(api: Api, version: int) -> None:
    @QUICK
    @given(bodies(api, version, False), bodies(api, version, True))
    def check(asked: Body, answered: Body) -> None:
        sent = codec.encode_request(api, version, 7, "me", asked)
        assert int.from_bytes(sent[:4], "big") == len(sent) - 4
        request = codec.decode_request(NOBODY, sent[4:])
        assert (request.api, request.version, request.correlation) == (api, version, 7)
        assert request.client_id == "me"
        assert without_defaults(request.body, asked) == asked
        answer = codec.encode_response(request, answered)
        correlation, body = codec.decode_response(api, version, answer[4:])
        assert correlation == 7
        assert without_defaults(body, answered) == answered

    check()


@each_version
def test_cut_short_anywhere_it_is_malformed(api: Api, version: int) -> None:
    @settings(QUICK, max_examples=3)
    @given(bodies(api, version, False))
    def check(asked: Body) -> None:
        sent = codec.encode_request(api, version, 7, "me", asked)[4:]
        for end in range(len(sent)):
            with pytest.raises(Malformed):
                codec.decode_request(NOBODY, sent[:end])

    check()


@THOROUGH
@given(st.sampled_from(VERSIONS), st.data())
def test_altered_bytes_raise_nothing_but_malformed(
    which: tuple[Api, int], data: st.DataObject
) -> None:
    api, version = which
    sent = bytearray(
        codec.encode_request(api, version, 7, "me", data.draw(bodies(api, version, False)))[4:]
    )
    for _ in range(data.draw(st.integers(1, 4))):
        sent[data.draw(st.integers(8, len(sent) - 1))] = data.draw(st.integers(0, 255))
    decoded(bytes(sent))
    at = data.draw(st.integers(8, len(sent)))
    decoded(bytes(sent[:at]) + data.draw(st.binary(max_size=6)) + bytes(sent[at:]))


@pytest.mark.soak
@each_version
def test_one_in_a_million_raises_nothing_but_malformed(api: Api, version: int) -> None:
    """Altered without hypothesis, which takes a thousand times as long as reading does."""
    chance = random.Random()

    @settings(QUICK, max_examples=50, derandomize=False)
    @given(bodies(api, version, False))
    def check(asked: Body) -> None:
        sent = codec.encode_request(api, version, 7, "me", asked)[4:]
        for _ in range(1_000_000 // (50 * len(VERSIONS)) + 1):
            altered = bytearray(sent)
            for _ in range(chance.randint(1, 4)):
                at = chance.randrange(8, len(sent))
                altered[at : at + chance.randint(0, 2)] = chance.randbytes(chance.randint(0, 2))
            decoded(bytes(altered))

    check()


@THOROUGH
@given(st.sampled_from(VERSIONS), st.binary(max_size=200))
def test_noise_raises_nothing_but_malformed(which: tuple[Api, int], noise: bytes) -> None:
    api, version = which
    decoded(struct.pack(">hhih", api, version, 1, -1) + noise)
    decoded(noise)


def decoded(payload: bytes) -> Request | None:
    try:
        return codec.decode_request(NOBODY, payload)
    except (Malformed, UnknownVersion):
        return None


@each_version
def test_a_huge_count_reserves_nothing(api: Api, version: int) -> None:
    """A count of 2³¹ - 1 and nothing behind it, in place of whatever the body begins with."""
    for count in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07"):
        head = struct.pack(">hhih", api, version, 1, -1)
        flexible = b"\0" if MESSAGES[api].is_flexible(version) else b""
        for filler in (b"", b"\0\0", b"\0\x01a", b"\x02a"):
            tracemalloc.start()
            try:
                decoded(head + flexible + filler + count + bytes(64))
                assert tracemalloc.get_traced_memory()[1] < 1 << 20
            finally:
                tracemalloc.stop()


def test_many_tiny_elements_are_too_many() -> None:
    names = struct.pack(">i", 300_000) + b"\0\0" * 300_000
    with pytest.raises(Malformed, match="more than 100000 elements"):
        codec.decode_request(NOBODY, struct.pack(">hhih", Api.METADATA, 1, 1, -1) + names)


def test_thousands_of_topics_are_read() -> None:
    asked = {"topics": [{"name": f"topic-{n}"} for n in range(10_000)]}
    sent = codec.encode_request(Api.METADATA, 12, 1, None, asked)
    body = codec.decode_request(NOBODY, sent[4:]).body
    assert [topic["name"] for topic in body["topics"]] == [f"topic-{n}" for n in range(10_000)]


@pytest.mark.parametrize(("api", "version"), [(99, 0), (-1, 0), (3, 14), (3, -1), (3, 32767)])
def test_what_we_dont_speak_is_told_by_its_header(api: int, version: int) -> None:
    with pytest.raises(UnknownVersion) as raised:
        codec.decode_request(NOBODY, struct.pack(">hhih", api, version, 5, 2) + b"me, and more")
    error = raised.value
    assert (error.api, error.version, error.correlation) == (api, version, 5)
    assert error.client_id == "me"


def test_a_tag_may_not_come_twice() -> None:
    head = struct.pack(">hhih", Api.HEARTBEAT, 4, 1, -1)
    with pytest.raises(Malformed, match="out of order"):
        codec.decode_request(NOBODY, head + b"\x02\x05\x00\x05\x00" + bytes(20))


def test_a_field_that_doesnt_exist_is_our_own_mistake() -> None:
    with pytest.raises(KeyError, match="no such field: eror_code"):
        codec.encode_answer(Api.HEARTBEAT, 4, 1, {"eror_code": 1})


def test_tagged_fields_of_newer_clients_are_kept() -> None:
    body = {"group_id": "g", TAGS: {7: b"later"}}
    sent = codec.encode_request(Api.HEARTBEAT, 4, 1, None, body)
    assert codec.decode_request(NOBODY, sent[4:]).body[TAGS] == {7: b"later"}


def test_the_answer_to_api_versions_has_a_plain_header() -> None:
    answer = codec.encode_answer(Api.API_VERSIONS, 4, 9, {"error_code": 0})
    assert answer[4:10] == struct.pack(">ih", 9, 0)
    assert codec.encode_answer(Api.HEARTBEAT, 4, 9, {})[4:9] == struct.pack(">ib", 9, 0)
