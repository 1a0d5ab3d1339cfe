"""How wide intervals of gates are with so many test rows, and labels that no row has."""

from __future__ import annotations

import math
from typing import Any

import pytest

from edgepack.artifacts import Row
from edgepack.data.gates import (
    SUGGESTED_DROPS,
    check_gate,
    check_majority,
    describe_gate,
    drop_half_width,
    half_width,
    rows_above_majority,
    rows_for_drop,
    suggested_drop,
    suggested_min,
)
from edgepack.recipe.gates import AccuracyGate
from edgepack_runtime.bundle.golden import GoldenRow
from edgepack_runtime.gate.accuracy import _majority_check as majority_check
from edgepack_runtime.gate.accuracy import measure
from edgepack_runtime.stats import intervals, scoring
from edgepack_runtime.tasks.registry import ONE_TEXT, task_by_name

ONE = [Row(f"第{n}条", "yes" if n % 10 == 0 else "no") for n in range(200)]


def gate(**keys: Any) -> AccuracyGate:
    return AccuracyGate.model_validate({"metric": "accuracy", **keys})


@pytest.mark.parametrize(("rows", "points"), [(20, 15.2), (200, 4.4), (2000, 1.3)])
def test_the_half_width_is_that_of_the_gate(rows: int, points: float) -> None:
    truths = ["a"] * rows
    found = scoring.interval("accuracy", truths, ["b"] * (rows // 10) + ["a"] * (rows - rows // 10), 0.95)
    assert half_width(rows, 0.95) == pytest.approx(50 * (found.high - found.low))
    assert half_width(rows, 0.95) == pytest.approx(points, abs=0.1)
    assert half_width(rows, 0.99) > half_width(rows, 0.95)


def test_a_line_describes_how_wide_the_intervals_are() -> None:
    told = "gates.accuracy: 200 golden rows give an interval of about ±4.4 points where 90% are right"
    assert describe_gate(gate(min=0.99), 200, ONE) == told
    assert describe_gate(gate(max_drop_points=1.0), 200, ONE) == f"{told}, and about ±2.3 points for a drop"
    sampled = describe_gate(gate(min=0.5), 200, ONE, most=20)
    assert sampled.startswith("gates.accuracy: 20 golden rows give an interval of")


@pytest.mark.parametrize("keys", [{"metric": "macro_f1", "min": 0.5}, {"per_class": {"recall": 0.5}}])
def test_where_classes_count_the_rarest_label_is_named(keys: dict[str, Any]) -> None:
    assert describe_gate(gate(**keys), 200, ONE).endswith("; the rarest label, 'yes', has 20 of them: ±15.2 points")
    assert describe_gate(gate(**keys), 9, [Row("x", ())] * 9).endswith("where 90% are right")


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        ({"min": 0.9}, None),
        ({"metric": "micro_f1", "min": 0.9}, None),
        ({"metric": "macro_f1", "min": 0.9}, "'a', 'b', 'c' and 1 more"),
        ({"per_class": {"f1": 0.1}}, "'a', 'b', 'c' and 1 more"),
        ({"per_class": {"recall_of": {"a": 0.1, "no": 0.2}}}, "'a'"),
    ],
)
def test_labels_without_a_test_row_are_named(keys: dict[str, Any], names: str | None) -> None:
    found = check_gate(gate(**keys), ONE * 2, ["no", "yes", "a", "b", "c", "d"])
    reason = f"`gates.accuracy` asks for figures of {names}, and no test row has such a label: they are unknown"
    assert found == ([] if names is None else [(reason, "add test rows of every label")])
    ((reason, _),) = check_gate(gate(metric="f1", min=0.5), [Row("x", "0")] * 50, ["0", "1"])
    assert reason.startswith("`gates.accuracy` asks for figures of '1', and no test row")  # the positive label
    assert check_gate(gate(metric="f1", min=0.5), ONE, ["no", "yes"]) == []


def shown_better(right: int, wrong: int, most: int, rows: int) -> str:
    """The verdict of the gate on a model that has `right` of the rows without the most frequent answer right, and
    `wrong` of the others wrong."""
    answers = ["a"] * (most - wrong) + ["b"] * wrong + ["b"] * right + ["a"] * (rows - most - right)
    golden = [GoldenRow(str(row), "a" if row < most else "b", "a") for row in range(rows)]
    return majority_check(measure(task_by_name(ONE_TEXT), golden, answers, "accuracy", 0.95, ["a", "b"]), 0.95).verdict


@pytest.mark.parametrize(
    ("most", "rows", "warned"), [(21, 30, True), (15, 30, True), (90, 100, True), (70, 100, False)]
)
def test_test_rows_that_show_few_good_models_to_be_better_than_one_answer_are_too_few(
    most: int, rows: int, warned: bool
) -> None:
    assert len(list(check_majority(most, rows, 0.95))) == warned
    right, wrong = round((rows - most) * (1 + most / rows) / 2), round(most * (1 - most / rows) / 2)
    assert (shown_better(right, wrong, most, rows) == "inconclusive") is warned
    answers = [Row("x", "a")] * most + [Row("x", "b")] * (rows - most)
    reasons = [reason for reason, _ in check_gate(gate(min=0.1), answers, ["a", "b"])]
    assert [reason.startswith(f"{rows} test rows are too few to show that a good model") for reason in reasons] == (
        [True] * warned
    )
    assert list(check_majority(rows, rows, 0.95)) == []


@pytest.mark.parametrize(("majority", "power"), [(0.5, 0.8), (0.7, 0.5), (0.7, 0.8), (0.9, 0.8)])
def test_as_many_rows_show_as_large_a_share_of_good_models(majority: float, power: float) -> None:
    rows = rows_above_majority(majority, 0.95, power)
    most = round(majority * rows)
    missed = (1 - majority) / 2
    lost = [math.exp(intervals.log_binomial(most, k, missed)) for k in range(most + 1)]
    won = [math.exp(intervals.log_binomial(rows - most, k, 1 - missed)) for k in range(rows - most + 1)]
    # Tango's interval excludes 0 where McNemar's statistic exceeds that of the confidence.
    least = intervals.normal(0.95)
    share = sum(
        a * b for k, a in enumerate(lost) for j, b in enumerate(won) if j > k and (j - k) / math.sqrt(j + k) > least
    )
    assert share == pytest.approx(power, abs=0.1)  # counts are whole


@pytest.mark.parametrize("rows", [20, 148, 2000])
@pytest.mark.parametrize("limit", [0.8, 0.97, 0.99, 0.9999])
def test_a_min_that_not_even_all_rows_right_can_show_is_named(rows: int, limit: float) -> None:
    perfect = intervals.verdict_at_least(intervals.proportion(rows, rows, 0.95), limit)
    found = check_gate(gate(min=limit), [Row("x", "a")] * rows * 2, ["a"], most=rows)
    assert len(found) == (perfect != intervals.PASS)
    assert all(f"which {rows} golden rows cannot show" in reason for reason, _ in found)
    assert check_gate(gate(min=limit, metric="macro_f1"), [Row("x", "a")] * rows, ["a"]) == []


@pytest.mark.parametrize("rows", [20, 148, 2000])
@pytest.mark.parametrize("points", [0.1, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("key", ["max_drop_points", "max_regression_points"])
def test_a_drop_that_answers_all_alike_cannot_show_is_named(rows: int, points: float, key: str) -> None:
    unchanged = intervals.verdict_at_most(intervals.paired_drop(0, 0, rows, 0.95), points / 100)
    baseline = {"baseline": "a.edgepack"} if key == "max_regression_points" else {}
    found = check_gate(gate(**{key: points}, **baseline), [Row("x", "a")] * rows, ["a"])
    assert [f"`gates.accuracy.{key}`" in reason for reason, _ in found] == [True] * (unchanged != intervals.PASS)


@pytest.mark.parametrize("rows", [rows_for_drop(0.95), 250, 700, 2000])
def test_a_suggested_limit_is_twice_what_some_changed_answers_are_known_to(rows: int) -> None:
    points = suggested_drop(rows, 0.95)
    assert points in SUGGESTED_DROPS
    changed = max(1, rows // 200)
    found = intervals.paired_drop(changed, changed, rows, 0.95)
    assert found.value == 0 and 100 * found.high <= points / 2


@pytest.mark.parametrize("rows", [0, 1, 2, 12, 30, 100, rows_for_drop(0.95) - 1])
def test_too_few_rows_have_no_limit(rows: int) -> None:
    assert suggested_drop(rows, 0.95) is None and drop_half_width(rows, 0.95) > SUGGESTED_DROPS[-1] / 2


@pytest.mark.parametrize("rows", [30, 60, 100])
@pytest.mark.parametrize("majority", [0.1, 0.3, 0.5, 0.7, 0.8])
def test_no_model_that_is_shown_to_be_better_than_one_answer_fails_a_suggested_min(rows: int, majority: float) -> None:
    most = round(majority * rows)
    least = suggested_min(most / rows, rows, 0.95)
    assert most / rows < least < intervals.proportion(rows, rows, 0.95).low
    for lost in range(most + 1):
        won = next(
            (n for n in range(lost, rows - most + 1) if intervals.paired_drop(lost, n, rows, 0.95).high < 0), None
        )
        if won is not None:
            found = intervals.proportion(most - lost + won, rows, 0.95)
            assert intervals.verdict_at_least(found, least) != intervals.FAIL


@pytest.mark.parametrize(("majority", "rows"), [(1.0, 1), (0.6, 5), (0.9, 30), (0.998, 2000)])
def test_a_perfect_model_passes_a_suggested_min_on_few_rows_too(majority: float, rows: int) -> None:
    assert 0 < suggested_min(majority, rows, 0.95) < intervals.proportion(rows, rows, 0.95).low
    assert suggested_min(0.0, 0, 0.95) == 0.01
