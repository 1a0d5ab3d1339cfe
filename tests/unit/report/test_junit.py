"""JUnit XML, also through a parser that others wrote, as a CI server's would read it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import junitparser
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.golden import assert_golden
from tests.unit.conftest import beside_one_not_run
from tests.unit.report.pages import document, junit_of

from edgepack.report import junit
from edgepack.report.document import make
from edgepack.report.gates import Gates, NotGated, TargetGates, of_build
from edgepack.util.text import safe
from edgepack_runtime.schema.receipt import BundleFacts, GateReceipt

GOLDEN = Path(__file__).parents[1] / "golden" / "junit.xml"


@pytest.fixture
def found(receipt: dict[str, Any]) -> Gates:
    """One bundle on three targets: measured, out of reach, and a file that is no bundle."""
    file, name, version = "hotel.edgepack", "hotel-sentiment", "1.2.0"
    local, arm = (BundleFacts(name, version, target) for target in ("local", "linux-aarch64"))
    error = NotGated("line4 cannot be reached", "nothing listens <there>\x00", "ssh line4 true")
    cut = NotGated("it is cut short", "", "")
    return Gates(
        "edgepack gate",
        "fail",
        (
            TargetGates("line3", "fail", file, local, receipt=GateReceipt.parse(receipt), seconds=48.5),
            TargetGates("line4", "not measured", file, arm, not_gated=error, seconds=15.0),
            TargetGates("line3", "not measured", "很好.edgepack", None, not_gated=cut),
        ),
    )


def counts(read: Any) -> tuple[int, int, int, int]:
    return read.tests, read.failures, read.errors, read.skipped


def test_results_of_gates(found: Gates) -> None:
    read = junitparser.JUnitXml.fromstring(junit.render(found).encode())
    stated = counts(read)
    measured, lost, broken = read
    assert [suite.timestamp for suite in read] == ["2026-02-28T23:59:59", None, None]
    # It adds up the times of cases, which have none: what stands in the file is read here.
    root = ElementTree.fromstring(junit.render(found))
    assert [suite.get("time") for suite in root] == ["48.500", "15.000", None]  # not the 41.250 of the receipt
    assert root.get("time") == "63.500"
    assert [suite.name for suite in read] == [
        "gates of hotel-sentiment 1.2.0 for local on line3",
        "gates of hotel-sentiment 1.2.0 for linux-aarch64 on line4",
        "gates of 很好.edgepack for line3",
    ]
    assert [counts(suite) for suite in read] == [(8, 1, 2, 0), (1, 0, 1, 0), (1, 0, 1, 0)]
    read.update_statistics()
    assert counts(read) == stated == (10, 1, 4, 0)
    kinds = {case.name: [(type(one), one.type) for one in case.result] for case in measured}
    assert kinds["latency.p95_ms"] == [(junitparser.Failure, "gate failed")]
    assert kinds["accuracy.min"] == [(junitparser.Error, "inconclusive")]
    assert kinds["latency.p50_ms"] == []
    (case,) = lost
    (error,) = case.result
    assert (error.type, error.message) == ("not measured", "line4 cannot be reached")
    assert error.text == "why: nothing listens <there>?\nfix: ssh line4 true"
    assert case.classname == "hotel-sentiment.linux-aarch64 on line4"
    assert {one.name: one.value for one in measured.properties()}["cpu_model"] == "AMD EPYC 7B13"
    assert next(iter(broken)).result[0].message == "it is cut short"
    assert [[one.name for one in suite.properties()] for suite in (lost, broken)] == [["bundle"]] * 2


def test_the_report_of_a_build_as_in_the_golden_file(built: Any) -> None:
    assert_golden(junit.render(of_build(make(built))), GOLDEN)
    read = junitparser.JUnitXml.fromstring(junit.render(of_build(make(beside_one_not_run(built)))).encode())
    stated = counts(read)
    read.update_statistics()
    assert counts(read) == (9, 1, 2, 1)
    assert stated[:3] == counts(read)[:3]
    (skipped,) = [found for case in [*read][1] for found in case.result]
    assert type(skipped) is junitparser.Skipped
    assert skipped.message == "not gated on this machine"
    assert skipped.text == "why: it is for aarch64\nfix: python3 b.edgepack gate"


@pytest.mark.parametrize(("waived", "kind"), [(True, junitparser.Skipped), (False, junitparser.Error)])
def test_what_could_not_be_measured_passes_only_where_that_was_asked_for(
    receipt: dict[str, Any], found: Gates, waived: bool, kind: type
) -> None:
    why = "the bundle carries no rows"
    receipt["unmeasured"] = [{"gate": "accuracy.f1", "why": why, "waived": waived}]
    first = replace(found.results[0], receipt=GateReceipt.parse(receipt))
    found = replace(found, results=(first, *found.results[1:]))
    read = junitparser.JUnitXml.fromstring(junit.render(found).encode())
    stated = counts(read)
    read.update_statistics()
    assert counts(read) == stated == (11, 1, 4 + (not waived), int(waived))
    ((case,),) = [[one for one in suite if one.name == "accuracy.f1"] for suite in read if len(list(suite)) > 1]
    assert [(type(one), one.message) for one in case.result] == [(kind, why)]


@pytest.mark.parametrize(("waived", "kind"), [(True, "skipped"), (False, "error")])
def test_a_bundle_without_gates_is_no_empty_suite(report: dict[str, Any], waived: bool, kind: str) -> None:
    unmeasured = [{"gate": "gates", "why": "the recipe sets no gates", "waived": waived}]
    report["targets"][0]["receipt"] |= {"checks": [], "unmeasured": unmeasured}
    root = ElementTree.fromstring(junit_of(report))
    assert root.get("tests") == "1"
    (case,) = root.iter("testcase")
    assert (case.get("name"), [child.tag for child in case]) == ("gates", [kind])
    assert case[0].get("message") == "the recipe sets no gates"


@pytest.mark.parametrize("clock", [None, "", "now", "2026-02-28T23:59:59", "2026-02-28T23:59:59Z\n", 5])
@pytest.mark.parametrize("seconds", [None, -1, 1e300])
def test_a_clock_or_a_time_that_is_none_is_left_out(report: dict[str, Any], clock: Any, seconds: Any) -> None:
    receipt = report["targets"][0]["receipt"]
    receipt["seconds"], receipt["conditions"]["device_clock_utc"] = seconds, clock
    root = ElementTree.fromstring(junit_of(report))
    (suite,) = root.iter("testsuite")
    assert (suite.get("timestamp"), suite.get("time"), root.get("time")) == (None, None, None)


def test_the_time_is_that_of_the_gates_and_of_no_single_check(built: Any) -> None:
    """The receipt says how long all of it took: several checks come from one measurement."""
    report = document(beside_one_not_run(built))
    report["targets"] += report["targets"][:1]
    root = ElementTree.fromstring(junit_of(report))
    assert [suite.get("time") for suite in root] == ["41.250", None, "41.250"]
    assert root.get("time") == "82.500"
    assert {case.get("time") for case in root.iter("testcase")} == {None}


@given(st.text(max_size=40))
@example("\x9b31m\u202e\u2028\u2066")
def test_any_text_makes_well_formed_xml_that_does_nothing_to_a_terminal(text: str) -> None:
    check = {
        "gate": text, "verdict": "fail", "value": 1.0, "low": None, "high": None, "limit": 1.0, "unit": "ms", "n": None,
        "detail": text,
    }  # fmt: skip
    receipt = {"verdict": "fail", "checks": [check], "conditions": {"cpu_model": text, "flags": [text]}}
    result = TargetGates(text, "fail", text, BundleFacts(text, "1"), receipt=GateReceipt.parse(receipt), seconds=1.0)
    shown = junit.render(Gates(text, "fail", (result,), (text,)))
    assert all(safe(line) == line for line in shown.split("\n"))
    root = ElementTree.fromstring(shown.encode())
    assert root.get("failures") == "1"
