"""The way of a message: from exchange to exchange until only queues are left."""

from dataclasses import dataclass

from ottermq.topology.exchange import Destination, Exchange, Message
from ottermq.topology.queue import Queue
from ottermq.topology.vhost import VHost


@dataclass(frozen=True, slots=True)
class Route:
    queues: tuple[Queue, ...]
    cacheable: bool  # exchange and routing key alone led here
    delayed: bool  # the exchange is an x-delayed-message one: look at the x-delay header first


def walk(vhost: VHost, start: Exchange, message: Message) -> Route:
    """Each exchange is passed once, so circles end."""
    queues: dict[Queue, None] = {}
    cacheable = True
    seen = {start}
    todo = [start]
    while todo:
        exchange = todo.pop()
        cacheable = cacheable and exchange.router.by_key
        for there in _from(vhost, exchange, message):
            if isinstance(there, Queue):
                queues[there] = None
            elif there not in seen:
                seen.add(there)
                todo.append(there)
    return Route(tuple(queues), cacheable, start.delayed)


def _from(vhost: VHost, exchange: Exchange, message: Message) -> list[Destination]:
    if exchange.is_default:  # every queue is bound to it by its name
        return [vhost.queues[key] for key in message.keys if key in vhost.queues]
    found = list(exchange.router.match(message))
    if not found and exchange.alternate is not None:
        alternate = vhost.exchanges.get(exchange.alternate)
        return [alternate] if alternate else []
    return found
