"""The effective settings of a queue: its arguments and the policies on it, merged."""

from dataclasses import dataclass
from typing import Any

from ottermq.topology.arguments import age_ms, is_name
from ottermq.topology.policy import LIMITS
from ottermq.topology.queue import Queue, QueueType
from ottermq.topology.values import Table, shown

DELIVERY_LIMIT = 20  # of a quorum queue for which nobody said another


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """All settings that the engine needs. None: no limit, not set."""

    type: QueueType
    message_ttl_ms: int | None = None
    expires_ms: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: str = "drop-head"
    dlx: str | None = None
    dlrk: str | None = None
    dl_strategy: str = "at-most-once"
    delivery_limit: int = -1  # -1: none
    max_priority: int | None = None
    single_active: bool = False
    consumer_timeout_ms: int | None = None
    max_age_ms: int | None = None
    segment_size: int | None = None
    filter_size: int | None = None
    legal_hold: bool = False


def settings_of(queue: Queue, policy: Table) -> QueueSettings:
    """policy: as `policy.merged` has it."""
    arguments = queue.arguments
    if not policy and len(arguments) == 1 and queue.type is QueueType.CLASSIC:
        return PLAIN  # its type is all it was declared with: by far the most

    def look_up(name: str, *, policy_first: bool = False) -> Any:
        argument, ruled = arguments.get("x-" + name), policy.get(name)
        if argument is None or ruled is None:
            return argument if ruled is None else ruled
        resolve = LIMITS.get(name)
        return resolve(ruled, argument) if resolve else (ruled if policy_first else argument)

    is_quorum = queue.type is QueueType.QUORUM
    overflow = look_up("overflow", policy_first=is_quorum) or "drop-head"
    if is_quorum and overflow == "reject-publish-dlx":
        overflow = "drop-head"  # quorum queues don't know it, and RabbitMQ only warns
    dlx = _text(look_up("dead-letter-exchange"))
    dlrk = _text(look_up("dead-letter-routing-key"))
    if not all(text is None or is_name(text) for text in (dlx, dlrk)):
        dlx = dlrk = None  # taken by an older version: there is no such place
    strategy = look_up("dead-letter-strategy") if is_quorum and dlx is not None else None
    if overflow != "reject-publish":
        strategy = None  # at-least-once can't drop a head
    limit = _delivery_limit(look_up("delivery-limit")) if is_quorum else -1
    age = look_up("max-age")
    return QueueSettings(
        type=queue.type,
        message_ttl_ms=look_up("message-ttl"),
        expires_ms=look_up("expires"),
        max_length=look_up("max-length"),
        max_length_bytes=look_up("max-length-bytes"),
        overflow=shown(overflow),
        dlx=dlx,
        dlrk=dlrk,
        dl_strategy=strategy or "at-most-once",
        delivery_limit=limit,
        max_priority=arguments.get("x-max-priority") or None,
        single_active=arguments.get("x-single-active-consumer", False),
        consumer_timeout_ms=look_up("consumer-timeout"),
        max_age_ms=None if age is None else age_ms(shown(age)),
        segment_size=look_up("stream-max-segment-size-bytes", policy_first=True),
        filter_size=look_up("stream-filter-size-bytes", policy_first=True),
        legal_hold=policy.get("legal-hold", False),
    )


PLAIN = QueueSettings(QueueType.CLASSIC)


def _text(value: Any) -> str | None:
    return None if value is None else shown(value)


def _delivery_limit(value: Any) -> int:
    """RabbitMQ takes anything as x-delivery-limit, and what is no number for the default."""
    if not isinstance(value, int) or isinstance(value, bool):
        return DELIVERY_LIMIT
    return max(value, -1)
