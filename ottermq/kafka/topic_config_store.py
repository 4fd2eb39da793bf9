"""The altered configs of topics: kept in meta.db, and put into effect.

Rows belong to the log of a topic's first partition, whose number is never given again. They go with
that log's row, in the same commit, whichever protocol deleted the topic; a start sweeps up what
earlier versions left.

A config is the altered value, else the one of the queue's arguments (`x-max-age` is a
retention.ms), else config.yaml's, else Kafka's default.

A work queue's records go when they are settled, and no setting of Kafka's clients removes them
earlier: such a topic refuses retention and compaction.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ottermq.config.schema import QueueSettings
from ottermq.kafka import configs
from ottermq.kafka.configs import BadValue, Source
from ottermq.kafka.topics import Topic, TopicOptions, Topics
from ottermq.queue_runtime import segment_size
from ottermq.storage.legal_holds import KAFKA_KEY, Holds
from ottermq.storage.topic_retention import LONG_MAX, is_compacted, policy_of
from ottermq.topology import MetaDb, Queue, Statement, Topology
from ottermq.wal import FlushMode, Log, LogOptions, Store
from ottermq.wal.retention import Policy
from ottermq.wal.store import SCRATCH_IDS

SCHEMA = """
CREATE TABLE IF NOT EXISTS kafka_configs (
    log    INTEGER NOT NULL,
    name   TEXT NOT NULL,
    value  TEXT NOT NULL,
    topic  TEXT NOT NULL,
    PRIMARY KEY (log, name)
) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS kafka_configs_go AFTER DELETE ON logs BEGIN
    DELETE FROM kafka_configs WHERE log = old.id;
END;
"""
NOT_FOR_WORK_QUEUES = frozenset(("retention.ms", "retention.bytes", "cleanup.policy"))

Values = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Effective:
    value: str
    source: Source


class TopicConfigStore:
    def __init__(
        self,
        db: MetaDb,
        store: Store,
        topology: Topology,
        topics: Topics,
        rules: Callable[[str], QueueSettings],
        holds: Holds,
    ) -> None:
        """rules: what config.yaml says of a queue of that name."""
        self._db = db
        self._store = store
        self._topology = topology
        self._topics = topics
        self._rules = rules
        self._holds = holds
        holds.also.append(self._holds_queue)
        self._values: dict[int, dict[str, str]] = {}  # by the log of the first partition
        self._topic_of: dict[int, Topic] = {}  # by the logs of all partitions
        topics.options_of = self._options_of
        topics.keep_configs = self._first_rows
        topics.on_gone.append(self._forget)

    def start(self) -> None:
        """Blocks. What was altered in earlier lives, into effect."""
        self._db.define(SCHEMA)
        names: dict[int, str] = {}
        for log, name, value, topic in self._db.read("SELECT * FROM kafka_configs"):
            self._values.setdefault(log, {})[name] = value
            names[log] = topic
        for log, name in names.items():
            found = self._topics.find(name)
            if found is None or found.partitions[0].log.id != log:
                del self._values[log]
                self._db.commit_now([("DELETE FROM kafka_configs WHERE log = ?", (log,))])
            else:
                self._topics.tell_engine(found)

    # -- asking

    def effective(self, topic: Topic) -> dict[str, Effective]:
        """All of them, by name."""
        found = {name: Effective(v, Source.DEFAULT) for name, v in self.usual(topic).items()}
        for layer in (self._declared(topic), self._values.get(_key(topic), {})):
            found |= {name: Effective(v, Source.DYNAMIC_TOPIC) for name, v in layer.items()}
        if self._is_held(topic):  # whichever source it has: the rest can't lift it
            found[KAFKA_KEY] = Effective("true", found[KAFKA_KEY].source)
        return found

    def _is_held(self, topic: Topic) -> bool:
        queue = self._topics.queue_of(topic.partitions[0])
        return queue is not None and self._holds.on(queue)

    def _holds_queue(self, queue: Queue) -> bool:
        """Did a Kafka client ask for it?"""
        if (queue.vhost, queue.name) not in self._store:
            return False
        topic = self._topic_of.get(self._store.get(queue.name, queue.vhost).id)
        return topic is not None and self.altered(topic).get(KAFKA_KEY) == "true"

    def usual(self, topic: Topic | None) -> dict[str, str]:
        """The values of unaltered configs. None: of any topic."""
        kafka = {name: config.default for name, config in configs.TOPIC_CONFIGS.items()}
        name = "" if topic is None else topic.partitions[0].log.name
        return kafka | configs.ours(self._rules(name))

    def altered(self, topic: Topic) -> Values:
        return self._values.get(_key(topic), {})

    def _declared(self, topic: Topic) -> dict[str, str]:
        """The values from a stream's arguments and policies."""
        queue = self._topics.queue_of(topic.partitions[0])
        if queue is None or not topic.is_stream:
            return {}
        settings = self._topology.effective(queue)
        said = {
            "retention.ms": settings.max_age_ms,
            "retention.bytes": settings.max_length_bytes,
            "segment.bytes": settings.segment_size,
        }
        return {name: str(value) for name, value in said.items() if value is not None}

    def check(self, topic: Topic | None, values: Values) -> None:
        """BadValue. None: a topic that is yet to be made, a stream."""
        for name, value in values.items():
            configs.check(name, value)
            if name in NOT_FOR_WORK_QUEUES and topic is not None and not topic.is_stream:
                raise BadValue(
                    f"{name} can't be set for {topic.name}: a work queue's records go when they"
                    " are settled"
                )

    def compacted(self) -> list[Log]:
        """The logs of compacted topics."""
        topics = {id(topic): topic for topic in self._topic_of.values()}
        found = [topic for topic in topics.values() if is_compacted(self._texts(topic))]
        return [partition.log for topic in found for partition in topic.partitions]

    def holds(self, log: Log) -> bool:
        return self._holds.on_log(log)

    def values_of(self, log: Log) -> Values | None:
        """Of the topic that the log belongs to, if anything of it was altered."""
        topic = self._topic_of.get(log.id)
        if topic is None:
            return None
        return self._texts(topic)

    def retention_of(self, log: Log) -> Policy | None:
        """None: nothing was altered, or it is a work queue."""
        topic = self._topic_of.get(log.id)
        if topic is None or not topic.is_stream:
            return None
        return policy_of(self._texts(topic), Policy())

    def _texts(self, topic: Topic) -> dict[str, str]:
        return {name: found.value for name, found in self.effective(topic).items()}

    # -- altering

    async def set(self, topic: Topic, values: Values) -> None:
        """All that is altered from now on: what isn't named is as it was by default. BadValue."""
        self.check(topic, values)
        key = _key(topic)
        if key < SCRATCH_IDS:
            away: Statement = ("DELETE FROM kafka_configs WHERE log = ?", (key,))
            await self._db.commit([away, *_rows(topic, values)])
        now = self._topics.find(topic.name)
        if now is None or now.id != topic.id:
            return  # deleted meanwhile
        if values:
            self._values[key] = dict(values)
        else:
            self._values.pop(key, None)
        self._topics.tell_engine(now)

    def _first_rows(self, topic: Topic, values: Values) -> list[Statement]:
        self._values[_key(topic)] = dict(values)
        self._topics.tell_engine(topic)
        return _rows(topic, values)

    def _forget(self, topic: Topic) -> None:
        self._values.pop(_key(topic), None)
        for partition in topic.partitions:
            self._topic_of.pop(partition.log.id, None)

    # -- in effect

    def _options_of(self, topic: Topic) -> TopicOptions:
        """Asked for whenever the topic is new or another: its logs hear of it, too."""
        found = self._texts(topic)
        is_altered = _key(topic) in self._values
        for partition in topic.partitions:
            was_altered = self._topic_of.pop(partition.log.id, None) is not None
            if is_altered:
                self._topic_of[partition.log.id] = topic
            if is_altered or was_altered:
                self._store.set_options(partition.log, self._log_options(partition.log, found))
                if (queue := self._topics.queue_of(partition)) is not None:
                    self._holds.look_again(queue)
        codec = configs.codec_of(found["compression.type"])
        return TopicOptions(
            compacted=is_compacted(found),
            log_append_time=found["message.timestamp.type"] == "LogAppendTime",
            unsynced=found["flush.mode"] == "async",
            max_message_bytes=int(found["max.message.bytes"]),
            codec=codec,
            level=int(found.get(f"compression.{found['compression.type']}.level", 0)),
            timestamp_before_max_ms=int(found["message.timestamp.before.max.ms"]),
            timestamp_after_max_ms=int(found["message.timestamp.after.max.ms"]),
        )

    def _log_options(self, log: Log, found: Values) -> LogOptions:
        roll = int(found["segment.ms"])
        return LogOptions(
            flush_mode=FlushMode[found["flush.mode"].upper()],
            segment_size=segment_size(int(found["segment.bytes"])),
            segment_max_age_ms=roll if roll < LONG_MAX else 0,
            pre_allocate=found["preallocate"] == "true",
            keep_settled=self._rules(log.name).retention.keep_settled or found[KAFKA_KEY] == "true",
        )


def _key(topic: Topic) -> int:
    return topic.partitions[0].log.id


def _rows(topic: Topic, values: Values) -> list[Statement]:
    # The topic may be gone by the time of the commit.
    sql = (
        "INSERT OR REPLACE INTO kafka_configs SELECT ?1, ?2, ?3, ?4"
        " WHERE EXISTS (SELECT 1 FROM logs WHERE id = ?1)"
    )
    return [(sql, (_key(topic), name, value, topic.name)) for name, value in values.items()]
