"""The accuracy gates: the shipped file on the golden rows, through the predictor that the application uses."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from edgepack_runtime import metrics, scoring, stats
from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.gate_limits import Check, Limits, sampled, shown, would_decide
from edgepack_runtime.golden import GoldenRow
from edgepack_runtime.metrics import Answer, Pair
from edgepack_runtime.model_config import TOKENS, ModelConfig
from edgepack_runtime.predictor import Predictor
from edgepack_runtime.scoring import Counts
from edgepack_runtime.wording import counted

MOST_CLASSES = 50  # in a receipt: the worst ones; with more classes, the confusion matrix is left out
_SHOWN_CLASSES = 3
_ROWS_BETWEEN_LINES = 500
_MOSTLY_DISTINCT = 0.9


class Measured(NamedTuple):
    """What came out on the golden rows. `answers` are those of the shipped file, `counts` are whole answers.

    `interval` is of `metric`, from 0 to 1; `positive` is the label that the metric `f1` is about. `classes` are those
    of the model, and `unseen` those that the metric is about and that no row has.
    """

    rows: Sequence[GoldenRow]
    answers: Sequence[Answer]
    metric: str
    positive: Optional[str]
    interval: stats.Interval
    counts: Counts
    classes: Sequence[str]
    unseen: Sequence[str]

    @property
    def pairs(self) -> List[Pair]:
        """What each row says, and what was answered."""
        return [(row.answer, found) for row, found in zip(self.rows, self.answers)]

    @property
    def distinct(self) -> int:
        """How many rows there are whose texts differ."""
        return len({row.item for row in self.rows})


def metric_for(asked: Optional[str], config: ModelConfig) -> str:
    """What the model is measured by: what was asked for, or without that what such models are compared by.

    Raises:
        BundleInvalidError: what was asked for has no meaning for the model.
    """
    tokens = config.task == TOKENS
    metric = metrics.usual(multi_label=config.multi_label, tokens=tokens) if asked is None else asked
    why = metrics.unfit(metric, len(config.labels), multi_label=config.multi_label, tokens=tokens)
    if why is not None:
        raise BundleInvalidError(
            f"the gate's accuracy.metric is {metric}, which this model cannot be measured by",
            why=why,
            fix="set gates.accuracy.metric in the recipe and build the bundle again",
        )
    return metric


def answer(predictor: Predictor, rows: Sequence[GoldenRow], progress: Callable[[str], None]) -> List[Answer]:
    """Predict every row by itself, as an application would."""
    answers: List[Answer] = []
    right = 0
    for number, row in enumerate(rows, start=1):
        answers.append(predictor.predict(row.item).answer)
        right += metrics.same(row.answer, answers[-1])
        if number % _ROWS_BETWEEN_LINES == 0 or number == len(rows):
            progress(f"accuracy: {number} of {counted(len(rows), 'row')}, {right} right")
    return answers


def measure(
    rows: Sequence[GoldenRow], answers: Sequence[Answer], metric: str, confidence: float, classes: Sequence[str]
) -> Measured:
    """Compare `answers` with what `rows` say; `classes` are the model's: its labels, or the types of its spans."""
    truths = [row.answer for row in rows]
    positive = metrics.positive_label(classes, truths) if metric == metrics.F1 else None
    meant = {metrics.MACRO_F1: classes, metrics.F1: [positive]}.get(metric, ())
    seen = metrics.class_tallies((truth, truth) for truth in truths)
    return Measured(
        rows=rows,
        answers=answers,
        metric=metric,
        positive=positive,
        interval=scoring.interval(metric, truths, answers, confidence, positive, classes),
        counts=scoring.count(truths, [row.float_answer for row in rows], answers),
        classes=classes,
        unseen=[name for name in meant if name is not None and name not in seen],
    )


def summary(measured: Measured, confidence: float) -> Dict[str, Any]:
    """The receipt's `accuracy`: which metric, its value as a fraction with its interval, and on which rows.

    `distinct_texts` is less than `n` where texts, or pairs of texts, repeat.
    """
    return {
        "metric": measured.metric,
        **{name: round(value, 6) for name, value in measured.interval._asdict().items()},
        "n": measured.counts.n,
        "distinct_texts": measured.distinct,
        "confidence": confidence,
        **({} if measured.positive is None else {"positive": measured.positive}),
    }


def classes(measured: Measured, config: ModelConfig) -> Dict[str, Any]:
    """The receipt's `classes`: how each class fares, so that a mean hides none.

    Returns:
        `metrics`: every metric that has a meaning for the model; `classes`: how many classes occur; `scores`: for
        each, the worst first and at most 50, its `precision`, `recall`, `f1` (0 to 1) and `support` (rows or spans);
        `confusion`: true class -> answered class -> count, null with more than 50 classes or several labels a row.
    """
    pairs = measured.pairs
    tokens = config.task == TOKENS
    plain = not tokens and not config.multi_label
    positive = measured.positive
    if positive is None and plain and len(config.labels) == 2:
        positive = metrics.positive_label(config.labels, [truth for truth, _ in pairs])
    tallies = metrics.class_tallies(pairs)
    few = len(tallies) <= MOST_CLASSES
    values = metrics.values(pairs, tokens=tokens, positive=positive)
    return {
        "metrics": {name: round(value, 6) for name, value in values.items()},
        "classes": len(tallies),
        "scores": [_class_score(name, tallies[name]) for name in metrics.worst(tallies, MOST_CLASSES)],
        "confusion": metrics.confusion(pairs) if few and not config.multi_label else None,
    }


def worst_line(told: Mapping[str, Any]) -> str:
    """The receipt's `classes` in a line: those that fare worst."""
    worst = told["scores"][:_SHOWN_CLASSES]
    each = ["{} {} (n = {})".format(row["label"], shown(row["f1"], "fraction"), row["support"]) for row in worst]
    return "lowest F1 of {}: {}".format(counted(told["classes"], "class", "classes"), ", ".join(each) or "-")


def repeats(told: Mapping[str, Any]) -> Optional[str]:
    """What to know of the receipt's `accuracy` where texts repeat so often that `n` promises too much; else None."""
    n, distinct = told["n"], told["distinct_texts"]
    return None if distinct >= _MOSTLY_DISTINCT * n else f"distinct texts: {distinct} for {n} rows"


def _class_score(name: str, tally: metrics.Tally) -> Dict[str, Any]:
    return {
        "label": name,
        "precision": round(tally.precision, 6),
        "recall": round(tally.recall, 6),
        "f1": round(tally.f1, 6),
        "support": tally.support,
    }


def checks(measured: Measured, limits: Limits) -> List[Check]:
    """The rows of the receipt that `limits` asks for."""
    found = []
    if limits.accuracy_min is not None:
        found.append(_minimum(measured, limits.accuracy_min, limits.confidence))
    if limits.max_drop_points is not None:
        theirs = [row.float_answer for row in measured.rows]
        found.append(
            _drop("accuracy.max_drop_points", measured, theirs, "the float model", limits.max_drop_points, limits)
        )
    if limits.max_regression_points is not None:
        theirs = _of_baseline(measured.rows)
        name = limits.baseline or "the earlier release"
        found.append(
            _drop("accuracy.max_regression_points", measured, theirs, name, limits.max_regression_points, limits)
        )
    return found


def _of_baseline(rows: Sequence[GoldenRow]) -> List[Answer]:
    """What the earlier release answered.

    Raises:
        BundleInvalidError: the rows do not tell.
    """
    answers = [row.baseline_answer for row in rows if row.baseline_answer is not None]
    if len(answers) < len(rows):
        raise BundleInvalidError(
            "the gate accuracy.max_regression_points cannot be measured",
            why="the golden rows do not say what the earlier release answered",
            fix="build the bundle again",
        )
    return answers


def _minimum(measured: Measured, limit: float, confidence: float) -> Check:
    interval, counts = measured.interval, measured.counts
    verdict = stats.verdict_at_least(interval, limit)
    detail = f"{_of_what(measured)}{counts.right} of {counted(counts.n, 'row')} right" + _on_what(measured)
    if verdict == stats.INCONCLUSIVE:
        detail += "; " + (
            would_decide(stats.n_for_proportion(interval.value, limit, confidence, beyond=counts.n), "rows")
            if measured.metric == metrics.ACCURACY
            else _more_rows(measured.metric)
        )
    return sampled(
        "accuracy.min",
        verdict,
        interval,
        limit=limit,
        unit="fraction",
        n=counts.n,
        confidence=confidence,
        detail=detail,
    )


def _drop(
    gate: str, measured: Measured, theirs: Sequence[Answer], whose: str, limit_points: float, limits: Limits
) -> Check:
    """Paired: both models saw the same rows, so only those count on which they differ. `whose` answers are `theirs`."""
    truths, confidence = [row.answer for row in measured.rows], limits.confidence
    counts = scoring.count(truths, theirs, measured.answers)
    interval = scoring.drop(
        measured.metric, truths, theirs, measured.answers, confidence, measured.positive, measured.classes
    )
    verdict = stats.verdict_at_most(interval, limit_points / 100)
    detail = f"{_of_what(measured)}{counted(counts.lost, 'row')} lost against {whose}, {counts.won} won"
    detail += _on_what(measured)
    if verdict == stats.INCONCLUSIVE:
        detail += "; " + (
            would_decide(stats.n_for_drop(counts.lost, counts.won, counts.n, limit_points / 100, confidence), "rows")
            if measured.metric == metrics.ACCURACY
            else _more_rows(measured.metric)
        )
    points = stats.Interval(*(100 * number for number in interval))
    return sampled(
        gate,
        verdict,
        points,
        limit=limit_points,
        unit="points",
        n=counts.n,
        confidence=confidence,
        detail=detail,
    )


def _of_what(measured: Measured) -> str:
    """Which metric the figure is, where it is not what everybody expects."""
    if measured.metric == metrics.ACCURACY:
        return ""
    of_label = "" if measured.positive is None else f" of {measured.positive!r}"
    return f"{measured.metric}{of_label}; "


def _on_what(measured: Measured) -> str:
    """What the golden rows cannot show, however many they are."""
    unseen, repeated = measured.unseen, repeats({"n": measured.counts.n, "distinct_texts": measured.distinct})
    told = ["", *([] if repeated is None else [repeated])]
    if unseen:
        more = f" and {len(unseen) - _SHOWN_CLASSES} more" if len(unseen) > _SHOWN_CLASSES else ""
        told.append(f"no golden row has {', '.join(unseen[:_SHOWN_CLASSES])}{more}")
    return "; ".join(told)


def _more_rows(metric: str) -> str:
    return f"more rows would tell; how many is not known for {metric}"
