"""The `ottermq` command: one verb, predictable flags, errors that tell the next step."""
