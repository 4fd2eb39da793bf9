"""Connections and segments need descriptors."""

import resource


def raise_file_limit() -> None:
    """Take all we are allowed to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
