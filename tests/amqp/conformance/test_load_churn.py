"""Consumers that come and go, by the dozen: who is next, who was late, what is forgotten."""

import time
from collections.abc import Callable

import pytest
from pamqp.commands import Basic

from tests.amqp.crowd import descriptors, memory
from tests.amqp.wire import PATIENCE, Channel, Client, Refused, eventually, refused
from tests.brokers import Broker

Connect = Callable[..., Client]
Unique = Callable[[str], str]
Start = Callable[..., Broker]
MIB = 1 << 20


def test_single_active_consumers_hand_over_whatever_ends_them(
    connect: Connect, channel: Channel, unique: Unique
) -> None:
    """Each acks what the last one left, takes one more and goes its own way: nothing is lost,
    doubled or out of order."""
    queue = channel.declare(unique("one-at-a-time"), {"x-single-active-consumer": True})
    rounds = 24
    for number in range(rounds):
        channel.publish(b"%d" % number, key=queue)
    line = [connect().channel() for _ in range(4)]
    for waiting in line:
        waiting.qos(1)
        waiting.consume(queue)
    for number in range(rounds - 1):
        active = line.pop(0)
        left = active.delivery()
        assert (left.body, left.redelivered) == (b"%d" % number, number > 0)
        active.ack(left.tag)
        taken = active.delivery()
        assert (taken.body, taken.redelivered) == (b"%d" % (number + 1), False)
        if number % 2:
            active.client.drop()
            active = connect().channel()
        else:
            active.close()
            active = active.client.channel()
        active.qos(1)
        active.consume(queue)
        line.append(active)
    last = line[0].delivery()
    assert (last.body, last.redelivered) == (b"%d" % (rounds - 1), True)


@pytest.mark.long
def test_a_queue_that_is_used_by_ever_others_does_not_expire(
    connect: Connect, channel: Channel, unique: Unique
) -> None:
    expires = 3.0
    queue = channel.declare(unique("brief"), {"x-expires": int(expires * 1000)})
    until = time.monotonic() + 1.5 * expires
    while time.monotonic() < until:
        client = connect()
        client.channel().consume(queue)
        client.drop()
    assert channel.count(queue) == 0
    limit = time.monotonic() + PATIENCE
    gone = connect().channel()
    with refused(404):
        while time.monotonic() < limit:
            time.sleep(1.2 * expires)  # to look is a use, too
            gone.count(queue)


def test_only_the_channel_that_is_late_is_closed(
    connect: Connect, channel: Channel, unique: Unique
) -> None:
    queue = channel.declare(unique("slow"), {"x-consumer-timeout": 2000})
    client = connect()
    lazy, busy = client.channel(), client.channel()
    for each in (lazy, busy):
        each.qos(1)
        each.consume(queue)
    for _ in range(2):
        channel.publish(b"work", key=queue)
    kept = lazy.delivery()
    busy.ack(busy.delivery().tag)
    refusal = lazy.refusal()
    assert (refusal.code, refusal.connection) == (406, False)
    assert "timed out" in refusal.text
    again = busy.delivery()  # what was kept comes to the other one
    assert (again.body, again.redelivered) == (kept.body, True)
    busy.ack(again.tag)
    busy.round_trip()
    assert channel.becomes(queue, 0)


@pytest.mark.ottermq_only("memory of our own process")
@pytest.mark.weighed
@pytest.mark.parametrize("rounds", [3, pytest.param(60, marks=pytest.mark.soak)])
def test_clients_that_die_with_all_they_made_leave_nothing_behind(
    start: Start, rounds: int
) -> None:
    """Exclusive queues, auto-delete exchanges, consumers, unacked messages, open transactions."""

    def live_and_die(count: int) -> None:
        clients = []
        for number in range(count):
            client = Client(broker.address("amqp"))
            channel, other = client.channel(), client.channel()
            queue, exchange = channel.declare(), f"exchange-{number}"
            channel.declare_exchange(exchange, "topic", auto_delete=True)
            channel.bind(queue, exchange, "a.*")
            for _ in range(3):
                channel.publish(b"x" * 200, key="a.b", exchange=exchange)
            channel.consume(queue)
            channel.expect(Basic.Deliver)
            other.tx_select()
            other.publish(b"x" * 200, key=queue)
            clients.append(client)
        for client in clients:
            client.drop()
        assert eventually(lambda: all(map(is_gone, range(count))))

    def is_gone(number: int) -> bool:
        with Client(broker.address("amqp")) as onlooker:
            try:
                onlooker.channel().declare_exchange(f"exchange-{number}", "topic", passive=True)
            except Refused:
                return True
        return False

    with start(OTTERMQ_WAL__CHECKPOINT_INTERVAL="1s") as broker:
        pid = broker.process.pid
        live_and_die(50)
        before, files = memory(pid), descriptors(pid)
        for _ in range(rounds):
            live_and_die(50)
        assert eventually(lambda: descriptors(pid) <= files)
        assert memory(pid) - before < 4 * MIB
