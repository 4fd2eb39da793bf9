"""The pages beside the API: health for probes, metrics for Prometheus, what our own command asks.

/health     for everybody, under any name
/metrics    for everybody; names in it need a login
all others  a login
"""

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from functools import partial
from http import HTTPStatus
from typing import NamedTuple

import trio

from ottermq import auditlog
from ottermq.admin.guard import Guard
from ottermq.admin.http import Respond
from ottermq.admin.messages import Answer, Problem, Request, unauthorized
from ottermq.admin.paths import HIDDEN, UNFENCE
from ottermq.errors import AccessRefused, LoginRefused
from ottermq.wal import LogError, Store

HEALTH = "/health"


class Sources(NamedTuple):
    """The sources of the pages, called for each request."""

    trouble: Callable[[], str | None]  # why durable appends aren't taken: the store's own word
    metrics: Callable[[bool], str]  # what is counted, in Prometheus' words; with names?
    hidden: Callable[[], list[str]]  # queues that Kafka's clients can't see
    unfence: Callable[[], Awaitable[None]]  # LogError: the log can't be written, or isn't fenced
    damage: Callable[[], str | None] = lambda: None  # which records are lost or can't be read
    hindrance: Callable[[], str | None] = lambda: None  # why what was taken can't be written

    @classmethod
    def of(
        cls, store: Store, metrics: Callable[[bool], str], hidden: Callable[[], list[str]]
    ) -> "Sources":
        unfence = partial(trio.to_thread.run_sync, store.unfence)
        return cls(
            store.trouble, metrics, hidden, unfence, lambda: store.damage.reason, store.hindrance
        )


class Names(Enum):
    """Does a page show names of queues, topics, transactional ids?"""

    NONE = "no"
    MORE = "to who may know them"
    ONLY = "nothing else"


class Page(NamedTuple):
    tell: Callable[[Sources, bool], Answer]
    names: Names = Names.NONE
    checks_host: bool = True
    methods: tuple[str, ...] = ("GET", "HEAD")


class Act(NamedTuple):
    """A page that does something: for administrators, who are logged."""

    name: str
    do: Callable[[Sources], Awaitable[None]]
    checks_host: bool = True
    methods: tuple[str, ...] = ("POST",)


def _health(sources: Sources, with_names: bool) -> Answer:
    for status, reason in (
        ("refusing appends", sources.trouble()),
        ("can't write", sources.hindrance()),
        ("damaged", sources.damage()),
    ):
        if reason:
            body = {"status": status, "reason": reason}
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, body)
    return Answer(body={"status": "ok"})


PAGES: Mapping[str, Page | Act] = {
    HEALTH: Page(_health, checks_host=False),
    "/metrics": Page(lambda sources, named: Answer(body=sources.metrics(named)), Names.MORE),
    HIDDEN: Page(lambda sources, _: Answer(body={"queues": sources.hidden()}), Names.ONLY),
    UNFENCE: Act("wal.unfence", lambda sources: sources.unfence()),
}
ONLY_HEALTH = {HEALTH: PAGES[HEALTH]}


def respond_with(sources: Sources, guard: Guard, table: Mapping[str, Page | Act]) -> Respond:
    async def respond(request: Request) -> Answer:
        page = table.get(request.path)
        if page is None:
            raise Problem(HTTPStatus.NOT_FOUND, "Not Found")
        if page.checks_host:
            guard.check_host(request.header("host"))
        if request.method not in page.methods:
            allow = {"Allow": ", ".join(page.methods)}
            reason = f"only {' and '.join(page.methods)}"
            raise Problem(HTTPStatus.METHOD_NOT_ALLOWED, reason, headers=allow)
        try:
            if isinstance(page, Act):
                return await _act(request, page, sources, guard)
            return await _tell(request, page, sources, guard)
        except LoginRefused:
            raise unauthorized("wrong name or password") from None
        except AccessRefused as error:
            raise Problem(HTTPStatus.FORBIDDEN, str(error)) from None

    return respond


async def _tell(request: Request, page: Page, sources: Sources, guard: Guard) -> Answer:
    with_names = False
    if page.names is not Names.NONE:
        with_names = await guard.allows_names(request.header("authorization"), request.peer)
    if page.names is Names.ONLY and not with_names:
        raise unauthorized("a login is needed: a user with the tag monitoring")
    return page.tell(sources, with_names)


async def _act(request: Request, page: Act, sources: Sources, guard: Guard) -> Answer:
    """Log who acts. A page in a browser is refused: it may use somebody else's login."""
    if request.header("origin") is not None:
        raise Problem(HTTPStatus.FORBIDDEN, "not from a page in a browser")
    authorization = request.header("authorization")
    if authorization is None:
        raise unauthorized("a login is needed: a user with the tag administrator")
    user = await guard.administrator(authorization, request.peer)
    result, reply = auditlog.OK, Answer(body={"status": "ok"})
    try:
        await page.do(sources)
    except LogError as error:
        result, reply = str(error), Problem(HTTPStatus.CONFLICT, str(error)).answer()
    auditlog.record(page.name, user=user, peer=request.peer, what="the log", result=result)
    return reply
