"""TLS: contexts from files, reload, names in certificates."""

import logging
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trio
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from ottermq.config.schema import TlsSettings
from ottermq.errors import ConfigError
from ottermq.net import certificate
from ottermq.net.tls import Contexts, make_context, name_of

PATIENCE = 20.0


def written(folder: Path, ca: trustme.CA, host: str = "localhost", **more: object) -> TlsSettings:
    """A certificate of that CA's, as files and as settings."""
    issued = ca.issue_cert(host)
    blobs = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    (folder / "cert.pem").write_bytes(blobs)
    (folder / "key.pem").write_bytes(issued.private_key_pem.bytes())
    ca.cert_pem.write_to_path(str(folder / "ca.pem"))
    values = {"cert": folder / "cert.pem", "key": folder / "key.pem", "ca": folder / "ca.pem"}
    return TlsSettings(**(values | more))  # type: ignore[arg-type]


def agree(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost") -> ssl.SSLObject:
    """A handshake in memory; the server's side of it."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname=host)
    waiting = [theirs, ours]
    for _ in range(20):
        for side in tuple(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                pass
        if not waiting:
            return ours
    raise AssertionError("they talk for ever")


def client(ca: trustme.CA, identity: trustme.LeafCert | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    ca.configure_trust(context)
    if identity:
        identity.configure_cert(context)
    return context


# -- contexts


def test_a_client_that_trusts_our_ca_gets_tls_1_3(tmp_path: Path) -> None:
    ca = trustme.CA()
    server = make_context(written(tmp_path, ca))
    assert agree(server, client(ca)).version() == "TLSv1.3"


def test_tls_1_2_is_spoken_unless_settings_say_more(tmp_path: Path) -> None:
    ca = trustme.CA()
    old = client(ca)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert agree(make_context(written(tmp_path, ca)), old).version() == "TLSv1.2"
    with pytest.raises(ssl.SSLError):
        agree(make_context(written(tmp_path, ca, min_version="1.3")), old)


def test_nothing_older_than_tls_1_2_is_spoken(tmp_path: Path) -> None:
    server = make_context(written(tmp_path, trustme.CA()))
    assert server.minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("verify", "without", "with_one"),
    [("none", True, None), ("optional", True, "known"), ("required", False, "known")],
)
def test_a_clients_certificate_is_asked_for_as_settings_say(
    tmp_path: Path, verify: str, without: bool, with_one: str | None
) -> None:
    ca = trustme.CA()
    server = make_context(written(tmp_path, ca, verify=verify))
    bare = client(ca)
    bare.maximum_version = ssl.TLSVersion.TLSv1_2  # in 1.3 a client hears of a refusal later
    if without:
        assert name_of(agree(server, bare).getpeercert(), "common_name") is None
    else:
        with pytest.raises(ssl.SSLError):
            agree(server, bare)
    identity = ca.issue_cert("client.example", common_name="known")
    met = agree(server, client(ca, identity))
    assert name_of(met.getpeercert(), "common_name") == with_one


@pytest.mark.parametrize("verify", ["optional", "required"])
def test_a_strangers_certificate_is_refused(tmp_path: Path, verify: str) -> None:
    ca, other = trustme.CA(), trustme.CA()
    server = make_context(written(tmp_path, ca, verify=verify))
    stranger = client(ca, other.issue_cert("client.example", common_name="known"))
    stranger.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        agree(server, stranger)


# -- files


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    settings = written(tmp_path, trustme.CA())
    (tmp_path / "key.pem").unlink()
    with pytest.raises(ConfigError, match=r"tls\.key = .*key\.pem: No such file or directory"):
        Contexts(settings)


def test_a_key_that_is_not_the_certificates_is_told(tmp_path: Path) -> None:
    settings = written(tmp_path, trustme.CA())
    other = trustme.CA().issue_cert("localhost")
    (tmp_path / "key.pem").write_bytes(other.private_key_pem.bytes())
    with pytest.raises(ConfigError, match="mismatch"):
        Contexts(settings)


def test_a_key_with_a_passphrase_is_told_and_not_asked_for(tmp_path: Path) -> None:
    settings = written(tmp_path, trustme.CA())
    key = load_pem_private_key((tmp_path / "key.pem").read_bytes(), None)
    (tmp_path / "key.pem").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    )
    with pytest.raises(ConfigError, match="the key has a passphrase"):
        Contexts(settings)


@pytest.mark.parametrize("name", ["cert.pem", "key.pem", "ca.pem"])
def test_a_file_that_holds_something_else_is_told(tmp_path: Path, name: str) -> None:
    settings = written(tmp_path, trustme.CA())
    (tmp_path / name).write_text("no PEM")
    with pytest.raises(ConfigError, match=f"tls.{name[:-4]} = "):
        Contexts(settings)


async def test_a_reload_counts_for_who_comes_after_it(tmp_path: Path) -> None:
    old, new = trustme.CA(), trustme.CA()
    contexts = Contexts(written(tmp_path, old))
    before = contexts.current
    written(tmp_path, new)
    assert await contexts.reload()
    agree(contexts.current, client(new))
    agree(before, client(old))


async def test_files_that_can_not_be_used_leave_the_old_context(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ottermq")
    ca = trustme.CA()
    contexts = Contexts(written(tmp_path, ca))
    (tmp_path / "cert.pem").write_text("half writ")
    assert not await contexts.reload()
    agree(contexts.current, client(ca))
    assert "tls files not loaded" in caplog.text


async def test_changed_files_are_noticed(tmp_path: Path) -> None:
    old, new = trustme.CA(), trustme.CA()
    contexts = Contexts(written(tmp_path, old, check_interval=timedelta(milliseconds=10)))
    before = contexts.current
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(contexts.keep)
            written(tmp_path, new)  # file by file: in between, they don't fit each other
            os.utime(tmp_path / "key.pem", (1, 1))  # a clock too coarse would hide the change
            while True:
                await trio.sleep(0.01)
                if contexts.current is not before:
                    try:
                        agree(contexts.current, client(new))
                    except ssl.SSLError:
                        continue
                    break
            nursery.cancel_scope.cancel()


# -- names

SUBJECT = (
    (("countryName", "DE"),),
    (("organizationName", "Otters, Inc."),),
    (("organizationalUnitName", "a+b"), ("userId", "7")),
    (("commonName", " client "),),
)


def test_a_distinguished_name_is_written_as_rabbitmq_does() -> None:
    name = name_of({"subject": SUBJECT}, "distinguished_name")
    assert name == "CN=\\ client\\ ,OU=a\\+b+UID=7,O=Otters\\, Inc.,C=DE"


def test_a_common_name_is_taken_as_it_is() -> None:
    assert name_of({"subject": SUBJECT}, "common_name") == " client "


@pytest.mark.parametrize("certificate", [None, {}, {"subject": ()}])
@pytest.mark.parametrize("login_from", ["common_name", "distinguished_name"])
def test_no_certificate_is_no_name(certificate: dict[str, object] | None, login_from: str) -> None:
    assert name_of(certificate, login_from) is None


def test_odd_characters_in_a_name_are_escaped() -> None:
    for value, shown in [("#x", "\\#x"), ("a\nb", "a\\0Ab"), ('"', '\\"'), (" ", "\\ ")]:
        subject = ((("commonName", value),),)
        assert name_of({"subject": subject}, "distinguished_name") == f"CN={shown}"


def test_a_certificate_cut_anywhere_has_an_end_or_none_that_can_be_read() -> None:
    whole = ssl.PEM_cert_to_DER_cert(
        trustme.CA().issue_cert("localhost").cert_chain_pems[0].bytes().decode()
    )
    end = certificate.ends(ssl.DER_cert_to_PEM_cert(whole).encode())
    assert end > datetime.now(UTC)
    unread = 0
    for size in range(len(whole)):
        try:
            assert certificate.ends(ssl.DER_cert_to_PEM_cert(whole[:size]).encode()) == end
        except ValueError:
            unread += 1
    assert unread > 20
