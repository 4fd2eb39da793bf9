"""The Spark data source `ottermq`: the log's records as rows.

schema.py        the columns
datasource.py    its options, and `register`
plan.py          a snapshot of the directory as tasks: parts of segments
filters.py       what Spark's filters leave out of it
transactions.py  which transactions were aborted
reader.py        a task's rows, as Arrow batches
stream.py        the same for what came since
decode.py        batches into columns, by the C core
"""
