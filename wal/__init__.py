"""The log: segments, indexes, group commit, recovery, retention."""
