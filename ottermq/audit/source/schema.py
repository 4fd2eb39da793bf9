"""The columns of the data source `ottermq`: one row per record and per damaged stretch.

A damaged stretch is a row with `crc_ok` false: `offset` is its first offset, `size` the bytes that
can't be read, and of the other columns only those that say where it lies are set.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str  # as Spark's DDL calls it
    meaning: str
    is_always_there: bool = False  # also of a stretch that is damaged or gone


COLUMNS = (
    Column("vhost", "string", "of the queue", True),
    Column("queue", "string", "queue, stream or topic; of a super stream, the super stream", True),
    Column(
        "partition", "int", "of a topic or super stream; of a priority queue, the priority", True
    ),
    Column("offset", "bigint", "in its log", True),
    Column("timestamp", "timestamp", "arrival, or the producer's; null: it gave none"),
    Column("key", "binary", "of an AMQP message, the routing key"),
    Column("body", "binary", "null: a tombstone"),
    Column("headers", "array<struct<key:string,value:binary>>", "as Kafka readers see them"),
    Column("size", "int", "bytes of the record as it lies there, uncompressed", True),
    Column("segment", "bigint", "its base offset, the file's name; null: only in the WAL yet"),
    Column("position", "bigint", "of the batch in its segment; null: only in the WAL yet"),
    Column("tier", "string", "`local`, or `wal` for what has no segment yet", True),
    Column("batch_base_offset", "bigint", "of the batch it came with"),
    Column("codec", "string", "none, gzip, snappy, lz4, zstd"),
    Column("crc_ok", "boolean", "false: not a record, a damaged stretch"),
    Column("settled", "boolean", "acked, dropped or purged; null: a stream, which has no cursor"),
    Column("deliveries", "int", "how often it was given out; null: it is settled, or of a stream"),
    Column("producer_id", "bigint", "null: not an idempotent producer"),
    Column("producer_epoch", "int", "null: not an idempotent producer"),
    Column("base_sequence", "int", "of its batch; null: not an idempotent producer"),
    Column("leader_epoch", "int", "goes up by one with each unclean start"),
    Column("transactional", "boolean", "part of a Kafka transaction"),
    Column("aborted", "boolean", "of one that was aborted: no committed reader sees it"),
    Column("control", "boolean", "a transaction's marker, not a message"),
)
NAMES = tuple(column.name for column in COLUMNS)


def ddl_of(names: tuple[str, ...] = NAMES) -> str:
    """Of some of them, in the order asked for.

    Columns that are always there are declared so: Spark checks each value of the rest for null."""
    columns = {column.name: column for column in COLUMNS}
    return ", ".join(
        f"{name} {columns[name].type}{' not null' if columns[name].is_always_there else ''}"
        for name in names
    )
