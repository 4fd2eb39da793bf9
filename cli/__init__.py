"""The `ottermq` command: one verb, predictable flags, errors that name the next step."""
