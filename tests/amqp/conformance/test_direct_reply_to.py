"""Direct reply-to: answers without a queue, by the pseudo-queue amq.rabbitmq.reply-to."""

from collections.abc import Callable

import pytest

from tests.amqp.wire import Channel, Client, Refused, refused

Connect = Callable[..., Client]

REPLIES = "amq.rabbitmq.reply-to"


def test_a_request_gets_its_answer(connect: Connect) -> None:
    asker, server = connect().channel(), connect().channel()
    queue = server.declare()
    server.consume(queue, no_ack=True)
    asker.consume(REPLIES, no_ack=True)
    asker.publish(b"question", key=queue, reply_to=REPLIES, correlation_id="7")
    request = server.delivery()
    assert request.properties.reply_to.startswith(REPLIES + ".")
    server.publish(b"answer", key=request.properties.reply_to, correlation_id="7")
    answer = asker.delivery()
    assert (answer.body, answer.properties.correlation_id) == (b"answer", "7")
    assert (answer.exchange, answer.key) == ("", request.properties.reply_to)


def test_answers_reach_the_one_who_asked(connect: Connect) -> None:
    askers = [connect().channel() for _ in range(3)]
    server = connect().channel()
    queue = server.declare()
    server.consume(queue, no_ack=True)
    for number, asker in enumerate(askers):
        asker.consume(REPLIES, no_ack=True)
        asker.publish(b"%d" % number, key=queue, reply_to=REPLIES)
    for request in server.deliveries(3):
        server.publish(request.body, key=request.properties.reply_to)
    assert [asker.delivery().body for asker in askers] == [b"0", b"1", b"2"]


def test_an_answer_to_someone_who_left_is_dropped(connect: Connect) -> None:
    asker, server = connect(), connect().channel()
    queue = server.declare()
    server.consume(queue, no_ack=True)
    channel = asker.channel()
    channel.consume(REPLIES, no_ack=True)
    channel.publish(b"?", key=queue, reply_to=REPLIES)
    request = server.delivery()
    asker.close()
    server.publish(b"too late", key=request.properties.reply_to)
    server.round_trip()
    assert server.nothing_comes()


def test_a_mandatory_answer_to_someone_who_left_returns(connect: Connect) -> None:
    asker, server = connect(), connect().channel()
    queue = server.declare()
    server.consume(queue, no_ack=True)
    channel = asker.channel()
    channel.consume(REPLIES, no_ack=True)
    channel.publish(b"?", key=queue, reply_to=REPLIES)
    request = server.delivery()
    asker.close()
    server.publish(b"too late", key=request.properties.reply_to, mandatory=True)
    assert server.returned().body == b"too late"


def test_the_pseudo_queue_must_be_consumed_with_no_ack(channel: Channel) -> None:
    with refused(406, "PRECONDITION_FAILED - reply consumer cannot acknowledge"):
        channel.consume(REPLIES)


def test_a_tag_in_use_is_none_for_a_reply_consumer(channel: Channel) -> None:
    tag = channel.consume(channel.declare())
    with refused(530, f"NOT_ALLOWED - attempt to reuse consumer tag '{tag}'", connection=True):
        channel.consume(REPLIES, tag=tag, no_ack=True)


def test_a_channel_has_one_reply_consumer(channel: Channel) -> None:
    channel.consume(REPLIES, no_ack=True)
    with refused(406, "PRECONDITION_FAILED - reply consumer already set"):
        channel.consume(REPLIES, no_ack=True)


def test_reply_to_without_a_reply_consumer_is_406(channel: Channel) -> None:
    queue = channel.declare()
    with refused(406, "PRECONDITION_FAILED - fast reply consumer does not exist"):
        channel.publish(b"?", key=queue, reply_to=REPLIES)
        channel.round_trip()


def test_the_reply_consumer_can_be_cancelled(channel: Channel) -> None:
    queue = channel.declare()
    channel.cancel(channel.consume(REPLIES, no_ack=True))
    channel.consume(REPLIES, no_ack=True)
    channel.publish(b"?", key=queue, reply_to=REPLIES)
    assert channel.must_get(queue).properties.reply_to.startswith(REPLIES + ".")


def test_the_address_can_be_looked_at_by_a_passive_declare(connect: Connect) -> None:
    asker, server = connect(), connect()
    channel, other = asker.channel(), server.channel()
    queue = other.declare()
    channel.consume(REPLIES, no_ack=True)
    channel.publish(b"?", key=queue, reply_to=REPLIES)
    address = other.must_get(queue).properties.reply_to
    assert other.look(address)[1] == 1
    asker.close()
    with pytest.raises(Refused) as no:
        while True:
            server.channel().look(address)
    assert no.value.code == 404


def test_copies_reach_who_asked_and_queues_alike(connect: Connect) -> None:
    asker, server = connect().channel(), connect().channel()
    queue = server.declare()
    asker.consume(REPLIES, no_ack=True)
    asker.publish(b"?", key=queue, reply_to=REPLIES)
    address = server.must_get(queue).properties.reply_to
    server.publish(b"1", key=address, headers={"CC": [queue]})
    server.publish(b"2", key=queue, headers={"CC": [address]})
    server.publish(b"3", key=queue, headers={"BCC": [address]})
    assert [m.body for m in asker.deliveries(2)] == [b"1", b"2"]
    hidden = asker.delivery()
    assert (hidden.body, hidden.headers) == (b"3", {})
    assert server.becomes(queue, 3)
    assert server.drain(queue) == [b"1", b"2", b"3"]


@pytest.mark.ottermq_only("since 4.2; 3.10 answers at once")
def test_answers_in_a_transaction_leave_with_its_commit(connect: Connect) -> None:
    asker, server = connect(), connect().channel()
    queue = server.declare()
    channel = asker.channel()
    channel.consume(REPLIES, no_ack=True)
    channel.publish(b"?", key=queue, reply_to=REPLIES)
    address = server.must_get(queue).properties.reply_to
    server.tx_select()
    server.publish(b"no", key=address)
    server.tx_rollback()
    server.publish(b"yes", key=address, mandatory=True)
    assert channel.nothing_comes()
    server.tx_commit()
    assert channel.delivery().body == b"yes"
    asker.close()
    server.publish(b"too late", key=address, mandatory=True)
    server.tx_commit()
    assert server.returned().body == b"too late"
    assert server.nothing_comes()


@pytest.mark.ottermq_only("3.10 crashes the connection")
def test_a_made_up_reply_address_routes_nowhere(channel: Channel) -> None:
    channel.publish(b"x", key=f"{REPLIES}.made.up", mandatory=True)
    assert channel.returned().body == b"x"


def test_another_reply_to_is_left_alone(channel: Channel) -> None:
    queue = channel.declare()
    channel.publish(b"x", key=queue, reply_to="my-own-queue")
    assert channel.must_get(queue).properties.reply_to == "my-own-queue"
