"""connection.*: the handshake, its limits, and how it ends."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pamqp.commands import Channel, Connection, Queue

from ottermq.auth import Permission
from ottermq.engine.events import MethodArrived, RuleBroken
from ottermq.engine.types import ConnFlags
from ottermq.net import close_reasons
from tests.amqp.unit.server_harness import Closed, Harness, open_harness


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    async with open_harness(tmp_path) as harness:
        yield harness


async def test_start_offers_what_rabbitmq_offers(harness: Harness) -> None:
    start = await harness.client().start()
    assert (start.version_major, start.version_minor) == (0, 9)
    assert start.mechanisms == b"PLAIN AMQPLAIN SCRAM-SHA-256 SCRAM-SHA-512"
    assert start.locales == b"en_US"
    assert set(start.server_properties["capabilities"]) == {
        "publisher_confirms",
        "exchange_exchange_bindings",
        "basic.nack",
        "consumer_cancel_notify",
        "connection.blocked",
        "consumer_priorities",
        "authentication_failure_close",
        "per_consumer_qos",
        "direct_reply_to",
    }
    assert start.server_properties["product"] == "OtterMQ"


async def test_a_client_is_led_from_start_to_open(harness: Harness) -> None:
    client = harness.client()
    await client.start()
    (tune,) = await client.login()
    assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (2047, 131072, 60)
    assert await client.tune() == []
    (ok,) = await client.call(0, Connection.Open("/"))
    assert isinstance(ok, Connection.OpenOk)
    assert harness.engine.called("tune") == [(client.id, 131072, 2047, 60)]
    assert harness.engine.called("open") == [(client.id, 1, "guest", ConnFlags.CANCEL_CAPABLE)]


async def test_a_wrong_password_is_refused_without_telling_why(harness: Harness) -> None:
    client = harness.client()
    await client.start()
    with pytest.raises(Closed) as closed:
        await client.login(password="wrong")
    assert closed.value.connection and closed.value.code == 403
    assert closed.value.text == (
        "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN."
        " For details see the broker logfile."
    )


async def test_who_cant_take_a_close_is_hung_up_on_instead(harness: Harness) -> None:
    client = harness.client()
    await client.start()
    response = b"\0guest\0wrong"
    assert await client.call(0, Connection.StartOk({}, "PLAIN", response, "en_US")) == []  # type: ignore[arg-type]
    assert client.id in harness.engine.gone


async def test_guest_comes_from_this_machine_only(harness: Harness) -> None:
    client = harness.client()
    await client.start(peer="192.0.2.7:1234")
    with pytest.raises(Closed) as closed:
        await client.login()
    assert closed.value.code == 403


@pytest.mark.parametrize(
    "channel_max, frame_max, text",
    [
        (2048, 131072, "channel_max = 2048 is higher than the maximum allowed value (2047)"),
        (0, 131072, "channel_max = 0 (no limit) is higher than the maximum allowed value (2047)"),
        (10, 131073, "frame_max = 131073 is higher than the maximum allowed value (131072)"),
        (10, 0, "frame_max = 0 is higher than the maximum allowed value (131072)"),
        (10, 4095, "frame_max = 4095 is lower than the minimum allowed value (4096)"),
    ],
)
async def test_nobody_gets_more_than_was_offered(
    harness: Harness, channel_max: int, frame_max: int, text: str
) -> None:
    client = harness.client()
    await client.start()
    await client.login()
    with pytest.raises(Closed) as closed:
        await client.tune(channel_max, frame_max)
    assert (closed.value.code, closed.value.text) == (530, f"NOT_ALLOWED - negotiated {text}")


async def test_a_vhost_that_is_not_there(harness: Harness) -> None:
    client = harness.client()
    with pytest.raises(Closed) as closed:
        await client.open("nowhere")
    assert (closed.value.code, closed.value.text) == (530, "NOT_ALLOWED - vhost nowhere not found")
    assert closed.value.method == (10, 40)


async def test_a_vhost_that_is_not_theirs(harness: Harness) -> None:
    await harness.topology.pending.save(harness.topology.create_vhost("other"))
    client = harness.client()
    with pytest.raises(Closed) as closed:
        await client.open("other")
    assert closed.value.text == "NOT_ALLOWED - access to vhost 'other' refused for user 'guest'"


async def test_what_comes_out_of_turn_is_an_error(harness: Harness) -> None:
    client = harness.client()
    await client.start()
    with pytest.raises(Closed) as closed:
        await client.call(0, Connection.Open("/"))
    assert closed.value.code == 504
    assert closed.value.text == "CHANNEL_ERROR - unexpected method in connection state starting"


async def test_a_queue_is_not_declared_on_channel_0(harness: Harness) -> None:
    client = await harness.connected()
    with pytest.raises(Closed) as closed:
        await client.call(0, Queue.Declare(queue="q"))
    assert (closed.value.code, closed.value.method) == (504, (50, 10))


async def test_a_method_cut_short_is_a_broken_frame(harness: Harness) -> None:
    client = await harness.connected()
    with pytest.raises(Closed) as closed:
        await client.event(MethodArrived(client.id, 1, b"\0\x32\0\x0a\0\0\xffabc"))
    assert closed.value.connection and closed.value.code == 501


async def test_a_method_nobody_knows(harness: Harness) -> None:
    client = await harness.connected()
    with pytest.raises(Closed) as closed:
        await client.event(MethodArrived(client.id, 1, b"\0\x63\0\x63"))
    assert (closed.value.code, closed.value.text) == (503, "COMMAND_INVALID - unimplemented method")


async def test_a_goodbye_is_answered_and_hung_up(harness: Harness) -> None:
    client = await harness.connected()
    (ok,) = await client.call(0, Connection.Close(200, "bye", 0, 0))
    assert isinstance(ok, Connection.CloseOk)
    assert client.id in harness.engine.gone


async def test_after_our_close_only_the_answer_counts(harness: Harness) -> None:
    client = await harness.connected()
    with pytest.raises(Closed):
        await client.call(3, Queue.Declare(queue="q"))
    assert client.id not in harness.engine.gone
    await client.call(0, Connection.CloseOk())
    assert client.id in harness.engine.gone


async def test_an_error_that_c_found_is_told_with_its_method(harness: Harness) -> None:
    client = await harness.connected()
    broken = RuleBroken(client.id, 1, 406, "unknown delivery tag 7", 60 << 16 | 80)
    with pytest.raises(Closed) as closed:
        await client.event(broken)
    assert not closed.value.connection
    assert closed.value.text == "PRECONDITION_FAILED - unknown delivery tag 7"
    assert closed.value.method == (60, 80)


async def test_a_broken_frame_ends_the_connection(harness: Harness) -> None:
    client = await harness.connected()
    with pytest.raises(Closed) as closed:
        await client.event(RuleBroken(client.id, 1, 501, "wrong frame end"))
    assert closed.value.connection and closed.value.code == 501


async def test_a_stop_tells_everybody(harness: Harness) -> None:
    client = await harness.connected()
    harness.server.close_all(
        harness.server.connections.values(),
        "broker forced connection closure",
        close_reasons.STOPPED,
    )
    (close,) = client.frames()
    assert close.reply_code == 320
    assert close.reply_text == "CONNECTION_FORCED - broker forced connection closure"


async def test_a_deleted_user_is_shown_out(harness: Harness) -> None:
    await harness.auth.users.put("ann", "secret")
    await harness.auth.permissions.set(Permission("ann", "/", ".*", ".*", ".*"))
    client = harness.client()
    await client.start()
    await client.login("ann", "secret")
    await client.tune()
    await client.call(0, Connection.Open("/"))
    await harness.auth.delete_user("ann")
    (close,) = client.frames()
    assert (close.reply_code, close.reply_text) == (
        320,
        "CONNECTION_FORCED - user 'ann' was deleted",
    )
    assert harness.engine.called("forget_permissions")


async def test_a_connection_counts_until_it_is_gone(harness: Harness) -> None:
    await harness.auth.limits.set_vhost("/", "max-connections", 1)
    first = await harness.connected()
    with pytest.raises(Closed) as closed:
        await harness.connected()
    assert closed.value.text == (
        "NOT_ALLOWED - access to vhost '/' refused for user 'guest':"
        " connection limit (1) is reached"
    )
    harness.lose(first)
    await harness.connected()


async def test_update_secret_is_taken(harness: Harness) -> None:
    client = await harness.connected()
    (ok,) = await client.call(0, Connection.UpdateSecret(b"new", "it expired"))  # type: ignore[arg-type]
    assert isinstance(ok, Connection.UpdateSecretOk)


async def test_channels_are_opened_first_and_once(harness: Harness) -> None:
    client = await harness.connected()
    with pytest.raises(Closed) as closed:
        await client.call(2, Queue.Declare(queue="q"))
    assert (closed.value.code, closed.value.text) == (
        504,
        "CHANNEL_ERROR - expected 'channel.open'",
    )
    other = await harness.connected()
    with pytest.raises(Closed) as closed:
        await other.call(1, Channel.Open())
    assert closed.value.text == "CHANNEL_ERROR - second 'channel.open' seen"


async def test_no_more_channels_than_the_user_may_have(harness: Harness) -> None:
    await harness.auth.limits.set_user("guest", "max-channels", 1)
    client = await harness.connected()
    other = harness.client()
    await other.open()
    with pytest.raises(Closed) as closed:
        await other.channel()
    assert (closed.value.code, closed.value.text) == (
        530,
        "NOT_ALLOWED - number of channels opened for user 'guest' has reached the maximum allowed"
        " user limit of (1)",
    )
    await client.call(1, Channel.Close(200, "", 0, 0))
    await harness.connected()


async def test_no_more_channels_than_were_agreed_on(harness: Harness) -> None:
    client = harness.client()
    await client.start()
    await client.login()
    await client.tune(channel_max=2)
    await client.call(0, Connection.Open("/"))
    await client.channel(1)
    await client.call(1, Channel.Close(200, "", 0, 0))
    await client.channel(1)
    await client.channel(2)
    with pytest.raises(Closed) as closed:
        await client.channel(3)
    assert closed.value.connection and closed.value.code in (504, 530)


async def test_a_channel_we_closed_is_deaf_until_close_ok(harness: Harness) -> None:
    client = await harness.connected()
    with pytest.raises(Closed) as closed:
        await client.call(1, Queue.Purge(queue="nothing"))
    assert not closed.value.connection
    assert closed.value.text == "NOT_FOUND - no queue 'nothing' in vhost '/'"
    assert closed.value.method == (50, 30)
    assert await client.call(1, Queue.Declare(queue="q")) == []
    assert await client.call(1, Channel.CloseOk()) == []
    await client.channel(1)


async def test_flow_can_be_asked_for_but_not_stopped(harness: Harness) -> None:
    client = await harness.connected()
    (ok,) = await client.call(1, Channel.Flow(True))
    assert isinstance(ok, Channel.FlowOk) and ok.active is True
    with pytest.raises(Closed) as closed:
        await client.call(1, Channel.Flow(False))
    assert (closed.value.code, closed.value.text) == (540, "NOT_IMPLEMENTED - active=false")


async def test_a_client_that_cannot_be_told_yet_has_a_line_in_the_log(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ottermq")
    await harness.auth.users.put("ann", "secret")
    client = harness.client()
    await client.start()
    await client.login("ann", "secret")
    await harness.auth.delete_user("ann")
    assert client.id in harness.engine.gone
    harness.lose(client)
    closing, closed = [line for line in caplog.messages if line.startswith("connection clos")]
    assert closing.startswith("connection closing listener=amqp peer=127.0.0.1:4711 user=ann ")
    assert ' reason="user changed or deleted" change="user \'ann\' was deleted"' in closing
    assert closed.endswith(' reason="closed by the broker"')
