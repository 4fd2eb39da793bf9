"""The RabbitMQ that we measure and compare with starts, freezes and ends without a trace."""

from pathlib import Path

import pytest

from perf import rabbitmq
from perf.served import speaks_amqp


@pytest.mark.skipif(not rabbitmq.installed(), reason="Debian's rabbitmq-server isn't installed")
def test_a_rabbitmq_of_our_own_speaks_until_it_is_stopped(tmp_path: Path) -> None:
    with rabbitmq.RabbitMQ(tmp_path / "rabbit") as rabbit:
        assert speaks_amqp(rabbit.address)
        rabbit.pause()
        rabbit.resume()
        assert speaks_amqp(rabbit.address)
        assert rabbit.peak_memory() > 1 << 20
    assert not speaks_amqp(rabbit.address)
