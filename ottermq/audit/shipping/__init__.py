"""The code that Spark's workers run comes with the job: nothing of ours is installed there.

A pack is a zip that Spark gives to each worker, as any `--py-files`:

    ottermq-0.1.0-cpython-311-x86_64-linux-gnu-7c1f….zip
      ottermq/__init__.py    bootstrap.py: unpacks the rest beside the zip and imports that instead
      payload/ottermq/…      the package as the driver has it, with its C core
      payload/xxhash/…       and what it needs

Extension modules can't be imported from a zip, hence the unpacking. A pack fits the Python and the
processor it was made on, and says so elsewhere. Its name has a hash of its content: it is made
once and never changes.

pack.py       makes packs and keeps them
bootstrap.py  the part that runs on a worker before anything else of ours
workers.py    gives a session's workers what they lack
"""
