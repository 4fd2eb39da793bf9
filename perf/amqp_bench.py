"""OtterMQ beside RabbitMQ and the two ceilings, in one run: `make bench ARGS="amqp"`."""

from collections.abc import Sequence

from perf import comparison, rabbitmq, tables
from perf.comparison import Comparison
from perf.contest import SERVERS
from perf.scenarios import SCENARIOS


def missing(broker: str) -> str | None:
    if broker == "rabbitmq" and not rabbitmq.installed():
        return "RabbitMQ isn't installed (apt install rabbitmq-server)"
    return None


AMQP = Comparison(
    "amqp",
    __doc__ or "",
    ("ottermq", "rabbitmq", "relay", "durable"),
    SCENARIOS,
    SERVERS,
    missing,
    tables.AMQP,
    "Messages",
)


def main(arguments: Sequence[str]) -> None:
    comparison.run(AMQP, arguments)
