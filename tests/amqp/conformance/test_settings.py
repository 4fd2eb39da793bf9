"""Settings that clients notice: what is offered, what is refused, who may come from where."""

import socket
from collections.abc import Callable

import pytest

from tests.amqp.wire import Channel, Client, Gone, Refused, refused
from tests.brokers import Broker

pytestmark = pytest.mark.ottermq_only("our settings")

Start = Callable[..., Broker]


def test_limits_are_offered_as_set(start: Start) -> None:
    with start(
        OTTERMQ_AMQP__HEARTBEAT="7s",
        OTTERMQ_AMQP__FRAME_MAX="64KiB",
        OTTERMQ_AMQP__CHANNEL_MAX="5",
    ) as broker:
        client = Client(broker.address("amqp"), open=False)
        client.start()
        tune = client.tune()
        assert (tune.heartbeat, tune.frame_max, tune.channel_max) == (7, 65536, 5)
        client.drop()


def test_a_message_over_max_message_size_is_406(start: Start) -> None:
    with start(OTTERMQ_AMQP__MAX_MESSAGE_SIZE="1KiB") as broker:
        client = Client(broker.address("amqp"))
        channel = client.channel()
        queue = channel.declare()
        channel.publish(b"x" * 1024, key=queue)
        assert channel.must_get(queue).body == b"x" * 1024
        text = "PRECONDITION_FAILED - message size 1025 is larger than configured max size 1024"
        with refused(406, text):
            channel.publish(b"x" * 1025, key=queue)
            channel.round_trip()
        client.drop()


def test_deprecated_features_may_be_refused(start: Start) -> None:
    with start(
        OTTERMQ_AMQP__PERMIT__GLOBAL_QOS="false", OTTERMQ_AMQP__PERMIT__TRANSIENT_QUEUES="false"
    ) as broker:
        client = Client(broker.address("amqp"))
        acts: list[Callable[[Channel], object]] = [
            lambda channel: channel.qos(1, everyone=True),
            lambda channel: channel.declare("transient"),
        ]
        for act in acts:
            with pytest.raises(Refused) as no:
                act(client.channel())
            assert no.value.code in (406, 540, 541)
            if no.value.connection:
                client = Client(broker.address("amqp"))
        channel = client.channel()
        channel.declare()  # exclusive: fine
        channel.declare("durable", durable=True)
        client.drop()


def test_handshakes_time_out_as_set(start: Start) -> None:
    with start(OTTERMQ_AMQP__HANDSHAKE_TIMEOUT="300ms") as broker:
        client = Client(broker.address("amqp"), open=False)
        assert client.hung_up()


def test_a_consumer_times_out_as_set(start: Start) -> None:
    with start(OTTERMQ_AMQP__CONSUMER_TIMEOUT="1s") as broker:
        client = Client(broker.address("amqp"))
        channel, other = client.channel(), client.channel()
        queue = other.declare()
        other.publish(b"x", key=queue)
        channel.consume(queue)
        channel.delivery()
        assert channel.refusal().code == 406
        assert other.must_get(queue).redelivered
        client.drop()


def own_address() -> str | None:
    """One of this machine's that is not loopback, if there is one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))  # sends nothing: the route tells our address
        except OSError:
            return None
        address = str(sock.getsockname()[0])
    return None if address.startswith("127.") else address


def test_guest_comes_in_from_loopback_only(start: Start) -> None:
    outside = own_address()
    if outside is None:
        pytest.skip("this machine has no address but loopback")
    with start("--amqp", "0.0.0.0:0") as broker:
        _, port = broker.address("amqp")
        Client(("127.0.0.1", port)).close()
        with pytest.raises((Refused, Gone)) as no:
            Client((outside, port))
        if isinstance(no.value, Refused):
            assert no.value.code == 403
    with start("--amqp", "0.0.0.0:0", OTTERMQ_AUTH__LOOPBACK_USERS="null") as broker:
        Client((outside, broker.address("amqp")[1])).close()
