"""Requests that are well formed and make no sense: whatever their fields hold, each is answered, or
its connection ends. Never with a mistake of our own, which the log would tell."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottermq.kafka import codec
from ottermq.kafka.api import Api
from ottermq.kafka.codec import TAGS
from ottermq.kafka.request import Body
from ottermq.kafka.schema import MESSAGES
from tests.brokers import Broker
from tests.examples import examples
from tests.kafka.bodies import bodies
from tests.kafka.raw_client import Gone, RawClient

NAMES = st.sampled_from(["known", "known-3", "g", "somebody", "1", "retention.ms", "consumer"])
SMALL = st.sampled_from([-1, 0, 1, 2, 3])


@pytest.fixture(scope="module")
def fuzzed_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("random") / "data") as running:
        with RawClient(running.address("kafka")) as raw_client:
            topics = [
                {"name": name, "num_partitions": count, "replication_factor": 1}
                for name, count in (("known", 1), ("known-3", 3))
            ]
            raw_client.ask(Api.CREATE_TOPICS, {"topics": topics, "timeout_ms": 10_000})
        yield running


def plausible(value: Any, draw: st.DataObject) -> Any:
    """Some of it as a client might say it: noise alone never gets past the first check."""
    if isinstance(value, dict):
        return {name: plausible(each, draw) for name, each in value.items() if name != TAGS}
    if isinstance(value, list):
        return [plausible(each, draw) for each in value]
    if isinstance(value, bool) or value is None or not draw.draw(st.booleans()):
        return value
    if isinstance(value, str):
        return draw.draw(NAMES)
    return draw.draw(SMALL) if isinstance(value, int) else value


def quick(api: Api, body: Body) -> Body:
    """Waits that a client may ask for are not what this is about."""
    for name in ("max_wait_ms", "timeout_ms", "rebalance_timeout_ms", "session_timeout_ms"):
        if name in body:
            body[name] = min(abs(body[name]), 6000 if api is Api.JOIN_GROUP else 50)
    return body


def is_answered(api: Api, body: Body) -> bool:
    return not (api is Api.PRODUCE and body["acks"] == 0)


@pytest.mark.hypothesis
@pytest.mark.parametrize("api", sorted(MESSAGES), ids=lambda api: api.name.lower())
def test_whatever_the_fields_hold(fuzzed_broker: Broker, api: Api) -> None:
    first, last = MESSAGES[api].versions

    @settings(
        max_examples=examples(40),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(first, last), st.data())
    def check(version: int, data: st.DataObject) -> None:
        body = quick(api, plausible(data.draw(bodies(api, version, False)), data))
        with RawClient(fuzzed_broker.address("kafka")) as raw_client:
            try:
                if is_answered(api, body):
                    raw_client.ask(api, body, version)
                else:
                    raw_client.send(codec.encode_request(api, version, 1, None, body))
            except (Gone, ConnectionError):
                pass  # an ending is an answer, too

    check()
    with RawClient(fuzzed_broker.address("kafka")) as raw_client:
        assert raw_client.ask(Api.METADATA)["error_code"] == 0
    # A close is an answer: of a Produce with acks=0 its reason is that the request failed.
    own = ("login", "connection closed")
    mistakes = [
        line
        for line in fuzzed_broker.lines
        if "failed" in line and not any(text in line for text in own)
    ]
    assert not mistakes, "\n".join(mistakes)
