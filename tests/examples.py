"""How many examples a property is tried on: a third of them in `make test`, which somebody waits
for; all in `make check-all`, which runs what is marked `hypothesis`, and in soaks."""

import os

ALL = bool(os.environ.get("OTTERMQ_LONG") or os.environ.get("OTTERMQ_SOAK"))


def examples(many: int) -> int:
    return many if ALL else max(many // 3, 3)
