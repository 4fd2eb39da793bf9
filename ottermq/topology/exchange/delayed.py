"""x-delayed-message: routes as the type its argument names; the engine holds messages back.

A message's x-delay header says whether and how long; a `Route` only says that the header counts.
"""

from ottermq.errors import PreconditionFailed
from ottermq.topology.values import Table

DELAYED_TYPE = "x-delayed-message"
ARGUMENT = "x-delayed-type"


def inner_type(arguments: Table) -> str:
    inner = arguments.get(ARGUMENT)
    if inner == DELAYED_TYPE:
        raise PreconditionFailed(
            f"Invalid argument, '{DELAYED_TYPE}' can't be used for '{ARGUMENT}'"
        )
    if not isinstance(inner, str):
        raise PreconditionFailed(
            f"Invalid argument, '{ARGUMENT}' must be an existing exchange type"
        )
    return inner
