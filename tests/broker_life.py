"""One life of a broker, up to its kill: what the crash tests of both protocols have in common."""

import random
import signal
import threading
import time
from collections.abc import Callable, Sequence

from tests.amqp.wire import Gone as AmqpGone
from tests.brokers import Broker
from tests.kafka.raw_client import Gone as KafkaGone

ENDINGS = (AmqpGone, KafkaGone, OSError)
PATIENCE = 20.0


def live(
    broker: Broker,
    acts: Sequence[Callable[[], None]],
    has_moved: Callable[[], bool],
    chance: random.Random,
) -> None:
    """Each act has a thread and goes on for as long as the broker lives: until something has come
    of them, and a while longer."""
    failures: list[BaseException] = []
    killed = threading.Event()

    def guarded(act: Callable[[], None]) -> None:
        try:
            act()
            if not killed.is_set():
                failures.append(EOFError(f"{act} ended before the broker did"))
        except BaseException as failure:
            if not (killed.is_set() and isinstance(failure, ENDINGS)):
                failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    limit = time.monotonic() + PATIENCE
    while not has_moved() and not failures and time.monotonic() < limit:
        time.sleep(0.005)
    time.sleep(chance.uniform(0, 0.2))
    killed.set()
    broker.stop(signal.SIGKILL)
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
