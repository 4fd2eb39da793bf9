"""The garbage collector, kept away from what is made once and stays."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """The collector needn't look at what is made here, now or later: of modules that are loaded
    it would look at all, again and again; with 100,000 queues, each of its long rounds would take
    a tenth of a second."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
