"""`spark.read.format("ottermq")` and `spark.readStream.format("ottermq")`.

| option                 | means                                                     |
|------------------------|-----------------------------------------------------------|
| `path`                 | the data directory: `load(path)` sets it too              |
| `columns`              | those to read, separated by commas; all when it isn't set |
| `vhost`, `queue`       | only of these, separated by commas                        |
| `startingOffsets`      | of a stream: `earliest` (the default) or `latest`         |
| `maxOffsetsPerTrigger` | of a stream: about so many per micro-batch                |
"""

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote

from ottermq.audit.errors import CantRun
from ottermq.audit.shipping.workers import ship
from ottermq.audit.source.plan import Limits
from ottermq.audit.source.reader import Reader
from ottermq.audit.source.schema import COLUMNS, NAMES, ddl_of
from ottermq.audit.source.stream import StreamReader

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


class OtterMQ(DataSource):
    @classmethod
    def name(cls) -> str:
        return "ottermq"

    def schema(self) -> str:
        names = _names(self.options.get("columns"))
        if names is None:
            return ddl_of()
        unknown = [name for name in names if name not in NAMES]
        if unknown:
            raise CantRun(f"no such column: {', '.join(unknown)}; there are {', '.join(NAMES)}")
        return ddl_of(names)

    def reader(self, schema: StructType) -> Reader:
        return Reader(self._path(), _checked(schema), self._limits())

    def streamReader(self, schema: StructType) -> StreamReader:
        starting = self.options.get("startingOffsets", "earliest")
        if starting not in ("earliest", "latest"):
            raise CantRun(f"startingOffsets is earliest or latest, not {starting}")
        most = self.options.get("maxOffsetsPerTrigger")
        if most is not None and not (most.isdecimal() and int(most) > 0):
            raise CantRun(f"maxOffsetsPerTrigger is a number above 0, not {most}")
        return StreamReader(
            self._path(),
            _checked(schema),
            self._limits(),
            latest=starting == "latest",
            most=None if most is None else int(most),
        )

    def _path(self) -> Path:
        path = self.options.get("path")
        if not path:
            raise CantRun("which data directory? The option path is not set")
        return Path(path.removeprefix("file://")).absolute()

    def _limits(self) -> Limits:
        vhosts, queues = (_names(self.options.get(name)) for name in ("vhost", "queue"))
        return Limits(
            None if vhosts is None else frozenset(vhosts),
            None if queues is None else frozenset(queues),
        )


def register(spark: SparkSession) -> None:
    """Makes the format known to this session, and to its workers if they are elsewhere. Filters
    come through only where a setting of Spark's says so."""
    if not is_remote():
        ship(spark)
    spark.conf.set(PUSH_DOWN, "true")
    spark.dataSource.register(OtterMQ)


def _names(option: str | None) -> tuple[str, ...] | None:
    if option is None:
        return None
    return tuple(name.strip() for name in option.split(",") if name.strip())


def _checked(schema: StructType) -> StructType:
    """One that was given with the query may leave columns out, not change them."""
    ours = {column.name: column for column in COLUMNS}
    for field in schema:
        type, column = field.dataType.simpleString(), ours.get(field.name)
        if column is None or column.type != type:
            wanted = column.type if column else "no column of this source"
            raise CantRun(f"{field.name} {type}: it is {wanted}")
        if not (field.nullable or column.is_always_there):
            raise CantRun(f"{field.name} {type} not null: it may be null")
    return schema
