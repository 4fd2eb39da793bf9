"""The records of a data directory as rows: whole ones, and no markers of transactions."""

from pyspark.sql import DataFrame

from ottermq.audit.outcome import Context
from ottermq.audit.source.datasource import register

LOG = ("vhost", "queue", "partition")


def records(context: Context, *columns: str) -> DataFrame:
    """The records' log, and these columns: a column that isn't named isn't read."""
    register(context.spark)
    wanted = ",".join((*LOG, "crc_ok", "control", *columns))
    read = context.spark.read.format("ottermq").option("columns", wanted)
    return read.load(str(context.data)).where("crc_ok and not control")
