"""The Kafka load generator and our Kafka port: what is produced is answered and fetched."""

from collections.abc import Iterator

import pytest

from perf import apache_kafka, kafka_load
from perf.apache_kafka import NotFetched
from perf.kafka_load import KafkaLoad
from perf.kafka_scenarios import SCENARIOS
from perf.load import LoadFailed
from perf.ottermq import OtterMQ
from perf.scenarios import Effort

CLIENTS = ("librdkafka", "java")  # shown beside the others, held to nothing


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtterMQ]:
    with OtterMQ(tmp_path_factory.mktemp("kafka"), listener="kafka") as running:
        yield running


def run(broker: OtterMQ, *options: object) -> KafkaLoad:
    return kafka_load.run(broker.address, *options, time_limit=120)


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_all_that_is_asked_for_is_produced(broker: OtterMQ, acks: int) -> None:
    count = ("--records", 1500, "--record", 100, "--batch", 1200, "--producers", 1)
    found = run(broker, "--topic", f"acks{acks}", "--create", 1, *count, "--acks", acks)
    assert found.produced >= 1500


def test_partitions_are_written_in_turn(broker: OtterMQ) -> None:
    shape = ("--create", 20, "--batches", 10, "--batch", 500, "--record", 100)
    found = run(broker, "--topic", "turns", *shape, "--producers", 2, "--records", 5000)
    assert found.produced >= 5000


def test_a_consumer_reads_it_again_and_again(broker: OtterMQ) -> None:
    run(broker, "--topic", "again", "--create", 1, "--producers", 1, "--records", 100, "--keep")
    found = run(broker, "--topic", "again", "--consumers", 1, "--seconds", 1, "--warm-up", 0.1)
    assert found.fetched > 100


def test_at_a_fixed_rate_it_tells_how_long_records_took(broker: OtterMQ) -> None:
    pace = ("--rate", 500, "--record", 100, "--seconds", 1, "--warm-up", 0.5)
    found = run(broker, "--topic", "pace", "--create", 1, "--producers", 1, "--consumers", 1, *pace)
    assert 0 < found.p50_us <= found.p99_us <= found.max_us * 1.01


def test_errors_end_the_run(broker: OtterMQ) -> None:
    with pytest.raises(LoadFailed, match="creating .*error 17"):
        run(broker, "--topic", "not/a/name", "--create", 1, "--producers", 1)


def test_scenarios_have_names_of_their_own_and_bars_on_what_they_measure() -> None:
    assert len({scenario.name for scenario in SCENARIOS}) == len(SCENARIOS)
    for scenario in SCENARIOS:
        assert scenario.bars or scenario.name.startswith(CLIENTS)
        assert {bar.peer for bar in scenario.bars} <= set(scenario.contestants)


@pytest.mark.parametrize("name", ["produce", "consume"])
@pytest.mark.parametrize("client", ["librdkafka", pytest.param("java", marks=pytest.mark.java)])
def test_peoples_own_clients_are_measured(broker: OtterMQ, client: str, name: str) -> None:
    if client == "java":
        try:
            apache_kafka.jars()
        except NotFetched as error:
            pytest.skip(str(error))
    [scenario] = [each for each in SCENARIOS if each.name == f"{client}-{name}"]
    assert scenario.measure(broker.address, (), Effort(0.2, 0.1, 0.01))["rate"] > 0
