"""Users, vhosts and permissions: who may come in, and what they may touch."""

import re
from collections.abc import Callable

import pytest

from tests.amqp.conformance.defined import VHOST, Login, defined, login
from tests.amqp.wire import Channel, Refused, refused

__all__ = ["defined", "login"]

Unique = Callable[[str], str]


def denied(
    channel: Channel,
    access: str,
    thing: str,
    user: str,
    act: Callable[..., object],
    *arguments: object,
) -> None:
    """403, telling what was refused; RabbitMQ 3.10 leaves out which of the three accesses."""
    with pytest.raises(Refused) as no:
        act(*arguments)
        channel.round_trip()
    assert (no.value.code, no.value.connection) == (403, False)
    told = (
        f"ACCESS_REFUSED - ({access} )?access to {re.escape(thing)} in vhost '{VHOST}' refused"
        f" for user '{user}'"
    )
    assert re.fullmatch(told, no.value.text), no.value.text


# -- vhosts


def test_an_imported_hash_lets_its_user_in(login: Login) -> None:
    login("otter").channel()
    login("otter").channel()  # and again, once the hash has been replaced by ours


def test_an_imported_hash_keeps_a_wrong_password_out(login: Login) -> None:
    with refused(403, connection=True):
        login("otter", password="otter")


def test_a_user_without_permissions_for_the_vhost_is_refused(login: Login) -> None:
    text = f"NOT_ALLOWED - access to vhost '{VHOST}' refused for user 'stranger'"
    with refused(530, text, connection=True):
        login("stranger")


def test_vhosts_are_worlds_of_their_own(login: Login, unique: Unique) -> None:
    name = unique("mine")
    login().channel().declare(name)
    with refused(404, f"NOT_FOUND - no queue '{name}' in vhost '/'"):
        login(vhost="/").channel().look(name)


# -- configure, write, read


def test_configure_is_needed_to_declare_and_delete(login: Login, unique: Unique) -> None:
    client = login("otter")
    mine, other = unique("otter-queue"), unique("other")
    client.channel().declare(mine)
    login().channel().declare(other)
    queues: list[Callable[..., object]] = [Channel.declare, Channel.delete]
    for act in queues:
        channel = client.channel()
        denied(channel, "configure", f"queue '{other}'", "otter", act, channel, other)
    exchanges: list[Callable[..., object]] = [Channel.declare_exchange, Channel.delete_exchange]
    for act in exchanges:
        channel = client.channel()
        denied(channel, "configure", "exchange 'other-x'", "otter", act, channel, "other-x")
    client.channel().delete(mine)


def test_a_passive_declare_needs_nothing(login: Login) -> None:
    assert login("reader").channel().look("orders")


def test_write_is_needed_to_publish(login: Login) -> None:
    channel = login("reader").channel()
    act = lambda: channel.publish(b"x", exchange="amq.direct")  # noqa: E731
    denied(channel, "write", "exchange 'amq.direct'", "reader", act)


def test_the_default_exchange_is_called_amq_default(login: Login) -> None:
    channel = login("reader").channel()
    act = lambda: channel.publish(b"x", key="orders")  # noqa: E731
    denied(channel, "write", "exchange 'amq.default'", "reader", act)
    login("otter").channel().publish(b"x", key="nobody")


def test_read_is_needed_to_consume_get_and_purge(login: Login) -> None:
    operations: list[Callable[..., object]] = [Channel.consume, Channel.get, Channel.purge]
    for act in operations:
        channel = login("writer").channel()
        denied(channel, "read", "queue 'orders'", "writer", act, channel, "orders")


def test_bind_needs_write_on_the_queue_and_read_on_the_exchange(
    login: Login, unique: Unique
) -> None:
    client = login("otter")
    queue = client.channel().declare(unique("otter-queue"))
    channel = client.channel()
    denied(
        channel,
        "read",
        "exchange 'amq.fanout'",
        "otter",
        lambda: channel.bind(queue, "amq.fanout"),
    )
    again = client.channel()
    source = again.declare_exchange(unique("otter-source"))
    denied(again, "write", "queue 'orders'", "otter", lambda: again.bind("orders", source))
    client.channel().delete(queue)


def test_a_dead_letter_exchange_needs_read_on_the_queue_and_write_on_it(
    login: Login, unique: Unique
) -> None:
    channel = login("otter").channel()
    name = unique("otter-queue")
    denied(
        channel,
        "write",
        "exchange 'foreign'",
        "otter",
        lambda: channel.declare(name, {"x-dead-letter-exchange": "foreign"}),
    )


def test_an_alternate_exchange_needs_write_on_it(login: Login, unique: Unique) -> None:
    channel = login("otter").channel()
    name = unique("otter-x")
    denied(
        channel,
        "write",
        "exchange 'foreign'",
        "otter",
        lambda: channel.declare_exchange(name, arguments={"alternate-exchange": "foreign"}),
    )


def test_a_route_that_others_use_does_not_let_a_stranger_through(login: Login) -> None:
    allowed, stranger = login("writer").channel(), login("reader").channel()
    for _ in range(3):  # the route is warm
        allowed.publish(b"x", key="nobody", exchange="amq.direct")
    allowed.round_trip()
    act = lambda: stranger.publish(b"x", key="nobody", exchange="amq.direct")  # noqa: E731
    denied(stranger, "write", "exchange 'amq.direct'", "reader", act)


# -- topics


def topic_denied(no: Refused, access: str, key: str) -> None:
    assert no.code == 403
    told = (
        f"ACCESS_REFUSED - ({access} )?access to topic '{key}' in exchange"
        f"( topic)? 'amq.topic' in vhost '{VHOST}' refused for user 'topical'"
    )
    assert re.fullmatch(told, no.text), no.text


def test_topic_permissions_bound_what_is_published(login: Login) -> None:
    channel = login("topical").channel()
    channel.publish(b"x", key="free.news", exchange="amq.topic")
    channel.publish(b"x", key="other", exchange="amq.direct")
    channel.round_trip()
    with pytest.raises(Refused) as no:
        channel.publish(b"x", key="secret.news", exchange="amq.topic")
        channel.round_trip()
    topic_denied(no.value, "write", "secret.news")


def test_topic_permissions_bound_what_is_bound(login: Login) -> None:
    channel = login("topical").channel()
    queue = channel.declare()
    channel.bind(queue, "amq.topic", "free.*")
    channel.bind(queue, "amq.topic", "topical.*")  # {username}
    with pytest.raises(Refused) as no:
        channel.bind(queue, "amq.topic", "secret.*")
    topic_denied(no.value, "read", "secret.*".replace("*", r"\*"))


# -- user-id, limits


def test_an_impersonator_may_set_any_user_id(login: Login) -> None:
    channel = login("impostor").channel()
    queue = channel.declare()
    channel.publish(b"x", key=queue, user_id="somebody")
    assert channel.must_get(queue).properties.user_id == "somebody"


def test_a_vhost_takes_no_more_connections_than_its_limit(login: Login) -> None:
    for _ in range(2):
        login(vhost="narrow")
    with pytest.raises(Refused) as no:
        login(vhost="narrow")
    assert no.value.code == 530
    assert "connection limit (2) is reached" in no.value.text


def test_a_vhost_takes_no_more_queues_than_its_limit(login: Login, unique: Unique) -> None:
    channel = login(vhost="narrow").channel()
    for _ in range(3):
        channel.declare()
    with pytest.raises(Refused) as no:
        channel.declare()
    assert no.value.code == 406
    assert "queue limit in vhost 'narrow' (3) is reached" in no.value.text
