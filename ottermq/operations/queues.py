"""Queues declared, deleted and purged."""

from ottermq.engine.engine import Engine
from ottermq.engine.types import Purged
from ottermq.errors import FeatureDenied, NotSupported, PreconditionFailed
from ottermq.operations.acts import Act
from ottermq.operations.caller import Caller, State, check
from ottermq.topology import Change, Queue, QueueType
from ottermq.topology.names import label
from ottermq.topology.values import Table, kind_of
from ottermq.wal.errors import Full

DEAD_LETTER_EXCHANGE = "x-dead-letter-exchange"


def declare(
    state: State,
    caller: Caller,
    name: str,
    *,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
    arguments: Table,
) -> Change:
    """A new one is in the engine when it returns. To find it again is a use: x-expires begins
    anew."""
    if name:
        check(state, caller, "configure", "queue", name)
    found = state.topology.find_queue(caller.vhost, name) if name else None
    if found is None:
        lasts = durable or exclusive
        _check_new(state, caller, name, arguments, lasts=lasts)
    change = state.topology.declare_queue(
        caller.vhost,
        name,
        durable=durable,
        exclusive=exclusive,
        auto_delete=auto_delete,
        arguments=arguments,
        connection=caller.id,
    )
    assert change.queue is not None
    if change.created:
        state.queues.declared(change)
    else:
        state.engine.touch(change.queue.id)
    return change


def _check_new(state: State, caller: Caller, name: str, arguments: Table, *, lasts: bool) -> None:
    """Checks that apply only to a queue that doesn't exist yet."""
    if not name:
        check(state, caller, "configure", "queue", "amq.gen-")
    if DEAD_LETTER_EXCHANGE in arguments:
        dead_letters = arguments[DEAD_LETTER_EXCHANGE]
        if not isinstance(dead_letters, str):
            raise PreconditionFailed(
                f"invalid type '{kind_of(dead_letters)}' for arg '{DEAD_LETTER_EXCHANGE}' in"
                f" {label('queue', name, caller.vhost)}"
            )
        check(state, caller, "read", "queue", name or "amq.gen-")
        check(state, caller, "write", "exchange", dead_letters)
    if not (lasts or state.settings.permit.transient_queues):
        raise FeatureDenied(
            "Feature `transient_nonexcl_queues` is deprecated and not permitted here."
        )
    queues = state.topology.vhost(caller.vhost).queues
    state.auth.limits.check_queues(caller.vhost, name, len(queues))


def declaration(queue: Queue) -> Act:
    return Act("queue.declare", queue.name, type=queue.type.value)


def delete(
    state: State, caller: Caller, name: str, *, if_unused: bool, if_empty: bool
) -> tuple[Change, int]:
    """And how many messages the queue had. None to delete is no error."""
    check(state, caller, "configure", "queue", name)
    queue = state.topology.find_queue(caller.vhost, name)
    messages = 0
    if queue is not None:
        queue.check_access(caller.id)
        state.queues.holds.refuse(queue, "deleted")
        messages = _deletable(state.engine, queue, if_unused, if_empty)
    return state.topology.delete_queue(caller.vhost, name, caller.id), messages


def _deletable(engine: Engine, queue: Queue, if_unused: bool, if_empty: bool) -> int:
    """How many messages the queue has. Only classic queues know conditions: quorum queues refuse
    them, and streams, which don't count, are deleted regardless."""
    if queue.type is QueueType.STREAM:
        return 0
    for flag, wanted in (("if-unused", if_unused), ("if-empty", if_empty)):
        if wanted and queue.type is QueueType.QUORUM:
            raise NotSupported(
                f"cannot delete {queue.label}. queue.delete operations with {flag} flag set are"
                " not supported by quorum queues"
            )
    stat = engine.queue_stat(queue.id)
    if if_empty and stat.ready:  # as RabbitMQ: what is in flight doesn't count
        raise PreconditionFailed(f"{queue.label} not empty")
    if if_unused and stat.consumers:
        raise PreconditionFailed(f"{queue.label} in use")
    return stat.ready


def purgeable(state: State, caller: Caller, name: str) -> Queue:
    """The queue, which the caller may purge."""
    check(state, caller, "read", "queue", name)
    queue = state.topology.queue(caller.vhost, name, caller.id)
    if queue.type is QueueType.STREAM:
        raise NotSupported(f"queue.purge not supported by stream queues {queue.label}")
    state.queues.holds.refuse(queue, "purged")
    return queue


def try_purge(state: State, queue: Queue) -> Purged | None:
    """None: there is no room in the WAL for it now."""
    try:
        return state.engine.purge(queue.id)
    except Full:
        return None


async def purge(state: State, caller: Caller, queue: Queue, purged: Purged | None = None) -> int:
    """How many messages went. Done when there is room, over when it is on disk. purged: what was
    tried already."""
    purged = purged or try_purge(state, queue)
    while purged is None:
        await state.queues.wait_moved()
        state.topology.queue(caller.vhost, queue.name, caller.id)  # or gone meanwhile
        purged = try_purge(state, queue)
    if purged.seq and queue.durable:
        await state.queues.wait_durable(purged.seq)
    record_purge(caller, queue, purged)
    return purged.messages


def record_purge(caller: Caller, queue: Queue, purged: Purged) -> None:
    if queue.durable:
        Act("queue.purge", queue.name, messages=purged.messages).record(caller)
