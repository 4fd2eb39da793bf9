"""A member of a group that may be killed: python -m tests.clients.kafka_member SERVER GROUP TOPIC

It tells what it does, a line each: `seen PARTITION OFFSET VALUE` for each record, then, after every
few of them and before it gives partitions away, `committed PARTITION OFFSET` for what the broker
has answered for.
"""

import sys

from confluent_kafka import Consumer, KafkaException

AT_A_TIME = 7


def main(server: str, group: str, topic: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": server,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 500,
        }
    )
    consumer.subscribe([topic], on_revoke=lambda consumer, partitions: commit(consumer))
    seen = 0
    while True:
        message = consumer.poll(1)
        if message is None or message.error():
            continue
        value = (message.value() or b"").decode()
        print("seen", message.partition(), message.offset(), value, flush=True)
        seen += 1
        if seen % AT_A_TIME == 0:
            commit(consumer)


def commit(consumer: Consumer) -> None:
    try:
        committed = consumer.commit(asynchronous=False) or []
    except KafkaException as error:
        if error.args[0].name() != "_NO_OFFSET":  # there was nothing new
            raise
        return
    for done in committed:
        if done.error is None and done.offset >= 0:
            print("committed", done.partition, done.offset, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
