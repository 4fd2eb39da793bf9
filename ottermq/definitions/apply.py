"""A definitions file brought into force. Twice is the same as once.

Exchanges and queues that are there stay as they are, even if the file says otherwise: that is
RabbitMQ's way, and it keeps a file that is loaded at each start from stopping the broker. Users,
permissions and policies become what the file says. Users and permissions that an earlier load
brought and the file no longer has are taken back (ottermq/auth/defined.py); queues, exchanges,
bindings, vhosts and policies are not, for messages may depend on them.

The topology's part is one commit, the logs of new queues with it. Users and permissions follow,
each on disk before the next. Changes have lines in the audit log.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Protocol

import trio

from ottermq.auth import Auth, Permission, TopicPermission
from ottermq.auth.defined import PERMISSIONS, TOPIC_PERMISSIONS, USERS, Entry
from ottermq.definitions.acts import Acts
from ottermq.definitions.records import (
    BindingRecord,
    Definitions,
    DefinitionsError,
    ExchangeRecord,
    QueueRecord,
    UserRecord,
    VHostRecord,
)
from ottermq.errors import OtterError
from ottermq.topology.change import Change
from ottermq.topology.topology import Topology
from ottermq.topology.vhost import PLAIN_VHOST

OF_A_FILE = Acts("definitions")


class Running(Protocol):
    """ottermq.queue_runtime.Queues of a broker that serves already."""

    def settings_later(self) -> AbstractContextManager[None]:
        """Policies that change in here count once all of it is done."""

    def declared(self, change: Change) -> None: ...

    async def save(self, *changes: Change) -> None: ...


async def apply(
    definitions: Definitions,
    topology: Topology,
    auth: Auth,
    queues: Running | None = None,
    acts: Acts = OF_A_FILE,
    *,
    takes_back: bool = True,
) -> None:
    """queues: new queues go into the engine at once; at the start, all of them do later. acts: with
    the source that the audit log names. takes_back: as a file does that is loaded at each start.

    DefinitionsError: what the rules refuse, line by line; then the topology is as it was.
    """
    # A TTL that came before the queue for its dead letters would lose them.
    with queues.settings_later() if queues else nullcontext():
        done = _apply_to_topology(definitions, topology)
        if queues:
            for change in done:
                queues.declared(change)
    if queues:
        await queues.save(*done)
    else:
        await topology.pending.save(*done)
    acts.of_topology(done)
    await _apply_to_auth(definitions, auth, acts)
    if takes_back:
        await _take_back(definitions, auth, acts)


def _apply_to_topology(definitions: Definitions, topology: Topology) -> list[Change]:
    """All of it, or nothing."""
    done: list[Change] = []
    errors: list[str] = []
    for place, step in _steps(definitions, topology):
        try:
            done.append(step())
        except OtterError as error:
            errors.append(f"{place}: {error}")
    if errors:
        for change in reversed(done):
            topology.pending.undo(change)
        raise DefinitionsError(errors)
    return done


def _steps(
    definitions: Definitions, topology: Topology
) -> Iterator[tuple[str, Callable[[], Change]]]:
    """In the order they build on each other, each with its place in the file."""
    for at, vhost in enumerate(definitions.vhosts):
        yield f"vhosts[{at}]", partial(_put_vhost, topology, vhost)
    for at, each in enumerate(definitions.parameters):
        put = topology.set_parameter
        yield f"parameters[{at}]", partial(put, each.vhost, each.component, each.name, each.value)
    for at, known in enumerate(definitions.global_parameters):
        put_global = topology.set_global_parameter
        yield f"global_parameters[{at}]", partial(put_global, known.name, known.value)
    for at, policy in enumerate(definitions.policies):
        yield f"policies[{at}]", partial(topology.set_policy, policy)
    for at, exchange in enumerate(definitions.exchanges):
        yield f"exchanges[{at}]", partial(_put_exchange, topology, exchange)
    for at, queue in enumerate(definitions.queues):
        yield f"queues[{at}]", partial(_put_queue, topology, queue)
    for at, binding in enumerate(definitions.bindings):
        yield f"bindings[{at}]", partial(_put_binding, topology, binding)


def _put_vhost(topology: Topology, record: VHostRecord) -> Change:
    if record.name in topology.vhosts and record.options == PLAIN_VHOST:
        return Change()  # named only, or for its limits
    return topology.create_vhost(record.name, record.options)


def _put_exchange(topology: Topology, record: ExchangeRecord) -> Change:
    if topology.find_exchange(record.vhost, record.name):
        return Change()
    return topology.declare_exchange(
        record.vhost,
        record.name,
        record.type,
        durable=record.durable,
        auto_delete=record.auto_delete,
        internal=record.internal,
        arguments=record.arguments,
        by_operator=True,
    )


def _put_queue(topology: Topology, record: QueueRecord) -> Change:
    if topology.find_queue(record.vhost, record.name):
        return Change()
    return topology.declare_queue(
        record.vhost,
        record.name,
        durable=record.durable,
        auto_delete=record.auto_delete,
        arguments=record.arguments,
        by_operator=True,
    )


def _put_binding(topology: Topology, record: BindingRecord) -> Change:
    if not record.source:
        return Change()  # to the default exchange: every queue has it
    return topology.bind(
        record.vhost,
        record.source,
        record.destination,
        record.key,
        record.arguments,
        kind="exchange" if record.to_exchange else "queue",
    )


async def _apply_to_auth(definitions: Definitions, auth: Auth, acts: Acts) -> None:
    for at, user in enumerate(definitions.users):
        with _placed(f"users[{at}]"):
            before = auth.users.get(user.name)
            await put_user(auth, user)
            acts.of_user(before, auth.users.existing(user.name))
    for vhost in definitions.vhosts:
        for limit, most in vhost.limits.items():
            with _placed(f"limits of vhost '{vhost.name}'"):
                await auth.limits.set_vhost(vhost.name, limit, most)
    for at, each in enumerate(definitions.permissions):
        with _placed(f"permissions[{at}]"):
            entry = Permission(each.user, each.vhost, each.configure, each.write, each.read)
            if await auth.permissions.set(entry):
                acts.record("permission.set", each.user, vhost=each.vhost)
    for at, topic in enumerate(definitions.topic_permissions):
        with _placed(f"topic_permissions[{at}]"):
            granted = TopicPermission(
                topic.user, topic.vhost, topic.exchange, topic.write, topic.read
            )
            if await auth.permissions.set_topic(granted):
                where = {"vhost": topic.vhost, "exchange": topic.exchange}
                acts.record("topic_permission.set", topic.user, **where)


async def _take_back(definitions: Definitions, auth: Auth, acts: Acts) -> None:
    now = [Entry(USERS, user.name) for user in definitions.users]
    now += [Entry(PERMISSIONS, each.user, each.vhost) for each in definitions.permissions]
    now += [
        Entry(TOPIC_PERMISSIONS, each.user, each.vhost, each.exchange)
        for each in definitions.topic_permissions
    ]
    for section, user, vhost, exchange in auth.defined.withdrawn(now, definitions.sections):
        if section == PERMISSIONS and await auth.permissions.clear(user, vhost):
            acts.record("permission.clear", user, vhost=vhost)
        elif section == TOPIC_PERMISSIONS:
            if await auth.permissions.clear_topic(user, vhost, exchange):
                acts.record("topic_permission.clear", user, vhost=vhost, exchange=exchange)
        elif section == USERS and await auth.delete_user(user):
            acts.record("user.delete", user)
    await auth.defined.remember(now, definitions.sections)


@contextmanager
def _placed(place: str) -> Iterator[None]:
    try:
        yield
    except OtterError as error:
        raise DefinitionsError([f"{place}: {error}"]) from None


async def put_user(auth: Auth, user: UserRecord) -> None:
    if user.password is None:
        await auth.users.put_hashed(
            user.name, user.password_hash or "", user.hashing_algorithm, user.tags
        )
    elif await _is_password(auth, user.name, user.password):
        await auth.users.set_tags(user.name, user.tags)
    else:
        await auth.users.put(user.name, user.password, user.tags)
    for limit, most in user.limits.items():
        await auth.limits.set_user(user.name, limit, most)


async def _is_password(auth: Auth, name: str, password: str) -> bool:
    """A password put again is a change that closes the user's connections."""
    user = auth.users.get(name)
    if user is None:
        return False
    return await trio.to_thread.run_sync(user.secrets.stored.matches, password.encode())
