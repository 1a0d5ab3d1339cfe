"""Findings of one kind: a few are listed, all are counted."""

from __future__ import annotations

from pathlib import Path

from edgepack.data.finding_log import MAX_LISTED, FindingLog


def test_more_of_a_kind_than_are_listed_are_counted() -> None:
    log = FindingLog(Path("a.tsv"))
    for line in range(1, 31):
        log.add("errors", "error", line, "bad", "mend")
        log.add("warnings", "warning", line, "odd", "look")
    found = log.findings()
    assert [finding.line for finding in found if finding.severity == "error"] == [*range(1, 21), None]
    assert found[20].reason == "10 more: errors (30 in all)"
    assert sum(finding.severity == "warning" for finding in found) == MAX_LISTED["warning"] + 1
    log.count_more("of another kind", -2)
    assert log.findings() == found
    log.count_more("warnings", 7)
    assert log.findings()[-1].reason == f"{37 - MAX_LISTED['warning']} more: warnings (37 in all)"
