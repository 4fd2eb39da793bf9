"""kafka-python reads what we write, and writes it again byte for byte."""

from typing import Any

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
import pytest
from hypothesis import given

from ottermq.kafka import codec
from ottermq.kafka.api import Api
from ottermq.kafka.request import Body
from ottermq.kafka.wire import Writer
from tests.kafka.bodies import bodies
from tests.kafka.test_codec import QUICK, each_version

ORACLES = {
    name: getattr(module, name)
    for module in (
        kafka.protocol.admin,
        kafka.protocol.consumer,
        kafka.protocol.metadata,
        kafka.protocol.producer,
        kafka.protocol.sasl,
    )
    for name in dir(module)
    if name.endswith(("Request", "Response"))
}


def oracle(api: Api, response: bool) -> Any:
    name = "".join(part.capitalize() for part in api.name.split("_"))
    found = ORACLES.get(name + ("Response" if response else "Request"))
    if found is None:
        pytest.skip(f"kafka-python doesn't know {name}")
    return found


@each_version
@pytest.mark.parametrize("response", [False, True], ids=["request", "response"])
def test_kafka_python_agrees(api: Api, version: int, response: bool) -> None:
    theirs = oracle(api, response)
    if api is Api.API_VERSIONS and response:
        pytest.skip("kafka-python reads an error in this one in a way of its own")

    @QUICK
    @given(bodies(api, version, response))
    def check(body: Body) -> None:
        writer = Writer()
        codec.writer_of(api, version, response)(writer, without_tags(body))
        ours = bytes(writer)
        read = theirs.decode(ours, version=version)
        read._header = None  # it looks for one
        assert bytes(read.encode(version=version)) == ours

    check()


def without_tags(value: Any) -> Any:
    """kafka-python forgets tagged fields that it doesn't know."""
    if isinstance(value, dict):
        return {name: without_tags(each) for name, each in value.items() if name != codec.TAGS}
    return [without_tags(each) for each in value] if isinstance(value, list) else value
