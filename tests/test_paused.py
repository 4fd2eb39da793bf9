"""A broker that stood still (SIGSTOP, a machine that slept) reads what came meanwhile before it
judges anybody by the time: heartbeats, acks, logins and members' signs of life wait in sockets."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pamqp import heartbeat
from pamqp.commands import Connection

from ottermq.kafka import codec
from ottermq.kafka.api import Api
from ottermq.kafka.errors import Error
from tests.amqp.conformance.test_tls import TlsSetup
from tests.amqp.wire import Channel, Client
from tests.brokers import Broker
from tests.examples import shortened
from tests.kafka.raw_client import RawClient

pytestmark = pytest.mark.ottermq_only("a broker of the test's own")

PAUSE = 4  # seconds: longer than any of these
TIMEOUTS = {
    "OTTERMQ_AMQP__HANDSHAKE_TIMEOUT": "2s",
    "OTTERMQ_AMQP__CONSUMER_TIMEOUT": "2s",
    "OTTERMQ_KAFKA__GROUPS__MIN_SESSION_TIMEOUT": "2s",
}
HEARTBEAT = 1


@pytest.fixture
def tls_setup(tmp_path: Path) -> TlsSetup:
    return TlsSetup(tmp_path)


@pytest.fixture
def broker(tls_setup: TlsSetup) -> Iterator[Broker]:
    with tls_setup.start(**TIMEOUTS) as broker:
        try:
            yield broker
        finally:
            broker.process.send_signal(signal.SIGCONT)


def stand_still(broker: Broker, clients: list[Client]) -> None:
    """While its clients beat."""
    broker.process.send_signal(signal.SIGSTOP)
    for _ in range(PAUSE):
        for client in clients:
            client.send(heartbeat.Heartbeat(), 0)
        time.sleep(1)
    broker.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("listener", shortened(["amqp", "amqps"], 1))
def test_nobody_whose_heartbeats_wait_is_cut_off(
    broker: Broker, tls_setup: TlsSetup, listener: str
) -> None:
    tls = tls_setup.context() if listener == "amqps" else None
    clients = [Client(broker.address(listener), heartbeat=HEARTBEAT, tls=tls) for _ in range(10)]
    channels = [client.channel() for client in clients]
    stand_still(broker, clients)
    for channel in channels:
        channel.round_trip()
        channel.client.close()


def test_a_login_that_was_under_way_goes_on(broker: Broker) -> None:
    client = Client(broker.address("amqp"), open=False)
    client.start()
    client.expect(Connection.Tune)
    broker.process.send_signal(signal.SIGSTOP)
    client.send(Connection.TuneOk(2047, 131072, 0), 0)
    time.sleep(PAUSE)
    broker.process.send_signal(signal.SIGCONT)
    client.open()


def test_an_ack_that_waits_is_in_time(broker: Broker) -> None:
    channel: Channel = Client(broker.address("amqp")).channel()
    queue = channel.declare()
    channel.publish(b"x", key=queue)
    channel.consume(queue)
    tag = channel.delivery().tag
    broker.process.send_signal(signal.SIGSTOP)
    channel.ack(tag)
    time.sleep(PAUSE)
    broker.process.send_signal(signal.SIGCONT)
    channel.round_trip()


def test_a_group_s_member_whose_heartbeat_waits_stays_in_it(broker: Broker) -> None:
    with RawClient(broker.address("kafka")) as raw_client:
        body = {
            "group_id": "g", "session_timeout_ms": 2000, "rebalance_timeout_ms": 60_000,
            "member_id": "", "group_instance_id": "i", "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }  # fmt: skip
        joined = raw_client.ask(Api.JOIN_GROUP, body)
        who = {
            "group_id": "g", "generation_id": joined["generation_id"],
            "member_id": joined["member_id"], "group_instance_id": "i",
        }  # fmt: skip
        raw_client.ask(Api.SYNC_GROUP, who | {"assignments": []})
        broker.process.send_signal(signal.SIGSTOP)
        raw_client.send(codec.encode_request(Api.HEARTBEAT, 4, 99, "raw_client", who))
        time.sleep(PAUSE)
        broker.process.send_signal(signal.SIGCONT)
        _, answer = codec.decode_response(Api.HEARTBEAT, 4, raw_client.receive())
        assert answer["error_code"] == Error.NONE
