"""Queues whose messages die, for test_power_loss.py: python -m tests.engine.expiring_child SEED

Messages go to queues that hand on what dies, by a TTL, by a limit, or both, some by way of another
such queue, and in the end to `kept`. What is confirmed is marked. The child ends without closing.
"""

import os
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from ottermq.wal import Options
from tests.engine.plane import Client, Confirm, Plane, content
from tests.wal import power_loss_child

OPTIONS: Options = replace(power_loss_child.OPTIONS, hot_buffer_size=4 << 20)
TTL = 40  # ms: a part dies in this life, a part is dead when the next begins
KEPT = "kept"
LIMITED = "c-limit"

#: A start adds queues by their names' order: sources before and behind their targets.
QUEUES: dict[str, tuple[str, dict[str, Any]]] = {
    "a-ttl": (KEPT, {"message_ttl_ms": TTL}),
    "b-chain": ("z-ttl", {"message_ttl_ms": TTL // 2}),
    LIMITED: (KEPT, {"max_length": 3}),
    "y-both": ("a-ttl", {"message_ttl_ms": TTL, "max_length": 5}),
    "z-ttl": (KEPT, {"message_ttl_ms": TTL}),
}


def add_queues(plane: Plane) -> None:
    for name in sorted((*QUEUES, KEPT)):
        target, options = QUEUES.get(name, (None, {}))
        if target is not None:
            options = {**options, "dead_letter_exchange": b"", "dead_letter_key": target.encode()}
        plane.queue(name, **options)


class Publisher:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.sent = self.confirmed = 0
        assert client.engine.channel_confirm(client.id, 1)
        self._marks = os.open(os.environ["OTTERMQ_SHIM_MARK"], os.O_WRONLY)

    def publish(self, chance: random.Random, count: int) -> None:
        burst = b""
        for _ in range(count):
            self.sent += 1
            body = b"%d " % self.sent + b"x" * chance.choice((0, 100, 3000))
            burst += content(body, chance.choice(list(QUEUES)))
        self.client.feed(burst)

    def confirm(self) -> None:
        while self.confirmed < self.sent:
            self.confirmed = self.client.take(kind=Confirm).tag
            os.write(self._marks, b"%d" % self.confirmed)


def main(seed: int) -> None:
    chance = random.Random(seed)
    plane = Plane(Path(os.environ["OTTERMQ_SHIM_ROOT"]), OPTIONS)
    add_queues(plane)
    publisher = Publisher(plane.client())
    for _ in range(40):
        publisher.publish(chance, chance.randint(1, 12))
        publisher.confirm()
        if chance.random() < 0.2:
            plane.store.checkpoint()
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
