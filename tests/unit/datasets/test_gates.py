"""What a gate can show with so many test rows: the same that the gate itself says."""

from __future__ import annotations

from typing import Any

import pytest

from edgepack.artifacts import Row
from edgepack.datasets.gates import (
    CHANGED,
    DROPS,
    MOST_GATED_ROWS,
    best_drop,
    best_value,
    check_gate,
    rows_for_drop,
    suggested_drop,
    units_of,
)
from edgepack.recipe.gates import AccuracyGate
from edgepack_runtime import metrics, scoring
from edgepack_runtime.spans import Span

LABELS = ["no", "yes"]
ONE = [Row(f"第{n}条", "yes" if n % 3 == 0 else "no") for n in range(240)]
MANY = [Row(f"第{n}条", ("a", "b", "c")[: n % 4]) for n in range(120)]
SPANS = [Row(f"第{n}条文本", tuple(Span(i, i + 1, "xy"[i % 2]) for i in range(n % 4))) for n in range(120)]


@pytest.mark.parametrize(
    ("metric", "rows"),
    [
        ("accuracy", ONE),
        ("macro_f1", ONE),
        ("micro_f1", ONE),
        ("f1", ONE),
        ("accuracy", MANY),
        ("macro_f1", MANY),
        ("micro_f1", MANY),
        ("entity_f1", SPANS),
        ("macro_f1", SPANS),
    ],
)
def test_perfect_answers_reach_what_the_gate_says(metric: str, rows: list[Row]) -> None:
    truths = [row.label for row in rows]
    positive = metrics.positive_label(LABELS, truths) if metric == "f1" else None
    classes = LABELS if rows is ONE else ["a", "b", "c"] if rows is MANY else ["x", "y"]
    units = units_of(metric, len(rows), lambda: rows, classes)
    drop = scoring.drop(metric, truths, truths, truths, 0.95, positive, classes)
    assert best_drop(metric, units, 0.95) == pytest.approx(drop.high)
    assert best_value(metric, units, 0.95) == pytest.approx(
        scoring.interval(metric, truths, truths, 0.95, positive, classes).low
    )


@pytest.mark.parametrize(("metric", "labels"), [("macro_f1", ["maybe", "no", "yes"]), ("f1", ["1", "no"])])
def test_a_label_without_a_test_row_costs_what_the_gate_says(metric: str, labels: list[str]) -> None:
    rows = ONE if metric == "macro_f1" else [Row("x", "no")] * 240
    truths = [row.label for row in rows]
    units = units_of(metric, len(rows), lambda: rows, labels)
    drop = scoring.drop(metric, truths, truths, truths, 0.95, "1", labels)
    assert best_drop(metric, units, 0.95) == pytest.approx(drop.high)
    assert best_value(metric, units, 0.95) == pytest.approx(
        scoring.interval(metric, truths, truths, 0.95, "1", labels).low
    )


def test_a_label_without_a_test_row_is_named() -> None:
    gate = AccuracyGate.model_validate({"metric": "macro_f1", "min": 0.3})
    (found,) = check_gate(gate, len(ONE), lambda: ONE, ["maybe", "no", "perhaps", "quite", "so", "yes"])
    assert found == (
        "`gates.accuracy` is about macro F1, and no test row has 'maybe', 'perhaps', 'quite' and 1 more: what is "
        "unknown of 4 labels out of 6 makes its interval 0.6667 wider",
        "add test rows of every label",
    )
    assert check_gate(gate, len(ONE), lambda: ONE, LABELS) == []
    gate = AccuracyGate.model_validate({"metric": "macro_f1", "min": 0.5})
    both = check_gate(gate, len(ONE), lambda: ONE, ["maybe", "no", "perhaps", "quite", "yes"])
    assert len(both) == 2 and "were every answer right, macro F1 would be known to be 0.3" in both[0][0]
    assert both[0][1].startswith("use a limit of 0.38 or less")


def test_a_positive_label_without_a_test_row_is_named() -> None:
    gate = AccuracyGate.model_validate({"metric": "f1", "min": 0.5, "max_drop_points": 1.0})
    found = check_gate(gate, 50, lambda: [Row("x", "no")] * 50, ["no", "yes"])
    assert found == [("`gates.accuracy` is about the F1 of 'yes', and no test row has it", "add test rows of it")]


def said(rows: int, metric: str = "accuracy", **limits: float) -> list[str]:
    held = [ONE[n % len(ONE)] for n in range(rows)]
    gate = AccuracyGate.model_validate({"metric": metric, **limits})
    return [f"{reason}: {fix}" for reason, fix in check_gate(gate, rows, lambda: held, LABELS)]


def test_a_gate_that_perfect_answers_cannot_pass_is_named() -> None:
    assert said(30, max_drop_points=1.0) == [
        "`gates.accuracy.max_drop_points` is 1, and 30 test rows cannot show it: were no answer changed, accuracy "
        "could yet have dropped by 11.35 points: use 381 test rows or more, or a limit of 11.4 or more; as it is, the "
        "gate ends inconclusive whatever is trained"
    ]
    (found,) = said(30, min=0.9, max_drop_points=15)
    assert "were every answer right, accuracy would be known to be 0.8843 or more, and no better" in found
    assert "use 36 test rows or more, or a limit of 0.88 or less" in found


@pytest.mark.parametrize(("metric", "decides"), [("accuracy", 381), ("micro_f1", 381)])
def test_the_number_of_rows_named_is_the_first_that_decides(metric: str, decides: int) -> None:
    assert said(decides, metric, max_drop_points=1.0) == []
    assert f"use {decides} test rows" in said(decides - 1, metric, max_drop_points=1.0)[0]


@pytest.mark.parametrize("metric", ["macro_f1", "f1"])
def test_f1_takes_more_rows_than_accuracy(metric: str) -> None:
    assert said(381, max_drop_points=1.0) == []
    assert len(said(381, metric, max_drop_points=1.0)) == 1
    assert said(1500, metric, max_drop_points=1.0) == []


def said_of_classes(**floors: Any) -> list[str]:
    held = [Row("x", "正面")] * 200 + [Row("x", "负面")] * 20 + [Row("x", "中性")] * 5
    gate = AccuracyGate.model_validate({"metric": "accuracy", "per_class": floors})
    return [reason for reason, _ in check_gate(gate, len(held), lambda: held, ["正面", "负面", "中性"])]


def test_a_floor_that_a_class_has_too_few_rows_for_is_named() -> None:
    assert said_of_classes(recall=0.4) == []
    (found,) = said_of_classes(recall=0.9)
    assert found == (
        "`gates.accuracy.per_class`: a recall of 0.9 cannot be shown for '中性' and 1 more: were all 5 test answers "
        "of '中性' right, it would be known to be 0.4782 or more"
    )
    assert said_of_classes(f1_of={"负面": 0.9}) == []
    assert said_of_classes(recall_of={"负面": 0.9}, precision_of={"正面": 0.98})  # F1 is surer than its parts
    assert len(said_of_classes(recall=0.9, recall_of={"中性": 0.3, "负面": 0.8})) == 0


def test_each_floor_that_cannot_be_shown_is_told_of_its_own_classes() -> None:
    """A class without a test row cannot show the lowest floor, which is not the floor of the class that is named."""
    held = [Row("x", "正面")] * 200 + [Row("x", "负面")] * 2
    labels = ["正面", "负面", "中性", "好", "坏"]

    def told(**floors: Any) -> tuple[str, str]:
        gate = AccuracyGate.model_validate({"metric": "accuracy", "per_class": floors})
        (found,) = check_gate(gate, len(held), lambda: held, labels)
        return found

    reason, fix = told(recall=0.01, recall_of={"负面": 0.5})
    assert reason == (
        "`gates.accuracy.per_class`: a recall of 0.5 cannot be shown for '负面', nor one of 0.01 for 3 more: were all "
        "2 test answers of '负面' right, it would be known to be 0.1581 or more; 3 of the others have no test row"
    )
    assert fix == "add test rows of them, or lower their floors; as it is, the gate ends inconclusive"
    reason, fix = told(f1=0.01)
    assert reason == (
        "`gates.accuracy.per_class`: an F1 of 0.01 cannot be shown for '中性' and 2 more: '中性' and 2 of the others "
        "have no test row"
    )
    reason, _ = told(recall=0.3, recall_of={"负面": 0.1, "好": 0.2, "坏": 0.1})
    assert "a recall of 0.3 cannot be shown for '中性', nor one of 0.1 to 0.2 for 2 more: '中性' and 2 of" in reason
    reason, fix = told(recall_of={"坏": 0.1})
    assert reason.endswith("a recall of 0.1 cannot be shown for '坏': '坏' has no test row")
    assert fix.startswith("add test rows of it, or lower its floor;")


def test_floors_alone_ask_for_nothing_of_the_mean() -> None:
    gate = AccuracyGate.model_validate({"metric": "accuracy", "per_class": {"recall": 0.1}})
    assert check_gate(gate, 40, lambda: [Row("x", label) for label in LABELS] * 20, LABELS) == []


def test_what_no_bundle_has_rows_for_is_named() -> None:
    (found,) = said(5000, max_drop_points=0.1)
    assert f"{MOST_GATED_ROWS} test rows cannot show it" in found
    assert "test rows or more, with `gates.golden.rows: " in found and "or a limit of 0.2 or more" in found
    (found,) = said(5000, max_drop_points=0.001)
    assert "use a limit of 0.2 or more" in found
    assert said(5000, max_drop_points=0.2) == []


def test_where_nothing_is_to_be_found_nothing_is_said() -> None:
    gate = AccuracyGate(metric="entity_f1", max_drop_points=1.0)
    assert check_gate(gate, 2, lambda: [Row("一", ()), Row("二", ())], []) == []


def test_more_rows_than_a_gate_reads_take_a_key(rows: int = 1000) -> None:
    gate = AccuracyGate.model_validate({"metric": "accuracy", "min": 0.998})
    [(reason, fix)] = check_gate(gate, rows, lambda: ONE, LABELS, most=500)
    assert "500 test rows cannot show it" in reason
    needed = int(fix.split()[1])
    assert fix.startswith(f"use {needed} test rows or more, with `gates.golden.rows: {needed}`, or a limit of")
    assert check_gate(gate, needed, lambda: ONE, LABELS, most=needed) == []
    assert check_gate(gate, needed, lambda: ONE, LABELS, most=needed - 1) != []


@pytest.mark.parametrize("points", DROPS)
def test_a_limit_is_suggested_from_the_number_of_rows_named_on(points: float) -> None:
    rows = rows_for_drop("accuracy", 100, [100], 0.95, points)
    assert rows is not None
    assert suggested_drop("accuracy", [rows], 0.95) == points
    assert suggested_drop("accuracy", [rows - 1], 0.95) != points


@pytest.mark.parametrize("rows", [100, 250, 700, 2000])
def test_a_suggested_limit_passes_with_some_answers_changed(rows: int) -> None:
    points = suggested_drop("accuracy", [rows], 0.95)
    assert points is not None
    changed = max(1, int(CHANGED / 2 * rows))
    truths = ["a"] * rows
    first = ["b"] * changed + ["a"] * (rows - changed)
    found = scoring.drop("accuracy", truths, first, first[::-1], 0.95)
    assert found.value == 0
    assert 100 * found.high <= points


@pytest.mark.parametrize("units", [[], [1], [2], [12], [30]])
def test_too_few_rows_have_no_limit(units: list[float]) -> None:
    assert suggested_drop("accuracy", units, 0.95) is None
