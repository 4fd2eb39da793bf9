"""The keeper of retention: walks the logs now and then and trims what its rules let go.

It works in small slices and sleeps long between them, so that however many logs there are it
takes a fiftieth of a core; the log itself removes the files, as modestly
(csrc/store/segment_delete.c). When a walk takes longer than the interval, the next one follows
at once. On a full disk it walks every second: publishers wait for the space that consumers free.

To look at a log is to wait for the engine's tick, which takes a millisecond under full load and
no CPU of ours. So other tasks get their turn after a millisecond of waiting, too: declarations
once took 35 ms instead of 5 while a walk went by some hundred idle queues.
"""

import logging
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cache
from itertools import groupby

import trio

from ottermq import eventlog
from ottermq.config import Config, Retention
from ottermq.contained import contained, is_failure
from ottermq.wal import Log, LogError, Store
from ottermq.wal.catalog import INTERNAL_VHOST
from ottermq.wal.log import SegmentStat
from ottermq.wal.removal_reasons import RemovalReason
from ottermq.wal.retention import Policy, expired

SLICE = 0.002  # seconds of CPU before it sleeps
BREATH = 0.001  # seconds, waiting or not, before others get their turn
SHARE = 50  # it works one part in so many of the time
HURRY = 1.0  # seconds between two walks on a full disk
AT_A_TIME = 64  # segments of a log: one with thousands of them is no reason to hold up the rest


# A log's own limits, instead of the configuration: a stream's arguments and policies.
Limits = Callable[[Log], Policy | None]


async def keep(store: Store, config: Config, limits: Limits = lambda log: None) -> None:
    """Until cancelled."""
    interval = config.wal.retention.check_interval.total_seconds()
    while True:
        began = trio.current_time()
        with contained("retention failed"):
            await _walk(store, config, limits)
            await trio.to_thread.run_sync(store.forget_removed)
        await _pause(store, began + interval)


async def _pause(store: Store, until: float) -> None:
    while True:
        await trio.sleep(max(0.0, min(HURRY, until - trio.current_time())))
        if trio.current_time() >= until or store.stat().no_space:
            return


async def _walk(store: Store, config: Config, limits: Limits) -> None:
    began, at = time.thread_time(), time.monotonic()
    for _ in _trim_all(store, config, limits):
        worked = time.thread_time() - began
        if worked >= SLICE:
            await trio.sleep(worked * (SHARE - 1))
            began, at = time.thread_time(), time.monotonic()
        elif time.monotonic() - at >= BREATH:
            await trio.lowlevel.checkpoint()
            at = time.monotonic()


def _trim_all(store: Store, config: Config, limits: Limits) -> Iterator[None]:
    """One log after the other; control returns after each, and after each handful of segments."""
    for logs in store.used():
        yield
        for log in logs:
            # The internal ones are compacted, not forgotten.
            while log.vhost != INTERNAL_VHOST and _trim_some(log, config, limits):
                yield
            yield


def _trim_some(log: Log, config: Config, limits: Limits) -> bool:
    """Is there more to do?"""
    try:
        return trim(log, config, limits(log))
    except LogError as error:
        # Deleted meanwhile, or the store is fenced: the next walk comes anyway.
        eventlog.debug("log not trimmed", log=log.name, error=error)
        return False
    except BaseException as error:
        if not is_failure(error):
            raise
        eventlog.failure("retention failed", error, log=log.name)
        return False


def trim(log: Log, config: Config, limit: Policy | None = None) -> bool:
    """Let go what the rules say, `limit` before the configuration. Is there more?"""
    segments = log.segments(AT_A_TIME)
    floor = log.cursor().floor if log.has_cursor else None
    if not segments and not floor:
        return False
    policy = limit or policy_for(config.for_queue(log.name).retention)
    if floor and policy.drops_settled and not policy.legal_hold:
        _begin_where_records_are(log, floor, segments)
    total = sum(segment.size for segment in segments)
    if policy.max_size is not None and len(segments) == AT_A_TIME:
        total = log.stat().size_bytes
    gone = expired(segments, total, floor, log.now_ms(), policy)
    if not gone:
        return False
    # One trim a run of the same rule: the record of what was removed names it.
    for rule, run in groupby(gone, key=lambda each: each.rule):
        going = [each.segment for each in run]
        log.trim(going[-1].next_offset, rule)
        _tell(log, rule, going)
    return len(gone) == AT_A_TIME


def _begin_where_records_are(log: Log, floor: int, segments: list[SegmentStat]) -> None:
    """Records settled before they came to a segment are gone already. A log that still claimed to
    begin with them would let Kafka's consumers wait there for ever."""
    start = log.stat().start_offset
    if start >= floor:
        return
    if segments:
        first = segments[0].base_offset
    else:
        kept = log.read(start, max_bytes=1, nowait=True)
        first = kept[0].base_offset if kept else floor
    if first > start:
        log.trim(min(first, floor), RemovalReason.SETTLED)


def _tell(log: Log, rule: RemovalReason, segments: list[SegmentStat]) -> None:
    """Settled records go unnoticed; unsettled ones that go by a limit are worth a line."""
    eventlog.log(
        logging.DEBUG if rule is RemovalReason.SETTLED else logging.INFO,
        "segments expired",
        log=log.name,
        rule=rule.label,
        segments=len(segments),
        first=segments[0].base_offset,
        last=segments[-1].next_offset - 1,
        bytes=sum(segment.size for segment in segments),
    )


@cache
def policy_for(retention: Retention) -> Policy:
    age = retention.max_age
    return Policy(
        by_floor=retention.min_offset_based,
        max_age_ms=None if age is None else age // timedelta(milliseconds=1),
        max_size=retention.max_size,
        keep_settled=retention.keep_settled,
        legal_hold=retention.legal_hold,
    )
