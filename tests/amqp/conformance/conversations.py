"""Random conversations with a broker: what is asked, step by step, of ours and of RabbitMQ
(test_beside_rabbitmq, whose Side has each operation under its name).
"""

from typing import Any

from hypothesis import strategies as some

QUEUES = ("q0", "q1", "q2")
EXCHANGES = ("x0", "x1", "amq.direct", "")
KEYS = ("a", "a.b", "q0", "q1")

Operation = tuple[Any, ...]

ARGUMENTS: list[dict[str, Any]] = [
    {},
    {"x-max-length": 2},
    {"x-max-length": 2, "x-overflow": "reject-publish"},
    {"x-max-length-bytes": 3},
    {"x-max-priority": 3},
    {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q1"},
    {"x-dead-letter-exchange": "x0"},
    {"x-max-length": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q2"},
    {
        "x-max-length": 1,
        "x-overflow": "reject-publish-dlx",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "q1",
    },
    {"x-single-active-consumer": True},
    {"x-single-active-consumer": True, "x-max-length": 2, "x-max-priority": 2},
    {
        "x-max-length": 2,
        "x-max-priority": 2,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "q1",
    },
    {
        "x-max-length-bytes": 3,
        "x-overflow": "reject-publish-dlx",
        "x-max-priority": 1,
        "x-dead-letter-exchange": "x1",
    },
    {"x-message-ttl": 0, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q2"},
    {"x-max-length": -1},
    {"x-overflow": "spill"},
    {"x-mine": 1},
]
PROPERTIES: list[dict[str, Any]] = [
    {},
    {},
    {},
    {"delivery_mode": 2},
    {"expiration": "600000"},
    {"user_id": "guest"},
    {"headers": {"h": 1}},
    {"headers": {"h": 2, "g": "y"}},
]
WRONG: list[dict[str, Any]] = [
    {"expiration": "soon"},
    {"user_id": "somebody"},
    {"reply_to": "amq.rabbitmq.reply-to"},
]
FLAGS: list[dict[str, bool]] = [{}, {"durable": True}, {"auto_delete": True}, {"exclusive": True}]

queue = some.sampled_from(QUEUES)
exchange = some.sampled_from(EXCHANGES)
own_exchange = some.sampled_from(EXCHANGES[:2])
key = some.sampled_from(KEYS)
maybe = some.booleans()

declares = some.tuples(
    some.just("declare"), queue, some.sampled_from(ARGUMENTS), some.sampled_from(FLAGS)
)
topology = some.one_of(
    declares,
    some.tuples(
        some.just("delete"),
        queue,
        some.sampled_from([{}, {}, {"if_empty": True}, {"if_unused": True}]),
    ),
    some.tuples(
        some.just("declare_exchange"),
        own_exchange,
        some.sampled_from(["direct", "fanout", "topic", "headers"]),
        some.sampled_from([None, None, None, "x0", "x1"]),
        some.sampled_from([{}, {}, {"durable": True}, {"auto_delete": True}, {"internal": True}]),
    ),
    some.tuples(
        some.just("delete_exchange"), exchange, some.sampled_from([{}, {"if_unused": True}])
    ),
    some.tuples(some.just("bind"), queue, exchange, key),
    some.tuples(some.just("unbind"), queue, exchange, key),
    some.tuples(some.just("bind_exchange"), own_exchange, own_exchange, key),
    some.tuples(some.just("unbind_exchange"), own_exchange, own_exchange, key),
    some.tuples(
        some.just("bind_headers"),
        queue,
        own_exchange,
        some.sampled_from(
            [{"x-match": "all", "h": 1}, {"x-match": "any", "h": 2, "g": "x"}, {"x-match": "odd"}]
        ),
    ),
)
publish = some.tuples(
    some.just("publish"),
    some.sampled_from(["", "", "", "x0", "x1", "amq.direct"]),
    some.sampled_from(["q0", "q0", "q1", "q2", "a", "a.b"]),
    maybe,
    some.sampled_from([None, None, 1, 3, 9]),
    some.sampled_from([{}, {}, {}, {"CC": "q1"}, {"BCC": "q2"}, {"CC": "q0", "BCC": "q1"}]),
    some.sampled_from(PROPERTIES),
)
wrong = some.tuples(
    some.just("publish"),
    some.just(""),
    queue,
    maybe,
    some.none(),
    some.just({}),
    some.sampled_from(WRONG),
)
burst = some.tuples(
    some.just("burst"), some.sampled_from(["q0", "q0", "q1", "q2"]), some.integers(2, 7)
)
transact = some.tuples(
    some.just("transact"),
    some.sampled_from(["q0", "q1", "nobody"]),
    some.integers(0, 3),
    queue,
    some.sampled_from(["ack", "reject", "return"]),
    maybe,
)
reads = some.one_of(
    some.tuples(some.just("get"), queue, maybe),
    some.tuples(
        some.just("settle"),
        some.sampled_from(["ack", "nack", "reject"]),
        some.integers(0, 5),
        maybe,
        maybe,
    ),
    some.tuples(some.just("purge"), queue),
    some.tuples(some.just("recover")),
    some.tuples(some.just("close_channel")),
)
consumes = some.one_of(
    some.tuples(
        some.just("consume"),
        queue,
        some.sampled_from(["strict", "other"]),
        some.integers(0, 3),
        some.sampled_from([None, None, 0, 1, -1]),
        some.sampled_from([{}, {}, {"exclusive": True}]),
    ),
    some.tuples(
        some.just("consume"),
        queue,
        some.just("loose"),
        some.just(0),
        some.sampled_from([None, 1]),
        some.just({"no_ack": True}),
    ),
    some.tuples(some.just("cancel"), some.sampled_from(["strict", "other", "loose"])),
)
sequences = some.tuples(
    some.lists(declares, min_size=1, max_size=3),
    some.lists(
        some.one_of(topology, publish, publish, wrong, burst, reads, reads, transact, consumes),
        max_size=40,
    ),
).map(lambda parts: [*parts[0], *parts[1]])

# To queues that are there: a refusal ends the transaction, and most would be about nothing. To one
# that dead-letters, the other being where that leads: what a commit sends to a queue in two ways
# comes there as RabbitMQ's processes happen to run.
posting = some.tuples(
    some.just("publish"),
    some.sampled_from(["", "", "", "amq.direct"]),
    some.sampled_from(["q0", "q0", "q0", "a"]),
    maybe,
    some.sampled_from([None, None, 1, 3]),
    some.just({}),
    some.sampled_from(PROPERTIES),
)
getting = some.tuples(some.just("get"), some.sampled_from(["q0", "q0", "q1"]), some.just(False))
settling = some.tuples(
    some.just("settle"),
    some.sampled_from(["ack", "nack", "reject", "reject"]),
    some.integers(0, 5),
    maybe,
    some.sampled_from([False, False, True]),
)
commit = some.tuples(some.just("commit"))
others = some.sampled_from(
    [("recover",), ("recover",), ("rollback",), ("rollback",), ("purge", "q0"), ("close_channel",)]
)
STAYING = ARGUMENTS[:5]  # nothing leads from there to another queue
ACCEPTED = ARGUMENTS[:14]  # no declaration with these is refused
ORDERED = [  # dead letters of both brokers come in the same order, also if many come at once
    each
    for each in ACCEPTED
    if not {"x-max-length", "x-max-priority", "x-dead-letter-exchange"} <= each.keys()
]
LEADING = [each for each in ORDERED if each.get("x-dead-letter-routing-key") == "q1"]
TAKEN_UP = [("get", "q0", False)] * 3  # else there is seldom more than one to settle
# Counts are compared after each step; what is where, and in which order, once more at the end.
READ_OUT = [("commit",), *[("get", name, True) for name in ("q0", "q1") for _ in range(8)]]
transactions = some.tuples(
    some.sampled_from([*ORDERED, *LEADING * 4]).map(
        lambda arguments: ("declare", "q0", arguments, {})
    ),
    some.sampled_from(STAYING).map(lambda arguments: ("declare", "q1", arguments, {})),
    some.lists(posting, min_size=3, max_size=6),
    commit,
    some.lists(
        some.one_of(posting, *[getting] * 2, *[settling] * 4, others, commit),
        min_size=20,
        max_size=40,
    ),
).map(lambda parts: [parts[0], parts[1], *parts[2], parts[3], *TAKEN_UP, *parts[4], *READ_OUT])
