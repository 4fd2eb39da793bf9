"""Apache Kafka's own tool decodes what our groups leave on disk."""

import json
import re
from pathlib import Path

from ottermq.kafka.errors import Error
from ottermq.kafka.groups import Committed, Groups, MemberIdentity, Place
from ottermq.kafka.groups.coordinator import LOG
from ottermq.wal import Store
from ottermq.wal.catalog import INTERNAL_VHOST
from tests.kafka.test_groups import STRANGER, live, member_of
from tests.wal.stores import SMALL, flush, segment_files
from tests.wal.test_kafka_tools import dump, jars

__all__ = ["jars"]  # a fixture

RECORD = re.compile(r"\| offset: .* key: (\{.*\}) payload: (\{.*\}|<DELETE>|null)$")


def test_groups_and_offsets_are_decoded(tmp_path: Path, jars: Path) -> None:  # noqa: F811
    async def life(groups: Groups) -> None:
        joined = await member_of(groups, "g", instance_id="i")
        who = MemberIdentity(joined.member_id, 1, "i")
        offsets = {Place("orders", 3): Committed(42, 7, "noted", 99)}
        assert await groups.commit("g", who, offsets) is Error.NONE
        assert await groups.hold_offsets(5, "h", STRANGER, offsets) is Error.NONE
        flush(store)

    with Store.open(tmp_path, SMALL) as store:
        live(store, life)
        files = segment_files(store, store.get(LOG, INTERNAL_VHOST))
        lines = dump(jars, files, "--offsets-decoder", "--deep-iteration")
    found = [match for line in lines if (match := RECORD.match(line))]
    decoded = {match[1]: json.loads(match[2]) for match in found if match[2].startswith("{")}
    offset = decoded['{"type":"1","data":{"group":"g","topic":"orders","partition":3}}']
    assert offset["data"] == {
        "offset": 42, "leaderEpoch": 7, "metadata": "noted", "commitTimestamp": 99
    }  # fmt: skip
    group = decoded['{"type":"2","data":{"group":"g"}}']["data"]
    assert (group["protocolType"], group["generation"], group["protocol"]) == (
        "consumer",
        1,
        "range",
    )
    [member] = group["members"]
    assert member["groupInstanceId"] == "i" and member["sessionTimeout"] == 60_000
