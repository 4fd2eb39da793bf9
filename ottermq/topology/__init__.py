"""The broker's model: vhosts, exchanges, bindings, queue definitions, arguments and policies.

Pure rules, no sockets; what is durable lives in data/meta.db. RabbitMQ 4.x is the measure, down to
the error texts. The pieces:

    topology.py            the rules: declare, delete, bind, unbind, policies; look-ups; routes
    graph.py               the moving parts, and which routes a change touches
    change.py              a change that is done in memory and not yet on disk
    pending_changes.py     its way there
    routing.py             the way of a message: bindings, exchange to exchange, alternates
    exchange/              the exchange types, one per file
    queue.py               a queue as declared
    arguments.py           its x-arguments
    policy.py              policies, operator policies
    settings.py            the settings in force for a queue
    effective_settings.py  worked out of arguments and policies, and kept
    vhost.py               a vhost
    log_names.py           a queue's logs, by name
    names.py, values.py    small words
    metadb.py              meta.db and its group commit
    sql.py, restore.py     the durable part and back

How a protocol uses it
------------------

    with MetaDb(data) as db:
        topology = restore(db)                       # blocks: at the start, in a thread

Every call that changes something acts in memory at once, or raises an error of ottermq/errors.py
and has changed nothing (`errors.reply_of(error)` is the AMQP code and text). It returns a `Change`,
which must be saved before it is answered:

    change = topology.declare_queue("/", "orders", durable=True, arguments={...})
    await topology.pending.save(change)              # one fsync or less, shared with others
    change.queue, change.created                     # → declare-ok

`save` also waits, where needed, for what another connection declared a moment ago and what isn't on
disk yet: call it always, also when `created` is False. When the disk refuses, `save` has undone the
change and raises (`ottermq.wal.errors.NoSpace`, `StorageFailure`). `save(change, also=statements)`
puts more rows into the same commit, those of a queue's log (so does `change.statements += rows`):

    change = topology.declare_queue(...)             # nothing may be awaited between these
    logs, rows = store.reserve([name], vhost=vhost) if change.created else ([], [])
    await topology.pending.save(change, also=rows)   # on failure: store.discard(log)

    change = topology.delete_queue(...)
    await topology.pending.save(change, also=[Catalog.removal(log.id)])
    store.discard(log)                               # a log without a row is gone: don't wait

Don't await between a change and its save. An await there loses nothing: changes reach the disk in
the order they happened, an older one with the next that is saved.


    declare_exchange(vhost, name, type, *, durable, auto_delete, internal, arguments) → .exchange
    passive_exchange(vhost, name) → Exchange         404, or 403 for the default exchange
    delete_exchange(vhost, name, *, if_unused)       none there: no error, .exchange is None
    declare_queue(vhost, name, *, durable, exclusive, auto_delete, arguments, connection) → .queue
    queue(vhost, name, connection) → Queue           404; 405 if another connection's; also for the
                                                     passive declaration, get, consume, purge
    find_queue(vhost, name), find_exchange(...)      or None, no check
    delete_queue(vhost, name, connection)            none there: no error, .queue is None
    remove(queues)                                   of any owner: expiry, auto-delete, end of
                                                     a connection: remove(owned_by(connection))
    bind / unbind(vhost, source, destination, key, arguments, *, kind="queue", connection)
                                                     kind="exchange" for exchange to exchange
    create_vhost, delete_vhost, set_policy, clear_policy, set_parameter
    vhost(name) → VHost                              530 if there is none
    check_room = auth.limits.check_queues            set it: asked before a new queue is made
    publishable(vhost, exchange) → Exchange          404; 403 for an internal one
    route(vhost, exchange, key, headers, properties, also=cc_keys)
                                                     → Route(queues, cacheable, delayed)
    effective(queue) → QueueSettings                 arguments and policies, merged
    consumer arguments: arguments.py, `check_consumer`

`connection` is any int that is the connection's own. `change.removed` lists all queues that went by
it (of a vhost: many; `queues.delete_vhost` and `auth.delete_vhost` do the rest). Deleting is
answered after `save`; the engine drops the log after that. Meanwhile the name may be declared
again: that queue needs a log of its own, not the one that is on its way out.

What depends on it
------------------

    topology.on_change.append(lambda exchange_ids: ...)   routes from these may have changed
    topology.on_settings.append(lambda queues: ...)       `effective` of these has changed

Listeners are called inside the call that changes, after it is done in memory, and again when it is
undone. `upstream(exchange)` is the set that a change of that exchange touches: itself and all that
lead to it, by binding or as alternate. Ids of exchanges and queues are never reused in a process.
Default exchange: queues coming and going touch its id, too.
"""

from ottermq.topology.change import Change, Statement
from ottermq.topology.exchange import Binding, Exchange
from ottermq.topology.metadb import MetaDb
from ottermq.topology.policy import Policy
from ottermq.topology.queue import Queue, QueueType
from ottermq.topology.restore import restore
from ottermq.topology.routing import Route
from ottermq.topology.settings import QueueSettings
from ottermq.topology.topology import Topology
from ottermq.topology.vhost import VHost, VHostOptions

__all__ = [
    "Binding",
    "Change",
    "Exchange",
    "MetaDb",
    "Policy",
    "Queue",
    "QueueSettings",
    "QueueType",
    "Route",
    "Statement",
    "Topology",
    "VHost",
    "VHostOptions",
    "restore",
]
