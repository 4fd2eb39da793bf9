"""Policies: settings laid over the queues and exchanges whose names match.

Of the policies that match, the one of the highest priority counts, alone; an operator policy is
chosen the same way and the two are merged, the stricter limit first. A queue's effective settings
merge that with its own arguments: the lower of two limits, else the argument.

A policy that sets anything a queue's type doesn't take is no match for that queue.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottermq.errors import InvalidRequest
from ottermq.patterns import BAD_PATTERN, compiled
from ottermq.topology.arguments import (
    MAX_STREAM_SEGMENT,
    OVERFLOWS,
    STRATEGIES,
    age_ms,
    is_name,
)
from ottermq.topology.values import Table, shown

APPLY_TO: Final[dict[str, frozenset[str]]] = {
    "all": frozenset(("classic", "quorum", "stream", "exchange")),
    "queues": frozenset(("classic", "quorum", "stream")),
    "classic_queues": frozenset(("classic",)),
    "quorum_queues": frozenset(("quorum",)),
    "streams": frozenset(("stream",)),
    "exchanges": frozenset(("exchange",)),
}

RETRIES: Final = ("disabled", "all", "failed", "returned")


def _number(least: int | None = 0, most: int | None = None) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, int)
        and not isinstance(value, bool)
        and (least is None or value >= least)
        and (most is None or value <= most)
    )


def _one_of(*choices: object) -> Callable[[Any], bool]:
    return lambda value: not isinstance(value, bool) and value in choices


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _name(value: Any) -> bool:
    return isinstance(value, str) and is_name(value)


# Key → what it must be, and what a value that isn't is called.
KEYS: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "alternate-exchange": (_text, "alternate exchange name"),
    "consumer-disconnected-timeout": (_number(), "consumer disconnected timeout"),
    "consumer-timeout": (_number(), "consumer timeout"),
    "dead-letter-exchange": (_name, "dead letter exchange name"),
    "dead-letter-routing-key": (_name, "dead letter routing key"),
    "dead-letter-strategy": (_one_of(*STRATEGIES), "dead letter strategy"),
    "message-ttl": (_number(), "message TTL"),
    "expires": (_number(1), "queue expiry"),
    "max-length": (_number(), "maximum length"),
    "max-length-bytes": (_number(), "maximum length in bytes"),
    "max-in-memory-length": (_number(), "maximum memory in bytes"),
    "max-in-memory-bytes": (_number(), "maximum memory in bytes"),
    "queue-mode": (_one_of("default", "lazy"), "queue-mode value"),
    "queue-version": (_one_of(1, 2), "queue-version value"),
    "overflow": (_one_of(*OVERFLOWS), "overflow value"),
    "delivery-limit": (_number(None), "delivery limit"),
    # Of 4.3. They load, and nothing follows: what is returned is ready again at once.
    "delayed-retry-type": (_one_of(*RETRIES), "delayed retry type"),
    "delayed-retry-min": (_number(), "delayed retry min"),
    "delayed-retry-max": (_number(), "delayed retry max"),
    "legal-hold": (lambda value: isinstance(value, bool), "legal hold: true or false"),
    "max-age": (lambda value: _text(value) and age_ms(value) is not None, "max age"),
    "stream-max-segment-size-bytes": (_number(0, MAX_STREAM_SEGMENT), "segment size"),
    "stream-filter-size-bytes": (_number(16, 255), "filter size. Valid range is 16-255"),
    "queue-leader-locator": (
        _one_of("client-local", "balanced", "random", "least-leaders"),
        "queue leader locator value",
    ),
    "initial-cluster-size": (_number(), "cluster size"),
    "target-group-size": (_number(), "target count of replicas"),
    "queue-master-locator": (_text, "master locator"),
    # Mirroring is gone from RabbitMQ; definitions that still name it load, and nothing follows.
    "ha-mode": (_text, "ha-mode"),
    "ha-params": (lambda value: True, "ha-params"),
    "ha-sync-mode": (_text, "ha-sync-mode"),
    "ha-sync-batch-size": (_number(), "ha-sync-batch-size"),
    "ha-promote-on-shutdown": (_text, "ha-promote-on-shutdown"),
    "ha-promote-on-failure": (_text, "ha-promote-on-failure"),
}

OPERATOR_KEYS: Final = frozenset((
    "expires", "message-ttl", "max-length", "max-length-bytes", "max-in-memory-length",
    "max-in-memory-bytes", "delivery-limit", "queue-version", "overflow", "target-group-size",
    "delayed-retry-type", "delayed-retry-min", "delayed-retry-max", "ha-mode", "ha-params",
    "ha-sync-mode", "legal-hold",
))  # fmt: skip

_MIRRORING = frozenset(key for key in KEYS if key.startswith("ha-")) | {"queue-master-locator"}
_OF_STREAMS = frozenset(("max-age", "stream-max-segment-size-bytes", "initial-cluster-size"))
_OF_QUORUMS = frozenset((
    "delivery-limit", "dead-letter-strategy", "max-in-memory-length", "max-in-memory-bytes",
    "target-group-size",
))  # fmt: skip
NOT_FOR: Final[dict[str, frozenset[str]]] = {
    "classic": _OF_STREAMS | _OF_QUORUMS,
    "quorum": _OF_STREAMS | _MIRRORING | {"queue-mode"},
    "stream": _OF_QUORUMS | _MIRRORING | {
        "expires", "message-ttl", "dead-letter-exchange", "dead-letter-routing-key", "max-length",
        "overflow", "queue-mode",
    },
    "exchange": frozenset(),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Policy:
    """InvalidRequest: it can't be. `operator` ones may set limits only."""

    vhost: str
    name: str
    pattern: str
    definition: Table
    priority: int = 0
    apply_to: str = "all"
    operator: bool = False
    regex: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        what = f"policy '{self.name}' in vhost '{self.vhost}'"
        try:
            object.__setattr__(self, "regex", compiled(self.pattern))
        except BAD_PATTERN as error:
            raise InvalidRequest(
                f"{what}: {self.pattern} is no regular expression: {error}"
            ) from None
        if self.apply_to not in APPLY_TO:
            raise InvalidRequest(
                f"{what}: apply-to '{self.apply_to}' unrecognised; "
                f"should be one of: {', '.join(APPLY_TO)}"
            )
        if not self.definition:
            raise InvalidRequest(f"{what}: no policy provided")
        known = OPERATOR_KEYS if self.operator else KEYS.keys()
        for key, value in self.definition.items():
            if key not in known:
                raise InvalidRequest(f"{what}: {key} is not a recognised policy setting")
            fits, called = KEYS[key]
            if not fits(value):
                raise InvalidRequest(f"{what}: {shown(value)} is not a valid {called}")

    def matches(self, kind: str, name: str) -> bool:
        """kind: a queue's type, or `exchange`."""
        return (
            kind in APPLY_TO[self.apply_to]
            and NOT_FOR[kind].isdisjoint(self.definition)
            and self.regex.search(name) is not None
        )


def best(policies: Iterable[Policy], kind: str, name: str) -> Policy | None:
    """Of equal priority the first by name: a restart must not choose another."""
    found = None
    for policy in policies:
        if (found is None or _rank(policy) < _rank(found)) and policy.matches(kind, name):
            found = policy
    return found


def _rank(policy: Policy) -> tuple[int, str]:
    return (-policy.priority, policy.name)


def merged(policy: Policy | None, operator: Policy | None) -> Table:
    """The settings both come to."""
    if policy is None or operator is None:
        one = policy or operator
        return one.definition if one else {}
    out: dict[str, Any] = {**policy.definition, **operator.definition}
    for key in policy.definition.keys() & operator.definition.keys():
        resolve = LIMITS.get(key)
        if resolve:
            out[key] = resolve(policy.definition[key], operator.definition[key])
    return out


def _stricter_delivery_limit(one: Any, other: Any) -> Any:
    """Below zero means none. An argument may be anything: what is no number doesn't count."""
    if not isinstance(other, int) or isinstance(other, bool):
        return one
    return max(one, other) if one < 0 or other < 0 else min(one, other)


LIMITS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "message-ttl": min,
    "expires": min,
    "max-length": min,
    "max-length-bytes": min,
    "max-in-memory-length": min,
    "max-in-memory-bytes": min,
    "delivery-limit": _stricter_delivery_limit,
    "consumer-timeout": min,
    "legal-hold": max,  # one of them is enough
    "max-age": lambda one, other: min(one, other, key=lambda age: age_ms(age) or 0),
}
