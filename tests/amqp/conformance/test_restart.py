"""What a restart brings back, clean or by SIGKILL: topology, messages, cursors, counts.

Each scenario has two halves: what is done before the broker ends, and what must be there when it is
back. All scenarios share the two lives of one broker, each in a vhost of its own.
"""

import json
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.amqp.wire import Address, Channel, Client, Gone, Refused, refused
from tests.brokers import Broker

Scenario = Generator[None, Channel, None]

ENDS = {"stop": signal.SIGTERM, "kill": signal.SIGKILL}
SCENARIOS: dict[str, Callable[[Channel], Scenario]] = {}


def scenario(run: Callable[[Channel], Scenario]) -> Callable[[Channel], Scenario]:
    SCENARIOS[run.__name__] = run
    return run


def publish(channel: Channel, queue: str, *bodies: bytes, **properties: Any) -> None:
    """On disk when this returns."""
    sender = channel.client.channel()
    sender.confirm()
    for body in bodies:
        sender.publish(body, key=queue, **{"delivery_mode": 2, **properties})
    sender.confirmed(len(bodies))
    sender.close()


@scenario
def durable_topology_comes_back(channel: Channel) -> Scenario:
    channel.declare_exchange("lasting", "topic", durable=True)
    channel.declare_exchange("inner", "fanout", durable=True, internal=True)
    channel.declare_exchange("brief", "topic")
    channel.declare("kept", {"x-max-length": 100}, durable=True)
    channel.declare("lost")
    channel.bind_exchange("inner", "lasting", "a.#")
    channel.bind("kept", "inner")
    channel.bind("lost", "inner")
    channel = yield
    channel.declare("kept", {"x-max-length": 100}, durable=True)
    channel.publish(b"x", key="a.b", exchange="lasting", mandatory=True)
    assert channel.must_get("kept").body == b"x"
    assert not channel.inbox
    client = channel.client
    with refused(404):
        client.channel().look("lost")
    with refused(404):
        client.channel().declare_exchange("brief", passive=True)


@scenario
def what_was_deleted_and_unbound_stays_so(channel: Channel) -> Scenario:
    channel.declare_exchange("x", "fanout", durable=True)
    for queue in ("gone", "unbound"):
        channel.declare(queue, durable=True)
        channel.bind(queue, "x")
    publish(channel, "gone", b"1")
    channel.delete("gone")
    channel.unbind("unbound", "x")
    channel = yield
    channel.declare("gone", durable=True)
    channel.publish(b"x", exchange="x", mandatory=True)
    assert channel.returned().body == b"x"
    assert channel.count("gone") == 0


@scenario
def persistent_messages_come_back_in_order(channel: Channel) -> Scenario:
    bodies = [b"%d" % number for number in range(500)]
    channel.declare("kept", durable=True)
    publish(channel, "kept", *bodies, content_type="text/plain", headers={"a": [1, {"b": 2}]})
    channel = yield
    assert channel.count("kept") == 500
    first = channel.must_get("kept")
    assert (first.body, first.redelivered, first.key) == (b"0", False, "kept")
    assert first.properties.content_type == "text/plain"
    assert first.headers == {"a": [1, {"b": 2}]}
    assert channel.drain("kept") == bodies[1:]


@scenario
def messages_from_nothing_to_a_megabyte_come_back_whole(channel: Channel) -> Scenario:
    bodies = [bytes(size) + b"!" for size in (0, 1, 4096, 65_536, 300_000, 1 << 20)]
    channel.declare("kept", durable=True)
    publish(channel, "kept", *bodies)
    channel = yield
    assert channel.drain("kept") == bodies


@scenario
def unacked_messages_come_back_as_redelivered_in_their_place(channel: Channel) -> Scenario:
    channel.declare("kept", durable=True)
    publish(channel, "kept", *(b"%d" % number for number in range(10)))
    channel.qos(6)
    channel.consume("kept")
    got = channel.deliveries(6)
    for number in (0, 2, 3):
        channel.ack(got[number].tag)
    channel.deliveries(3)
    # An ack is on disk with the next group or within a second: a confirm after it tells so.
    channel.declare("later", durable=True)
    publish(channel, "later", b"x")
    channel = yield
    assert channel.becomes("kept", 7)
    back = [channel.must_get("kept") for _ in range(7)]
    assert [m.body for m in back] == [b"1", b"4", b"5", b"6", b"7", b"8", b"9"]
    assert [m.redelivered for m in back] == [True] * 6 + [False]


@scenario
def acked_messages_stay_away(channel: Channel) -> Scenario:
    channel.declare("kept", durable=True)
    publish(channel, "kept", *(b"%d" % number for number in range(100)))
    assert len(channel.drain("kept")) == 100
    publish(channel, "kept", b"last")
    channel = yield
    assert channel.drain("kept") == [b"last"]


@scenario
def purged_messages_stay_away(channel: Channel) -> Scenario:
    channel.declare("kept", durable=True)
    publish(channel, "kept", b"1", b"2")
    assert channel.purge("kept") == 2
    publish(channel, "kept", b"3")
    channel = yield
    assert channel.drain("kept") == [b"3"]


@scenario
def a_committed_transaction_comes_back(channel: Channel) -> Scenario:
    for queue in ("from", "to"):
        channel.declare(queue, durable=True)
    publish(channel, "from", b"job")
    worker = channel.client.channel()
    worker.tx_select()
    message = worker.must_get("from", no_ack=False)
    worker.publish(b"done", key="to", delivery_mode=2)
    worker.ack(message.tag)
    worker.tx_commit()
    worker.publish(b"never", key="to", delivery_mode=2)
    worker.round_trip()
    channel = yield
    assert (channel.drain("from"), channel.drain("to")) == ([], [b"done"])


@scenario
def priorities_come_back(channel: Channel) -> Scenario:
    channel.declare("ranked", {"x-max-priority": 9}, durable=True)
    for priority in (1, 9, 5, 9, 1):
        publish(channel, "ranked", b"%d" % priority, priority=priority)
    channel = yield
    assert channel.drain("ranked") == [b"9", b"9", b"5", b"1", b"1"]


@scenario
def streams_come_back_with_their_offsets(channel: Channel) -> Scenario:
    channel.declare("news", {"x-queue-type": "stream"}, durable=True)
    publish(channel, "news", b"0", b"1", b"2")
    channel = yield
    assert channel.count("news") == 3
    publish(channel, "news", b"3")
    assert channel.count("news") == 4  # offsets that a kill left out don't count
    channel.qos(10)
    channel.consume("news", arguments={"x-stream-offset": "first"})
    got = channel.deliveries(4)
    assert [m.body for m in got] == [b"0", b"1", b"2", b"3"]
    offsets = [m.headers["x-stream-offset"] for m in got]
    assert offsets[:3] == [0, 1, 2] and offsets[3] >= 3


@scenario
def delivery_counts_survive(channel: Channel) -> Scenario:
    channel.declare("tried", {"x-queue-type": "quorum", "x-delivery-limit": 5}, durable=True)
    publish(channel, "tried", b"x")
    for _ in range(2):
        channel.reject(channel.must_get("tried", no_ack=False).tag, requeue=True)
    assert channel.becomes("tried", 1)
    publish(channel, "tried", b"y")  # its confirm says that the counts are on disk too
    channel = yield
    message = channel.must_get("tried")
    assert (message.headers["x-delivery-count"], message.headers["x-acquired-count"]) == (2, 2)


@scenario
def dead_letters_come_back_where_they_went(channel: Channel) -> Scenario:
    channel.declare("grave", durable=True)
    channel.declare(
        "short",
        {
            "x-max-length": 1,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "grave",
        },
        durable=True,
    )
    publish(channel, "short", b"1", b"2", b"3")
    assert channel.becomes("grave", 2)
    publish(channel, "grave", b"last")
    channel = yield
    dead = channel.must_get("grave")
    assert (dead.body, dead.headers["x-death"][0]["reason"]) == (b"1", "maxlen")
    assert channel.drain("grave") == [b"2", b"last"]
    assert channel.drain("short") == [b"3"]


@scenario
def messages_that_expire_while_the_broker_is_down_are_gone(channel: Channel) -> Scenario:
    channel.declare("kept", durable=True)
    publish(channel, "kept", b"brief", expiration="100")
    publish(channel, "kept", b"lasting")
    channel = yield
    assert channel.drain("kept") == [b"lasting"]


@scenario
def delayed_messages_survive(channel: Channel) -> Scenario:
    channel.declare_exchange(
        "later", "x-delayed-message", {"x-delayed-type": "direct"}, durable=True
    )
    channel.declare("kept", durable=True)
    channel.bind("kept", "later", "key")
    channel.confirm()
    channel.publish(b"x", key="key", exchange="later", delivery_mode=2, headers={"x-delay": 1500})
    channel.confirmed(1)
    assert channel.count("kept") == 0
    channel = yield
    assert channel.must_get("kept").body == b"x"


@scenario
def policies_come_back(channel: Channel) -> Scenario:
    """`definitions` has one that bounds this queue, and is not loaded again."""
    channel.declare("ruled", durable=True)
    publish(channel, "ruled", b"1", b"2", b"3", b"4")
    assert channel.becomes("ruled", 2)
    channel = yield
    channel.publish(b"5", key="ruled")
    assert channel.becomes("ruled", 2)
    assert channel.drain("ruled") == [b"4", b"5"]


@scenario
def a_restart_of_a_broker_with_much_to_remember_is_whole(channel: Channel) -> Scenario:
    names = [f"queue-{number}" for number in range(200)]
    for name in names:
        channel.declare(name, durable=True)
        channel.bind(name, "amq.topic", f"{name}.#")
    sender = channel.client.channel()
    sender.confirm()
    for name in names:
        sender.publish(name.encode(), key=f"{name}.x", exchange="amq.topic", delivery_mode=2)
    sender.confirmed(200)
    channel = yield
    assert [channel.must_get(name).body.decode() for name in names] == names


# -- the two restarted


def definitions(folder: Path) -> Path:
    """A vhost for each story, for the first life only: what it brought comes back by itself."""
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    written = {
        "users": [{"name": "guest", "password": "guest", "tags": "administrator"}],
        "vhosts": [{"name": name} for name in ("/", *SCENARIOS)],
        "permissions": [{"user": "guest", "vhost": name, **everything} for name in SCENARIOS],
        "policies": [
            {
                "vhost": policies_come_back.__name__,
                "name": "short",
                "pattern": "^ruled$",
                "apply-to": "queues",
                "definition": {"max-length": 2},
            }
        ],
    }
    path = folder / "definitions.json"
    path.write_text(json.dumps(written))
    return path


class RestartedBroker:
    """One broker, ended once; the scenarios begun before, and where to go on with them."""

    def __init__(self, folder: Path, end: signal.Signals) -> None:
        self.begun: dict[str, Scenario] = {}
        self.failed: dict[str, BaseException] = {}
        self.clients: list[Client] = []
        self._data = folder / "data"
        with Broker(self._data, "--definitions", str(definitions(folder))) as broker:
            for name in SCENARIOS:
                self._begin(name, broker.address("amqp"))
            broker.process.send_signal(end)
            for client in self.clients:
                with suppress(Refused, Gone, OSError):
                    client.wait(lambda: None)  # until the broker has said goodbye, or is gone
                client.drop()
            broker.stop(end)

    def _begin(self, name: str, address: Address) -> None:
        client = Client(address, vhost=name)
        self.clients.append(client)  # what it holds stays in its hands
        try:
            self.begun[name] = SCENARIOS[name](client.channel())
            next(self.begun[name])
        except BaseException as failure:
            self.failed[name] = failure

    def again(self) -> Broker:
        return Broker(self._data)


@pytest.fixture(scope="module", params=ENDS)
def restarted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RestartedBroker, Address]]:
    both = RestartedBroker(tmp_path_factory.mktemp("restarted"), ENDS[request.param])
    with both.again() as broker:
        yield both, broker.address("amqp")


@pytest.mark.ottermq_only("a broker of the test's own")
@pytest.mark.parametrize("name", SCENARIOS)
def test_after_a_restart(restarted: tuple[RestartedBroker, Address], name: str) -> None:
    both, address = restarted
    if name in both.failed:
        raise both.failed[name]
    with Client(address, vhost=name) as client, suppress(StopIteration):
        both.begun[name].send(client.channel())
