"""Accuracy gates: the shipped model on the golden rows, against limits on all rows and floors per class."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from edgepack_runtime.bundle.golden import GoldenRow
from edgepack_runtime.bundle.model_config import ModelConfig
from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.messages import joined, message
from edgepack_runtime.schema.figures import NOTHING, shown
from edgepack_runtime.schema.gates import (
    ABOVE_MAJORITY,
    AccuracyLimits,
    Floors,
    Limit,
    ManifestAccuracy,
    limit_named,
    min_of,
    per_class,
)
from edgepack_runtime.schema.receipt import GateCheck, Score
from edgepack_runtime.stats import intervals, metrics, scoring
from edgepack_runtime.stats.metrics import Answer, Pair, Tally
from edgepack_runtime.tasks.task import Task, hundred_points, row_errors, unlearned
from edgepack_runtime.util.progress import Log
from edgepack_runtime.util.texts import counted

MOST_CLASSES = 50  # in a receipt; with more classes it holds the worst ones and no confusion matrix
_SHOWN_CLASSES = 3  # in messages
_PROGRESS_ROWS = 500
_MOSTLY_DISTINCT = 0.9
TallyCounts = Mapping[Tally, int]  # tally of a class in a row -> number of rows


class AccuracyResult(NamedTuple):
    """What was measured on the golden rows: the checks, and `accuracy`, `classes` and `answered` of the receipt."""

    checks: List[GateCheck]
    summary: Score
    classes: Optional[Dict[str, Any]] = None
    answered: Optional[Dict[str, int]] = None


class Measured(NamedTuple):
    """The shipped model's `answers` on the golden rows, and their scores.

    `errors` are those of `tasks.task.row_errors`, of whole answers; none if the metric is about a part of them.
    `interval` is that of `metric`; `positive` is the positive label of `f1`. `classes` are the model's, `unseen` those
    among the metric's classes that no row has.
    """

    task: Task
    rows: Sequence[GoldenRow]
    answers: Sequence[Answer]
    metric: str
    positive: Optional[str]
    interval: intervals.Interval
    errors: Sequence[float]
    classes: Sequence[str]
    unseen: Sequence[str]

    @property
    def pairs(self) -> List[Pair]:
        """(truth, answer) of each row."""
        return [(row.answer, found) for row, found in zip(self.rows, self.answers)]

    def drop(self, reference: Sequence[Answer], confidence: float) -> intervals.Interval:
        """The paired drop of the metric from the answers `reference` to these."""
        truths = [row.answer for row in self.rows]
        return self.task.drop(self.metric, truths, reference, self.answers, confidence, self.classes)

    def counts(self, reference: Sequence[Answer]) -> scoring.Counts:
        """Rows on which these answers are farther from the truth than `reference`, or nearer."""
        return scoring.count(row_errors(self.task, [row.answer for row in self.rows], reference), self.errors)

    @property
    def hundred_points(self) -> float:
        """The difference in the metric that counts as 100 points."""
        return hundred_points(self.task, self.metric, [row.answer for row in self.rows], self.classes)

    def in_points(self, drop: intervals.Interval) -> intervals.Interval:
        """A `drop` in points."""
        hundred = self.hundred_points
        return intervals.Interval(*(100 * end / hundred for end in drop))

    @property
    def kind(self) -> metrics.Metric:
        """How figures of the metric are read."""
        return metrics.metric_of(self.metric)

    @property
    def distinct(self) -> int:
        """Number of distinct texts."""
        return len({tuple(sorted(row.item)) if isinstance(row.item, tuple) else row.item for row in self.rows})


def metric_for(asked: Optional[str], config: ModelConfig) -> str:
    """The metric to gate with: `asked`, or the default of the model's task.

    Raises:
        BundleInvalidError: the metric is not defined for the model.
    """
    task = config.text_task
    metric = task.usual_metric if asked is None else asked
    why = task.unfit(metric, len(config.labels))
    if why is not None:
        raise _undefined(f"metric: {metric}", why)
    return metric


def _undefined(key: str, why: str) -> BundleInvalidError:
    return BundleInvalidError(
        f"the gates have `accuracy.{key}`, which this model cannot be measured by",
        why=why,
        fix="change gates.accuracy in the recipe and build the bundle again",
    )


def result(predictor: Predictor, rows: Sequence[GoldenRow], limits: ManifestAccuracy, progress: Log) -> AccuracyResult:
    """Answer `rows` and check `limits`.

    Raises:
        BundleInvalidError: a limit does not apply to the model.
    """
    config = predictor.config
    metric, names = metric_for(limits.metric, config), model_classes(config, limits.floors())
    answers = answer(predictor, rows, progress)
    measured = measure(config.text_task, rows, answers, metric, limits.confidence, names)
    answered = None if predictor.combined is None else predictor.combined.answered._asdict()
    return AccuracyResult(checks(measured, limits), summary(measured, limits.confidence), classes(measured), answered)


def answer(predictor: Predictor, rows: Sequence[GoldenRow], progress: Log) -> List[Answer]:
    """Predict row by row, as an application does."""
    task = predictor.config.text_task
    answers: List[Answer] = []
    right = 0
    for number, row in enumerate(rows, start=1):
        answers.append(predictor.predict(row.item).answer)
        right += task.error(row.answer, answers[-1]) == 0
        if number % _PROGRESS_ROWS == 0 or number == len(rows):
            so_far = f", {right} right" if task.exact else ""
            progress(f"accuracy: {number} of {counted(len(rows), 'row')}{so_far}")
    return answers


def measure(
    task: Task,
    rows: Sequence[GoldenRow],
    answers: Sequence[Answer],
    metric: str,
    confidence: float,
    classes: Sequence[str],
) -> Measured:
    """Score `answers` on `rows`; `classes` are the model's labels, or the types of its spans."""
    truths = [row.answer for row in rows]
    positive = task.positive(metric, classes, truths)
    averaged = {metrics.MACRO_F1: classes, metrics.F1: [positive]}.get(metric, ())
    seen = {name for truth in truths for name in task.classes_of(truth)}
    return Measured(
        task=task,
        rows=rows,
        answers=answers,
        metric=metric,
        positive=positive,
        interval=task.interval(metric, truths, answers, confidence, classes),
        errors=row_errors(task, truths, answers),
        classes=classes,
        unseen=[name for name in averaged if name is not None and name not in seen],
    )


def summary(measured: Measured, confidence: float) -> Score:
    """The receipt's `accuracy`."""
    value, low, high = (round(number, 6) for number in measured.interval)
    return Score(
        metric=measured.metric,
        value=value,
        low=low,
        high=high,
        n=len(measured.rows),
        distinct_texts=measured.distinct,
        confidence=confidence,
        positive=measured.positive,
    )


def classes(measured: Measured) -> Optional[Dict[str, Any]]:
    """The receipt's `classes`: scores per class, since a mean can hide a bad one.

    Returns:
        `metrics`: every metric that is defined for the model; `classes`: number of classes that occur; `scores`: per
        class, the worst first and at most 50, its `precision`, `recall`, `f1` (0 to 1) and `support` (rows or spans);
        `confusion`: true class -> answered class -> count, null with more than 50 classes or several labels per row.
        None where answers have no classes.
    """
    if not measured.classes or not measured.task.labelled:
        return None
    pairs, task = measured.pairs, measured.task
    tallies = metrics.class_tallies(pairs)
    few = len(tallies) <= MOST_CLASSES
    values = task.values(pairs, measured.classes)
    scores = [
        {
            "label": name,
            "precision": round(tallies[name].precision, 6),
            "recall": round(tallies[name].recall, 6),
            "f1": round(tallies[name].f1, 6),
            "support": tallies[name].support,
        }
        for name in metrics.worst(tallies, MOST_CLASSES)
    ]
    return {
        "metrics": {name: round(value, 6) for name, value in values.items()},
        "classes": len(tallies),
        "scores": scores,
        "confusion": task.confusion(pairs) if few else None,
    }


def worst_line(class_scores: Mapping[str, Any]) -> str:
    """One line about the classes with the lowest F1, from the receipt's `classes`."""
    worst = class_scores["scores"][:_SHOWN_CLASSES]
    each = ["{} {} (n = {})".format(row["label"], shown(row["f1"], "fraction"), row["support"]) for row in worst]
    return message("gate.lowest_f1", n=class_scores["classes"], each=each or [NOTHING])


def repeats(n: int, distinct: int) -> str:
    """Warning if only `distinct` of the texts of `n` rows differ, which makes the interval too narrow; else empty."""
    return "" if distinct >= _MOSTLY_DISTINCT * n else message("gate.repeats", distinct=distinct, n=n)


def would_decide(n: Optional[int], of_what: str) -> str:
    """Sentence about the sample size that would decide an inconclusive check; None stands for over 10 million."""
    return message("gate.too_close", of=of_what) if n is None else message("gate.would_decide", n=n, of=of_what)


def checks(measured: Measured, limits: ManifestAccuracy) -> List[GateCheck]:
    """The receipt rows of `limits` on accuracy, classes included."""
    of_value = (("accuracy.min", limits.min), ("accuracy.max", limits.max))
    found = [
        _value_check(measured, limit_named(gate), limit, limits.confidence)
        for gate, limit in of_value
        if limit is not None
    ]
    for metric, least in limits.min_of.items():
        if (why := measured.task.unfit(metric, len(measured.classes))) is not None:
            raise _undefined(f"min_of.{metric}", why)
        rows, answers = measured.rows, measured.answers
        other = measure(measured.task, rows, answers, metric, limits.confidence, measured.classes)
        other = other._replace(errors=())  # those of whole answers
        found.append(_value_check(other, limit_named(min_of(metric)), least, limits.confidence))
    if limits.max_drop_points is not None:
        reference = [row.float_answer for row in measured.rows]
        name: str = message("gate.float_model")
        points = limits.max_drop_points
        gate = limit_named("accuracy.max_drop_points")
        found.append(_drop_check(gate, measured, reference, name, points, limits))
    if limits.max_regression_points is not None:
        reference = [row.baseline_answer for row in measured.rows]
        name = message("gate.a_baseline", name=limits.baseline) if limits.baseline else message("gate.earlier_release")
        points = limits.max_regression_points
        gate = limit_named("accuracy.max_regression_points")
        found.append(_drop_check(gate, measured, reference, name, points, limits))
    if limits.above_majority:
        found.append(_majority_check(measured, limits.confidence))
    if not limits.floors():
        return found
    tallies = metrics.tallies_of_rows(measured.pairs)
    return found + class_checks(tallies, limits.floors(), measured.classes, limits.confidence)


def _value_check(measured: Measured, gate: Limit, limit: float, confidence: float) -> GateCheck:
    """The metric against a lower limit or an upper one."""
    interval, n = measured.interval, len(measured.rows)
    verdict = (intervals.verdict_at_least if gate.minimum else intervals.verdict_at_most)(interval, limit)
    right, counts = measured.errors.count(0), measured.task.exact and measured.errors
    notes: List[str] = [message("gate.right", right=right, n=n) if counts else message("gate.rows", n=n)]
    notes += _row_notes(measured)
    if verdict == intervals.INCONCLUSIVE and measured.metric == metrics.ACCURACY:
        needed = intervals.n_for_proportion(interval.value, limit, confidence, beyond=n)
        notes.append(would_decide(needed, message("unit.rows")))
    return GateCheck.sampled(
        gate,
        verdict,
        interval,
        limit=limit,
        unit=measured.kind.unit,
        n=n,
        confidence=confidence,
        detail=_detail(measured, verdict, notes),
    )


def _majority_check(measured: Measured, confidence: float) -> GateCheck:
    """Paired gain over the best answers that need no learning. It passes, or nothing is shown: never a fail.

    Every release must pass it (`GateReceipt.refusal`).
    """
    truths = [row.answer for row in measured.rows]
    items = [row.item for row in measured.rows]
    same, constant = unlearned(measured.task, items, truths, measured.metric, measured.classes)
    drop = measured.drop(constant, confidence)
    theirs = measured.interval.value + (drop.value if measured.kind.more_is_better else -drop.value)
    value = shown(theirs, measured.kind.unit)
    lost = measured.in_points(drop)
    gain = intervals.Interval(-lost.value, -lost.high, -lost.low)
    verdict = intervals.PASS if gain.low > 0 else intervals.INCONCLUSIVE
    notes: List[str] = [
        message(f"gate.rule_of_{measured.task.name}", value=value)
        if same is None
        else message("gate.majority", answer=_quoted(measured.task, same), value=value)
    ]
    if verdict == intervals.INCONCLUSIVE and measured.metric == metrics.ACCURACY and gain.value > 0:
        counts = measured.counts(constant)
        needed = intervals.n_for_drop(counts.lost, counts.won, counts.n, 0.0, confidence)
        notes.append(would_decide(needed, message("unit.rows")))
    return GateCheck.sampled(
        limit_named(ABOVE_MAJORITY),
        verdict,
        gain,
        limit=0.0,
        n=len(truths),
        confidence=confidence,
        detail=joined(*notes),
    )


def _quoted(task: Task, answer: Answer) -> str:
    said = task.words(answer, None)
    return message("gate.nothing") if said == NOTHING else repr(said)


def _drop_check(
    gate: Limit,
    measured: Measured,
    answered: Sequence[Optional[Answer]],
    name: str,
    limit_points: float,
    limits: AccuracyLimits,
) -> GateCheck:
    """Paired drop against the answers `answered` of the model `name`, so only rows count on which the two differ."""
    reference = [answer for answer in answered if answer is not None]
    if len(reference) < len(measured.rows):
        raise BundleInvalidError(
            f"the gate {gate.gate} cannot be measured",
            why=f"the golden rows do not hold the answers of {name}",
            fix="build the bundle again",
        )
    confidence, counts = limits.confidence, measured.counts(reference)
    interval = measured.in_points(measured.drop(reference, confidence))
    verdict = intervals.verdict_at_most(interval, limit_points)
    said = "gate.lost" if measured.task.exact else "gate.farther"
    notes = [message(said, lost=counts.lost, name=name, won=counts.won), *_row_notes(measured)]
    if not measured.kind.more_is_better:
        value = shown(measured.hundred_points, measured.kind.unit)
        notes.append(message("gate.points_of_error", value=value))
    if verdict == intervals.INCONCLUSIVE and measured.metric == metrics.ACCURACY:
        needed = intervals.n_for_drop(counts.lost, counts.won, counts.n, limit_points / 100, confidence)
        notes.append(would_decide(needed, message("unit.rows")))
    return GateCheck.sampled(
        gate,
        verdict,
        interval,
        limit=limit_points,
        n=counts.n,
        confidence=confidence,
        detail=_detail(measured, verdict, notes),
    )


def _detail(measured: Measured, verdict: str, notes: Sequence[str]) -> str:
    """The detail of a check; for metrics other than accuracy it begins with the metric's name."""
    if measured.metric == metrics.ACCURACY:
        return joined(*notes)
    metric, positive = measured.metric, measured.positive
    about = metric if positive is None else message("gate.of_label", metric=metric, label=repr(positive))
    more = message("gate.more_may_decide", metric=metric) if verdict == intervals.INCONCLUSIVE else ""
    return joined(about, *notes, more)


def _row_notes(measured: Measured) -> List[str]:
    """Warnings about golden rows that repeat, and about classes without golden rows."""
    unseen, repeated = measured.unseen, repeats(len(measured.rows), measured.distinct)
    notes = [repeated] if repeated else []
    if unseen:
        shown_labels, more = list(unseen[:_SHOWN_CLASSES]), len(unseen) - _SHOWN_CLASSES
        which = "gate.unseen_more" if more > 0 else "gate.unseen"
        notes.append(message(which, labels=shown_labels, **({"more": more} if more > 0 else {})))
    return notes


class Share(NamedTuple):
    """Right units (labels or spans) among `n`; `worth` is the effective number of independent units."""

    right: int
    n: int
    worth: float


class _ClassResult(NamedTuple):
    """Share, interval and verdict of one class; `margin` is the distance to its floor, negative below it."""

    label: str
    share: Share
    interval: intervals.Interval
    floor: float
    verdict: str
    margin: float


def model_classes(config: ModelConfig, floors: Mapping[str, Floors]) -> Sequence[str]:
    """The classes of a model: its labels, or the types of its spans.

    Raises:
        BundleInvalidError: `floors` names a class that the model does not have.
    """
    classes = config.classes
    unknown = sorted({label for asked in floors.values() for label in asked.named} - set(classes))
    if unknown:
        raise BundleInvalidError(
            "a gate asks for a class that the model does not have",
            why="accuracy.per_class names {}; there are {}".format(", ".join(unknown), ", ".join(classes)),
            fix="set gates.accuracy.per_class in the recipe and build the bundle again",
        )
    return classes


def class_checks(
    tallies: Mapping[str, TallyCounts], floors: Mapping[str, Floors], classes: Sequence[str], confidence: float
) -> List[GateCheck]:
    """One check for each of recall, precision and F1 that has floors.

    Args:
        tallies: result of `metrics.tallies_of_rows`.
        floors: as of `AccuracyLimits.floors`.
        classes: the model's classes.
        confidence: of the intervals, 0 to 1, two-sided.
    """
    return [_class_check(figure, tallies, asked, classes, confidence) for figure, asked in floors.items()]


def class_share(figure: str, tallies: TallyCounts) -> Share:
    """Share of right units for `figure` (`recall`, `precision` or `f1`) of one class.

    The whole are the true units, the answered ones, or for F1 both (`intervals.f1_of_share`).
    """
    right = n = squares = 0
    for tally, count in tallies.items():
        units = tally.tp + {"recall": tally.fn, "precision": tally.fp, "f1": tally.fn + tally.fp}[figure]
        right += tally.tp * count
        n += units * count
        squares += units**2 * count
    return Share(right, n, n**2 / max(squares, 1))


def class_interval(figure: str, share: Share, confidence: float, to_fail: float) -> intervals.Interval:
    """Interval of `figure` (0 to 1) of one class; `to_fail` is the confidence of its high end.

    Recall and precision are proportions, and F1 is a function of one. Without units the figure is unknown: 0 to 1.
    """
    if share.n == 0:
        return intervals.Interval(0.0, 0.0, 1.0)
    right = min(share.right * share.worth / share.n, share.worth)
    found = intervals.proportion_between(right, share.worth, confidence, to_fail)
    return intervals.f1_of_share(found) if figure == "f1" else found


def _class_check(
    figure: str, tallies: Mapping[str, TallyCounts], floors: Floors, classes: Sequence[str], confidence: float
) -> GateCheck:
    asked = {label: floor for label in classes for floor in [floors.of(label)] if floor is not None}
    to_fail = 1 - (1 - confidence) / len(asked)
    results = []
    for label, floor in asked.items():
        share = class_share(figure, tallies.get(label, {}))
        found = class_interval(figure, share, confidence, to_fail)
        verdict = intervals.verdict_at_least(found, floor)
        margin = (found.high if verdict == intervals.FAIL else found.low) - floor
        results.append(_ClassResult(label, share, found, floor, verdict, margin))
    verdict = intervals.overall([one.verdict for one in results])
    deciding = sorted((one for one in results if one.verdict == verdict), key=lambda one: (one.margin, one.label))
    worst = deciding[0]
    notes = [_class_detail(figure, one) for one in deciding[:_SHOWN_CLASSES]]
    if verdict == intervals.PASS and len(results) > 1:
        notes = [message("gate.lowest", n=len(results), detail=_class_detail(figure, worst))]
    elif len(deciding) > _SHOWN_CLASSES:
        notes.append(message("gate.more_classes", more=len(deciding) - _SHOWN_CLASSES, n=len(results)))
    if verdict == intervals.INCONCLUSIVE:
        notes.append(_class_would_decide(figure, worst, confidence, to_fail))
    if verdict != intervals.PASS and len(asked) > 1:
        notes.append(message("gate.high_end", n=len(asked)))
    return GateCheck.sampled(
        limit_named(per_class(figure)),
        verdict,
        worst.interval,
        limit=worst.floor,
        n=worst.share.n,
        confidence=confidence,
        detail=joined(*notes),
    )


def _class_detail(figure: str, one: _ClassResult) -> str:
    n, worth = one.share.n, math.floor(one.share.worth)
    detail = message(f"gate.{figure}", label=one.label, right=one.share.right, n=n)
    return detail if worth == n else message("gate.worth", detail=detail, worth=worth)


def _class_would_decide(figure: str, worst: _ClassResult, confidence: float, to_fail: float) -> str:
    """Sentence about the sample size that would decide the worst class."""
    right, n, worth = worst.share
    if n == 0:
        return message("gate.no_answer" if figure == "precision" else "gate.no_row")
    limit = worst.floor / (2 - worst.floor) if figure == "f1" else worst.floor
    kind = message("unit.answers" if figure == "precision" else "unit.rows" if worth == n else "unit.spans")
    needed = intervals.n_for_proportion(right / n, limit, confidence, to_fail=to_fail, beyond=math.floor(worth))
    return would_decide(
        needed and math.ceil(needed * n / worth), message("unit.of_label", unit=kind, label=worst.label)
    )
