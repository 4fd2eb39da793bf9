"""What serves the admin port and the health port, made of a running broker."""

from collections.abc import Awaitable, Callable, Mapping

import trio

from ottermq.admin import metrics
from ottermq.admin.api import respond_with as respond_with_api
from ottermq.admin.context import AdminContext
from ottermq.admin.guard import Guard
from ottermq.admin.http import HttpServer, Respond
from ottermq.admin.messages import Answer, Request
from ottermq.admin.pages import ONLY_HEALTH, PAGES, Sources, respond_with

API = "/api"
Serve = Callable[[trio.SocketStream], Awaitable[str]]


def services_of(context: AdminContext) -> Mapping[str, Serve]:
    read = metrics.reader(context.engine, context.store, context.kafka_metrics)
    sources = Sources.of(context.store, read, context.kafka.context.topics.hidden)
    guard = Guard(
        context.auth.users, lambda: context.config().admin, context.config().listen.admin.host
    )
    pages, api = respond_with(sources, guard, PAGES), respond_with_api(context, guard)
    return {
        "admin": HttpServer(_by_path(pages, api)).serve,
        "health": HttpServer(respond_with(sources, guard, ONLY_HEALTH)).serve,
    }


def _by_path(pages: Respond, api: Respond) -> Respond:
    async def respond(request: Request) -> Answer:
        is_api = request.path == API or request.path.startswith(API + "/")
        return await (api if is_api else pages)(request)

    return respond
