"""Less in `make test`, which somebody waits for; all of it in `make check-all` and in soaks."""

import os
from collections.abc import Iterable
from typing import Any

import pytest

ALL = bool(os.environ.get("OTTERMQ_LONG") or os.environ.get("OTTERMQ_SOAK"))


def examples(many: int) -> int:
    """How many examples a property is tried on: a third of them in `make test`. `make check-all`
    runs what is marked `hypothesis` with all."""
    return many if ALL else max(many // 3, 3)


def shortened(cases: Iterable[Any], to: int) -> list[Any]:
    """A test's parameters: the first of them in `make test`, the others in `make check-all`."""
    return [
        case if at < to else pytest.param(case, marks=pytest.mark.long)
        for at, case in enumerate(cases)
    ]
