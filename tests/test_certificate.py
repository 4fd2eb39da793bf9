"""The end of a certificate, read from its DER."""

from datetime import UTC, datetime

import pytest
import trustme

from ottermq.net import certificate


@pytest.mark.parametrize(
    "end", [datetime(2038, 1, 19, 3, 14, 7, tzinfo=UTC), datetime(2051, 2, 3, 4, 5, 6, tzinfo=UTC)]
)
def test_a_certificate_s_end_is_found(end: datetime) -> None:
    leaf = trustme.CA().issue_cert("localhost", not_after=end)
    chain = b"text before it\n" + b"".join(pem.bytes() for pem in leaf.cert_chain_pems)
    assert certificate.ends(chain) == end


def test_a_file_without_one_is_refused() -> None:
    with pytest.raises(ValueError, match="no certificate"):
        certificate.ends(b"-----BEGIN PRIVATE KEY-----")
