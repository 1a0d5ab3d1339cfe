"""What a row of the receipt says to people: each figure once, with its unit."""

from __future__ import annotations

import math
from typing import Any

import pytest

from edgepack_runtime.schema.receipt import figure, interval, missed, not_shown, read_once, refusal, sampled, shown
from edgepack_runtime.stats.intervals import FAIL, Interval


def row(low: float, high: float, unit: str, gate: str = "latency.p95_ms") -> dict[str, Any]:
    figures = Interval((low + high) / 2, low, high)
    return sampled(gate, FAIL, figures, limit=40, unit=unit, n=9, confidence=0.9, detail="texts of 1 row").as_json()


def test_a_detail_repeats_no_figure_that_stands_beside_it() -> None:
    assert row(50.0, 60.0, "ms")["detail"] == "texts of 1 row"
    assert read_once("size.model_mib", 7.0, limit=5.0, unit="MiB", detail="model.onnx").detail == "model.onnx"


@pytest.mark.parametrize(
    ("low", "high", "unit", "message"),
    [
        (50.0, 60.25, "ms", "latency.p95_ms: 50 to 60.25 ms, limit <= 40 ms; texts of 1 row"),
        (50.0, math.inf, "percent", "latency.p95_ms: 50 % or more, limit <= 40 %; texts of 1 row"),
    ],
)
def test_what_was_missed_stands_alone(low: float, high: float, unit: str, message: str) -> None:
    assert missed(row(low, high, unit)) == message


def test_what_was_not_sampled_or_not_measured_is_told_as_far_as_it_goes() -> None:
    size = read_once("size.model_mib", 7.0, limit=5.0, unit="MiB", detail="model.onnx").as_json()
    assert missed(size) == "size.model_mib: 7 MiB, limit <= 5 MiB; model.onnx"
    assert missed({"gate": "accuracy.min", "verdict": "fail"}) == "accuracy.min: fail"
    assert missed({**row(0.1, 0.2, "ms", "accuracy.min"), "detail": ""}).endswith(", limit >= 40 ms; fail")


def test_a_fraction_is_told_in_percent_as_in_the_table() -> None:
    message = {**row(0.9123, 0.9412, "fraction", "accuracy.min"), "limit": 0.955, "detail": "6 lost"}
    assert missed(message) == "accuracy.min: 91.23 to 94.12 %, limit >= 95.5 %; 6 lost"
    assert (interval(message), interval(message, with_unit=False)) == ("91.23 to 94.12 %", "91.23 to 94.12")
    assert interval({**message, "high": None}) == "91.23 % or more"
    assert (shown(0.9412, "fraction"), figure(0.29, "fraction"), shown(None, "fraction")) == ("94.12 %", "29", "-")


def test_figures_of_tables() -> None:
    assert (shown(None, "ms"), shown(12.34567, "ms"), shown(0.5)) == ("-", "12.35 ms", "0.5")
    assert interval({"low": None, "high": 3.0}) == "3 or less"
    assert interval({"low": 1e-6, "high": 65.55, "unit": "ms"}) == "0 to 65.55 ms" and shown(-1e-9) == "0"
    assert interval({}) == "-"
    assert (shown(40.0, "percent"), shown(12345.6, "ms"), shown(9999.6)) == ("40 %", "12346 ms", "10000")


@pytest.mark.parametrize(
    ("gate", "verdict", "policy", "refuse_doubt", "refused"),
    [
        ("accuracy.min", "pass", "refuse", True, None),
        ("accuracy.min", "fail", "deliver", False, "fail"),
        ("accuracy.min", "inconclusive", "deliver", None, None),
        ("accuracy.min", "inconclusive", "refuse", None, "inconclusive"),
        ("accuracy.min", "inconclusive", "deliver", True, "inconclusive"),
        ("accuracy.min", "inconclusive", "refuse", False, None),
        ("accuracy.above_majority", "inconclusive", "deliver", False, "inconclusive"),
    ],
)
def test_a_gate_refuses_what_is_bad_and_doubt_by_policy_but_one_floor_must_be_shown(
    gate: str, verdict: str, policy: str, refuse_doubt: bool | None, refused: str | None
) -> None:
    receipt = {"verdict": verdict, "inconclusive": policy, "checks": [{**row(1, 2, "ms", gate), "verdict": verdict}]}
    assert refusal(receipt, refuse_doubt=refuse_doubt) == refused


def test_what_was_not_shown_has_a_line_each() -> None:
    receipt = {
        "checks": [{**row(1, 2, "ms"), "verdict": "pass"}, {"gate": "size.model_mib", "verdict": "fail"}],
        "unmeasured": [{"gate": "accuracy.min", "why": "the rows are at home", "waived": True}],
    }
    assert not_shown(receipt) == ["size.model_mib: fail", "accuracy.min: not measured: the rows are at home"]
