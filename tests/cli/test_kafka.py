"""`ottermq kafka`, against a broker that runs."""

import json

import pika

from tests.brokers import Broker, run


def admin(broker: Broker) -> str:
    return "{}:{}".format(*broker.address("admin"))


def test_queues_that_kafka_cannot_name_are_listed(broker: Broker) -> None:
    host, port = broker.address("amqp")
    with pika.BlockingConnection(pika.ConnectionParameters(host, port)) as connection:
        channel = connection.channel()
        for name in ("a queue / of ours", "fine.for-kafka"):
            channel.queue_declare(name, durable=True)
        done = run("kafka", "hidden", "--admin", admin(broker))
        assert (done.returncode, done.stderr) == (0, "")
        assert "a queue / of ours" in done.stdout.splitlines()
        assert "fine.for-kafka" not in done.stdout
        told = json.loads(run("kafka", "hidden", "--admin", admin(broker), "--json").stdout)
        assert told["queues"] == done.stdout.splitlines()
        for name in ("a queue / of ours", "fine.for-kafka"):
            channel.queue_delete(name)


def test_a_broker_that_is_not_there_is_told_in_one_line() -> None:
    done = run("kafka", "hidden", "--admin", "127.0.0.1:1")
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr == "ottermq: no broker answers at 127.0.0.1:1: [Errno 111] Connection refused\n"
    )


def test_another_port_is_told_in_one_line(broker: Broker) -> None:
    address = "{}:{}".format(*broker.address("amqp"))
    done = run("kafka", "hidden", "--admin", address)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"ottermq: {address} is no admin port of OtterMQ (")
    assert done.stderr.count("\n") == 1
