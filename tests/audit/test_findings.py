"""What counts, and for what exit code."""

import pytest

from ottermq.audit.errors import CantRun
from ottermq.audit.findings import FailOn, Finding, Severity

GAP = Finding("gap", Severity.VIOLATION, "offsets 3 to 4 are gone")
ORPHAN = Finding("orphan", Severity.WARNING, "a folder that no log has")
TORN = Finding("torn", Severity.NOTE, "the next start mends it")
KINDS = ("gap", "orphan", "torn")


@pytest.mark.parametrize(
    ("words", "counting"),
    [
        (["violation"], [GAP]),
        (["violation", "warning"], [GAP, ORPHAN]),
        (["torn"], [TORN]),
        (["torn", " violation "], [GAP, TORN]),
        (["never"], []),
    ],
)
def test_severities_and_kinds_can_be_mixed(words: list[str], counting: list[Finding]) -> None:
    fail_on = FailOn(words, KINDS)
    assert [each for each in (GAP, ORPHAN, TORN) if fail_on.counts(each)] == counting


def test_a_word_that_means_nothing_is_told_with_those_that_do() -> None:
    with pytest.raises(CantRun, match="doesn't know 'gaps'; it knows gap, never, note, orphan"):
        FailOn(["gaps"], KINDS)
