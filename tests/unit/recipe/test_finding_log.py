"""Findings of one kind: a few are listed, all are counted."""

from __future__ import annotations

from pathlib import Path

from edgepack.recipe.finding_log import MAX_LISTED, FindingLog


def test_more_of_a_kind_than_are_listed_are_counted() -> None:
    log = FindingLog(Path("a.tsv"))
    for line in range(1, 31):
        log.add("errors", "error", line, "bad", "mend")
        log.add("warnings", "warning", line, "odd", "look")
    found = log.findings()
    assert [finding.line for finding in found if finding.severity == "error"] == [*range(1, 21), None]
    assert found[20].reason == "10 more: errors (30 in all)"
    [warning] = found[21:]
    assert (warning.line, warning.reason) == (1, "odd; 29 more like it: lines 2, 3, 4, 5, ...")
    log.count_more("of another kind", "error", -2)
    assert log.findings() == found
    log.count_more("warnings", "warning", 7)
    assert log.findings()[-1].reason == "odd; 36 more like it: lines 2, 3, 4, 5, ..."


def test_two_warnings_of_a_kind_are_one_and_one_is_itself() -> None:
    log = FindingLog(Path("a.tsv"))
    log.add("warnings", "warning", 3, "odd", "look")
    assert [finding.reason for finding in log.findings()] == ["odd"]
    log.add("warnings", "warning", 7, "odd too", "look")
    assert [finding.reason for finding in log.findings()] == ["odd; 1 more like it: line 7"]


def test_a_fix_that_takes_time_is_made_for_listed_findings_alone() -> None:
    log, made = FindingLog(Path("a.tsv")), []

    def fix() -> str:
        made.append(1)
        return "do it"

    for line in range(100):
        log.add("kind", "error", line, "reason", fix)
    assert len(made) == MAX_LISTED["error"]
    assert {finding.fix for finding in log.findings()} == {"do it"}


def test_an_error_does_not_hide_behind_a_warning_of_its_name() -> None:
    log = FindingLog(Path("a.tsv"))
    log.add("kind", "warning", 1, "odd", "look")
    log.add("kind", "error", 2, "bad", "correct it")
    assert [(finding.severity, finding.line) for finding in log.findings()] == [("warning", 1), ("error", 2)]
