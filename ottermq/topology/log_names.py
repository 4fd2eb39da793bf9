"""Names of the logs that a queue lies on, and that a delayed exchange's messages wait on.

| log               | of                                      |
|-------------------|-----------------------------------------|
| `jobs`            | a queue; of a priority queue priority 0 |
| `jobs␀1` … `jobs␀9` | its other priorities                  |
| `␀delay␀later`    | the delayed exchange `later`            |

No name that a client can give holds a zero byte.
"""

ZERO = "\0"
DELAY_PREFIX = "\0delay\0"


def logs_of_queue(name: str, max_priority: int) -> list[str]:
    return [name, *(f"{name}{ZERO}{priority}" for priority in range(1, max_priority + 1))]


def log_of_delayed(exchange: str) -> str:
    return DELAY_PREFIX + exchange


def delayed_exchange(log: str) -> str | None:
    """None: it is the log of a queue."""
    return log.removeprefix(DELAY_PREFIX) if log.startswith(DELAY_PREFIX) else None


def queue_and_priority(log: str) -> tuple[str, int]:
    name, _, priority = log.partition(ZERO)
    return name, int(priority) if priority.isdigit() else 0
