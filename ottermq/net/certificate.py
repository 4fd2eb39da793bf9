"""When a certificate ends: the one field of it that Python's ssl doesn't tell about our own.

Certificate ::= SEQUENCE { tbs SEQUENCE {
    [0] version OPTIONAL, serial, algorithm, issuer, validity { begins, ends }, … }, … }
"""

import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime

_FIRST = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_VERSION, _UTC_TIME = 0xA0, 0x17


def ends(pem: bytes) -> datetime:
    """Of the first certificate in a file. ValueError: there is none, or it is damaged."""
    found = _FIRST.search(pem)
    if found is None:
        raise ValueError("no certificate")
    try:
        (whole,) = _parts(ssl.PEM_cert_to_DER_cert(found[0].decode("ascii")))
        tbs, *_ = _parts(whole[1])
        fields = [part for part in _parts(tbs[1]) if part[0] != _VERSION]
        _, (tag, time) = _parts(fields[3][1])
    except (IndexError, ValueError):
        raise ValueError("a certificate that can't be read") from None
    layout = "%y%m%d%H%M%SZ" if tag == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(time.decode("ascii"), layout).replace(tzinfo=UTC)


def _parts(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Each value in there: its tag and its content."""
    at = 0
    while at < len(der):
        tag, size = der[at], der[at + 1]
        at += 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(der[at : at + count])
            at += count
        yield tag, der[at : at + size]
        at += size
