"""Random lives of a topology: memory and disk never part, whatever is refused in between.

Things are declared, bound and deleted, saved at once or later and in any order, and now and then
the disk is full. After each life: what is durable in memory is what a reopen finds, nothing points
to what is gone, and every exchange routes as one made anew from its bindings would.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio
from hypothesis import given
from hypothesis import strategies as st

from ottermq.errors import OtterError
from ottermq.topology import Change, MetaDb, Policy, Queue, Topology, restore
from ottermq.topology.exchange import Message, router_for
from ottermq.topology.values import frozen
from ottermq.wal.errors import LogError
from tests.topology.flaky import Flaky, full

VHOSTS = st.sampled_from(["/", "v"])
QUEUES = st.sampled_from(["q1", "q2", "q3"])
EXCHANGES = st.sampled_from(["x1", "x2", "x3"])
SOURCES = EXCHANGES | st.sampled_from(["amq.topic", "amq.headers"])
KEYS = st.sampled_from(["a", "a.b", "#", "*.b"])
ARGUMENTS = st.sampled_from([{}, {"x-match": "any", "h": 1}])
FLAGS = st.booleans()


def call(name: str, *given: Any, **named: Any) -> st.SearchStrategy[tuple[str, Any, Any]]:
    return st.tuples(st.just(name), st.tuples(*given), st.fixed_dictionaries(named))


def policies(operator: bool) -> st.SearchStrategy[Policy]:
    definitions: st.SearchStrategy[dict[str, Any]]
    definitions = st.sampled_from([{"max-length": 3}, {"expires": 9}])
    if not operator:
        definitions |= st.just({"alternate-exchange": "x2"})
    return st.builds(
        Policy,
        VHOSTS,
        st.sampled_from(["p1", "p2"]),
        st.sampled_from(["1$", "."]),
        definitions,
        operator=st.just(operator),
    )


ALTERNATES = st.sampled_from([{}, {"alternate-exchange": "x1"}, {"alternate-exchange": ""}])
ENDS = (VHOSTS, SOURCES, QUEUES, KEYS, ARGUMENTS)
EXCHANGE_ENDS = (VHOSTS, SOURCES, EXCHANGES, KEYS, ARGUMENTS)
TO_EXCHANGE = st.just("exchange")
EVENTS = st.one_of(
    call("declare_queue", VHOSTS, QUEUES, durable=FLAGS, auto_delete=FLAGS),
    call("declare_queue", VHOSTS, QUEUES, exclusive=st.just(True), connection=st.just(1)),
    call("delete_queue", VHOSTS, QUEUES, st.just(1)),
    call(
        "declare_exchange",
        VHOSTS,
        EXCHANGES,
        st.sampled_from(["fanout", "topic", "direct", "headers"]),
        durable=FLAGS,
        auto_delete=FLAGS,
        arguments=ALTERNATES,
    ),
    call("delete_exchange", VHOSTS, EXCHANGES),
    call("bind", *ENDS, connection=st.just(1)),
    call("bind", *EXCHANGE_ENDS, kind=TO_EXCHANGE),
    call("unbind", *ENDS, connection=st.just(1)),
    call("unbind", *EXCHANGE_ENDS, kind=TO_EXCHANGE),
    call("create_vhost", VHOSTS),
    call("delete_vhost", st.just("v")),
    call("set_policy", policies(False) | policies(True)),
    call("clear_policy", VHOSTS, st.sampled_from(["p1", "p2"]), operator=FLAGS),
    st.tuples(st.just("save"), st.integers(0, 5), st.booleans()),  # which one; is the disk full
)


def durable(topology: Topology) -> dict[str, Any]:
    """All that is to last, as plain values."""
    found: dict[str, Any] = {}
    for name, vhost in topology.vhosts.items():
        exchanges = list(vhost.exchanges.values())
        found[name] = {
            "queues": {
                each.name: (each.auto_delete, frozen(each.arguments), topology.effective(each))
                for each in vhost.queues.values()
                if each.durable
            },
            "exchanges": {
                each.name: (each.type, each.auto_delete, frozen(each.arguments), each.alternate)
                for each in exchanges
                if each.durable
            },
            "bindings": {
                (each.source.name, isinstance(each.destination, Queue), each.destination.name,
                 each.key, frozen(each.arguments))
                for source in exchanges
                for each in source.bindings.values()
                if each.durable
            },
            "policies": vhost.policies,
            "operator": vhost.operator_policies,
        }  # fmt: skip
    return found


def check_sound(topology: Topology) -> None:
    for vhost in topology.vhosts.values():
        for exchange in vhost.exchanges.values():
            anew = router_for(exchange.type, exchange.arguments)
            for binding in exchange.bindings.values():
                there = binding.destination
                place = vhost.queues if isinstance(there, Queue) else vhost.exchanges
                assert place[there.name] is there
                assert binding in topology.bindings_to(there)
                anew.add(binding)
            for key in ("a", "a.b", "c"):
                message = Message((key,), {"h": 1}, {})
                assert set(exchange.router.match(message)) == set(anew.match(message))
            if exchange.alternate is not None:
                assert exchange in vhost.alternates[exchange.alternate]
        named = {each for users in vhost.alternates.values() for each in users}
        assert named <= set(vhost.exchanges.values())
        for queue in vhost.queues.values():
            assert topology.effective(queue) == _settings_anew(topology, queue)


def _settings_anew(topology: Topology, queue: Queue) -> Any:
    topology._settings.forget(queue)
    return topology.effective(queue)


async def live(data: Path, events: list[tuple[str, Any, Any]]) -> None:
    with MetaDb(data) as db:
        topology = restore(db)
        flaky = Flaky(db)
        unsaved: list[Change] = []
        for name, given, named in events:
            if name == "save":
                flaky.refuses = full() if named else None
                await save_one(topology, unsaved, given)
                flaky.refuses = None
                check_sound(topology)
                continue
            act: Callable[..., Change] = getattr(topology, name)
            try:
                unsaved.append(act(*given, **named))
            except OtterError:
                continue  # against the rules, and nothing has changed
            for queue in unsaved[-1].removed:
                assert topology.find_queue("/", queue.name) is not queue
        # Whoever is left saves too, at the same time.
        async with trio.open_nursery() as nursery:
            for change in unsaved:
                nursery.start_soon(save_or_not, topology, change)
        check_sound(topology)
        expected = durable(topology)
    with MetaDb(data) as db:
        again = restore(db)
        check_sound(again)
        assert durable(again) == expected


async def save_one(topology: Topology, unsaved: list[Change], which: int) -> None:
    if unsaved:
        await save_or_not(topology, unsaved.pop(which % len(unsaved)))


async def save_or_not(topology: Topology, change: Change) -> None:
    try:
        await topology.pending.save(change)
    except LogError:
        assert (change.maker or change).undone


@given(st.lists(EVENTS, max_size=40))
def test_memory_and_disk_never_part(events: list[tuple[str, Any, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trio.run(live, Path(folder), events)
