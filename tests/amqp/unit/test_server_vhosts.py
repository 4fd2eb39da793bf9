"""A vhost that is deleted: all that is in it goes, whoever is connected to it has to leave."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pamqp.commands import Basic, Connection, Exchange, Queue
from pamqp.common import FieldTable

from ottermq.auth import Permission
from ottermq.engine.types import Consumer
from ottermq.errors import NotFound, UnderLegalHold
from ottermq.topology import MetaDb, restore
from tests.amqp.unit.server_harness import Client, Closed, Harness, open_harness


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    async with open_harness(tmp_path) as harness:
        await make_vhost(harness)
        yield harness


async def make_vhost(harness: Harness, name: str = "v") -> None:
    await harness.topology.pending.save(harness.topology.create_vhost(name))
    await harness.auth.permissions.set(Permission("guest", name, ".*", ".*", ".*"))


async def delete(harness: Harness, name: str = "v") -> None:
    await harness.context.queues.delete_vhost(name)
    await harness.auth.delete_vhost(name)


def closed_with(client: Client) -> tuple[int | None, str]:
    """The last word it got."""
    *_, close = client.frames()
    assert isinstance(close, Connection.Close)
    return close.reply_code, close.reply_text


async def test_its_connections_are_closed_and_no_others(harness: Harness) -> None:
    inside, outside = await harness.connected("v"), await harness.connected("/")
    await delete(harness)
    assert closed_with(inside) == (320, "CONNECTION_FORCED - vhost 'v' is deleted")
    assert await outside.call(1, Queue.Declare(queue="q"))


async def test_nobody_can_open_it_any_more(harness: Harness) -> None:
    await delete(harness)
    with pytest.raises(Closed) as closed:
        await harness.client().open("v")
    assert (closed.value.code, closed.value.text) == (530, "NOT_ALLOWED - vhost v not found")


async def test_its_queues_leave_the_engine_and_their_consumers_hear_of_it(harness: Harness) -> None:
    client = await harness.connected("v")
    await client.call(1, Queue.Declare(queue="durable", durable=True))
    await client.call(1, Queue.Declare(queue="mine", exclusive=True))
    delayed: FieldTable = {"x-delayed-type": "direct"}
    await client.call(
        1, Exchange.Declare(exchange="later", exchange_type="x-delayed-message", arguments=delayed)
    )
    queue = harness.topology.queue("v", "durable")
    harness.engine.who_consumes[queue.id] = [
        Consumer(client.id, 1, b"c", False, False, 0, 0, 0, True)
    ]
    added = {call[0] for call in harness.engine.called("add_queue")}
    assert len(added) == 3
    await delete(harness)
    assert {call[0] for call in harness.engine.called("remove_queue")} == added
    cancel, close = client.frames()
    assert isinstance(cancel, Basic.Cancel) and cancel.consumer_tag == "c"
    assert isinstance(close, Connection.Close)


async def test_it_is_gone_for_good_and_what_was_granted_there_too(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        await make_vhost(harness)
        client = await harness.connected("v")
        await client.call(1, Queue.Declare(queue="durable", durable=True))
        await harness.auth.limits.set_vhost("v", "max-connections", 3)
        await delete(harness)
        assert harness.auth.limits.of_vhost("v") == {}
    with MetaDb(tmp_path) as db:
        assert list(restore(db).vhosts) == ["/"]


async def test_one_of_that_name_made_anew_begins_empty(harness: Harness) -> None:
    client = await harness.connected("v")
    await client.call(1, Queue.Declare(queue="durable", durable=True))
    await delete(harness)
    await harness.topology.pending.save(harness.topology.create_vhost("v"))
    with pytest.raises(Closed) as closed:
        await harness.client().open("v")
    assert closed.value.text == "NOT_ALLOWED - access to vhost 'v' refused for user 'guest'"
    await harness.auth.permissions.set(Permission("guest", "v", ".*", ".*", ".*"))
    again = await harness.connected("v")
    with pytest.raises(Closed) as closed:
        await again.call(1, Queue.Declare(queue="durable", passive=True))
    assert closed.value.text == "NOT_FOUND - no queue 'durable' in vhost 'v'"


async def test_a_connection_that_ends_after_its_vhost_harms_nothing(
    harness: Harness,
) -> None:
    client = await harness.connected("v")
    await delete(harness)
    harness.lose(client)
    assert "v" not in harness.topology.vhosts
    assert client.id not in harness.server.connections


async def test_one_that_is_not_there_is_not_found(harness: Harness) -> None:
    with pytest.raises(NotFound):
        await harness.context.queues.delete_vhost("nowhere")


async def test_one_with_a_queue_under_legal_hold_stays(harness: Harness) -> None:
    client = await harness.connected("v")
    await client.call(1, Queue.Declare(queue="ledger", durable=True))
    harness.context.queues.holds.also.append(lambda queue: queue.name == "ledger")
    with pytest.raises(UnderLegalHold, match="queue 'ledger' in vhost 'v' is under legal hold"):
        await delete(harness)
    assert "v" in harness.topology.vhosts
    assert await client.call(1, Queue.Declare(queue="ledger", durable=True))
