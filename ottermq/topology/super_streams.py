"""Super streams: an exchange whose streams are the partitions of one topic.

An exchange that says `x-super-stream: true` may have streams of any name, in the order that
`x-stream-partition-order` gives its bindings. Any other exchange is one for the streams that are
called after it: `clicks-0`, `clicks-1` and so on.
"""

from ottermq.topology import Binding, Exchange, Queue, QueueType

SUPER_STREAM = "x-super-stream"
ORDER = "x-stream-partition-order"


def is_part_of(stream: str, topic: str) -> bool:
    """By its name, `topic-3`."""
    before, dash, number = stream.rpartition("-")
    return bool(dash) and before == topic and number.isascii() and number.isdigit()


def may_be_super(exchange: Exchange) -> bool:
    """A cheap check: an exchange with 100,000 bindings isn't searched at each of them."""
    return not exchange.is_default and (_says_so(exchange) or len(exchange.bindings) < 1024)


def may_join(exchange: Exchange, queue: Queue) -> bool:
    """Would that stream, bound to it, become a partition?"""
    return _says_so(exchange) or is_part_of(queue.name, exchange.name)


def _says_so(exchange: Exchange) -> bool:
    return bool(exchange.arguments.get(SUPER_STREAM))


def parts_of(exchange: Exchange) -> list[Queue]:
    """A super stream's partitions in order; none if it is no super stream."""
    if not may_be_super(exchange):
        return []
    streams = {
        binding.destination: binding
        for binding in reversed(exchange.bindings.values())
        if isinstance(binding.destination, Queue) and binding.destination.type is QueueType.STREAM
    }
    if _says_so(exchange):
        return sorted(streams, key=lambda queue: _place(streams[queue]))
    named = {queue.name: queue for queue in streams}
    found: list[Queue] = []
    while (queue := named.get(f"{exchange.name}-{len(found)}")) is not None:
        found.append(queue)
    return found


def _place(binding: Binding) -> tuple[int, int, str]:
    order = binding.arguments.get(ORDER)
    if isinstance(order, int):
        return (0, order, "")
    name = binding.destination.name
    suffix = name.rpartition("-")[2]
    return (1, int(suffix), name) if suffix.isdecimal() else (2, 0, name)
