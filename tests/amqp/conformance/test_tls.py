"""AMQP over TLS: the amqps listener, client certificates with EXTERNAL, new files without a
restart."""

import signal
import ssl
from pathlib import Path

import pytest
import trustme

from tests.amqp.wire import Address, Client, Gone, Refused, eventually
from tests.brokers import Broker

pytestmark = pytest.mark.ottermq_only("our listener")


class TlsSetup:
    """A broker that speaks TLS, with a CA of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = trustme.CA()
        self.ca.cert_pem.write_to_path(str(folder / "ca.pem"))
        self.renew()

    def renew(self) -> None:
        """A new certificate in the same files."""
        issued = self.ca.issue_cert("localhost")
        key, cert = self.folder / "key.pem", self.folder / "cert.pem"
        key.write_bytes(issued.private_key_pem.bytes())
        cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))

    def start(self, **env: str) -> Broker:
        return Broker(
            self.folder / "data",
            env={
                "OTTERMQ_LISTEN__AMQPS": "127.0.0.1:0",
                "OTTERMQ_TLS__CERT": str(self.folder / "cert.pem"),
                "OTTERMQ_TLS__KEY": str(self.folder / "key.pem"),
                "OTTERMQ_TLS__CA": str(self.folder / "ca.pem"),
                **env,
            },
        )

    def context(self, identity: trustme.LeafCert | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.ca.configure_trust(context)
        if identity:
            identity.configure_cert(context)
        return context


@pytest.fixture
def tls_setup(tmp_path: Path, amqp_address: Address) -> TlsSetup:
    return TlsSetup(tmp_path)


def test_a_conversation_over_tls(tls_setup: TlsSetup) -> None:
    with tls_setup.start() as broker:
        client = Client(broker.address("amqps"), tls=tls_setup.context())
        channel = client.channel()
        queue = channel.declare()
        channel.confirm()
        for number in range(100):
            channel.publish(b"%d" % number * 1000, key=queue)
        channel.confirmed(100)
        channel.consume(queue)
        assert [m.body[:1] for m in channel.deliveries(100)][:10] == [
            b"%d" % number for number in range(10)
        ]
        client.close()


def test_large_messages_over_tls(tls_setup: TlsSetup) -> None:
    body = bytes(range(256)) * 20_000
    with tls_setup.start() as broker:
        channel = Client(broker.address("amqps"), tls=tls_setup.context()).channel()
        queue = channel.declare()
        channel.publish(body, key=queue)
        assert channel.must_get(queue).body == body
        channel.client.close()


def test_plain_and_tls_clients_meet(tls_setup: TlsSetup) -> None:
    with tls_setup.start() as broker:
        secret = Client(broker.address("amqps"), tls=tls_setup.context()).channel()
        plain = Client(broker.address("amqp")).channel()
        queue = plain.declare()
        secret.publish(b"x", key=queue)
        assert plain.must_get(queue).body == b"x"
        secret.client.close()
        plain.client.close()


def test_a_client_that_knows_another_ca_stays_away(tls_setup: TlsSetup) -> None:
    stranger = ssl.create_default_context()
    trustme.CA().configure_trust(stranger)
    with tls_setup.start() as broker:
        with pytest.raises(ssl.SSLError):
            Client(broker.address("amqps"), tls=stranger)
        Client(broker.address("amqps"), tls=tls_setup.context()).close()


def test_a_required_certificate_is_required(tls_setup: TlsSetup) -> None:
    with tls_setup.start(OTTERMQ_TLS__VERIFY="required") as broker:
        with pytest.raises((ssl.SSLError, OSError, Gone)):
            Client(broker.address("amqps"), tls=tls_setup.context())
        identity = tls_setup.ca.issue_cert("otter@example.org", common_name="otter")
        Client(broker.address("amqps"), tls=tls_setup.context(identity)).close()


def test_external_takes_the_user_from_the_certificate(tls_setup: TlsSetup, tmp_path: Path) -> None:
    definitions = tmp_path / "definitions.json"
    definitions.write_text(
        '{"users": [{"name": "otter", "password_hash": "", "tags": ""},'
        ' {"name": "guest", "password": "guest", "tags": "administrator"}],'
        ' "vhosts": [{"name": "/"}],'
        ' "permissions": [{"user": "otter", "vhost": "/", "configure": ".*", "write": ".*",'
        ' "read": ".*"}]}'
    )
    with tls_setup.start(
        OTTERMQ_TLS__VERIFY="optional",
        OTTERMQ_TLS__LOGIN_FROM="common_name",
        OTTERMQ_DEFINITIONS=str(definitions),
    ) as broker:
        identity = tls_setup.ca.issue_cert("otter@example.org", common_name="otter")
        client = Client(broker.address("amqps"), tls=tls_setup.context(identity), open=False)
        started = client.start(mechanism="EXTERNAL", response="")
        assert "EXTERNAL" in started.mechanisms.split()
        client.tune()
        client.open()
        channel = client.channel()
        queue = channel.declare()
        channel.publish(b"x", key=queue, user_id="otter")
        assert channel.must_get(queue).body == b"x"
        client.close()
        unknown = tls_setup.ca.issue_cert("stranger@example.org", common_name="stranger")
        client = Client(broker.address("amqps"), tls=tls_setup.context(unknown), open=False)
        client.start(mechanism="EXTERNAL", response="")
        with pytest.raises((Refused, Gone)):
            client.tune()
        client.drop()


def test_new_files_count_without_a_restart(tls_setup: TlsSetup) -> None:
    with tls_setup.start() as broker:
        old = Client(broker.address("amqps"), tls=tls_setup.context())

        def serial() -> str:
            client = Client(broker.address("amqps"), tls=tls_setup.context())
            assert isinstance(client.socket, ssl.SSLSocket)
            shown = client.socket.getpeercert() or {}
            client.close()
            return str(shown["serialNumber"])

        before = serial()
        tls_setup.renew()
        broker.process.send_signal(signal.SIGHUP)
        assert eventually(lambda: serial() != before)
        old.channel().round_trip()  # and the old connection goes on
        old.close()
