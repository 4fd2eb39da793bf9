"""bind and unbind, queue to exchange and exchange to exchange: the permissions they need."""

from dataclasses import dataclass
from typing import Literal

from ottermq.errors import AccessRefused
from ottermq.operations.acts import Act
from ottermq.operations.caller import Caller, State, check
from ottermq.topology import Change, Exchange, QueueType
from ottermq.topology.super_streams import may_join
from ottermq.topology.values import Table

REPLY_TO = "amq.rabbitmq.reply-to"


@dataclass(frozen=True)
class Ends:
    source: str
    kind: Literal["queue", "exchange"]
    destination: str
    key: str
    arguments: Table

    def act(self, name: str) -> Act:
        return Act(name, self.destination, source=self.source, key=self.key)


def change_binding(state: State, caller: Caller, ends: Ends, *, unbind: bool = False) -> Change:
    """Write access to where messages go, read access to where they come from."""
    topology = state.topology
    if ends.kind == "queue" and ends.destination.startswith(REPLY_TO):
        raise AccessRefused("cannot bind or unbind to a volatile (direct reply-to) queue")
    check(state, caller, "write", ends.kind, ends.destination)
    if ends.source:  # the default exchange is refused by the topology, in any case
        check(state, caller, "read", "exchange", ends.source)
    exchange = topology.find_exchange(caller.vhost, ends.source)
    if exchange is not None and exchange.type == "topic":
        state.auth.permissions.check_topic(
            caller.whose(), caller.vhost, ends.source, "read", ends.key
        )
    if not unbind:
        _check_super_stream(state, caller, exchange, ends)
    act = topology.unbind if unbind else topology.bind
    return act(
        caller.vhost,
        ends.source,
        ends.destination,
        ends.key,
        ends.arguments,
        kind=ends.kind,
        connection=caller.id,
    )


def _check_super_stream(
    state: State, caller: Caller, exchange: Exchange | None, ends: Ends
) -> None:
    """A stream of a super stream is read, trimmed and deleted as a part of it by Kafka's clients,
    who ask for rights on the super stream's name: only a user who may configure the stream may
    put it there."""
    queue = state.topology.find_queue(caller.vhost, ends.destination)
    if ends.kind != "queue" or exchange is None or queue is None:
        return
    if queue.type is QueueType.STREAM and may_join(exchange, queue):
        check(state, caller, "configure", "queue", ends.destination)
