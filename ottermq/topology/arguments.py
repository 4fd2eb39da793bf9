"""The x-arguments of a queue: the types that take each, its valid values, when two agree.

As RabbitMQ 4.x has it: an argument that some queue type knows is refused by the types that don't;
one that no type knows is kept without a check. The error texts are RabbitMQ's to the
letter, Erlang terms included: clients and people search for them.

One difference: classic queues take x-consumer-timeout too, as one forgotten unacked message pins
a segment of any work queue.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from ottermq.errors import PreconditionFailed
from ottermq.topology.values import Table, kind_of, same, shown

TEN_YEARS_MS = 315_360_000_000
MAX_PRIORITY = 255
LONGEST_NAME = 255  # bytes
LONGEST_AGE_MS = 1 << 53
MAX_STREAM_SEGMENT = 3_000_000_000
OVERFLOWS = ("drop-head", "reject-publish", "reject-publish-dlx")
STRATEGIES = ("at-most-once", "at-least-once")
LOCATORS = ("client-local", "balanced", "random", "least-leaders", "min-masters")
TYPES = ("classic", "quorum", "stream")
AGE_UNITS_MS = {
    "Y": 365 * 86_400_000,
    "M": 30 * 86_400_000,
    "D": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1000,
}

# A validator's complaint, as the Erlang term RabbitMQ prints; None: nothing.
Fault = str | None
Validator = Callable[[Any, Table], Fault]


def _integer(value: Any, _: Table) -> Fault:
    if isinstance(value, int) and not isinstance(value, bool):
        return None
    return f'"expected integer, got {kind_of(value)}"'


def _natural(value: Any, arguments: Table) -> Fault:
    return _integer(value, arguments) or (f"{{value_negative,{value}}}" if value < 0 else None)


def _positive(value: Any, arguments: Table) -> Fault:
    return _natural(value, arguments) or ("{value_zero,0}" if value == 0 else None)


def _duration(value: Any, arguments: Table) -> Fault:
    fault = _natural(value, arguments)
    return fault or (f"{{value_too_large,{value}}}" if value > TEN_YEARS_MS else None)


def _expires(value: Any, arguments: Table) -> Fault:
    return _integer(value, arguments) or (
        "{value_zero,0}" if value == 0 else _duration(value, arguments)
    )


def _priority(value: Any, arguments: Table) -> Fault:
    fault = _natural(value, arguments)
    return fault or (f"{{max_value_exceeded,{value}}}" if value > MAX_PRIORITY else None)


def _version(value: Any, arguments: Table) -> Fault:
    fault = _natural(value, arguments)
    return fault or (None if value == 2 else f"\"unsupported queue version '{value}'\"")


def _flag(value: Any, _: Table) -> Fault:
    return None if isinstance(value, bool) else f"{{unacceptable_type,{kind_of(value)}}}"


def _text(value: Any, _: Table) -> Fault:
    return None if isinstance(value, str | bytes) else f"{{unacceptable_type,{kind_of(value)}}}"


def _name(value: Any, arguments: Table) -> Fault:
    return _text(value, arguments) or (None if is_name(value) else "longer_than_255_bytes")


def _dead_letter_key(value: Any, arguments: Table) -> Fault:
    fault = _name(value, arguments)
    missing = "x-dead-letter-exchange" not in arguments
    return fault or ("routing_key_but_no_dlx_defined" if missing else None)


def _one_of(choices: tuple[str, ...], fault: str) -> Validator:
    def check(value: Any, arguments: Table) -> Fault:
        return _text(value, arguments) or (None if value in choices else fault)

    return check


def _queue_type(value: Any, arguments: Table) -> Fault:
    fault = _text(value, arguments)
    known = value in TYPES
    return fault or (None if known else f"\"unsupported queue type '{shown(value)}'\"")


def _age(value: Any, arguments: Table) -> Fault:
    return _text(value, arguments) or ("invalid_max_age" if age_ms(shown(value)) is None else None)


def _placement_tag(value: Any, arguments: Table) -> Fault:
    return _text(value, arguments) or (None if value else "invalid_member_placement_tag_arg")


def is_name(text: str | bytes) -> bool:
    """Short enough for an exchange, or for a routing key."""
    return len(text if isinstance(text, bytes) else text.encode()) <= LONGEST_NAME


def age_ms(text: str) -> int | None:
    """ "7D" in milliseconds; None: it is no age, or has more digits than one needs."""
    found = re.match(r"([0-9]{1,12})(?![0-9])(.*)", text, re.DOTALL)
    if not found or found[2] not in AGE_UNITS_MS or not int(found[1]):
        return None
    return min(int(found[1]) * AGE_UNITS_MS[found[2]], LONGEST_AGE_MS)


# In the order they are checked. Arguments that a type takes and that aren't here may be anything.
VALIDATORS: Final[dict[str, Validator]] = {
    "x-expires": _expires,
    "x-message-ttl": _duration,
    "x-dead-letter-exchange": _name,
    "x-dead-letter-routing-key": _dead_letter_key,
    "x-dead-letter-strategy": _one_of(STRATEGIES, "invalid_dlx_strategy"),
    "x-max-length": _natural,
    "x-max-length-bytes": _natural,
    "x-max-in-memory-length": _natural,
    "x-max-in-memory-bytes": _natural,
    "x-max-priority": _priority,
    "x-overflow": _one_of(OVERFLOWS, "invalid_overflow"),
    "x-queue-version": _version,
    "x-single-active-consumer": _flag,
    "x-consumer-timeout": _natural,
    "x-consumer-disconnected-timeout": _natural,
    "x-queue-type": _queue_type,
    "x-quorum-initial-group-size": _positive,
    "x-max-age": _age,
    "x-stream-max-segment-size-bytes": _natural,
    "x-stream-filter-size-bytes": _natural,
    "x-initial-cluster-size": _positive,
    "x-queue-leader-locator": _one_of(LOCATORS, "invalid_queue_locator_arg"),
    "x-member-placement-tag": _placement_tag,
}

# In the order they are compared.
TAKES: Final[dict[str, tuple[str, ...]]] = {
    "classic": (
        "x-expires", "x-message-ttl", "x-dead-letter-exchange", "x-dead-letter-routing-key",
        "x-max-length", "x-max-length-bytes", "x-max-priority", "x-overflow", "x-queue-mode",
        "x-queue-version", "x-single-active-consumer", "x-queue-type", "x-queue-master-locator",
        "x-queue-leader-locator", "x-consumer-timeout",
    ),
    "quorum": (
        "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy",
        "x-expires", "x-max-length", "x-max-length-bytes", "x-max-in-memory-length",
        "x-max-in-memory-bytes", "x-overflow", "x-single-active-consumer", "x-queue-type",
        "x-quorum-initial-group-size", "x-member-placement-tag", "x-delivery-limit",
        "x-message-ttl", "x-queue-leader-locator", "x-consumer-disconnected-timeout",
        "x-consumer-timeout", "x-delayed-retry-type", "x-delayed-retry-min",
        "x-delayed-retry-max",
    ),
    "stream": (
        "x-max-length-bytes", "x-queue-type", "x-max-age", "x-stream-max-segment-size-bytes",
        "x-stream-filter-size-bytes", "x-initial-cluster-size", "x-queue-leader-locator",
    ),
}  # fmt: skip
KNOWN: Final = frozenset(name for names in TAKES.values() for name in names)
REFUSES: Final = {type: KNOWN.difference(names) for type, names in TAKES.items()}


def check_queue_type(arguments: Table, label: str) -> None:
    _check_one("x-queue-type", arguments, label)


def check(type: str, arguments: Table, label: str) -> None:
    """PreconditionFailed: a queue of that type can't be declared with these."""
    for name in VALIDATORS:
        if name in arguments and name in TAKES[type]:
            _check_one(name, arguments, label)
    for name in arguments:
        if name in REFUSES[type]:
            raise PreconditionFailed(
                f"invalid arg '{name}' for {label} of queue type rabbit_{type}_queue"
            )
    if type == "stream":
        _check_stream_sizes(arguments)


def _check_one(name: str, arguments: Table, label: str) -> None:
    if name in arguments and (fault := VALIDATORS[name](arguments[name], arguments)):
        raise PreconditionFailed(f"invalid arg '{name}' for {label}: {fault}")


def _check_stream_sizes(arguments: Table) -> None:
    if arguments.get("x-stream-max-segment-size-bytes", 0) > MAX_STREAM_SEGMENT:
        raise PreconditionFailed("Exceeded max value for x-stream-max-segment-size-bytes")
    if not 16 <= arguments.get("x-stream-filter-size-bytes", 16) <= 255:
        raise PreconditionFailed("Invalid value for x-stream-filter-size-bytes")


# -- equivalence


def assert_equivalent(type: str, current: Table, received: Table, label: str) -> None:
    """Of what a queue has and what a second declaration asks for, only what its type takes."""
    assert_same_arguments(TAKES[type], current, received, label)


def assert_same_arguments(
    names: tuple[str, ...], current: Table, received: Table, label: str
) -> None:
    for name in names:
        if name in current or name in received:
            _assert_same(name, current, received, label)


def _assert_same(name: str, current: Table, received: Table, label: str) -> None:
    if name in current and name in received:
        refuse_inequivalent(name, current[name], received[name], label)
        return
    raise _inequivalent(name, label, _with_kind(name, received), _with_kind(name, current))


def refuse_inequivalent(name: str, current: object, received: object, label: str) -> None:
    if not same(current, received):
        raise _inequivalent(name, label, f"'{shown(received)}'", f"'{shown(current)}'")


def _with_kind(name: str, arguments: Table) -> str:
    if name not in arguments:
        return "none"
    value = arguments[name]
    return f"the value '{shown(value)}' of type '{kind_of(value)}'"


def _inequivalent(name: str, label: str, received: str, current: str) -> PreconditionFailed:
    return PreconditionFailed(
        f"inequivalent arg '{name}' for {label}: received {received} but current is {current}"
    )


# -- of basic.consume

CONSUMER_TAKES: Final[dict[str, tuple[str, ...]]] = {
    "classic": ("x-priority", "x-consumer-timeout"),
    "quorum": ("x-priority", "x-consumer-timeout"),
    "stream": ("x-stream-offset", "x-stream-filter", "x-stream-match-unfiltered"),
}
CONSUMER_KNOWN: Final = frozenset(name for names in CONSUMER_TAKES.values() for name in names)
CONSUMER_VALIDATORS: Final[dict[str, Validator]] = {
    "x-priority": _integer,
    "x-consumer-timeout": _natural,
}


def check_consumer(type: str, arguments: Table, label: str) -> None:
    """Of basic.consume. The stream's reader checks the value of x-stream-offset."""
    for name, validator in CONSUMER_VALIDATORS.items():
        if name in arguments and name in CONSUMER_TAKES[type]:
            fault = validator(arguments[name], arguments)
            if fault:
                raise PreconditionFailed(f"invalid arg '{name}' for {label}: {fault}")
    for name in arguments:
        if name in CONSUMER_KNOWN and name not in CONSUMER_TAKES[type]:
            raise PreconditionFailed(
                f"invalid arg '{name}' for {label} of queue type rabbit_{type}_queue"
            )
