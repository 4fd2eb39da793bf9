"""Connections, channels and consumers as the API shows them, and a connection that it closes."""

from collections.abc import Callable
from urllib.parse import quote

import pytest

from tests.admin.api import Api
from tests.amqp.wire import Client, Refused
from tests.brokers import Broker
from tests.kafka.raw_client import RawClient


def name_of(api: Api, client: Client) -> str:
    port = client.socket.getsockname()[1]
    (found,) = [each for each in api.get("connections") if each["peer_port"] == port]
    return str(found["name"])


def test_a_connection_its_channels_and_its_consumers(shared: Broker, api: Api, name: str) -> None:
    with Client(shared.address("amqp")) as client:
        channel = client.channel(3)
        channel.declare(name, durable=True)
        channel.qos(7)
        channel.confirm()
        tag = channel.consume(name)
        one = api.get(f"connections/{quote(name_of(api, client), safe='')}")
        assert (one["user"], one["vhost"], one["protocol"]) == ("guest", "/", "AMQP 0-9-1")
        assert (one["state"], one["channels"], one["ssl"]) == ("running", 1, False)
        assert one["connected_at"] > 1_700_000_000_000 and one["recv_oct"] > 0
        (here,) = api.get(f"connections/{quote(one['name'], safe='')}/channels")
        assert (here["number"], here["prefetch_count"], here["confirm"]) == (3, 7, True)
        assert here["consumer_count"] == 1 and here["connection_details"]["name"] == one["name"]
        whole = api.get(f"channels/{quote(here['name'], safe='')}")
        assert [each["consumer_tag"] for each in whole["consumer_details"]] == [tag]
        (consumer,) = [each for each in api.get("consumers") if each["consumer_tag"] == tag]
        assert consumer["queue"] == {"name": name, "vhost": "/"}
        assert consumer["channel_details"]["connection_name"] == one["name"]
        assert consumer["ack_required"] and consumer["prefetch_count"] == 7
        details = api.get(f"queues/%2F/{name}")["consumer_details"]
        assert [each["consumer_tag"] for each in details] == [tag]
        assert one["name"] in {each["name"] for each in api.get("vhosts/%2F/connections")}


def test_a_kafka_client_is_a_connection_too(shared: Broker, api: Api) -> None:
    with RawClient(shared.address("kafka")) as kafka:
        kafka.metadata()
        found = [each for each in api.get("connections") if each["protocol"] == "Kafka"]
        assert [f"{each['peer_host']}:{each['peer_port']}" for each in found] == [kafka.name]
        assert api.delete(f"connections/{quote(found[0]['name'], safe='')}") == 204
    shared.wait_for(r'connection closing listener=kafka .* reason="closed by an operator"')


def test_a_client_is_told_why_it_is_closed(shared: Broker, api: Api) -> None:
    client = Client(shared.address("amqp"))
    path = f"connections/{quote(name_of(api, client), safe='')}"
    assert api.ask("DELETE", path, headers={"X-Reason": "maintenance"}).status == 204
    with pytest.raises(Refused, match="CONNECTION_FORCED - maintenance"):
        client.channel()
    client.drop()
    shared.wait_for("audit act=connection.close user=guest .* reason=maintenance")
    assert api.delete("connections/nobody") == 404


def test_users_see_and_close_their_own_connections(
    shared: Broker, api: Api, login: Callable[..., Api], name: str
) -> None:
    api.put(f"users/{name}", {"password": "p", "tags": "management"})
    api.put(f"permissions/%2F/{name}", {"configure": ".*", "write": ".*", "read": ".*"})
    with Client(shared.address("amqp")) as other, login(f"{name}:p") as own:
        theirs = Client(shared.address("amqp"), user=name, password="p")
        assert [each["user"] for each in own.get("connections")] == [name]
        assert own.delete(f"connections/{quote(name_of(api, other), safe='')}") == 404
        assert own.delete(f"connections/username/{name}") == 204
        with pytest.raises(Refused):
            theirs.channel()
        theirs.drop()
        other.channel()
