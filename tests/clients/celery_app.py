"""A Celery application; its worker is a process of its own (test_celery.py)."""

import os
from typing import Any

from celery import Celery
from celery.exceptions import Reject
from kombu import Queue

NAME = os.environ["OTTERS_QUEUE"]
DEAD = f"{NAME}-dead"
ARGUMENTS = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}

app = Celery("otters", broker=os.environ["OTTERS_BROKER"], backend="rpc://")
app.conf.update(
    task_default_queue=NAME,
    task_queues=[Queue(NAME, routing_key=NAME, max_priority=5, queue_arguments=ARGUMENTS)],
    task_queue_max_priority=5,
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"confirm_publish": True},
    result_expires=60,
)


@app.task
def add(a: int, b: int) -> int:
    return a + b


@app.task(bind=True, max_retries=3, default_retry_delay=0.1)
def stumble(self: Any, times: int) -> int:
    """Fails that often before it comes through."""
    if self.request.retries < times:
        raise self.retry()
    return int(self.request.retries)


@app.task
def fail() -> None:
    raise ValueError("as asked")


@app.task
def refuse() -> None:
    raise Reject("nobody wants it", requeue=False)
