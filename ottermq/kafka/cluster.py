"""Our identity to Kafka's clients: a cluster of one node, with an id that stays for ever.

The cluster id is made at the first start and kept in meta.db. Topic ids are derived from it, so a
client that knew a topic of another data directory never takes ours for it.
"""

import base64
from dataclasses import dataclass
from uuid import UUID, uuid4

from ottermq.topology import MetaDb

NODE = 1
SCHEMA = """
CREATE TABLE IF NOT EXISTS kafka_cluster (
    id    TEXT NOT NULL,
    node  INTEGER NOT NULL
);
"""


@dataclass(frozen=True)
class Cluster:
    uuid: UUID
    node: int = NODE

    @property
    def id(self) -> str:
        """As clients are told: 22 characters."""
        return base64.urlsafe_b64encode(self.uuid.bytes).rstrip(b"=").decode()


def open_cluster(db: MetaDb) -> Cluster:
    """Blocks: for the start."""
    db.define(SCHEMA)
    for id, node in db.read("SELECT id, node FROM kafka_cluster"):
        return Cluster(UUID(id), node)
    made = Cluster(uuid4())
    db.commit_now([("INSERT INTO kafka_cluster VALUES (?, ?)", (str(made.uuid), made.node))])
    return made
