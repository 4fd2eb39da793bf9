"""Auditing on Spark: jobs that read the log where it lies.

byte_source.py      where the bytes come from
catalogue.py        the logs, and the queue of each
snapshot.py         a consistent snapshot of a data directory
source/             the Spark data source `ottermq`
records.py          its rows as most audits want them
policies.py         which rules of retention a log is under
spark.py            the one place that makes a session, and java.py a Java for it
shipping/           our code for workers that don't have it
failures.py         what went wrong in Spark, as one line
jobs/               the audits, one per file; outcome.py and findings.py: what goes in and out
report/             an outcome as Parquet, JSON, a page and a terminal table
run.py              one audit from start to end
retention_check.py  what is kept too long or gone too early
watch/              the audit that doesn't end

Nothing here is imported by a running broker; Spark and Arrow come with the extra `audit`.
"""
