"""The SASL mechanisms of AMQP: a client's bytes to credentials, without any I/O.

PLAIN     NUL user NUL password (RFC 4616; an authorization id may only repeat the user)
AMQPLAIN  a field table without its length, holding LOGIN and PASSWORD
EXTERNAL  nothing: the name in the client's certificate, which the TLS layer has verified
SCRAM-*   takes two rounds more: scram_login.py

An error text never quotes the response: it may hold a password.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ottermq.auth import scram
from ottermq.errors import LoginRefused, Malformed, UnknownMechanism


@dataclass(frozen=True)
class Credentials:
    user: str
    password: bytes | None  # None: a certificate vouches for the user


def offered(certificate: str | None) -> str:
    """The mechanisms for connection.start: EXTERNAL only if it can let the client in."""
    names = [name for name in _MECHANISMS if name != "EXTERNAL" or certificate]
    return " ".join((*names, *scram.HASHES))


def read(mechanism: str, response: bytes, certificate: str | None) -> Credentials:
    parse = _MECHANISMS.get(mechanism)
    if parse is None:
        raise UnknownMechanism(f"unknown authentication mechanism '{mechanism}'")
    return parse(response, certificate)


def _plain(response: bytes, _: str | None) -> Credentials:
    parts = response.split(b"\0")
    if len(parts) != 3 or parts[0] not in (b"", parts[1]):
        raise Malformed("PLAIN response invalid")
    return Credentials(_name(parts[1], "PLAIN"), parts[2])


def _amqplain(response: bytes, _: str | None) -> Credentials:
    fields = _strings(response)
    if not {b"LOGIN", b"PASSWORD"} <= fields.keys():
        raise Malformed("AMQPLAIN auth info is missing LOGIN or PASSWORD field")
    return Credentials(_name(fields[b"LOGIN"], "AMQPLAIN"), fields[b"PASSWORD"])


def _external(_: bytes, certificate: str | None) -> Credentials:
    if not certificate:
        raise LoginRefused("EXTERNAL", "no peer certificate")
    return Credentials(certificate, None)


_MECHANISMS: dict[str, Callable[[bytes, str | None], Credentials]] = {
    "PLAIN": _plain,
    "AMQPLAIN": _amqplain,
    "EXTERNAL": _external,
}


def _name(raw: bytes, mechanism: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise LoginRefused(mechanism, "a user name that isn't UTF-8") from None


def _strings(table: bytes) -> dict[bytes, bytes]:
    """A field table of long strings, the only type a login can be made of."""
    found = {}
    at = 0
    while at < len(table):
        value = at + 1 + table[at]  # where the type stands
        start = value + 5
        if table[value : value + 1] != b"S" or start > len(table):
            raise Malformed("AMQPLAIN auth info uses unsupported type for a field")
        end = start + int.from_bytes(table[value + 1 : start], "big")
        if end > len(table):
            raise Malformed("AMQPLAIN auth info is cut short")
        found[table[at + 1 : value]] = table[start:end]
        at = end
    return found
