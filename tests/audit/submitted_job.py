"""A job as users write it, for spark-submit: it reads with the data source and runs an audit."""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from ottermq.audit.run import AuditRequest, run
from ottermq.audit.source.datasource import register
from ottermq.config import load

data, out = map(Path, sys.argv[1:])
spark = SparkSession.builder.getOrCreate()
register(spark)
rows = spark.read.format("ottermq").option("columns", "queue,offset").load(str(data))
orders = rows.where("queue = 'orders'").count()
request = AuditRequest(
    "integrity", data, out, str(spark.sparkContext.master), load(), ["never"], {}, quiet=True
)
done = run(request)
summary = json.loads((done.folder / "summary.json").read_text())
print(json.dumps({"orders": orders, "summary": summary}))
