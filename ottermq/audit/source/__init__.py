"""The Spark data source `ottermq`: the log's records as rows.

schema.py      the columns
"""
