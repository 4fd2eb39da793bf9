"""Counters and gauges as Prometheus reads them (text exposition format 0.0.4).

# HELP ottermq_connections Open connections, of all protocols.
# TYPE ottermq_connections gauge
ottermq_connections 3
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

GAUGE, COUNTER = "gauge", "counter"

Labels = Mapping[str, object]


class Metric(NamedTuple):
    name: str
    kind: str
    help: str
    samples: Iterable[tuple[Labels, float]]


def _one(kind: str, name: str, help: str, value: float) -> Metric:
    return Metric(f"ottermq_{name}", kind, help, [({}, value)])


gauge, counter = partial(_one, GAUGE), partial(_one, COUNTER)


def exposition(metrics: Iterable[Metric]) -> str:
    lines = []
    for name, kind, help, samples in metrics:
        lines += [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{_labels(labels)} {value:.15g}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(str(text))}"' for name, text in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
