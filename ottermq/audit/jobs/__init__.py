"""The audits, one per file. Each has

    KINDS    the kinds of findings it can have, what they mean and what to do about them
    run      Context -> Outcome

and is the module of its name, with `_` for `-`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module

from ottermq.audit.findings import Kind
from ottermq.audit.outcome import Context, Outcome


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    kinds: Mapping[str, Kind]
    run: Callable[[Context], Outcome]


def job(name: str) -> Job:
    module = import_module(f"ottermq.audit.jobs.{name.replace('-', '_')}")
    return Job(name, module.KINDS, module.run)
