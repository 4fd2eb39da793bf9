"""Rights on a topic that is made of several streams: on its name, and on each stream that isn't
its own by its name."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottermq.kafka.api import Api
from ottermq.kafka.errors import Error
from tests.amqp.wire import Client, refused
from tests.brokers import Broker
from tests.engine.kafka_plane import batch
from tests.kafka.test_login import fetched, hashed
from tests.kafka.wire import Link

USERS = {
    "owner": (".*", ".*", ".*"),
    # May write to `secret`, and has names of its own: mal, mal-0 …
    "mallory": ("^mal", "^(mal|secret$)", "^mal"),
    # May touch the topic `mal` and no stream by another name.
    "mallet": ("^mal", "^mal", "^mal"),
}


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder: Path = tmp_path_factory.mktemp("super")
    keys = ("configure", "write", "read")
    definitions = {
        "vhosts": [{"name": "/"}],
        "users": [{"name": u, "password_hash": hashed(u), "tags": ""} for u in USERS],
        "permissions": [
            {"user": user, "vhost": "/", **dict(zip(keys, rights, strict=True))}
            for user, rights in USERS.items()
        ],
    }
    (folder / "defs.json").write_text(json.dumps(definitions))
    with Broker(folder / "data", "--definitions", str(folder / "defs.json")) as broker:
        yield broker


def kafka(broker: Broker, user: str) -> Link:
    link = Link(broker.address("kafka"))
    assert link.log_in(user, user)["error_code"] == 0
    return link


def amqp(broker: Broker, user: str) -> Client:
    return Client(broker.address("amqp"), user=user, password=user)


STREAM = {"x-queue-type": "stream"}
SUPER = {"x-super-stream": True}


def test_who_may_only_write_to_a_stream_cannot_make_it_a_part_of_a_topic_of_its_own(
    harness: Broker,
) -> None:
    with kafka(harness, "owner") as owner:
        owner.create("secret")
        owner.send_produce("secret", 0, batch(b"layoffs"))
        assert owner.produced() == (0, 0)
        with amqp(harness, "mallory") as client:
            channel = client.channel()
            channel.declare_exchange("mal", arguments=SUPER, durable=True)
            with refused(403):
                channel.bind("secret", "mal", "0")
        assert owner.metadata("secret")[0]["error_code"] == Error.NONE


def test_a_topic_opens_no_stream_that_its_user_may_not_touch(harness: Broker) -> None:
    """Somebody who may do so has put a stream into a topic that others may use."""
    with kafka(harness, "owner") as owner, amqp(harness, "owner") as client:
        owner.create("hidden")
        owner.send_produce("hidden", 0, batch(b"layoffs"))
        assert owner.produced() == (0, 0)
        channel = client.channel()
        channel.declare_exchange("mallet", arguments=SUPER, durable=True)
        channel.declare("mallet-0", STREAM, durable=True)
        channel.bind("mallet-0", "mallet", "0", {"x-stream-partition-order": 0})
        with kafka(harness, "mallet") as other:
            assert fetched(other, "mallet") == Error.NONE  # what it was allowed is remembered
            channel.bind("hidden", "mallet", "1", {"x-stream-partition-order": 1})
            assert fetched(owner, "mallet") == Error.NONE
            assert fetched(other, "mallet") == Error.TOPIC_AUTHORIZATION_FAILED
            trimmed = {"partition_index": 1, "offset": 1}
            body = {"topics": [{"name": "mallet", "partitions": [trimmed]}], "timeout_ms": 1000}
            [told] = other.ask(Api.DELETE_RECORDS, body)["topics"]
            assert told["partitions"][0]["error_code"] == Error.TOPIC_AUTHORIZATION_FAILED
            config = {"name": "retention.ms", "value": "1", "config_operation": 0}
            resource = {"resource_type": 2, "resource_name": "mallet", "configs": [config]}
            altered = {"resources": [resource], "validate_only": False}
            [told] = other.ask(Api.INCREMENTAL_ALTER_CONFIGS, altered)["responses"]
            assert told["error_code"] == Error.TOPIC_AUTHORIZATION_FAILED
            gone = {"topics": [{"name": "mallet"}], "timeout_ms": 1000}
            [told] = other.ask(Api.DELETE_TOPICS, gone)["responses"]
            assert told["error_code"] == Error.TOPIC_AUTHORIZATION_FAILED
        # Nor is it hidden from who has it, and the two don't share an id.
        [hidden], [mallet] = owner.metadata("hidden"), owner.metadata("mallet")
        assert hidden["error_code"] == mallet["error_code"] == Error.NONE
        assert hidden["topic_id"] != mallet["topic_id"]
        assert [value for _, value in owner.read_all("hidden", 0)] == [b"layoffs"]


def test_who_may_read_a_topic_by_its_name_reads_its_partitions(harness: Broker) -> None:
    with kafka(harness, "mallory") as link:
        link.create("malaga", partitions=3)
        link.send_produce("malaga", 2, batch(b"sun"))
        assert link.produced() == (0, 0)
        assert [value for _, value in link.read_all("malaga", 2)] == [b"sun"]
