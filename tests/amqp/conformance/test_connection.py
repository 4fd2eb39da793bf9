"""connection: the handshake step by step, tuning, heartbeats, the end of a connection."""

import signal
import socket
import struct
import time
from collections.abc import Callable

import pytest
from pamqp import header, heartbeat
from pamqp.body import ContentBody
from pamqp.commands import Basic, Connection, Queue
from pamqp.commands import Channel as ChannelClass

from tests.amqp.wire import PROTOCOL_HEADER, Address, Client, Gone, Refused, refused
from tests.auth.scram_client import ScramClient
from tests.brokers import Broker

Connect = Callable[..., Client]
Unique = Callable[[str], str]


def until_the_end(address: Address, sent: bytes) -> bytes:
    """All that comes before the broker closes the socket."""
    with socket.create_connection(address, timeout=20) as sock:
        sock.sendall(sent)
        received = b""
        try:
            while part := sock.recv(4096):
                received += part
        except ConnectionResetError:
            pass  # what we sent was not read: an end as well
        return received


# -- the protocol header


@pytest.mark.parametrize(
    "hello",
    [
        b"AMQP\x00\x00\x09\x00",
        b"AMQP\x00\x01\x00\x00",  # AMQP 1.0
        b"AMQP\x03\x01\x00\x00",  # AMQP 1.0 with SASL
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40),  # TLS
    ],
)
def test_a_wrong_protocol_header_is_answered_with_ours_and_closed(
    amqp_address: Address, hello: bytes
) -> None:
    assert until_the_end(amqp_address, hello) == PROTOCOL_HEADER


@pytest.mark.ottermq_only("RabbitMQ 3.10 still speaks 0-8")
def test_amqp_0_8_is_answered_with_our_header(amqp_address: Address) -> None:
    assert until_the_end(amqp_address, b"AMQP\x01\x01\x08\x00") == PROTOCOL_HEADER


@pytest.mark.ottermq_only("it is our log")
@pytest.mark.parametrize(
    ("hello", "told"),
    [(b"AMQP\x01\x01\x08\x00", "0-8"), (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS")],
)
def test_amqp_0_8_and_tls_on_the_plain_port_are_told_apart_in_the_log(
    broker: Broker, amqp_address: Address, hello: bytes, told: str
) -> None:
    with socket.create_connection(amqp_address, timeout=20) as sock:
        port = sock.getsockname()[1]
        sock.sendall(hello + bytes(32))
        try:
            while sock.recv(100):
                pass
        except ConnectionResetError:
            pass
    broker.wait_for(rf"127\.0\.0\.1:{port}\b.*{told}")


# -- start and login


CAPABILITIES = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "consumer_priorities": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "direct_reply_to": True,
}


def test_start_tells_version_mechanisms_locale_and_capabilities(connect: Connect) -> None:
    started = connect().started
    assert (started.version_major, started.version_minor) == (0, 9)
    assert {"PLAIN", "AMQPLAIN"} <= set(started.mechanisms.split())
    assert "en_US" in started.locales.split()
    assert started.server_properties["capabilities"] == CAPABILITIES
    assert {"product", "version", "platform"} <= set(started.server_properties)


REFUSED_LOGIN = (
    "ACCESS_REFUSED - Login was refused using authentication mechanism {}."
    " For details see the broker logfile."
)


def test_a_wrong_password_is_403(connect: Connect) -> None:
    with refused(403, REFUSED_LOGIN.format("PLAIN"), connection=True):
        connect(password="wrong")


def test_an_unknown_user_is_403(connect: Connect) -> None:
    with refused(403, REFUSED_LOGIN.format("PLAIN"), connection=True):
        connect(user="nobody")


def test_a_client_that_does_not_know_authentication_failure_close_is_hung_up_on(
    connect: Connect,
) -> None:
    with pytest.raises(Gone):
        connect(password="wrong", capabilities={})


def challenged(client: Client) -> bytes:
    challenge = client.expect(Connection.Secure).challenge
    assert challenge is not None
    return challenge.encode()


@pytest.mark.ottermq_only("RabbitMQ has no SCRAM here")
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_login_of_several_rounds_goes_by_secure_and_secure_ok(
    connect: Connect, mechanism: str
) -> None:
    client, scram = connect(open=False), ScramClient(mechanism, "guest", b"guest")
    client.start(mechanism=mechanism, response=scram.first().decode())
    challenge = challenged(client)
    client.send(Connection.SecureOk(scram.final(challenge).decode()), 0)
    assert challenged(client) == scram.theirs
    client.send(Connection.SecureOk(""), 0)
    client.tune()
    client.open()
    client.channel()


@pytest.mark.ottermq_only("RabbitMQ has no SCRAM here")
def test_a_wrong_password_in_the_second_round_is_403(connect: Connect) -> None:
    client, scram = connect(open=False), ScramClient("SCRAM-SHA-256", "guest", b"wrong")
    client.start(mechanism="SCRAM-SHA-256", response=scram.first().decode())
    challenge = challenged(client)
    client.send(Connection.SecureOk(scram.final(challenge).decode()), 0)
    with refused(403, REFUSED_LOGIN.format("SCRAM-SHA-256"), connection=True):
        client.expect(Connection.Secure)


@pytest.mark.ottermq_only("RabbitMQ has no SCRAM here")
@pytest.mark.parametrize("word", ["", "c=biws,r=abc", "c=biws,r=abc,p=%%%%"])
def test_a_second_word_that_is_none_is_502(connect: Connect, word: str) -> None:
    client, scram = connect(open=False), ScramClient("SCRAM-SHA-256", "guest", b"guest")
    client.start(mechanism="SCRAM-SHA-256", response=scram.first().decode())
    client.expect(Connection.Secure)
    client.send(Connection.SecureOk(word), 0)
    with refused(502, "SYNTAX_ERROR - SCRAM-SHA-256 response invalid", connection=True):
        client.expect(Connection.Secure)


def test_a_secure_ok_that_nobody_asked_for_is_504(connect: Connect) -> None:
    client = connect()
    client.send(Connection.SecureOk("x"), 0)
    text = "CHANNEL_ERROR - unexpected method in connection state running"
    with refused(504, text, connection=True):
        client.expect(Connection.Secure)


@pytest.mark.ottermq_only("RabbitMQ has no SCRAM here")
def test_who_is_asked_for_more_may_not_go_on_without_it(connect: Connect) -> None:
    client, scram = connect(open=False), ScramClient("SCRAM-SHA-256", "guest", b"guest")
    client.start(mechanism="SCRAM-SHA-256", response=scram.first().decode())
    client.expect(Connection.Secure)
    client.send(Connection.TuneOk(2047, 131072, 0), 0)
    text = "CHANNEL_ERROR - unexpected method in connection state securing"
    with refused(504, text, connection=True):
        client.expect(Connection.Tune)


def test_login_by_amqplain(connect: Connect) -> None:
    client = connect(open=False)
    table = b"".join(
        bytes([len(key)]) + key + b"S" + struct.pack(">I", len(value)) + value
        for key, value in ((b"LOGIN", b"guest"), (b"PASSWORD", b"guest"))
    )
    client.start(mechanism="AMQPLAIN", response=table.decode())
    client.tune()
    client.open()
    client.channel()


def test_an_unknown_mechanism_ends_the_connection(connect: Connect) -> None:
    client = connect(open=False)
    client.start(mechanism="CARRIER-PIGEON")
    with pytest.raises((Gone, Refused)):
        client.tune()


def test_an_unknown_vhost_is_530(connect: Connect) -> None:
    with refused(530, "NOT_ALLOWED - vhost no-such not found", connection=True):
        connect(vhost="no-such")


# -- tune


def test_tune_offers_rabbitmqs_limits(connect: Connect) -> None:
    client = connect(open=False)
    client.start()
    tune = client.tune()
    assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (2047, 131072, 60)


@pytest.mark.parametrize(
    "limits", [{"frame_max": 1000}, {"frame_max": 1 << 20}, {"channel_max": 65535}]
)
def test_limits_beyond_what_was_offered_end_the_connection(
    connect: Connect, limits: dict[str, int]
) -> None:
    with pytest.raises((Gone, Refused)) as ending:
        connect(**limits)
    if isinstance(ending.value, Refused):
        assert ending.value.code == 530


def test_the_negotiated_channel_max_is_enforced(connect: Connect) -> None:
    client = connect(channel_max=3)
    for _ in range(3):
        client.channel()
    text = "number of channels opened (3) has reached the negotiated channel_max (3)"
    with refused(530, f"NOT_ALLOWED - {text}", connection=True):
        client.channel()


def test_channels_may_have_any_number_as_long_as_they_are_not_too_many(connect: Connect) -> None:
    client = connect(channel_max=5)
    numbers = (65535, 1, 4097, 8193, 2)  # some of them want the same slot
    channels = {number: client.channel(number) for number in numbers}
    with pytest.raises(Refused) as no:
        other = connect(channel_max=1)
        other.channel(60000)
        other.channel(60001)
    assert no.value.code == 530
    for number in (1, 65535, 8193):
        channels.pop(number).close()
        for channel in channels.values():
            channel.round_trip()
        channels[number] = client.channel(number)
    for channel in channels.values():
        assert channel.declare()
    client.close()


def test_a_closed_channel_makes_room_for_another(connect: Connect) -> None:
    client = connect(channel_max=1)
    for _ in range(3):
        client.channel(1).close()


def test_the_negotiated_frame_max_is_enforced(connect: Connect) -> None:
    client = connect(frame_max=8192)
    channel = client.channel()
    client.raw(struct.pack(">BHI", 3, 1, 9000) + bytes(9000) + b"\xce")
    no = channel.refusal()
    assert (no.code, no.connection) == (501, True)


@pytest.mark.ottermq_only("4.x; in 3.10 it is 4 KiB")
def test_a_stranger_may_send_frames_of_8_kib(connect: Connect) -> None:
    """Before tune-ok, as RabbitMQ 4.x has it: long tokens pass, and nobody fills our memory."""
    connect(capabilities={"long": "x" * 7900})
    client = connect(open=False)
    client.raw(PROTOCOL_HEADER)
    client.expect(Connection.Start)
    client.raw(struct.pack(">BHI", 1, 0, 8185))
    with pytest.raises((Gone, Refused)):
        client.expect(Connection.Tune)


# -- heartbeats


def test_the_broker_sends_heartbeats(connect: Connect) -> None:
    client = connect(heartbeat=1)
    limit = time.monotonic() + 20
    while client.heartbeats < 2:
        client.pump(limit)
        client.send(heartbeat.Heartbeat(), 0)


def test_a_client_that_misses_heartbeats_is_hung_up_on(connect: Connect) -> None:
    client = connect(heartbeat=1)
    started = time.monotonic()
    assert client.hung_up()
    assert time.monotonic() - started > 1


def test_any_traffic_counts_as_a_heartbeat(connect: Connect) -> None:
    client, silent = connect(heartbeat=1), connect(heartbeat=1)
    channel = client.channel()
    with pytest.raises(Gone):
        while True:  # until one that says nothing is given up
            channel.round_trip()
            silent.pass_time(0.1)
    channel.round_trip()


def test_heartbeats_keep_a_quiet_client(connect: Connect) -> None:
    client, silent = connect(heartbeat=1), connect(heartbeat=1)
    with pytest.raises(Gone):
        while True:
            client.send(heartbeat.Heartbeat(), 0)
            silent.pass_time(0.1)
    client.channel()


def test_heartbeat_zero_means_none(connect: Connect) -> None:
    client, silent = connect(heartbeat=0), connect(heartbeat=1)
    assert silent.hung_up()
    client.channel()
    assert client.heartbeats == 0


# -- order of methods


def test_a_method_before_open_is_not_done(connect: Connect, unique: Unique) -> None:
    client, name = connect(open=False), unique("early")
    client.start()
    client.tune()
    client.send(Queue.Declare(queue=name), 1)
    try:
        client.open()
    except (Gone, Refused):
        pass  # RabbitMQ reads over it; to be shown out is as good
    with refused(404):
        connect().channel().look(name)


@pytest.mark.parametrize(
    "method",
    [
        Connection.Open("/"),
        Connection.StartOk({"a": "b"}, "PLAIN", "x", "en_US"),
        Connection.TuneOk(0, 0, 0),
        Connection.SecureOk("x"),
        Queue.Declare(queue="x"),
        ChannelClass.Open(),
        Connection.Blocked("x"),
    ],
    ids=lambda method: str(method.name),
)
def test_a_method_out_of_turn_on_channel_zero_is_504(
    client: Client, method: Connection.Open
) -> None:
    client.send(method, 0)
    no = client.refusal()
    assert (no.code, no.text) == (
        504,
        "CHANNEL_ERROR - unexpected method in connection state running",
    )


def test_content_on_channel_zero_is_505(connect: Connect) -> None:
    for frame in (header.ContentHeader(0, 5, Basic.Properties()), ContentBody(b"x")):
        client = connect()
        client.send(frame, 0)
        assert client.refusal().code == 505


def test_update_secret_is_answered(client: Client) -> None:
    client.send(Connection.UpdateSecret("new", "because"), 0)
    client.expect(Connection.UpdateSecretOk)
    client.channel()


# -- the end


def test_close_is_answered(client: Client) -> None:
    client.send(Connection.Close(200, "bye", 0, 0), 0)
    client.expect(Connection.CloseOk)


def test_what_follows_a_close_breaks_no_pipe(connect: Connect) -> None:
    client = connect()
    channel = client.channel()
    client.send(Connection.Close(200, "bye", 0, 0), 0)
    client.expect(Connection.CloseOk)
    for _ in range(20):  # amqplib has acks under way behind its close
        channel.publish(b"late" * 1000, key="nobody")
        time.sleep(0.005)


def test_what_follows_a_close_is_not_done(connect: Connect, unique: Unique) -> None:
    client, other = connect(), connect().channel()
    channel = client.channel()
    queue = other.declare(unique("orders"))
    client.send(Connection.Close(200, "bye", 0, 0), 0)
    channel.publish(b"late", key=queue)
    client.expect(Connection.CloseOk)
    client.drop()
    other.round_trip()
    assert other.count(queue) == 0


def test_a_connection_error_names_the_method_that_caused_it(client: Client) -> None:
    channel = client.channel()
    channel.send(Basic.Qos(1, 0, False))
    assert client.refusal().method == (60, 10)


@pytest.mark.ottermq_only("a broker of its own")
def test_a_stop_of_the_broker_sends_320_to_all(start: Callable[..., Broker]) -> None:
    with start() as broker:
        clients = [Client(broker.address("amqp")) for _ in range(3)]
        clients[0].channel()
        broker.process.send_signal(signal.SIGTERM)
        for client in clients:
            no = client.refusal()
            assert (no.code, no.text[:16], no.connection) == (320, "CONNECTION_FORCE", True)
            client.drop()
        assert broker.process.wait(20) == 0
