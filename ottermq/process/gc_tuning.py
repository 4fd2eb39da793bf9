"""The garbage collector, kept away from objects that are made once and stay."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """The collector needn't look at objects that are made here, now or later: it would look at all
    of the loaded modules, again and again; with 100,000 queues, each of its long rounds would take
    a tenth of a second."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
