"""What tests find out about the brokers they start."""

from pathlib import Path

import pytest

from tests.brokers import Broker


def test_a_failure_beside_a_broker_comes_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(ConnectionError) as failure, Broker(tmp_path / "data"):
        raise ConnectionError("the broker hung up")
    assert "ended with 0" in failure.value.__notes__[0]
    assert " ready amqp=" in failure.value.__notes__[1]
