"""The admin port. What serves it is loaded once all ports are open.

h11 and the API take longer to import than the rest of the start: clients that come before they are
there wait in the system's queue of the port. Nothing here may import them.
"""

import logging
from collections.abc import Mapping, Sequence
from importlib import import_module

import trio

from ottermq.admin.context import AdminContext
from ottermq.net import listeners
from ottermq.net.listeners import Service

MOST = 150  # connections: those that wait for their client, and some that are being answered


async def serve(context: AdminContext, opened: Mapping[str, Sequence[trio.SocketListener]]) -> None:
    """opened: the listeners of `admin` and `health`. Until cancelled."""
    services = await trio.to_thread.run_sync(import_module, "ottermq.admin.services")
    async with trio.open_nursery() as nursery:
        for name, serve_one in services.services_of(context).items():
            if name in opened:
                service = Service(name, serve_one, MOST, log_level=logging.DEBUG)
                nursery.start_soon(listeners.accept, service, list(opened[name]))
