"""The limits that a manifest sets: read, or refused at their keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.schema import gates as schema
from edgepack_runtime.schema.fields import read
from edgepack_runtime.schema.gates import (
    AccuracyLimits,
    ColdStartLimits,
    Floors,
    Gates,
    LatencyLimits,
    LengthLimits,
    Limits,
    ManifestAccuracy,
    MemoryLimits,
    SizeLimits,
    SustainedLimits,
)
from edgepack_runtime.stats import metrics
from edgepack_runtime.stats.metrics import Metric

METRES: Any = "metres"
GATES: dict[str, Any] = {
    "accuracy": {"metric": "accuracy", "min": 0.85, "max_drop_points": 2.0, "confidence": 0.95},
    "latency": {"p50_ms": 1000, "p95_ms": 1000, "threads": 1},
    "memory": {"peak_rss_mib": 2000},
    "size": {"model_mib": 0.1, "bundle_mib": 1},
    "cold_start": {"ms": 60000},
}


def test_all_limits_are_read() -> None:
    assert Limits.parse(GATES) == Limits(
        accuracy=ManifestAccuracy(metric="accuracy", min=0.85, max_drop_points=2.0, confidence=0.95),
        latency=LatencyLimits(p50_ms=1000.0, p95_ms=1000.0, threads=1),
        memory=MemoryLimits(peak_rss_mib=2000.0),
        size=SizeLimits(model_mib=0.1, bundle_mib=1.0),
        cold_start=ColdStartLimits(ms=60000.0),
    )
    assert Limits.parse(dict.fromkeys(GATES)) == Limits()
    assert Limits.parse({}) == Limits()
    assert Limits.parse({"accuracy": {"metric": "macro_f1", "min": 0.5}}).accuracy.metric == "macro_f1"
    baseline = {"name": "hotel", "version": "1.1.0", "target": "jetpack6", "manifest_sha256": "0" * 64}
    asked = Limits.parse({"accuracy": {"baseline": baseline, "max_regression_points": 0.5}}).accuracy
    assert (asked.baseline, asked.max_regression_points) == ("hotel 1.1.0", 0.5)
    per_class = {"recall": 0.8, "recall_of": {"a": 0.9}, "precision": None, "precision_of": {}, "f1_of": {"b": 0.5}}
    floors = Limits.parse({"accuracy": {"per_class": per_class}}).accuracy.floors()
    assert floors == {"recall": Floors(0.8, {"a": 0.9}), "f1": Floors(None, {"b": 0.5})}
    assert [floors["recall"].of("a"), floors["recall"].of("b"), floors["f1"].of("a")] == [0.9, 0.8, None]


def test_every_limit_on_time_is_read() -> None:
    asked = {
        "p99_ms": 30,
        "by_length": [{"max_tokens": 32, "p95_ms": 3, "p50_ms": None}, {"max_tokens": 128, "p99_ms": 9}],
        "sustained": {"seconds": 60, "max_slowdown_percent": 15},
    }
    assert Limits.parse({"latency": asked}) == Limits(
        latency=LatencyLimits(
            p99_ms=30.0,
            by_length=(LengthLimits(32, p95_ms=3.0), LengthLimits(128, p99_ms=9.0)),
            sustained=SustainedLimits(60.0, 15.0),
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
        {"memory": {}},
        {"cold_start": {"ms": float("nan")}},
    ],
)
def test_a_gate_that_cannot_be_measured_is_never_skipped(gates: dict[str, Any]) -> None:
    with pytest.raises(BundleInvalidError):
        Limits.parse(gates)


def test_every_problem_of_the_limits_is_found_at_its_key() -> None:
    by_length = [{"max_tokens": 64, "p95_ms": 0}, {"max_tokens": 32, "p50_ms": 3, "p99_ms": 2}]
    gates = {"accuracy": {"min": 2, "per_class": {"recall_of": {"好": 2}}}, "latency": {"by_length": by_length}, "x": 1}
    _, problems = read(Gates, gates)
    assert [problem.path for problem in problems] == [
        ("x",),
        ("accuracy", "min"),
        ("accuracy", "per_class", "recall_of", "好"),
        ("latency", "by_length", 0, "p95_ms"),
        ("latency", "by_length", 1, "p50_ms"),
        ("latency", "by_length", 1, "max_tokens"),
    ]
    assert "`gates.latency.by_length[1].max_tokens` is 32, and the budget before it ends at 64" in [
        problem.reason("gates") for problem in problems
    ]
    with pytest.raises(BundleInvalidError) as caught:
        Limits.parse(gates)
    assert caught.value.why is not None and caught.value.why.startswith("`gates.x` is not a key that this version")


def test_every_limit_is_declared_with_its_unit_and_direction() -> None:
    declared = schema.declared()
    assert [gate for gate, limit in declared.items() if limit.minimum] == [
        "accuracy.min", "accuracy.per_class.recall", "accuracy.per_class.precision", "accuracy.per_class.f1",
        "accuracy.above_majority", "accuracy.min_of",
    ]  # fmt: skip
    assert all(limit.description.endswith(".") for limit in declared.values())


def test_a_limit_is_in_the_direction_of_its_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(metrics.METRICS, "metres", Metric(unit="m", more_is_better=False))
    for metric, asked, wrong in (
        ("accuracy", AccuracyLimits(metric="accuracy", min=0.5, max=0.5), ["max"]),
        ("metres", AccuracyLimits(metric=METRES, min=0.5, max_drop_points=1.0), ["min"]),
        ("metres", AccuracyLimits(metric=METRES, max=0.5), []),
    ):
        assert [problem.path for problem in asked.problems({})] == [(key,) for key in wrong]
        usual = replace(asked, metric=None)  # its side is known with the task
        assert not list(usual.problems({}))
        assert [problem.path for problem in usual.wrong_side(metric)] == [(key,) for key in wrong]


@pytest.mark.parametrize(
    ("gate", "minimum"),
    [
        ("accuracy.min", True),
        ("accuracy.per_class.f1", True),
        ("accuracy.above_majority", True),
        ("accuracy.max", False),
        ("accuracy.max_drop_points", False),
        (schema.by_length(64, "p95_ms"), False),
    ],
)
def test_a_limit_of_a_check_has_one_direction(gate: str, minimum: bool) -> None:
    limit = schema.limit_named(gate)
    assert (limit.gate, limit.minimum) == (gate, minimum)
    assert schema.is_by_length(gate) is (gate == "latency.max_tokens_64.p95_ms")


@pytest.mark.parametrize("gate", ["acuracy.min", "latency.max_tokens_64.p42_ms", "latency.max_tokens_.p95_ms"])
def test_a_gate_of_another_name_is_an_error(gate: str) -> None:
    with pytest.raises(KeyError):
        schema.limit_named(gate)


def test_gates_of_time_are_those_that_other_programs_disturb() -> None:
    of_time = {gate for gate in schema.declared() if schema.is_of_time(gate)}
    assert {gate.partition(".")[0] for gate in of_time} == {"latency", "cold_start"}
    assert {"latency.sustained.max_slowdown_percent", "cold_start.ms"} <= of_time
    assert schema.is_of_time("latency.max_tokens_16.p95_ms")
    assert not schema.is_of_time("a.gate_of_a_later_version")
