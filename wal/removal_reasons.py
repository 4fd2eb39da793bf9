"""Why a part of a log went: numbers on disk (csrc/store/removal_journal.h), labels for people."""

from enum import IntEnum

from ottermq._core import lib


class RemovalReason(IntEnum):
    UNKNOWN = lib.OM_RULE_UNKNOWN
    SETTLED = lib.OM_RULE_SETTLED
    MAX_AGE = lib.OM_RULE_MAX_AGE
    MAX_SIZE = lib.OM_RULE_MAX_SIZE
    PURGE = lib.OM_RULE_PURGE
    DELETE = lib.OM_RULE_DELETE
    DELETE_RECORDS = lib.OM_RULE_DELETE_RECORDS
    COMPACTION = lib.OM_RULE_COMPACTION
    TRUNCATE = lib.OM_RULE_TRUNCATE
    TAIL_CUT = lib.OM_RULE_TAIL_CUT
    REBUILT = lib.OM_RULE_REBUILT
    SET_ASIDE = lib.OM_RULE_SET_ASIDE
    MISSING = lib.OM_RULE_MISSING
    SNAPSHOT = lib.OM_RULE_SNAPSHOT
    ORPHAN = lib.OM_RULE_ORPHAN
    BEFORE = lib.OM_RULE_BEFORE
    DROPPED = lib.OM_RULE_DROPPED
    LIFE = lib.OM_RULE_LIFE
    HOLD = lib.OM_RULE_HOLD
    LIFTED = lib.OM_RULE_LIFTED
    SKIPPED = lib.OM_RULE_SKIPPED

    @property
    def label(self) -> str:
        return self.name.lower()
