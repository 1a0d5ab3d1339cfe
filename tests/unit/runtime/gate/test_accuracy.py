"""The accuracy gates: by every metric, on answers of every kind."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.heights import METRES, Height
from tests.synthetic_models import one_each
from tests.unit.runtime.installing import silent
from tests.unit.runtime.tiny_model import TAGS, write_release

from edgepack_runtime.bundle.golden import GoldenRow
from edgepack_runtime.bundle.model_config import ModelConfig
from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.gate import accuracy, runner
from edgepack_runtime.gate.accuracy import Measured
from edgepack_runtime.schema.gates import Floors, ManifestAccuracy
from edgepack_runtime.schema.receipt import GateCheck
from edgepack_runtime.stats import intervals, metrics
from edgepack_runtime.stats.metrics import Answer, Tally
from edgepack_runtime.stats.scoring import Counts
from edgepack_runtime.tasks.registry import INTENT_SLOTS, NUMBER, ONE_TEXT, TOKENS, task_by_name
from edgepack_runtime.tasks.task import Task
from edgepack_runtime.util.spans import Span


def limits(**asked: Any) -> ManifestAccuracy:
    return ManifestAccuracy(**asked)


ONE, SEVERAL, SPANS = task_by_name(ONE_TEXT), task_by_name(ONE_TEXT, multi_label=True), task_by_name(TOKENS)


def measured(
    truths: Sequence[Answer],
    theirs: Sequence[Answer],
    ours: Sequence[Answer],
    metric: str,
    task: Task = ONE,
    classes: Sequence[str] = ("0", "1"),
) -> Measured:
    rows = [GoldenRow(f"{n}", truth, answer) for n, (truth, answer) in enumerate(zip(truths, theirs, strict=True))]
    return accuracy.measure(task, rows, ours, metric, 0.95, classes)


def of(counts: Counts, right: int, metric: str = "accuracy") -> Measured:
    """Rows of the label 1, of which `right` are answered right, so that `counts` come out."""
    both = right - counts.won
    ours = "1" * both + "0" * counts.lost + "1" * counts.won
    theirs = "1" * both + "1" * counts.lost + "0" * counts.won
    return measured("1" * counts.n, theirs.ljust(counts.n, "0"), ours.ljust(counts.n, "0"), metric)


@pytest.mark.parametrize(
    ("counts", "limit", "verdict"),
    [
        (Counts(1000, 5, 3), 1.0, "pass"),
        (Counts(1000, 10, 3), 1.0, "inconclusive"),
        (Counts(1000, 40, 3), 1.0, "fail"),
        (Counts(100, 0, 0), 1.0, "inconclusive"),  # too few rows to say anything about a single point
        (Counts(1000, 3, 40), 1.0, "pass"),
    ],
)
def test_a_drop_is_judged_by_the_rows_that_differ(counts: Counts, limit: float, verdict: str) -> None:
    given = of(counts, right=counts.n * 9 // 10)
    assert (given.errors.count(0), len(given.rows)) == (counts.n * 9 // 10, counts.n)
    [row] = accuracy.checks(given, limits(max_drop_points=limit))
    assert row.verdict == verdict
    assert row.value == pytest.approx((counts.lost - counts.won) / counts.n * 100)
    assert ("would decide" in row.detail) == (verdict == "inconclusive")


def test_a_regression_is_judged_against_the_release_before() -> None:
    def against(theirs: str, **asked: Any) -> GateCheck:
        rows = [GoldenRow("x", "1", "1", None, answer) for answer in theirs]
        given = accuracy.measure(ONE, rows, "1" * 950 + "0" * 50, "accuracy", 0.95, ["0", "1"])
        [row] = accuracy.checks(given, limits(max_regression_points=1.0, **asked))
        return row

    worse = against("1" * 1000, baseline="hotel 1.1.0")
    assert (worse.gate, worse.verdict, worse.value) == ("accuracy.max_regression_points", "fail", 5.0)
    assert "50 rows lost against hotel 1.1.0, 0 won" in worse.detail
    better = against("1" * 900 + "0" * 100)
    assert (better.verdict, better.value) == ("pass", -5.0)
    assert against("1" * 955 + "0" * 45).verdict == "inconclusive"
    with pytest.raises(BundleInvalidError, match="max_regression_points cannot be measured"):
        accuracy.checks(of(Counts(10, 0, 0), 9), limits(max_regression_points=1.0))
    alone = accuracy.measure(ONE, [GoldenRow("x", "1")], "1", "accuracy", 0.95, ["0", "1"])
    with pytest.raises(BundleInvalidError, match="max_drop_points cannot be measured"):
        accuracy.checks(alone, limits(max_drop_points=1.0))


def test_a_useless_model_passes_nothing() -> None:
    truths, constant = "1" * 60 + "0" * 40, "1" * 100
    useless = judged(truths, truths, constant, "accuracy", above_majority=True)
    assert (useless.gate, useless.verdict, useless.value) == ("accuracy.above_majority", "inconclusive", 0.0)
    assert useless.detail == "a model that answers '1' to every text has 60 %"
    worse = judged(truths, truths, "0" * 100, "accuracy", above_majority=True)
    assert (worse.verdict, worse.value) == ("inconclusive", -20.0)
    good = judged(truths, truths, "1" * 60 + "0" * 30 + "1" * 10, "accuracy", above_majority=True)
    assert (good.verdict, good.value) == ("pass", 30.0)
    assert good.low is not None and good.low > 0


def test_a_model_that_finds_nothing_passes_nothing() -> None:
    found = (Span(0, 1, "name"),)
    rows = [GoldenRow("x", found if number % 3 == 0 else (), (), None, None) for number in range(90)]
    for answers, verdict in (([()] * 90, "inconclusive"), ([row.answer for row in rows], "pass")):
        given = accuracy.measure(SPANS, rows, answers, "entity_f1", 0.95, ["name"])
        [check] = accuracy.checks(given, limits(above_majority=True))
        said = "a model that answers '0-1 = name' to every text has 50 %"  # and nothing to every text 0 %
        assert (check.verdict, check.detail) == (verdict, said)


@pytest.mark.parametrize(
    ("task", "metric", "classes", "truths", "constant"),
    [
        (ONE, "f1", "01", ["0"] * 340 + ["1"] * 260, "1"),
        (SEVERAL, "micro_f1", "abc", [()] * 224 + [("a", "b")] * 200 + [("a", "c")] * 176, ("a",)),
        (
            task_by_name(INTENT_SLOTS),
            "intent_accuracy",
            ["intent=a", "intent=b", "x"],
            [("intent=a",)] * 375 + [("intent=b", Span(0, 1, "x"))] * 225,
            ("intent=a", Span(0, 1, "x")),
        ),
        (SPANS, "entity_f1", ["name"], [(Span(0, 1, "name"),)] * 60 + [()] * 40, (Span(0, 1, "name"),)),
    ],
)
def test_the_same_answer_to_every_row_passes_by_no_metric(
    task: Task, metric: str, classes: Any, truths: list[Any], constant: Any
) -> None:
    """Of several labels, the most frequent whole answer is none: against that, one label for all would look good."""
    rows = [GoldenRow("x", truth, truth, None, None) for truth in truths]
    given = accuracy.measure(task, rows, [constant] * len(rows), metric, 0.95, list(classes))
    [check] = accuracy.checks(given, limits(above_majority=True))
    assert check.verdict == "inconclusive" and check.low is not None and check.low <= 0


def test_at_the_limit_itself_no_number_of_rows_decides() -> None:
    [row] = accuracy.checks(of(Counts(100, 0, 0), 90), limits(min=0.9))
    assert row.verdict == "inconclusive" and "too close to the limit to decide" in row.detail


def test_a_metric_of_errors_has_an_upper_limit_in_its_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(metrics.METRICS, "metres", METRES)
    task: Any = Height()
    truths, answers = [1.0, 2.0, 3.0, 4.0, 5.0], [1.5, 2.5, 3.5, 4.5, 5.5]
    given = measured(truths, truths, answers, "metres", task, ())
    assert accuracy.classes(given) is None
    passed, constant = accuracy.checks(given, limits(max=0.6, above_majority=True))
    assert (passed.gate, passed.verdict, passed.value, passed.unit) == ("accuracy.max", "pass", 0.5, "m")
    assert (constant.verdict, constant.unit) == ("pass", "points")
    assert constant.value == pytest.approx(100 * 0.7)
    assert constant.detail == "a model that answers '3 m' to every text has 1.2 m"
    [missed] = accuracy.checks(given, limits(max=0.4))
    assert missed.verdict == "fail" and "right" not in missed.detail
    assert missed.missed.startswith("accuracy.max: 0.45 to 0.55 m, limit <= 0.4 m")
    [drop] = accuracy.checks(given, limits(max_drop_points=30.0))
    assert (drop.verdict, drop.unit) == ("fail", "points") and drop.value == pytest.approx(100 * 0.5)
    assert "100 points are 1 m, the median error of the best constant answer" in drop.detail


def judged(truths: str, theirs: str, ours: str, metric: str, **asked: Any) -> GateCheck:
    [row] = accuracy.checks(measured(truths, theirs, ours, metric), limits(metric=metric, **asked))
    return row


def test_f1_and_its_drop_are_judged_by_the_rare_class_and_accuracy_is_not() -> None:
    truths, ours = "1" * 100 + "0" * 400, "1" * 70 + "0" * 430
    assert judged(truths, truths, ours, "accuracy", min=0.9).verdict == "pass"
    failed = judged(truths, truths, ours, "f1", min=0.9)
    assert failed.verdict == "fail" and failed.value == pytest.approx(2 * 70 / 170, abs=1e-6)
    assert failed.detail == "f1 of '1'; 470 of 500 rows right"
    unsure = judged(truths, truths, ours, "f1", min=0.8)
    assert unsure.verdict == "inconclusive" and "how many is not known for f1" in unsure.detail
    assert (unsure.unit, unsure.n, unsure.confidence) == ("fraction", 500, 0.95)
    assert judged(truths, truths, ours, "f1", min=0.6).verdict == "pass"
    failed = judged(truths, truths, ours, "f1", max_drop_points=1.0)
    assert failed.verdict == "fail" and failed.value == pytest.approx(100 * (1 - 2 * 70 / 170), abs=1e-4)
    assert "f1 of '1'; 30 rows lost against the float model, 0 won" in failed.detail
    assert judged(truths, ours, truths, "f1", max_drop_points=1.0).verdict == "pass"  # it got better
    unsure = judged(truths, truths, truths, "f1", max_drop_points=1.0)  # the same, on 100 rows of the class
    assert unsure.verdict == "inconclusive" and "more rows may decide" in unsure.detail


CONFIG = ModelConfig("text-classification", ("0", "1"), 16, "int8")


@pytest.mark.parametrize(
    ("metric", "changes", "instead"),
    [
        ("entity_f1", {}, "micro_f1"),
        ("f1", {"labels": ("0", "1", "2")}, "macro_f1"),
        ("f1", {"multi_label": True}, "micro_f1"),
        ("f1", {"task": "token-classification", "labels": TAGS[:3]}, "entity_f1"),
    ],
)
def test_a_metric_that_means_nothing_here_is_refused(metric: str, changes: dict[str, Any], instead: str) -> None:
    with pytest.raises(BundleInvalidError, match=metric) as caught:
        accuracy.metric_for(metric, dataclasses.replace(CONFIG, **changes))
    assert instead in caught.value.why


def test_a_metric_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    gates = {"accuracy": {"metric": "entity_f1", "min": 0.5}}
    release, manifest = write_release(tmp_path / "release", rows=[("好", "good", "good")], gates=gates)
    lines: list[str] = []
    with pytest.raises(BundleInvalidError, match="entity_f1"):
        runner.run(release, manifest, bundle_bytes=None, progress=lines.append)
    assert lines == []


# --- what golden rows cannot show -------------------------------------------------------------------------------


def of_labels(truths: str, ours: str, metric: str, classes: Sequence[str], texts: int = 10_000) -> Measured:
    rows = [GoldenRow(f"{n % texts}", truth, truth) for n, truth in enumerate(truths)]
    return accuracy.measure(ONE, rows, list(ours), metric, 0.95, classes)


def test_a_macro_f1_is_not_shown_by_rows_of_one_class() -> None:
    """A model that always answers the same is right on all rows of that class, and knows no other."""
    given = of_labels("1" * 200, "1" * 200, "macro_f1", ["0", "1"])
    low, drop = accuracy.checks(given, limits(min=0.9, max_drop_points=1.0))
    assert (low.verdict, low.value, low.high) == ("inconclusive", 1.0, 1.0) and low.low == pytest.approx(0.49, abs=0.01)
    assert "200 of 200 rows right; no golden row has 0; more rows may decide" in low.detail
    assert drop.verdict == "inconclusive" and drop.low is not None and drop.high is not None
    assert drop.low < -50 and drop.high > 50
    assert "0 won; no golden row has 0; " in drop.detail


def test_a_check_names_the_classes_without_a_row() -> None:
    given = of_labels("12" * 50, "12" * 49 + "13", "macro_f1", list("1234567"))
    (row,) = accuracy.checks(given, limits(min=0.5))
    assert "; no golden row has 3, 4, 5 and 2 more; " in row.detail
    (row,) = accuracy.checks(of_labels("1", "0", "accuracy", ["0", "1"]), limits(min=0.01))
    assert row.detail.startswith("0 of 1 row right; about ")


def test_the_f1_of_a_label_without_a_row_is_unknown() -> None:
    given = of_labels("0" * 50, "0" * 50, "f1", ["0", "1"])
    (row,) = accuracy.checks(given, limits(min=0.5))
    assert (row.verdict, row.low, row.high) == ("inconclusive", 0.0, 1.0)
    assert "f1 of '1'; 50 of 50 rows right; no golden row has 1" in row.detail
    given = of_labels("0" * 2000, "1" + "0" * 1999, "f1", ["0", "1"])  # one false answer tells next to nothing
    assert accuracy.checks(given, limits(min=0.95))[0].verdict == "inconclusive"


def test_a_check_counts_distinct_texts_where_many_rows_repeat() -> None:
    asked = limits(min=0.9)
    same, most, few = (of_labels("1" * 500, "1" * 500, "accuracy", ["0", "1"], texts) for texts in (1, 450, 449))
    (row,) = accuracy.checks(same, asked)
    assert row.verdict == "pass" and row.detail == "500 of 500 rows right; distinct texts: 1 for 500 rows"
    assert accuracy.summary(same, 0.95).distinct_texts == 1
    assert "distinct" not in accuracy.checks(most, asked)[0].detail
    assert accuracy.checks(few, asked)[0].detail.endswith("distinct texts: 449 for 500 rows")
    rows = [GoldenRow("a", "1", "1", "b"), GoldenRow("a", "1", "1", "c"), GoldenRow("a", "1", "1", "b")]
    assert accuracy.measure(ONE, rows, ["1"] * 3, "accuracy", 0.95, ["0", "1"]).distinct == 2


# --- the receipt ------------------------------------------------------------------------------------------------


def test_the_receipt_names_metric_and_positive_label() -> None:
    found = measured("1101", "1101", "1001", "f1")
    summary = accuracy.summary(found, 0.95)
    assert (summary.metric, summary.positive, summary.n) == ("f1", "1", 4)
    assert summary.low is not None and summary.high is not None
    assert summary.low <= summary.value == 0.8 <= summary.high
    assert accuracy.summary(measured("1101", "1101", "1001", "macro_f1"), 0.95).positive is None


def test_the_receipt_has_the_scores_of_each_class_and_names_the_worst() -> None:
    found = accuracy.classes(measured("1101", "1101", "1001", "accuracy"))
    assert found == {
        "metrics": {"accuracy": 0.75, "macro_f1": 0.733333, "micro_f1": 0.75, "f1": 0.8},
        "classes": 2,
        "scores": [
            {"label": "0", "precision": 0.5, "recall": 1.0, "f1": 0.666667, "support": 1},
            {"label": "1", "precision": 1.0, "recall": 0.666667, "f1": 0.8, "support": 3},
        ],
        "confusion": {"0": {"0": 1}, "1": {"0": 1, "1": 2}},
    }
    assert accuracy.worst_line(found) == "lowest F1 of 2 classes: 0 66.67 % (n = 1), 1 80 % (n = 3)"
    nothing = accuracy.classes(measured([()], [()], [()], "micro_f1", SEVERAL))
    assert accuracy.worst_line(nothing) == "lowest F1 of 0 classes: -"


def test_the_receipt_has_the_worst_of_many_classes() -> None:
    labels = [f"l{number:02}" for number in range(60)]
    found = accuracy.classes(measured(labels, labels, [*labels[:-1], "l00"], "accuracy", classes=labels))
    assert found["classes"] == 60 and len(found["scores"]) == 50 and found["confusion"] is None
    assert [row["label"] for row in found["scores"][:2]] == ["l59", "l00"]


def test_several_labels_have_no_confusion() -> None:
    found = accuracy.classes(measured([("a", "b")], [()], [("a",)], "micro_f1", SEVERAL))
    assert found["confusion"] is None and "f1" not in found["metrics"]
    assert {row["label"]: row["f1"] for row in found["scores"]} == {"a": 1.0, "b": 0.0}


def test_spans_are_told_by_type() -> None:
    truth, found = (Span(0, 1, "a"), Span(2, 3, "b")), (Span(0, 1, "a"),)
    told = accuracy.classes(measured([truth], [truth], [found], "entity_f1", SPANS))
    assert told["metrics"]["entity_f1"] == pytest.approx(2 / 3, abs=1e-6)
    assert told["confusion"] == {"a": {"a": 1}, "b": {"O": 1}}


# --- the whole gate, for every kind of answer -------------------------------------------------------------------


def line(text: str, key: str, answer: Any, float_answer: Any, **more: Any) -> dict[str, Any]:
    return {"text": text, **more, key: answer, f"float_{key}": float_answer}


KINDS: dict[str, tuple[list[dict[str, Any]], str, dict[str, Any]]] = {
    "pairs": (
        [line("很好", "label", "good", "good", text_pair="差")] * 50
        + [line("差", "label", "bad", "bad", text_pair="好")] * 45
        + [line("差", "label", "good", "good", text_pair="好")] * 5,
        "f1",
        {"task": "text-pair-classification"},
    ),
    "several labels": (
        [line("好", "labels", ["good"], ["good"])] * 90
        + [line("差", "labels", [], ["bad"])] * 5
        + [line("差", "labels", ["bad", "good"], ["bad"])] * 5,
        "micro_f1",
        {"multi_label": True},
    ),
    "spans": (
        [line("好店", "spans", [[1, 2, "place"]], [[1, 2, "place"]])] * 95
        + [line("好店", "spans", [[1, 2, "name"]], [])] * 5,
        "entity_f1",
        {"task": "token-classification"},
    ),
}
LOGITS: dict[str, dict[str, Any]] = {
    "pairs": {"text": "好", "text_pair": "差", "logits": [-3.5, 3.5]},
    "several labels": {"text": "好", "logits": [-1.0, 2.0]},
    "spans": {"text": "店", "logits": [[3, 0, 0, 0, 0], [0, 0, 0, 3, 0], [3, 0, 0, 0, 0]]},
}


@pytest.mark.parametrize("gates", [{}, {"accuracy": None}, {"accuracy": {"min": 0.5}}])
@pytest.mark.parametrize(
    ("kind", "usual"), [("pairs", "accuracy"), ("several labels", "micro_f1"), ("spans", "entity_f1")]
)
def test_without_a_metric_a_model_is_measured_as_in_its_build(
    tmp_path: Path, kind: str, usual: str, gates: dict[str, Any]
) -> None:
    rows, _, config = KINDS[kind]
    release, manifest = write_release(tmp_path / "release", rows=rows, texts=[LOGITS[kind]], gates=gates, **config)
    receipt = runner.run(release, manifest, bundle_bytes=None, progress=silent)
    assert receipt["accuracy"]["metric"] == usual
    assert receipt["accuracy"]["value"] == pytest.approx(receipt["classes"]["metrics"][usual], abs=1e-6)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_task_is_gated(tmp_path: Path, kind: str) -> None:
    rows, metric, config = KINDS[kind]
    gates = {"accuracy": {"metric": metric, "min": 0.8, "max_drop_points": 15}, "memory": {"peak_rss_mib": 2000}}
    release, manifest = write_release(tmp_path / "release", rows=rows, texts=[LOGITS[kind]], gates=gates, **config)
    receipt = runner.run(release, manifest, bundle_bytes=None, progress=silent)
    assert receipt["accuracy"]["metric"] == metric
    assert receipt["classes"]["metrics"]["accuracy"] == (0.9 if kind == "several labels" else 0.95)
    assert {row["gate"]: row["verdict"] for row in receipt["checks"]} == {
        "accuracy.min": "pass",
        "accuracy.max_drop_points": "pass",
        "memory.peak_rss_mib": "pass",
    }
    assert re.search(rf"\n{metric} [\d.]+ % \(", runner.render(receipt))
    assert json.loads(json.dumps(receipt, allow_nan=False)) == receipt


CLASSES = ("负面", "正面", "中性")


def check(
    figure: str, every: float | None, tallies: Mapping[str, Tally], named: Mapping[str, float] | None = None
) -> GateCheck:
    return checked(tallies, {figure: Floors(every, named or {})}, CLASSES)


def checked(tallies: Mapping[str, Tally], floors: Mapping[str, Floors], classes: Sequence[str]) -> GateCheck:
    """Of rows that have no class twice."""
    (found,) = accuracy.class_checks({name: one_each(tally) for name, tally in tallies.items()}, floors, classes, 0.95)
    return found


def test_every_class_has_to_show_that_it_is_good_enough() -> None:
    good = {"负面": Tally(96, 4, 4), "正面": Tally(198, 2, 2), "中性": Tally(95, 5, 5)}
    found = check("recall", 0.85, good)
    assert (found.gate, found.verdict, found.n, found.limit) == ("accuracy.per_class.recall", "pass", 100, 0.85)
    assert found.detail == "lowest of 3 classes: 中性: 95 right of 100 in the golden rows"
    assert found.value == 0.95 and found.low == round(intervals.proportion(95, 100, 0.95).low, 6)


@pytest.mark.parametrize(
    ("figure", "floor", "worst", "verdict", "n", "value", "detail"),
    [
        ("recall", 0.85, Tally(60, 4, 40), "fail", 100, 0.6, "负面: 60 right of 100 in the golden rows"),
        ("precision", 0.9, Tally(90, 30, 10), "fail", 120, 0.75, "90 right of 120 answers"),
        ("f1", 0.9, Tally(90, 30, 10), "fail", 130, 0.818182, "90 right of 130 in the golden rows or the answers"),
        ("recall", 0.5, Tally(0, 0, 0), "inconclusive", 0, 0, "0 right of 0 in the golden rows; no golden row has "),
        ("precision", 0.5, Tally(0, 0, 49), "inconclusive", 0, 0, "0 right of 0 answers; no answer has this class; "),
    ],
)
def test_the_worst_class_decides(
    figure: str, floor: float, worst: Tally, verdict: str, n: int, value: float, detail: str
) -> None:
    known = {"正面": Tally(900, 10, 10), "中性": Tally(900, 10, 10)}
    found = check(figure, floor, {**known, "负面": worst} if any(worst) else known)
    assert (found.verdict, found.n, found.value) == (verdict, n, value)
    assert detail in found.detail
    if n == 0:  # nothing is known of it
        assert (found.low, found.high) == (0.0, 1.0)


def test_too_few_rows_say_how_many_would_do() -> None:
    found = check("recall", 0.8, {"负面": Tally(9, 0, 1), "正面": Tally(900, 0, 0), "中性": Tally(900, 0, 0)})
    assert found.verdict == "inconclusive"
    wanted = intervals.n_for_proportion(0.9, 0.8, 0.95)
    assert f"负面: 9 right of 10 in the golden rows; about {wanted} rows of 负面 would decide; " in found.detail
    assert found.detail.endswith("the high end allows for 3 classes")


def test_rows_that_decide_a_fail_are_counted_as_the_fail_is() -> None:
    """A fail among fifty classes takes an interval that is wider than that of one."""
    labels = tuple(f"c{number}" for number in range(50))
    for right, n, more in ((25, 40, 71), (200, 275, 366)):
        tallies = {**dict.fromkeys(labels, Tally(100, 0, 0)), "c0": Tally(right, 0, n - right)}
        found = checked(tallies, {"recall": Floors(0.8, {})}, labels)
        assert found.verdict == "inconclusive" and f"about {more} rows of c0 would decide" in found.detail
        assert found.low is not None and found.high is not None and found.low < 0.8 <= found.high


@given(
    st.lists(st.tuples(*[st.integers(0, 120)] * 3).map(lambda numbers: Tally(*numbers)), min_size=1, max_size=20),
    st.sampled_from(["recall", "precision", "f1"]),
    st.sampled_from([0.3, 0.5, 0.8, 0.95, 1.0]),
)
def test_the_verdict_follows_from_what_is_told(tallies: list[Tally], figure: str, floor: float) -> None:
    labels = tuple(map(str, range(len(tallies))))
    found = checked(dict(zip(labels, tallies, strict=True)), {figure: Floors(floor, {})}, labels)
    assert found.value is not None and found.low is not None and found.high is not None
    assert found.low <= found.value <= found.high
    strict = 1 - 0.05 / len(tallies)
    shares = [accuracy.class_share(figure, one_each(tally)) for tally in tallies]
    each = [accuracy.class_interval(figure, share, 0.95, strict) for share in shares]
    assert found.verdict == intervals.overall([intervals.verdict_at_least(one, floor) for one in each])
    assert any((found.low, found.high) == (round(one.low, 6), round(one.high, 6)) for one in each)
    decides = re.search(r"about (\d+) (rows|answers) of", found.detail)
    assert decides is None or (found.verdict == "inconclusive" and int(decides[1]) > found.n)


def test_the_number_of_rows_that_would_decide_an_f1_is_counted_as_its_share() -> None:
    found = check("f1", 0.9, {"负面": Tally(9, 1, 0), "正面": Tally(900, 0, 0), "中性": Tally(900, 0, 0)})
    wanted = intervals.n_for_proportion(0.9, 0.9 / 1.1, 0.95)
    assert wanted is not None
    assert found.verdict == "inconclusive" and f"about {wanted} rows of 负面" in found.detail
    share = 0.9 * wanted
    assert 2 / (1 + 1 / intervals.proportion(share, wanted, 0.95).low) >= 0.9


def test_a_named_class_has_a_floor_of_its_own() -> None:
    tallies = {"负面": Tally(80, 0, 20), "正面": Tally(99, 0, 1), "中性": Tally(98, 0, 2)}
    assert check("recall", 0.9, tallies, {"负面": 0.7}).verdict == "pass"
    assert check("recall", 0.9, tallies).verdict == "fail"
    alone = check("recall", None, tallies, {"正面": 0.9})
    assert alone.verdict == "pass" and alone.detail == "正面: 99 right of 100 in the golden rows"
    once = check("precision", None, {"正面": Tally(1, 0, 0)}, {"正面": 0.9})
    assert once.detail.startswith("正面: 1 right of 1 answer; ")


def test_more_than_three_bad_classes_are_counted() -> None:
    labels = tuple(map(str, range(6)))
    found = checked(dict.fromkeys(labels, Tally(10, 0, 90)), {"recall": Floors(0.8, {})}, labels)
    assert found.verdict == "fail" and "in the golden rows; and 3 more of 6 classes; the high end" in found.detail


def test_of_many_classes_at_their_floor_few_gates_fail() -> None:
    """Without the correction a model of fifty classes, each as good as its floor, would fail in most cases."""
    source, labels = random.Random(5), tuple(map(str, range(50)))
    verdicts, uncorrected = [], 0
    for _ in range(400):
        right = {label: sum(source.random() < 0.8 for _ in range(60)) for label in labels}
        tallies = {label: Tally(count, 0, 60 - count) for label, count in right.items()}
        found = checked(tallies, {"recall": Floors(0.8, {})}, labels)
        verdicts.append(found.verdict)
        uncorrected += any(intervals.proportion(count, 60, 0.95).high < 0.8 for count in right.values())
    assert verdicts.count("fail") <= 400 * 0.025 + 4 * math.sqrt(400 * 0.025 * 0.975)
    assert verdicts.count("pass") == 0
    assert uncorrected > 100


@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 300), st.sampled_from(["recall", "precision", "f1"]))
def test_an_interval_holds_its_figure(tp: int, fp: int, fn: int, figure: str) -> None:
    tally = Tally(tp, fp, fn)
    found = accuracy.class_interval(figure, accuracy.class_share(figure, one_each(tally)), 0.95, 0.99)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.value == pytest.approx(getattr(tally, figure))


def test_a_floor_for_a_class_that_the_model_lacks_is_refused() -> None:
    config = ModelConfig("text-classification", CLASSES, 128, "int8")
    assert accuracy.model_classes(config, {"recall": Floors(0.5, {"负面": 0.9})}) == CLASSES
    with pytest.raises(BundleInvalidError, match="a class that the model does not have") as caught:
        accuracy.model_classes(config, {"recall": Floors(None, {"负": 0.9})})
    assert caught.value.why == "accuracy.per_class names 负; there are 负面, 正面, 中性"
    tokens = ModelConfig("token-classification", ("O", "B-地名", "I-地名"), 128, "int8")
    assert accuracy.model_classes(tokens, {"f1": Floors(None, {"地名": 0.5})}) == ("地名",)


def test_spans_that_come_together_count_for_fewer() -> None:
    """Five spans a text, all of them right or none: 40 texts, and not 200 spans."""
    rows = {"负面": {Tally(5, 0, 0): 36, Tally(0, 0, 5): 4}}
    share = accuracy.class_share("recall", rows["负面"])
    assert (share.right, share.n) == (180, 200) and share.worth == pytest.approx(40)
    (found,) = accuracy.class_checks(rows, {"recall": Floors(0.8, {})}, ("负面",), 0.95)
    assert found.verdict == "inconclusive" and found.n == 200
    assert found.low == round(intervals.proportion(36, 40, 0.95).low, 6)
    assert "180 right of 200 in the golden rows, worth 40 since some share a text; about " in found.detail
    texts = intervals.n_for_proportion(0.9, 0.8, 0.95)
    assert texts is not None and f"about {5 * texts} spans of 负面 would decide" in found.detail
    (alone,) = accuracy.class_checks(
        {"负面": one_each(Tally(180, 0, 20))}, {"recall": Floors(0.8, {})}, ("负面",), 0.95
    )
    assert alone.verdict == "pass"


def test_each_part_of_an_answer_has_its_limit() -> None:
    """Intents with slots: whole answers by `min`, parts by `min_of`, each with a verdict."""
    task, slot = task_by_name(INTENT_SLOTS), Span(0, 2, "song")
    truths = [("intent=play", slot)] * 300 + [("intent=stop",)] * 300
    ours = [("intent=play", slot)] * 150 + [("intent=play",)] * 150 + [("intent=stop",)] * 300
    given = measured(truths, truths, ours, "accuracy", task, ("intent=play", "intent=stop", "song"))
    asked = limits(min=0.7, min_of={"intent_accuracy": 0.9, "entity_f1": 0.9}, above_majority=True)
    found = {check.gate: (check.verdict, check.value) for check in accuracy.checks(given, asked)}
    assert found == {
        "accuracy.min": ("pass", 0.75),
        "accuracy.min_of.intent_accuracy": ("pass", 1.0),
        "accuracy.min_of.entity_f1": ("fail", pytest.approx(2 / 3)),
        "accuracy.above_majority": ("pass", pytest.approx(25.0)),
    }
    with pytest.raises(BundleInvalidError, match="macro_f1"):
        accuracy.checks(given, limits(min_of={"macro_f1": 0.5}))


def test_numbers_are_gated_by_correlation_and_by_error() -> None:
    task, source = task_by_name(NUMBER), random.Random(1)
    truths = [float(source.randrange(6)) for _ in range(500)]
    theirs = [truth + source.gauss(0, 0.5) for truth in truths]
    ours = [answer + source.gauss(0, 0.01) for answer in theirs]
    given = measured(truths, theirs, ours, "spearman", task, ())
    asked = limits(min=0.9, max_drop_points=0.5, above_majority=True)
    found = {check.gate: check.verdict for check in accuracy.checks(given, asked)}
    assert found == dict.fromkeys(("accuracy.min", "accuracy.max_drop_points", "accuracy.above_majority"), "pass")
    by_error = measured(truths, theirs, [0.0] * 500, "mae", task, ())
    [over] = accuracy.checks(by_error, limits(metric="mae", max=0.5))
    assert (over.verdict, over.unit) == ("fail", "")
    worse = measured(truths, theirs, [answer + source.gauss(0, 2) for answer in theirs], "spearman", task, ())
    [lost] = accuracy.checks(worse, limits(max_drop_points=1))
    assert lost.verdict == "fail" and lost.value is not None and lost.value > 5


@pytest.mark.parametrize("names", [["accuracies"], ["mae"]])
def test_a_least_value_of_what_is_no_metric_is_refused(names: list[str]) -> None:
    asked = limits(min_of=dict.fromkeys(names, 0.5))
    assert [problem.path for problem in asked.problems({})] == [("min_of",)]
