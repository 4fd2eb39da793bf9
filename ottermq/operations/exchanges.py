"""Exchanges declared and deleted."""

from ottermq.operations.caller import Caller, State, check
from ottermq.topology import Change
from ottermq.topology.exchange.exchange import ALTERNATE
from ottermq.topology.values import Table


def declare(
    state: State,
    caller: Caller,
    name: str,
    type: str,
    *,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: Table,
) -> Change:
    vhost, topology = caller.vhost, state.topology
    if name:  # the default exchange is refused by the topology, in any case
        check(state, caller, "configure", "exchange", name)
    alternate = arguments.get(ALTERNATE)
    if isinstance(alternate, str) and topology.find_exchange(vhost, name) is None:
        check(state, caller, "read", "exchange", name)
        check(state, caller, "write", "exchange", alternate)
    change = topology.declare_exchange(
        vhost,
        name,
        type,
        durable=durable,
        auto_delete=auto_delete,
        internal=internal,
        arguments=arguments,
    )
    state.queues.declared(change)
    return change


def delete(state: State, caller: Caller, name: str, *, if_unused: bool) -> Change:
    if name and not name.startswith("amq."):  # those are refused by the topology, in any case
        check(state, caller, "configure", "exchange", name)
    return state.topology.delete_exchange(caller.vhost, name, if_unused=if_unused)
