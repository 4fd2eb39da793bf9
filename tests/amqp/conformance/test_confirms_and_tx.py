"""confirm.select, tx.select, tx.commit, tx.rollback."""

from collections.abc import Callable

import pytest
from pamqp.commands import Basic, Confirm, Tx

from tests.amqp.wire import Channel, Client, Confirms, Message, refused

Connect = Callable[..., Client]
Unique = Callable[[str], str]


# -- confirms


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("durable", [False, True])
def test_every_publish_is_confirmed(
    channel: Channel, unique: Unique, durable: bool, mode: int
) -> None:
    queue = channel.declare(unique("orders"), durable=durable)
    channel.confirm()
    for number in range(100):
        channel.publish(b"%d" % number, key=queue, delivery_mode=mode)
    channel.confirmed(100)
    assert channel.count(queue) == 100


def test_confirms_count_from_one_and_go_up(channel: Channel) -> None:
    queue = channel.declare()
    channel.confirm()
    for _ in range(50):
        channel.publish(b"x", key=queue, delivery_mode=2)
    confirms = Confirms(channel)
    floors = []
    while confirms.floor < 50:
        confirms.next()
        floors.append(confirms.floor)
    assert floors == sorted(floors)
    assert confirms.taken == set(range(1, 51))


def test_publishes_before_confirm_select_are_not_counted(channel: Channel) -> None:
    queue = channel.declare()
    channel.publish(b"before", key=queue)
    channel.confirm()
    channel.publish(b"after", key=queue)
    assert channel.expect(Basic.Ack).delivery_tag == 1


def test_a_message_without_a_route_is_confirmed(channel: Channel) -> None:
    channel.confirm()
    channel.publish(b"x", key="nobody")
    assert channel.expect(Basic.Ack).delivery_tag == 1


def test_a_return_comes_before_its_confirm(channel: Channel) -> None:
    queue = channel.declare()
    channel.confirm()
    channel.publish(b"kept", key=queue)
    channel.publish(b"back", key="nobody", mandatory=True)
    seen = [channel.take()]
    while not isinstance(seen[-1], Message):
        seen.append(channel.take())
    covered = [item.delivery_tag for item in seen[:-1]]
    assert max(covered, default=0) < 2
    channel.expect(Basic.Ack)


def test_confirm_select_twice_does_no_harm(channel: Channel) -> None:
    channel.confirm()
    channel.publish(b"x", key="nobody")
    channel.confirm()
    channel.publish(b"x", key="nobody")
    channel.confirmed(2)


def test_confirm_select_with_no_wait_has_no_answer(channel: Channel) -> None:
    channel.send(Confirm.Select(nowait=True))
    channel.publish(b"x", key="nobody")
    assert isinstance(channel.take(), Basic.Ack)


def test_a_message_for_many_queues_is_confirmed_once(channel: Channel, unique: Unique) -> None:
    exchange = channel.declare_exchange(unique("x"), "fanout")
    queues = [channel.declare(unique(f"q{n}"), durable=True) for n in range(5)]
    for queue in queues:
        channel.bind(queue, exchange)
    channel.confirm()
    channel.publish(b"x", exchange=exchange, delivery_mode=2)
    assert channel.expect(Basic.Ack).delivery_tag == 1
    assert channel.nothing_comes()
    assert [channel.count(queue) for queue in queues] == [1] * 5


def test_a_full_queue_that_rejects_answers_with_nack(channel: Channel) -> None:
    queue = channel.declare("", {"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.confirm()
    for body in (b"in", b"out"):
        channel.publish(body, key=queue)
        confirms = Confirms(channel)
        confirms.floor = {b"in": 0, b"out": 1}[body]
        confirms.until(confirms.floor + 1)
        assert bool(confirms.refused) == (body == b"out")
    assert channel.drain(queue) == [b"in"]


def test_each_channel_counts_its_own_publishes(client: Client) -> None:
    first, second = client.channel(), client.channel()
    queue = first.declare()
    first.confirm()
    second.confirm()
    for _ in range(3):
        first.publish(b"x", key=queue)
    first.confirmed(3)
    second.publish(b"x", key=queue)
    assert second.expect(Basic.Ack).delivery_tag == 1


def test_a_confirmed_message_is_there_for_another_connection(
    connect: Connect, unique: Unique
) -> None:
    first, second = connect().channel(), connect().channel()
    queue = first.declare(unique("orders"))
    first.confirm()
    first.publish(b"x", key=queue)
    first.confirmed(1)
    assert second.get(queue)


# -- transactions


def test_publishes_appear_with_the_commit(client: Client) -> None:
    channel, other = client.channel(), client.channel()
    queue = other.declare()
    channel.tx_select()
    for number in range(3):
        channel.publish(b"%d" % number, key=queue)
    channel.round_trip()
    assert other.count(queue) == 0
    channel.tx_commit()
    assert other.drain(queue) == [b"0", b"1", b"2"]


def test_rollback_drops_publishes(client: Client) -> None:
    channel, other = client.channel(), client.channel()
    queue = other.declare()
    channel.tx_select()
    channel.publish(b"no", key=queue)
    channel.tx_rollback()
    channel.publish(b"yes", key=queue)
    channel.tx_commit()
    assert other.drain(queue) == [b"yes"]


def test_acks_count_with_the_commit(client: Client) -> None:
    channel, other = client.channel(), client.channel()
    queue = other.declare()
    other.publish(b"x", key=queue)
    assert other.becomes(queue, 1)
    channel.tx_select()
    message = channel.must_get(queue, no_ack=False)
    channel.ack(message.tag)
    channel.tx_commit()
    channel.close()
    assert other.count(queue) == 0


def test_acks_without_a_commit_are_forgotten_with_the_channel(client: Client) -> None:
    channel, other = client.channel(), client.channel()
    queue = other.declare()
    other.publish(b"x", key=queue)
    assert other.becomes(queue, 1)
    channel.tx_select()
    channel.ack(channel.must_get(queue, no_ack=False).tag)
    channel.close()
    assert other.becomes(queue, 1)


def test_rollback_takes_acks_back(client: Client) -> None:
    channel, other = client.channel(), client.channel()
    queue = other.declare()
    other.publish(b"x", key=queue)
    assert other.becomes(queue, 1)
    channel.tx_select()
    message = channel.must_get(queue, no_ack=False)
    channel.ack(message.tag)
    channel.tx_rollback()
    assert other.count(queue) == 0  # still with the channel
    channel.ack(message.tag)  # and may be settled again
    channel.tx_commit()
    channel.close()
    assert other.count(queue) == 0


def test_recover_leaves_what_the_transaction_has_settled(client: Client) -> None:
    channel, other = client.channel(), client.channel()
    queue = other.declare()
    for body in (b"acked", b"not acked"):
        other.publish(body, key=queue)
    assert other.becomes(queue, 2)
    channel.tx_select()
    acked = channel.must_get(queue, no_ack=False)
    channel.must_get(queue, no_ack=False)
    channel.ack(acked.tag)
    channel.recover()
    assert other.becomes(queue, 1)
    channel.tx_rollback()
    assert other.count(queue) == 1  # taken back, it is with the channel still
    channel.ack(acked.tag)
    channel.tx_commit()
    channel.close()
    assert other.drain(queue) == [b"not acked"]


def test_nacks_count_with_the_commit_too(client: Client) -> None:
    channel, other = client.channel(), client.channel()
    queue = other.declare()
    other.publish(b"x", key=queue)
    assert other.becomes(queue, 1)
    channel.tx_select()
    message = channel.must_get(queue, no_ack=False)
    channel.nack(message.tag)
    channel.round_trip()
    assert other.count(queue) == 0
    channel.tx_commit()
    assert other.becomes(queue, 1)


def test_what_a_transaction_rejects_dies_in_its_queues_order(client: Client) -> None:
    channel, other = client.channel(), client.channel()
    grave = other.declare()
    queue = other.declare("", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": grave})
    for number in range(3):
        other.publish(b"%d" % number, key=queue)
    assert other.becomes(queue, 3)
    channel.tx_select()
    tags = [channel.must_get(queue, no_ack=False).tag for _ in range(3)]
    for tag in (tags[1], tags[2], tags[0]):
        channel.reject(tag, requeue=False)
    channel.tx_commit()
    assert other.becomes(grave, 3)
    assert other.drain(grave) == [b"0", b"1", b"2"]


def test_a_transaction_may_publish_and_ack_over_many_queues(client: Client) -> None:
    channel, other = client.channel(), client.channel()
    source, targets = other.declare(), [other.declare() for _ in range(3)]
    other.publish(b"job", key=source)
    assert other.becomes(source, 1)
    channel.tx_select()
    message = channel.must_get(source, no_ack=False)
    for target in targets:
        channel.publish(b"part", key=target)
    channel.ack(message.tag)
    channel.tx_commit()
    channel.close()
    assert [other.count(queue) for queue in (source, *targets)] == [0, 1, 1, 1]


def test_a_mandatory_message_returns_with_the_commit(channel: Channel) -> None:
    channel.tx_select()
    channel.publish(b"back", key="nobody", mandatory=True)
    channel.send(Tx.Commit())
    first, second = channel.take(), channel.take()
    assert first.body == b"back"
    assert isinstance(second, Tx.CommitOk)


def test_commit_and_rollback_need_a_transaction(client: Client) -> None:
    for operation in (Channel.tx_commit, Channel.tx_rollback):
        with refused(406, "PRECONDITION_FAILED - channel is not transactional"):
            operation(client.channel())


def test_a_channel_is_in_confirm_mode_or_transactional_not_both(client: Client) -> None:
    channel = client.channel()
    channel.tx_select()
    with refused(406, "PRECONDITION_FAILED - cannot switch from tx to confirm mode"):
        channel.confirm()
    channel = client.channel()
    channel.confirm()
    with refused(406, "PRECONDITION_FAILED - cannot switch from confirm to tx mode"):
        channel.tx_select()


def test_tx_select_twice_does_no_harm(channel: Channel) -> None:
    channel.tx_select()
    channel.tx_select()
    channel.tx_commit()


def test_an_unknown_tag_in_a_transaction_is_406(channel: Channel) -> None:
    channel.tx_select()
    with refused(406, "PRECONDITION_FAILED - unknown delivery tag 5"):
        channel.ack(5)
        channel.round_trip()


def test_a_refused_publish_ends_the_channel_at_once_also_in_a_transaction(
    channel: Channel,
) -> None:
    channel.tx_select()
    with refused(404, "NOT_FOUND - no exchange 'no-such' in vhost '/'"):
        channel.publish(b"x", exchange="no-such")
        channel.round_trip()


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_a_full_queue_refuses_what_a_transaction_publishes(client: Client, overflow: str) -> None:
    channel, other = client.channel(), client.channel()
    grave = channel.declare()
    queue = channel.declare(
        "",
        {
            "x-max-length": 1,
            "x-overflow": overflow,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": grave,
        },
    )
    channel.tx_select()
    for body in (b"1", b"2", b"3"):
        channel.publish(body, key=queue)
    with refused(406, "PRECONDITION_FAILED - partial tx completion"):
        channel.tx_commit()
    assert other.becomes(queue, 1)
    assert other.becomes(grave, 2 if overflow == "reject-publish-dlx" else 0)
    assert other.drain(queue) == [b"1"]


def test_a_transaction_may_publish_what_consumers_take_at_once(client: Client) -> None:
    channel, other = client.channel(), client.channel()
    queue = other.declare("", {"x-max-length": 1, "x-overflow": "reject-publish"})
    other.consume(queue, no_ack=True)
    channel.tx_select()
    for body in (b"1", b"2", b"3"):
        channel.publish(body, key=queue)
    channel.tx_commit()
    assert [message.body for message in other.deliveries(3)] == [b"1", b"2", b"3"]
