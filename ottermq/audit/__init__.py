"""Auditing on Spark: jobs that read the log where it lies.

home.py       where the bytes come from
catalogue.py  which logs there are, and whose
snapshot.py   a consistent picture of a data directory
source/       the Spark data source `ottermq`

Nothing here is imported by a running broker; Spark and Arrow come with the extra `audit`.
"""
