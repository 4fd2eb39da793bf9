"""Auditing on Spark: jobs that read the log where it lies.

home.py       where the bytes come from
source/       the Spark data source `ottermq`

Nothing here is imported by a running broker; Spark and Arrow come with the extra `audit`.
"""
