"""A missed gate names figure, distance and the stage that lost it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.conftest import having

from edgepack import artifacts
from edgepack.artifacts import LedgerRow, Variation, proportion
from edgepack.report.loss_attribution import explain
from edgepack_runtime.schema.gates import limit_named
from edgepack_runtime.schema.receipt import GateCheck, GateReceipt, Score
from edgepack_runtime.stats import intervals, metrics
from edgepack_runtime.stats.metrics import SCORE


def ledger(**right: int) -> list[LedgerRow]:
    return [LedgerRow(stage, proportion(n, 1000), p50_ms=1.0) for stage, n in right.items()]


def receipt(checks: list[GateCheck], metric: str = "accuracy") -> GateReceipt:
    return GateReceipt("fail", tuple(checks), accuracy=Score(metric, 0.9))


def check(gate: str, value: float | None, limit: float, unit: str, verdict: str = "fail") -> GateCheck:
    low, high = (None, None) if value is None else (value * 0.99, value * 1.01)
    return GateCheck(gate, verdict, value, low, high, limit, unit, 1000, 0.95, "why")


@pytest.mark.parametrize(
    ("rows", "lost_by"),
    [
        ({"teacher": 800, "student": 790}, "no stage reaches the limit: the best, teacher, has 80.0 %"),
        ({"teacher": 800, "student": 899, "INT8": 790}, "no stage reaches the limit: the best, student, has 89.9 %"),
        ({"teacher": 950, "student": 880, "INT8": 870}, "lost by stage student: 7.00 points below stage teacher"),
        ({"teacher": 950, "student": 940, "INT8": 850}, "lost by stage INT8: 9.00 points below stage student"),
        # reached late, and only just: what is at the limit has reached it
        ({"teacher": 899, "student": 900, "INT8": 850}, "lost by stage INT8: 5.00 points below stage student"),
        # lost twice
        (
            {"teacher": 950, "student": 880, "float": 910, "INT8": 850, "on a": 849},
            "lost by stage INT8: 6.00 points below stage float",
        ),
        # lost once, and never again where it was
        ({"teacher": 950, "student": 880, "INT8": 890}, "lost by stage student: 7.00 points below stage teacher"),
        # reached by all but the target itself
        ({"teacher": 950, "INT8": 910, "on a": 850}, "lost on a: 6.00 points below stage INT8"),
        # regained
        (
            {"teacher": 950, "student": 880, "INT8": 910},
            "lost by no stage: INT8 reaches the limit, and the golden rows are below it",
        ),
    ],
)
def test_the_stage_that_lost_the_accuracy(rows: dict[str, int], lost_by: str) -> None:
    (line,) = explain(receipt([check("accuracy.min", 0.85, 0.9, "fraction")]), ledger(**rows))
    assert line == f"accuracy.min: 85.0 %, limit >= 90.0 %: missed by 5.00 points; {lost_by}"


@pytest.mark.parametrize(
    ("errors", "lost_by"),
    [
        ({"teacher": 0.45, "student": 0.5}, "no stage reaches the limit: the best, teacher, has 0.450"),
        ({"teacher": 0.3, "student": 0.35, "INT8": 0.5}, "it grew by 0.150 after stage student"),
    ],
)
def test_the_stage_at_which_an_error_grew(
    errors: dict[str, float], lost_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(metrics.METRICS, "error", metrics.Metric(unit="", more_is_better=False))
    rows = [
        LedgerRow(stage, artifacts.Score(error, error, error, 1000, 0.95, "error"), p50_ms=1.0)
        for stage, error in errors.items()
    ]
    (line,) = explain(receipt([check("accuracy.max", 0.5, 0.4, "")], "error"), rows)
    assert line == f"accuracy.max: 0.500, limit <= 0.400: missed by 0.100; {lost_by}"


@pytest.mark.parametrize(
    ("rows", "lost_by"),
    [
        ({"linear": 850, "teacher": 840}, "no stage reaches the limit: the best, linear, has 85.0 %"),
        ({"linear": 910, "teacher": 840}, "stage linear has 91.0 %, and no later stage reaches the limit"),
        ({"linear": 910, "teacher": 950, "student": 880}, "lost by stage student: 7.00 points below stage teacher"),
    ],
)
def test_the_linear_model_is_a_yardstick_and_loses_nothing(rows: dict[str, int], lost_by: str) -> None:
    (line,) = explain(receipt([check("accuracy.min", 0.84, 0.9, "fraction")]), ledger(**rows))
    assert line.endswith(f"missed by 6.00 points; {lost_by}")


@pytest.mark.parametrize("stage", ["ensemble", "cascade"])
def test_a_drop_against_float_names_what_ships(stage: str) -> None:
    drop = check("accuracy.max_drop_points", 3.4, 2.0, "points")
    rows = [*ledger(linear=900, student=930), LedgerRow(stage, proportion(900, 1000))]
    (line,) = explain(receipt([drop]), rows)
    assert line.endswith(f"lost by stages quantize and combine: the {stage} that ships against the float ONNX alone")


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (check("size.model_mib", 4.0, 5.0, "MiB", "pass"), []),
        (
            check("accuracy.min", 0.9, 0.9, "fraction", "inconclusive"),
            ["accuracy.min: 90.0 %, limit >= 90.0 %: inconclusive, [89.1, 90.9]; why"],
        ),
        (check("latency.p50_ms", None, 5.0, "ms", "inconclusive"), ["latency.p50_ms: inconclusive: why"]),
    ],
)
def test_a_line_has_the_figure_and_its_reason(row: dict[str, Any], expected: list[str]) -> None:
    assert explain(receipt([row]), ledger(student=900)) == expected


def test_each_figure_stands_once() -> None:
    """As a device's own receipt has it."""
    figures = intervals.Interval(5.1, 3.0, math.inf)
    told = {"limit": 40.0, "n": 99, "confidence": 0.95, "detail": "the last third of 10 s"}
    gate = limit_named("latency.sustained.max_slowdown_percent")
    row = GateCheck.sampled(gate, "inconclusive", figures, **told)  # type: ignore[arg-type]
    (line,) = explain(receipt([row]), ledger(student=900))
    assert line == (
        "latency.sustained.max_slowdown_percent: 5.1 %, limit <= 40.0 %: inconclusive, 3.0 % or more; "
        "the last third of 10 s"
    )
    row = GateCheck.read_once(limit_named("size.model_mib"), 7.0, limit=5.0, detail="model.onnx")
    (line,) = explain(receipt([row]), ledger(student=900))
    assert line.count("7.0") == line.count("5.0 MiB") == 1


@pytest.mark.parametrize(
    ("limit_ms", "lost_by"),
    [(0.5, "stage student: its shape is too slow in the form that ships"), (2.0, "stage gate: student kept")],
)
def test_the_stage_that_lost_the_latency(limit_ms: float, lost_by: str) -> None:
    (line,) = explain(receipt([check("latency.p50_ms", 3.0, limit_ms, "ms")]), ledger(student=900))
    assert line.startswith(f"latency.p50_ms: 3.00 ms, limit <= {limit_ms:.2f} ms: missed by {3 - limit_ms:.2f} ms")
    assert f"lost by {lost_by}" in line


def test_the_stage_is_known_where_the_ledger_is_in_the_metric_of_the_gate() -> None:
    missed = receipt([check("accuracy.min", 0.85, 0.9, "fraction")], metric="macro_f1")
    rows = ledger(teacher=950, student=880)
    (line,) = explain(missed, rows)
    assert line.endswith("missed by 5.00 points; the ledger is in accuracy, so the stage is not known")
    (line,) = explain(missed, [replace(row, score=replace(row.score, metric="macro_f1")) for row in rows])
    assert line.endswith("missed by 5.00 points; lost by stage student: 7.00 points below stage teacher")


@pytest.mark.parametrize(
    ("gate", "unit", "detail", "lost_by"),
    [
        ("latency.p99_ms", "ms", "why", "the ledger has no p99; its p95: -"),
        ("latency.max_tokens_32.p50_ms", "ms", "why", "the ledger has no texts of that length; p95 of all texts: -"),
        (
            "latency.sustained.max_slowdown_percent",
            "percent",
            "the last third; 2 throttling events",
            "missed by 5.0 %; lost on the device, not by a stage; the last third; 2 throttling events",
        ),
    ],
)
def test_what_the_build_did_not_measure_is_not_blamed_on_a_stage(
    gate: str, unit: str, detail: str, lost_by: str
) -> None:
    missed = replace(check(gate, 20.0, 15.0, unit), detail=detail)
    (line,) = explain(receipt([missed]), ledger(student=900))
    assert line.startswith(f"{gate}: 20.") and lost_by in line


def test_the_ledger_of_a_target_has_no_other_targets_and_no_other_files(built: Any) -> None:
    """Else a target or a file that reached the limit would hide, or take the blame, for one that did not."""
    (first,) = built.target_results
    other = replace(first, bundle=replace(first.bundle, target="b"), gate=replace(first.gate, ledger=row_of("on b")))
    two = replace(built, target_results=(first, other))
    stages = [[row.stage for row in two.ledger_of(item)] for item in two.target_results]
    models = ["teacher", "student", "static graph", "float ONNX"]
    assert stages == [[*models, "INT8 ONNX", first.gate.ledger.stage], [*models, "INT8 ONNX", "on b"]]
    in_float = Variation(("b",), built.export.float_model, "faster")
    of_two = having(two, export=replace(built.export, variations=(in_float,)))
    assert [row.stage for row in of_two.ledger_of(other)] == [*models, "on b"]
    assert of_two.ledger_of(first) == two.ledger_of(first)


def row_of(stage: str) -> LedgerRow:
    return ledger(**{stage: 900})[0]


def test_the_time_of_the_target_itself_is_no_stage_that_kept_to_the_limit() -> None:
    timed = ledger(**{"student": 900, "INT8": 900, "on a": 900})
    rows = [replace(row, p50_ms=ms) for row, ms in zip(timed, (None, 3.0, 1.0), strict=True)]
    (line,) = explain(receipt([check("latency.p50_ms", 3.0, 2.0, "ms")]), rows)
    assert line.endswith("lost by stage student: its shape is too slow in the form that ships (INT8 3.00 ms)")


@pytest.mark.parametrize(
    ("gate", "unit", "lost_by"),
    [
        ("memory.peak_rss_mib", "MiB", "lost on the device: memory is measured there alone"),
        ("size.model_mib", "MiB", "lost by the imported graphs"),
        ("latency.p50_ms", "ms", "lost by the imported model"),
        ("size.bundle_mib", "MiB", "lost by stage bundle"),
    ],
)
def test_an_imported_model_has_no_student_to_blame(gate: str, unit: str, lost_by: str) -> None:
    rows = [replace(row, p50_ms=300.0) for row in ledger(**{"float ONNX": 900})]
    (line,) = explain(receipt([check(gate, 200.0, 100.0, unit)], SCORE), rows)
    assert f"; {lost_by}" in line
    assert "student" not in line


@pytest.mark.parametrize(
    ("stages", "advice"),
    [
        (("teacher", "student", "float ONNX"), "compare their teachers and data"),
        (("float ONNX", "INT8 ONNX"), "compare the two models"),
    ],
)
def test_an_imported_classifier_has_no_teacher_to_compare(stages: tuple[str, ...], advice: str) -> None:
    missed = check("accuracy.max_regression_points", 3.0, 1.0, "points")
    (line,) = explain(receipt([missed]), ledger(**dict.fromkeys(stages, 900)))
    assert line.endswith(f"the earlier release is not a stage of this build: {advice}")


@pytest.mark.parametrize("gate", ["size.model_mib", "latency.p50_ms"])
def test_an_imported_classifier_has_no_student_to_blame(gate: str) -> None:
    rows = [replace(row, p50_ms=300.0) for row in ledger(**{"float ONNX": 900})]
    (line,) = explain(receipt([check(gate, 200.0, 100.0, "ms")]), rows)
    assert "lost by the imported" in line
    assert "student" not in line


@pytest.mark.parametrize(
    ("row", "lost_by"),
    [
        (check("accuracy.min", 0.85, 0.9, "fraction"), "lost on local: 5.00 points below stage linear"),
        (check("latency.p50_ms", 2.0, 1.0, "ms"), "lost on the device, not by a stage; why"),
        (check("size.model_mib", 2.0, 1.0, "MiB"), "its n-grams and labels decide the size of the file"),
    ],
)
def test_a_linear_model_alone_is_the_model_that_loses(row: GateCheck, lost_by: str) -> None:
    (line,) = explain(receipt([row]), ledger(**{"linear": 900, "on local": 850}))
    assert line.endswith(lost_by)
