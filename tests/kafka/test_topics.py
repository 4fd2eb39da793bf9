"""Which topics Kafka's clients find, and that they follow what happens to the queues."""

from pathlib import Path

import pytest

from ottermq.errors import NotFound, PreconditionFailed
from ottermq.kafka.topics import IllegalName, Topic, TopicExists
from tests.kafka.broker_harness import Harness, open_harness


def found(harness: Harness, name: str) -> Topic:
    topic = harness.topics.find(name)
    assert topic is not None
    return topic


def names(harness: Harness) -> list[str]:
    return [topic.name for topic in harness.topics.all()]


def logs(topic: Topic) -> list[str]:
    return [partition.log.name for partition in topic.partitions]


async def test_a_queue_is_a_topic_with_one_partition(harness: Harness) -> None:
    queue = await harness.queue("orders")
    topic = found(harness, "orders")
    assert [(each.queue, each.lane) for each in topic.partitions] == [(queue.id, 0)]
    assert logs(topic) == ["orders"]
    assert not topic.is_stream
    assert harness.topics.find_id(topic.id) is topic


async def test_a_priority_queue_has_a_partition_a_priority(harness: Harness) -> None:
    await harness.queue("jobs", max_priority=3)
    topic = found(harness, "jobs")
    assert [each.lane for each in topic.partitions] == [0, 1, 2, 3]
    assert logs(topic) == ["jobs", "jobs\x001", "jobs\x002", "jobs\x003"]


async def test_a_super_stream_is_one_topic_and_its_partitions_are_none(harness: Harness) -> None:
    await harness.exchange("clicks")
    for index in range(3):
        await harness.queue(f"clicks-{index}", queue_type="stream")
        await harness.bind("clicks", f"clicks-{index}", str(index))
    assert names(harness) == ["clicks"]
    assert logs(found(harness, "clicks")) == ["clicks-0", "clicks-1", "clicks-2"]


async def test_a_super_stream_that_says_so_has_its_streams_in_the_order_it_gives(
    harness: Harness,
) -> None:
    await harness.exchange("sales", super_stream=True)
    for index, region in enumerate(("emea", "apac", "amer")):
        await harness.queue(f"sales-{region}", queue_type="stream")
        await harness.bind("sales", f"sales-{region}", region, order=index)
    assert logs(found(harness, "sales")) == ["sales-emea", "sales-apac", "sales-amer"]


async def test_streams_without_their_exchange_are_topics_again(harness: Harness) -> None:
    await harness.topics.create("clicks", 2)
    assert names(harness) == ["clicks"]
    await harness.topology.pending.save(harness.topology.delete_exchange("/", "clicks"))
    assert names(harness) == ["clicks-0", "clicks-1"]
    assert sorted(harness.table.topics) == ["clicks-0", "clicks-1"]


async def test_a_work_queue_bound_to_an_exchange_of_its_name_stays_a_topic(
    harness: Harness,
) -> None:
    await harness.exchange("orders")
    await harness.queue("orders")
    await harness.queue("orders-0", queue_type="stream")
    await harness.bind("orders", "orders", "")
    await harness.bind("orders", "orders-0", "")
    assert logs(found(harness, "orders")) == ["orders"]
    assert names(harness) == ["orders", "orders-0"]


async def test_names_that_kafka_cannot_say_are_hidden(harness: Harness) -> None:
    for name in ("größe", "with space", "a/b", ".", "..", "x" * 250, "plain"):
        await harness.queue(name)
    assert names(harness) == ["plain"]
    assert harness.topics.hidden() == [".", "..", "a/b", "größe", "with space", "x" * 250]
    assert harness.topics.find("with space") is None


async def test_an_exclusive_queue_is_nobody_elses_topic(harness: Harness) -> None:
    change = harness.topology.declare_queue("/", "mine", exclusive=True, connection=1)
    harness.queues.declared(change)
    assert harness.topics.find("mine") is None
    assert names(harness) == []


async def test_a_topic_goes_with_its_queue_and_comes_back_as_another(harness: Harness) -> None:
    await harness.queue("orders")
    before = found(harness, "orders")
    gone: list[Topic] = []
    harness.topics.on_gone.append(gone.append)
    await harness.delete_queue("orders")
    assert harness.topics.find("orders") is None
    assert harness.topics.find_id(before.id) is None
    assert gone == [before]
    assert "orders" not in harness.table.topics
    await harness.queue("orders")
    assert found(harness, "orders").id != before.id


async def test_a_topic_that_was_made_is_a_stream_and_is_there_after_a_restart(
    tmp_path: Path,
) -> None:
    async with open_harness(tmp_path / "data") as harness:
        one = await harness.topics.create("one")
        many = await harness.topics.create("many", 4)
        assert one.is_stream and many.is_stream
        assert len(many.partitions) == 4
        cluster = harness.cluster
    async with open_harness(tmp_path / "data") as harness:
        assert harness.cluster == cluster
        assert names(harness) == ["many", "one"]
        assert found(harness, "one").id == one.id
        again = harness.topics.find_id(many.id)
        assert again is not None and logs(again) == logs(many)


async def test_an_id_from_before_the_start_is_found_without_its_name(tmp_path: Path) -> None:
    async with open_harness(tmp_path / "data") as harness:
        id = (await harness.topics.create("orders")).id
    async with open_harness(tmp_path / "data") as harness:
        topic = harness.topics.find_id(id)
        assert topic is not None and topic.name == "orders"


async def test_nothing_is_made_twice_nor_by_a_wrong_name(harness: Harness) -> None:
    await harness.queue("queue")
    await harness.exchange("exchange")
    await harness.topics.create("topic", 2)
    for taken in ("queue", "topic", "topic-1"):
        with pytest.raises(TopicExists):
            await harness.topics.create(taken)
    with pytest.raises(PreconditionFailed):
        await harness.topics.create("exchange", 2)
    for wrong in ("", "a b", "..", "amq.mine", "__consumer_offsets"):
        with pytest.raises(IllegalName):
            await harness.topics.create(wrong)


async def test_a_topic_that_is_deleted_leaves_nothing(harness: Harness) -> None:
    await harness.topics.create("clicks", 3)
    await harness.topics.delete("clicks")
    assert names(harness) == []
    assert not harness.topology.vhost("/").queues
    assert "clicks" not in harness.topology.vhost("/").exchanges
    assert harness.table.topics == {}
    with pytest.raises(NotFound):
        await harness.topics.delete("clicks")


async def test_a_lone_stream_grows_into_a_super_stream_and_keeps_its_id(harness: Harness) -> None:
    before = await harness.topics.create("orders")
    after = await harness.topics.grow(before, 3)
    assert logs(after) == ["orders", "orders-1", "orders-2"]
    assert after.id == before.id
    assert names(harness) == ["orders"]
    more = await harness.topics.grow(after, 4)
    assert logs(more) == ["orders", "orders-1", "orders-2", "orders-3"]
    assert harness.table.topics["orders"] is more


async def test_a_work_queue_cannot_be_divided(harness: Harness) -> None:
    await harness.queue("orders")
    with pytest.raises(PreconditionFailed):
        await harness.topics.grow(found(harness, "orders"), 2)


async def test_what_was_told_of_topics_is_stale_when_a_queue_comes_or_goes(
    harness: Harness,
) -> None:
    version = harness.topics.version
    await harness.queue("orders")
    assert harness.topics.version != version
    version = harness.topics.version
    await harness.delete_queue("orders")
    assert harness.topics.version != version
