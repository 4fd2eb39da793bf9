"""A broker that is killed while groups commit and form: nothing that was answered is lost."""

import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from ottermq.kafka.api import Api
from ottermq.kafka.errors import Error
from tests.brokers import Broker
from tests.kafka.raw_client import Gone, RawClient
from tests.kafka.test_groups import subscription

PARTITIONS = 3
PATIENCE = 120.0


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.005)


class Committer(threading.Thread):
    """Commits one offset after the other until the broker is gone."""

    def __init__(self, address: tuple[str, int], group: str, tried: int, acked: int) -> None:
        super().__init__(daemon=True)
        self.address, self.group = address, group
        self.tried, self.acked = tried, acked
        self.answers = 0
        self.refused: list[int] = []
        self.start()

    def run(self) -> None:
        with suppress(OSError, Gone), RawClient(self.address) as raw_client:
            while True:
                self.tried += 1
                told = raw_client.ask(Api.OFFSET_COMMIT, self._body(self.tried))
                errors = {p["error_code"] for t in told["topics"] for p in t["partitions"]}
                if errors != {Error.NONE}:
                    self.refused += errors
                    return
                self.acked = self.tried
                self.answers += 1

    def _body(self, offset: int) -> dict[str, object]:
        partitions = [
            {"partition_index": n, "committed_offset": offset, "committed_metadata": f"{offset}"}
            for n in range(PARTITIONS)
        ]
        topics = [{"name": "orders", "partitions": partitions}]
        return {"group_id": self.group, "member_id": "", "topics": topics}


def committed(raw_client: RawClient, group: str) -> list[tuple[int, str]]:
    topics = [{"name": "orders", "partition_indexes": list(range(PARTITIONS))}]
    body = {"groups": [{"group_id": group, "topics": topics}], "require_stable": True}
    [told] = raw_client.ask(Api.OFFSET_FETCH, body)["groups"]
    assert told["error_code"] == Error.NONE
    return [(p["committed_offset"], p["metadata"]) for p in told["topics"][0]["partitions"]]


@pytest.mark.parametrize(
    "rounds", [4, pytest.param(100, marks=pytest.mark.soak)], ids=["suite", "soak"]
)
def test_what_was_answered_is_there_after_a_kill_at_any_moment(tmp_path: Path, rounds: int) -> None:
    groups = ["a", "b", "c"]
    last = dict.fromkeys(groups, (0, 0))
    for round in range(rounds):
        with Broker(tmp_path / "data") as broker:
            address = broker.address("kafka")
            with RawClient(address) as raw_client:
                if round == 0:
                    topic = {"name": "orders", "num_partitions": PARTITIONS}
                    body = {"topics": [topic | {"replication_factor": 1}], "timeout_ms": 30_000}
                    [made] = raw_client.ask(Api.CREATE_TOPICS, body)["topics"]
                    assert made["error_code"] == Error.NONE
                else:
                    for group, (tried, acked) in last.items():
                        found = committed(raw_client, group)
                        # A commit's offsets come back all or none, with what was noted beside.
                        assert len(set(found)) == 1
                        offset, noted = found[0]
                        assert acked <= offset <= tried and noted == str(offset)
            committers = [Committer(address, group, *last[group]) for group in groups]
            until(partial(all_have, committers, 10 + 7 * (round % 10)))
            broker.stop(signal.SIGKILL)
            for each in committers:
                each.join(PATIENCE)
                assert not each.is_alive() and not each.refused
                last[each.group] = (each.tried, each.acked)


def all_have(committers: list[Committer], answers: int) -> bool:
    assert not any(each.refused for each in committers)
    return all(each.answers >= answers for each in committers)


def test_a_member_that_was_told_its_share_has_it_after_a_kill(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker, RawClient(broker.address("kafka")) as raw_client:
        body = {
            "group_id": "g", "session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000,
            "member_id": "", "group_instance_id": "i", "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscription("orders")}],
        }  # fmt: skip
        joined = raw_client.ask(Api.JOIN_GROUP, body)
        assert joined["error_code"] == Error.NONE
        who = {
            "group_id": "g", "generation_id": joined["generation_id"],
            "member_id": joined["member_id"], "group_instance_id": "i",
        }  # fmt: skip
        share = [{"member_id": joined["member_id"], "assignment": b"all of it"}]
        synced = raw_client.ask(Api.SYNC_GROUP, who | {"assignments": share})
        assert synced["assignment"] == b"all of it"
        broker.stop(signal.SIGKILL)
    with Broker(tmp_path / "data") as broker, RawClient(broker.address("kafka")) as raw_client:
        assert raw_client.ask(Api.HEARTBEAT, who)["error_code"] == Error.NONE
        synced = raw_client.ask(Api.SYNC_GROUP, who | {"assignments": []})
        assert (synced["error_code"], synced["assignment"]) == (Error.NONE, b"all of it")
