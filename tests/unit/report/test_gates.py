"""The gates of a target as ready figures."""

from __future__ import annotations

from typing import Any

import pytest

from edgepack.report import gates
from edgepack.report.gates import CheckRow
from edgepack_runtime.schema.gates import limit_named
from edgepack_runtime.schema.receipt import GateCheck, GateReceipt


def test_each_check_has_its_figures_with_their_units(receipt: dict[str, Any]) -> None:
    found = gates.rows(GateReceipt.parse(receipt), {"latency.p95_ms": "lost by stage student"})
    assert (found.verdict, found.is_accuracy_gated, len(found.checks)) == ("fail", True, 8)
    slow = found.unmet[0]
    assert slow == CheckRow(
        "latency.p95_ms", "fail", "2.02 ms", "[1.95, 2.20]", "<= 1.90 ms", "662", "2.20 ms is above 1.90 ms",
        "lost by stage student", True,
    )  # fmt: skip
    assert slow.reason == "lost by stage student; 2.20 ms is above 1.90 ms"
    assert [check.verdict for check in found.unmet] == ["fail", "inconclusive", "inconclusive"]


@pytest.mark.parametrize(
    ("gate", "limit", "words"),
    [
        ("accuracy.min", 0.88, ">= 88.0 %"),
        ("accuracy.per_class.recall", 0.8, ">= 80.0 %"),
        ("latency.p95_ms", 5.0, "<= 5.00 ms"),
    ],
)
def test_a_limit_has_its_direction_and_unit(gate: str, limit: float, words: str) -> None:
    row = gates.row(GateCheck.unmeasured(limit_named(gate), limit, "why"))
    assert (row.value, row.interval, row.limit, row.n, row.is_measured) == ("-", "-", words, "-", False)


def test_what_was_left_out_says_whether_it_was_waived() -> None:
    unmeasured = [{"gate": "accuracy.min", "why": "no rows", "waived": waived} for waived in (True, False)]
    found = gates.rows(GateReceipt.parse({"verdict": "pass", "checks": [], "unmeasured": unmeasured}))
    assert [one.verdict for one in found.left_out] == ["not measured, waived", "not measured"]
