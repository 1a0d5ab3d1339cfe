"""JUnit XML as CI servers read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.conftest import beside_one_not_run

from edgepack.report.document import make
from edgepack.report.junit import render

GOLDEN = Path(__file__).parents[1] / "golden" / "junit.xml"


def test_it_is_the_golden_file(report: dict[str, Any]) -> None:
    assert render(report) == GOLDEN.read_text(encoding="utf-8")


def test_only_what_passed_is_green(report: dict[str, Any]) -> None:
    root = ElementTree.fromstring(render(report))
    kinds = {case.get("name"): [child.tag for child in case] for case in root.iter("testcase")}
    for check in report["targets"][0]["receipt"]["checks"]:
        expected = {"pass": "system-out", "fail": "failure", "inconclusive": "error"}[check["verdict"]]
        assert kinds[check["gate"]] == [expected]


def test_the_totals_are_those_of_the_cases(report: dict[str, Any]) -> None:
    report["targets"] *= 2
    root = ElementTree.fromstring(render(report))
    for element in (root, *root.iter("testsuite")):
        assert element.get("tests") == str(len(list(element.iter("testcase"))))
        assert element.get("failures") == str(len(list(element.iter("failure"))))
        assert element.get("errors") == str(len(list(element.iter("error"))))


def test_a_target_that_could_not_be_run_is_a_skipped_case(built: Any) -> None:
    root = ElementTree.fromstring(render(make(beside_one_not_run(built))))
    ran, other = root.iter("testsuite")
    assert (ran.get("skipped"), other.get("skipped"), other.get("tests")) == ("0", "1", "1")
    (case,) = other.iter("testcase")
    (skipped,) = case
    assert skipped.tag == "skipped"
    assert skipped.get("message") == "not run here: it is for aarch64; on the device: python3 b.edgepack gate"


@pytest.mark.parametrize(("waived", "kind"), [(True, "skipped"), (False, "error")])
def test_a_bundle_without_gates_is_no_empty_suite(report: dict[str, Any], waived: bool, kind: str) -> None:
    unmeasured = [{"gate": "gates", "why": "the recipe sets no gates", "waived": waived}]
    report["targets"][0]["receipt"] |= {"checks": [], "unmeasured": unmeasured}
    root = ElementTree.fromstring(render(report))
    assert root.get("tests") == "1"
    (case,) = root.iter("testcase")
    assert (case.get("name"), [child.tag for child in case]) == ("gates", [kind])
    assert case[0].get("message") == "the recipe sets no gates"


@pytest.mark.parametrize("clock", [None, "", "now", "2026-02-28T23:59:59", "2026-02-28T23:59:59Z\n", 5])
@pytest.mark.parametrize("seconds", [None, "5", -1, True, 1e300])
def test_a_clock_or_a_time_that_is_none_is_left_out(report: dict[str, Any], clock: Any, seconds: Any) -> None:
    receipt = report["targets"][0]["receipt"]
    receipt["seconds"], receipt["conditions"]["device_clock_utc"] = seconds, clock
    root = ElementTree.fromstring(render(report))
    (suite,) = root.iter("testsuite")
    assert (suite.get("timestamp"), suite.get("time"), root.get("time")) == (None, None, None)


def test_the_time_is_that_of_the_gates_and_of_no_single_check(built: Any) -> None:
    """The receipt says how long all of it took: several checks come from one measurement."""
    report = make(beside_one_not_run(built))
    report["targets"] += report["targets"][:1]
    root = ElementTree.fromstring(render(report))
    assert [suite.get("time") for suite in root] == ["41.250", None, "41.250"]
    assert root.get("time") == "82.500"
    assert {case.get("time") for case in root.iter("testcase")} == {None}


@given(st.text(max_size=40))
def test_any_text_makes_well_formed_xml(text: str) -> None:
    check = {
        "gate": text, "verdict": "fail", "value": 1.0, "low": None, "high": None, "limit": 1.0, "unit": "ms", "n": None,
        "detail": text,
    }  # fmt: skip
    target = {
        "target": text,
        "bundle": {"file_name": text, "manifest_sha256": text},
        "receipt": {"checks": [check], "conditions": {"cpu_model": text, "flags": [text]}},
        "not_run_here": None,
    }
    root = ElementTree.fromstring(render({"name": text, "version": "1", "targets": [target]}).encode())
    assert root.get("failures") == "1"
