"""The mechanisms: a client's bytes to credentials."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pamqp import encode

from ottermq.auth import sasl
from ottermq.auth.sasl import Credentials
from ottermq.errors import LoginRefused, Malformed, OtterError, UnknownMechanism, codes_of


def test_plain_is_user_and_password_between_nuls() -> None:
    assert sasl.read("PLAIN", b"\0guest\0s3cret", None) == Credentials("guest", b"s3cret")
    assert sasl.read("PLAIN", b"\0g\xc3\xbc\0\xff", None) == Credentials("gü", b"\xff")


def test_an_authorization_id_may_only_repeat_the_user() -> None:
    assert sasl.read("PLAIN", b"a\0a\0p", None) == Credentials("a", b"p")
    with pytest.raises(Malformed):
        sasl.read("PLAIN", b"root\0a\0p", None)


@pytest.mark.parametrize("response", [b"", b"guest", b"\0guest", b"\0a\0b\0c", b"\0\0\0\0"])
def test_what_is_not_plain_is_a_syntax_error_that_does_not_repeat_it(response: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        sasl.read("PLAIN", response, None)
    assert codes_of(caught.value).amqp == 502
    assert "guest" not in str(caught.value)


def test_amqplain_is_a_table_without_its_length() -> None:
    table = encode.field_table({"LOGIN": "guest", "PASSWORD": "s3cret"})[4:]
    assert sasl.read("AMQPLAIN", table, None) == Credentials("guest", b"s3cret")


@pytest.mark.parametrize(
    "table", [{}, {"LOGIN": "guest"}, {"PASSWORD": "x"}, {"LOGIN": "g", "PASSWORD": 5}]
)
def test_amqplain_without_both_strings_is_a_syntax_error(table: dict[str, str]) -> None:
    with pytest.raises(Malformed):
        sasl.read("AMQPLAIN", encode.field_table(table)[4:], None)  # type: ignore[arg-type]


@given(st.binary(max_size=60), st.sampled_from(["PLAIN", "AMQPLAIN", "EXTERNAL"]))
@example(b"\x05LOGINS\xff\xff\xff\xff", "AMQPLAIN")
@example(b"\xff", "AMQPLAIN")
@example(b"\0\xff\0x", "PLAIN")
def test_any_bytes_are_credentials_or_one_of_our_errors(response: bytes, mechanism: str) -> None:
    try:
        assert isinstance(sasl.read(mechanism, response, None), Credentials)
    except OtterError:
        pass


def test_external_is_the_name_in_the_certificate_and_needs_one() -> None:
    assert sasl.read("EXTERNAL", b"", "CN=client") == Credentials("CN=client", None)
    assert sasl.read("EXTERNAL", b"someone else", "CN=client").user == "CN=client"
    with pytest.raises(LoginRefused):
        sasl.read("EXTERNAL", b"guest", None)


def test_external_is_offered_to_whom_it_can_let_in() -> None:
    always = "SCRAM-SHA-256 SCRAM-SHA-512"
    assert sasl.offered(None) == f"PLAIN AMQPLAIN {always}"
    assert sasl.offered("CN=client") == f"PLAIN AMQPLAIN EXTERNAL {always}"


def test_a_mechanism_nobody_offered_is_named_in_the_refusal() -> None:
    with pytest.raises(UnknownMechanism) as caught:
        sasl.read("GSSAPI", b"", None)
    assert str(caught.value) == "unknown authentication mechanism 'GSSAPI'"
    assert codes_of(caught.value).amqp == 503
