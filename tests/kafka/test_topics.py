"""Which topics Kafka's clients find, and that they follow what happens to the queues."""

from pathlib import Path

import pytest

from ottermq.errors import NotFound, PreconditionFailed
from ottermq.kafka.topics import IllegalName, Topic, TopicExists
from tests.kafka.rooms import House, open_house


def found(house: House, name: str) -> Topic:
    topic = house.topics.find(name)
    assert topic is not None
    return topic


def names(house: House) -> list[str]:
    return [topic.name for topic in house.topics.all()]


def logs(topic: Topic) -> list[str]:
    return [partition.log.name for partition in topic.partitions]


async def test_a_queue_is_a_topic_with_one_partition(house: House) -> None:
    queue = await house.queue("orders")
    topic = found(house, "orders")
    assert [(each.queue, each.lane) for each in topic.partitions] == [(queue.id, 0)]
    assert logs(topic) == ["orders"]
    assert not topic.is_stream
    assert house.topics.find_id(topic.id) is topic


async def test_a_priority_queue_has_a_partition_a_priority(house: House) -> None:
    await house.queue("jobs", max_priority=3)
    topic = found(house, "jobs")
    assert [each.lane for each in topic.partitions] == [0, 1, 2, 3]
    assert logs(topic) == ["jobs", "jobs\x001", "jobs\x002", "jobs\x003"]


async def test_a_super_stream_is_one_topic_and_its_partitions_are_none(house: House) -> None:
    await house.exchange("clicks")
    for index in range(3):
        await house.queue(f"clicks-{index}", queue_type="stream")
        await house.bind("clicks", f"clicks-{index}", str(index))
    assert names(house) == ["clicks"]
    assert logs(found(house, "clicks")) == ["clicks-0", "clicks-1", "clicks-2"]


async def test_a_super_stream_that_says_so_has_its_streams_in_the_order_it_gives(
    house: House,
) -> None:
    await house.exchange("sales", super_stream=True)
    for index, region in enumerate(("emea", "apac", "amer")):
        await house.queue(f"sales-{region}", queue_type="stream")
        await house.bind("sales", f"sales-{region}", region, order=index)
    assert logs(found(house, "sales")) == ["sales-emea", "sales-apac", "sales-amer"]


async def test_streams_without_their_exchange_are_topics_again(house: House) -> None:
    await house.topics.create("clicks", 2)
    assert names(house) == ["clicks"]
    await house.topology.save(house.topology.delete_exchange("/", "clicks"))
    assert names(house) == ["clicks-0", "clicks-1"]
    assert sorted(house.table.topics) == ["clicks-0", "clicks-1"]


async def test_a_work_queue_bound_to_an_exchange_of_its_name_stays_a_topic(house: House) -> None:
    await house.exchange("orders")
    await house.queue("orders")
    await house.queue("orders-0", queue_type="stream")
    await house.bind("orders", "orders", "")
    await house.bind("orders", "orders-0", "")
    assert logs(found(house, "orders")) == ["orders"]
    assert names(house) == ["orders", "orders-0"]


async def test_names_that_kafka_cannot_say_are_hidden(house: House) -> None:
    for name in ("größe", "with space", "a/b", ".", "..", "x" * 250, "plain"):
        await house.queue(name)
    assert names(house) == ["plain"]
    assert house.topics.hidden() == [".", "..", "a/b", "größe", "with space", "x" * 250]
    assert house.topics.find("with space") is None


async def test_an_exclusive_queue_is_nobody_elses_topic(house: House) -> None:
    change = house.topology.declare_queue("/", "mine", exclusive=True, connection=1)
    house.queues.declared(change)
    assert house.topics.find("mine") is None
    assert names(house) == []


async def test_a_topic_goes_with_its_queue_and_comes_back_as_another(house: House) -> None:
    await house.queue("orders")
    before = found(house, "orders")
    gone: list[Topic] = []
    house.topics.on_gone.append(gone.append)
    await house.delete_queue("orders")
    assert house.topics.find("orders") is None
    assert house.topics.find_id(before.id) is None
    assert gone == [before]
    assert "orders" not in house.table.topics
    await house.queue("orders")
    assert found(house, "orders").id != before.id


async def test_a_topic_that_was_made_is_a_stream_and_is_there_after_a_restart(
    tmp_path: Path,
) -> None:
    async with open_house(tmp_path / "data") as house:
        one = await house.topics.create("one")
        many = await house.topics.create("many", 4)
        assert one.is_stream and many.is_stream
        assert len(many.partitions) == 4
        cluster = house.cluster
    async with open_house(tmp_path / "data") as house:
        assert house.cluster == cluster
        assert names(house) == ["many", "one"]
        assert found(house, "one").id == one.id
        again = house.topics.find_id(many.id)
        assert again is not None and logs(again) == logs(many)


async def test_an_id_from_before_the_start_is_found_without_its_name(tmp_path: Path) -> None:
    async with open_house(tmp_path / "data") as house:
        id = (await house.topics.create("orders")).id
    async with open_house(tmp_path / "data") as house:
        topic = house.topics.find_id(id)
        assert topic is not None and topic.name == "orders"


async def test_nothing_is_made_twice_nor_by_a_wrong_name(house: House) -> None:
    await house.queue("queue")
    await house.exchange("exchange")
    await house.topics.create("topic", 2)
    for taken in ("queue", "topic", "topic-1"):
        with pytest.raises(TopicExists):
            await house.topics.create(taken)
    with pytest.raises(PreconditionFailed):
        await house.topics.create("exchange", 2)
    for wrong in ("", "a b", "..", "amq.mine", "__consumer_offsets"):
        with pytest.raises(IllegalName):
            await house.topics.create(wrong)


async def test_a_topic_that_is_deleted_leaves_nothing(house: House) -> None:
    await house.topics.create("clicks", 3)
    await house.topics.delete("clicks")
    assert names(house) == []
    assert not house.topology.vhost("/").queues
    assert "clicks" not in house.topology.vhost("/").exchanges
    assert house.table.topics == {}
    with pytest.raises(NotFound):
        await house.topics.delete("clicks")


async def test_a_lone_stream_grows_into_a_super_stream_and_keeps_its_id(house: House) -> None:
    before = await house.topics.create("orders")
    after = await house.topics.grow(before, 3)
    assert logs(after) == ["orders", "orders-1", "orders-2"]
    assert after.id == before.id
    assert names(house) == ["orders"]
    more = await house.topics.grow(after, 4)
    assert logs(more) == ["orders", "orders-1", "orders-2", "orders-3"]
    assert house.table.topics["orders"] is more


async def test_a_work_queue_cannot_be_divided(house: House) -> None:
    await house.queue("orders")
    with pytest.raises(PreconditionFailed):
        await house.topics.grow(found(house, "orders"), 2)


async def test_what_was_told_of_topics_is_stale_when_a_queue_comes_or_goes(house: House) -> None:
    version = house.topics.version
    await house.queue("orders")
    assert house.topics.version != version
    version = house.topics.version
    await house.delete_queue("orders")
    assert house.topics.version != version
