"""The limits that a manifest sets: read, or refused at their keys."""

from __future__ import annotations

from typing import Any

import pytest

from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.gate import limits as gate_limits
from edgepack_runtime.gate.limits import Floors, LatencyLimits, LengthBudget, Limits, Percentiles, Sustained

GATES: dict[str, Any] = {
    "accuracy": {"metric": "accuracy", "min": 0.85, "max_drop_points": 2.0, "confidence": 0.95},
    "latency": {"p50_ms": 1000, "p95_ms": 1000, "threads": 1},
    "memory": {"peak_rss_mib": 2000},
    "size": {"model_mib": 0.1, "bundle_mib": 1},
    "cold_start": {"ms": 60000},
}


def test_all_limits_are_read() -> None:
    assert gate_limits.parse(GATES) == Limits(
        0.85, 2.0, 0.95, LatencyLimits(Percentiles(1000.0, 1000.0)), 1, 2000.0, 0.1, 1.0, 60000.0, "accuracy"
    )
    assert gate_limits.parse(dict.fromkeys(GATES)) == Limits()
    assert gate_limits.parse({}) == Limits()
    assert gate_limits.parse({"accuracy": {"metric": "macro_f1", "min": 0.5}}).metric == "macro_f1"
    baseline = {"name": "hotel", "version": "1.1.0", "target": "jetpack6", "manifest_sha256": "0" * 64}
    asked = gate_limits.parse({"accuracy": {"baseline": baseline, "max_regression_points": 0.5}})
    assert (asked.baseline, asked.max_regression_points) == ("hotel 1.1.0", 0.5)
    per_class = {"recall": 0.8, "recall_of": {"a": 0.9}, "precision": None, "precision_of": {}, "f1_of": {"b": 0.5}}
    floors = gate_limits.parse({"accuracy": {"per_class": per_class}}).per_class
    assert floors == {"recall": Floors(0.8, {"a": 0.9}), "f1": Floors(None, {"b": 0.5})}
    assert [floors["recall"].of("a"), floors["recall"].of("b"), floors["f1"].of("a")] == [0.9, 0.8, None]


def test_every_limit_on_time_is_read() -> None:
    asked = {
        "p99_ms": 30,
        "by_length": [{"max_tokens": 32, "p95_ms": 3, "p50_ms": None}, {"max_tokens": 128, "p99_ms": 9}],
        "sustained": {"seconds": 60, "max_slowdown_percent": 15},
    }
    assert gate_limits.parse({"latency": asked}) == Limits(
        latency=LatencyLimits(
            Percentiles(p99_ms=30.0),
            (LengthBudget(0, 32, Percentiles(p95_ms=3.0)), LengthBudget(32, 128, Percentiles(p99_ms=9.0))),
            Sustained(60.0, 15.0),
        )
    )


@pytest.mark.parametrize(
    "gates",
    [
        {"latency": {"p999_ms": 1}},
        {"latency": {"by_length": {"max_tokens": 8, "p95_ms": 1}}},
        {"latency": {"by_length": [8]}},
        {"latency": {"by_length": [{"max_tokens": 8}]}},
        {"latency": {"by_length": [{"max_tokens": 8.0, "p95_ms": 1}]}},
        {"latency": {"by_length": [{"max_tokens": 8, "p95_ms": 1}, {"max_tokens": 8, "p95_ms": 2}]}},
        {"latency": {"by_length": [{"max_tokens": 8, "p95_ms": 1, "max_chars": 2}]}},
        {"latency": {"sustained": 20}},
        {"latency": {"sustained": {"seconds": 1, "max_slowdown_percent": 5}}},
        {"latency": {"sustained": {"seconds": 60}}},
        {"latency": [1]},
        {"latency": {"threads": 0}},
        {"latency": {"threads": True}},
        {"latency": {"p50_ms": "5"}},
        {"latency": {"p50_ms": -1}},
        {"accuracy": {"min": 1.5}},
        {"accuracy": {"min": True}},
        {"accuracy": {"metric": "auc", "min": 0.5}},
        {"accuracy": {"metric": ["f1"], "min": 0.5}},
        {"accuracy": {"confidence": 0.9}},
        {"accuracy": {"confidence": 1.0, "min": 0.5}},
        {"accuracy": {"confidence": 0.9991, "min": 0.5}},
        {"accuracy": {"confidence": 0.5, "min": 0.5}},
        {"accuracy": {"baseline": {"name": "hotel", "version": "1.0.0"}, "min": 0.5}},
        {"accuracy": {"max_regression_points": 0.5}},
        {"accuracy": {"baseline": "hotel.edgepack", "max_regression_points": 0.5}},
        {"accuracy": {"baseline": {"name": "hotel", "version": 2}, "max_regression_points": 0.5}},
        {"accuracy": {"per_class": 0.8}},
        {"accuracy": {"per_class": {"recall": None}}},
        {"accuracy": {"per_class": {"specificity": 0.8, "recall": 0.8}}},
        {"accuracy": {"per_class": {"recall": 1.0}}},
        {"accuracy": {"per_class": {"recall_of": [[0.8]], "recall": 0.8}}},
        {"accuracy": {"per_class": {"recall_of": {"a": "0.8"}}}},
        {"latency": {"p50_ms": 5, "p95_ms": 4}},
        {"size": {}},
        {"cold_start": {"ms": float("nan")}},
    ],
)
def test_a_gate_that_cannot_be_measured_is_never_skipped(gates: dict[str, Any]) -> None:
    with pytest.raises(BundleInvalidError):
        gate_limits.parse(gates)


def test_every_problem_of_the_limits_is_found_at_its_key() -> None:
    by_length = [{"max_tokens": 64, "p95_ms": 0}, {"max_tokens": 32, "p50_ms": 3, "p99_ms": 2}]
    gates = {"accuracy": {"min": 2, "per_class": {"recall_of": {"好": 2}}}, "latency": {"by_length": by_length}, "x": 1}
    _, problems = gate_limits.read(gates)
    assert [problem.path for problem in problems] == [
        ("x",),
        ("accuracy", "min"),
        ("latency", "by_length", 0, "p95_ms"),
        ("latency", "by_length", 1, "p50_ms"),
        ("latency", "by_length", 1, "max_tokens"),
        ("accuracy", "per_class", "recall_of", "好"),
    ]
    assert "`gates.latency.by_length[1].max_tokens` is 32, and the budget before it ends at 64" in [
        problem.reason for problem in problems
    ]
    with pytest.raises(BundleInvalidError) as caught:
        gate_limits.parse(gates)
    assert caught.value.why is not None and caught.value.why.startswith("`gates.x` is not a key that this version")
