"""tx: publishes and acks together or not at all."""

from pamqp.commands import Tx

from tests.engine.plane import Client, Plane, frame

OK = frame(Tx.CommitOk())


def transactional(plane: Plane) -> Client:
    client = plane.client()
    plane.engine.tx_select(client.id, 1)
    return client


def commit(client: Client) -> None:
    assert client.engine.tx_commit(client.id, 1, OK) == 0
    assert isinstance(client.take(), Tx.CommitOk)


def test_nothing_is_seen_before_the_commit(plane: Plane) -> None:
    plane.queue("one")
    plane.queue("two")
    plane.routes["ex", "k"] = ["one", "two"]
    client = transactional(plane)
    client.publish(b"a", "one")
    client.publish(b"b", "k", "ex")
    assert (plane.ready("one"), plane.ready("two")) == (0, 0)
    commit(client)
    assert (plane.ready("one"), plane.ready("two")) == (2, 1)


def test_a_rollback_forgets_publishes_and_acks(plane: Plane) -> None:
    plane.queue("work")
    plane.client().publish(b"there", "work")
    client = transactional(plane)
    message = client.get("work")
    assert message
    client.publish(b"not there", "work")
    client.ack(message.tag)
    plane.engine.tx_rollback(client.id, 1)
    commit(client)
    assert (plane.ready("work"), plane.unacked("work")) == (0, 1)
    client.ack(message.tag)
    commit(client)
    assert (plane.ready("work"), plane.unacked("work")) == (0, 0)


def test_an_ack_counts_once_in_a_transaction(plane: Plane) -> None:
    plane.queue("work")
    plane.client().publish(b"x", "work")
    client = transactional(plane)
    message = client.get("work")
    assert message
    client.ack(message.tag)
    client.ack(message.tag)
    assert client.errors[0][0] == 406


def test_returns_come_before_the_commit_is_answered(plane: Plane) -> None:
    client = transactional(plane)
    client.publish(b"x", "nowhere", mandatory=True)
    assert client.is_quiet()
    assert client.engine.tx_commit(client.id, 1, OK) == 0
    assert client.message().body == b"x"
    assert isinstance(client.take(), Tx.CommitOk)


def test_a_channel_that_goes_takes_its_transaction_with_it(plane: Plane) -> None:
    plane.queue("work")
    plane.client().publish(b"there", "work")
    client = transactional(plane)
    message = client.get("work")
    assert message
    client.publish(b"x", "work")
    client.ack(message.tag)
    plane.engine.channel_close(client.id, 1, False)
    assert (plane.ready("work"), plane.unacked("work")) == (1, 0)


def test_settling_within_a_transaction_gives_a_channels_credit_back_at_its_commit(
    plane: Plane,
) -> None:
    plane.queue("one")
    plane.queue("two")
    other = plane.client()
    other.publish(b"1", "one")
    other.publish(b"2", "two")
    client = transactional(plane)
    plane.engine.channel_limit(client.id, 1, 1)
    client.consume("one", "a")
    first = client.message()
    client.consume("two", "b")
    client.ack(first.tag)
    assert client.is_quiet()
    assert client.engine.tx_commit(client.id, 1, OK) == 0
    kinds = {type(client.take()).__name__ for _ in range(2)}
    assert kinds == {"Message", "CommitOk"}


def test_a_queue_that_went_before_the_commit_is_left_out(plane: Plane) -> None:
    plane.queue("one")
    plane.queue("two")
    plane.client().publish(b"x", "one")
    client = transactional(plane)
    message = client.get("one")
    assert message
    client.publish(b"1", "one")
    client.publish(b"2", "two")
    client.ack(message.tag)
    plane.remove("one")
    commit(client)
    assert plane.ready("two") == 1
