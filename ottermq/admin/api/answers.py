"""From a request to its answer: the route, the login, the rule, the handler."""

import dataclasses
import gzip
from collections.abc import Iterable
from contextlib import nullcontext
from http import HTTPStatus
from inspect import isawaitable

import trio

from ottermq import auditlog
from ottermq.admin.api import (
    bindings,
    channels,
    connections,
    consumers,
    definitions,
    exchanges,
    health,
    limits,
    messages,
    nodes,
    overview,
    parameters,
    permissions,
    policies,
    queues,
    users,
    vhosts,
)
from ottermq.admin.api.call import Call
from ottermq.admin.api.errors import REFUSALS, problem_of
from ottermq.admin.api.router import SMALL, Handler, Route, Router, Rule, check_tags, check_vhost
from ottermq.admin.context import AdminContext
from ottermq.admin.guard import Guard, check_origin
from ottermq.admin.http import Respond
from ottermq.admin.messages import Answer, Problem, Request, unauthorized
from ottermq.auth import User
from ottermq.errors import LoginRefused

MODULES = (
    overview, nodes, vhosts, users, permissions, limits, queues, exchanges, bindings, consumers,
    connections, channels, policies, parameters, definitions, health, messages,
)  # fmt: skip
ROUTES: tuple[Route, ...] = tuple(route for module in MODULES for route in module.ROUTES)
STRANGER = User("")
READING = ("GET", "HEAD", "OPTIONS")
REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.CONFLICT)
WORTH_PACKING = 4096  # bytes
LARGE_AT_ONCE = 4  # bodies over SMALL: each is in memory a few times
LONG = 1 << 16  # bytes that take a thread to pack
PACKING = "gzip"


def respond_with(context: AdminContext, guard: Guard, routes: Iterable[Route] = ROUTES) -> Respond:
    router, large = Router(routes), trio.CapacityLimiter(LARGE_AT_ONCE)

    async def respond(request: Request) -> Answer:
        guard.check_host(request.header("host"))
        if request.method not in READING:
            check_origin(request)
        user = await _user(request, guard)
        try:
            answer = await answered(request, user)
        except Problem as problem:
            _note_refusal(request, user, problem)
            raise
        return await _packed(request, answer)

    async def answered(request: Request, user: User) -> Answer:
        route, path = _find(router, request, user)
        if request.method == "OPTIONS":
            return Answer(headers={"Allow": route.allowed})
        handler = route.handler(request.method)
        if handler is None:
            allow = {"Allow": route.allowed}
            reason = f"only {route.allowed}"
            raise Problem(HTTPStatus.METHOD_NOT_ALLOWED, reason, headers=allow)
        check_tags(route.rule_of(request.method), user.tags)
        call = Call(context, user, request.peer, path, request.fields(), request.headers)
        check_vhost(call, path)
        async with large if route.most > SMALL else nullcontext():
            raw = await request.read_body(route.most)
            return await _handled(handler, dataclasses.replace(call, raw=raw))

    return respond


def _note_refusal(request: Request, user: User, problem: Problem) -> None:
    """Who asked for a change that is not theirs to make; a login that failed has its own line."""
    if request.method in READING or user is STRANGER or problem.status not in REFUSED:
        return
    what = f"{request.method} {request.path}"
    auditlog.record("api.refuse", user=user.name, peer=request.peer, what=what, result=str(problem))


async def _handled(handler: Handler, call: Call) -> Answer:
    try:
        found = handler(call)
        found = await found if isawaitable(found) else found
    except REFUSALS as error:
        raise problem_of(error) from None
    return found if isinstance(found, Answer) else Answer(body=found)


def _find(router: Router, request: Request, user: User) -> tuple[Route, dict[str, str]]:
    """A stranger doesn't learn which paths there are."""
    try:
        route, path = router.find(request.path.removeprefix("/api").removeprefix("/"))
        if user is not STRANGER or route.rule is Rule.OPEN:
            return route, path
    except Problem:
        if user is not STRANGER:
            raise
    raise unauthorized("Login needed", "not_authorized")


async def _user(request: Request, guard: Guard) -> User:
    authorization = request.header("authorization")
    if authorization is None:
        return STRANGER
    try:
        return await guard.login(authorization, request.peer)
    except LoginRefused:
        raise unauthorized("Login failed", "not_authorized") from None


async def _packed(request: Request, answer: Answer) -> Answer:
    if PACKING not in (request.header("accept-encoding") or ""):
        return answer
    kind, body = answer.encoded()
    if len(body) < WORTH_PACKING or kind is None:
        return answer
    packed = await trio.to_thread.run_sync(_pack, body) if len(body) >= LONG else _pack(body)
    headers = {**answer.headers, "Content-Encoding": PACKING, "Vary": "Accept-Encoding"}
    return Answer(answer.status, packed, headers)


def _pack(body: bytes) -> bytes:
    return gzip.compress(body, compresslevel=1)
