"""The accuracy gates, means and floors of classes: the shipped file on the golden rows, through the predictor."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from edgepack_runtime.bundle.golden import GoldenRow
from edgepack_runtime.bundle.model_config import TOKENS, ModelConfig
from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.gate.limits import Floors, Limits
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.stats import intervals, metrics, scoring
from edgepack_runtime.stats.checks import PER_CLASS, Check, sampled, shown, would_decide
from edgepack_runtime.stats.metrics import Answer, Pair, Tally
from edgepack_runtime.stats.scoring import Counts
from edgepack_runtime.util.texts import counted

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
    interval: intervals.Interval
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
    verdict = intervals.verdict_at_least(interval, limit)
    detail = f"{_of_what(measured)}{counts.right} of {counted(counts.n, 'row')} right" + _on_what(measured)
    if verdict == intervals.INCONCLUSIVE:
        detail += "; " + (
            would_decide(intervals.n_for_proportion(interval.value, limit, confidence, beyond=counts.n), "rows")
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
    verdict = intervals.verdict_at_most(interval, limit_points / 100)
    detail = f"{_of_what(measured)}{counted(counts.lost, 'row')} lost against {whose}, {counts.won} won"
    detail += _on_what(measured)
    if verdict == intervals.INCONCLUSIVE:
        detail += "; " + (
            would_decide(
                intervals.n_for_drop(counts.lost, counts.won, counts.n, limit_points / 100, confidence), "rows"
            )
            if measured.metric == metrics.ACCURACY
            else _more_rows(measured.metric)
        )
    points = intervals.Interval(*(100 * number for number in interval))
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


_SHOWN = 3
Rows = Mapping[Tally, int]  # in how many rows a class has which tally


class Share(NamedTuple):
    """Right ones among `n`, and how many independent ones those are worth."""

    right: int
    n: int
    worth: float


class _Judged(NamedTuple):
    """One class: its share of right ones, and how far that is from its floor (negative: beyond it)."""

    label: str
    share: Share
    interval: intervals.Interval
    floor: float
    verdict: str
    margin: float


def of_model(config: ModelConfig, floors: Mapping[str, Floors]) -> Sequence[str]:
    """The classes of a model: its labels, or the types of its spans.

    Raises:
        BundleInvalidError: a floor is for none of them.
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
    rows: Mapping[str, Rows], floors: Mapping[str, Floors], classes: Sequence[str], confidence: float
) -> List[Check]:
    """A row of the receipt for each of recall, precision and F1 that has floors.

    Args:
        rows: of the classes that occur, as `metrics.tallies_of_rows` gives them.
        floors: by figure, as in `Limits.per_class`.
        classes: those of the model.
        confidence: of the intervals, 0 to 1, two-sided.
    """
    return [_check(figure, rows, asked, classes, confidence) for figure, asked in floors.items()]


def share_of(figure: str, rows: Rows) -> Share:
    """What `figure` (`recall`, `precision` or `f1`) of one class is made of: what is there, what was answered, or both
    (`stats.f1_of_share`).
    """
    right = n = squares = 0
    for tally, count in rows.items():
        units = tally.tp + {"recall": tally.fn, "precision": tally.fp, "f1": tally.fn + tally.fp}[figure]
        right += tally.tp * count
        n += units * count
        squares += units**2 * count
    return Share(right, n, n**2 / max(squares, 1))


def interval(figure: str, share: Share, confidence: float, to_fail: float) -> intervals.Interval:
    """`figure` (0 to 1) of one class whose share is given; `to_fail` is the confidence of its high end.

    Recall and precision are proportions, and F1 grows with one. Nothing is known of a class that has nothing of either.
    """
    if share.n == 0:
        return intervals.Interval(0.0, 0.0, 1.0)
    right = min(share.right * share.worth / share.n, share.worth)
    found = intervals.proportion_between(right, share.worth, confidence, to_fail)
    return intervals.f1_of_share(found) if figure == "f1" else found


def _check(figure: str, rows: Mapping[str, Rows], floors: Floors, classes: Sequence[str], confidence: float) -> Check:
    asked = {label: floor for label in classes for floor in [floors.of(label)] if floor is not None}
    to_fail = 1 - (1 - confidence) / len(asked)
    judged = [_judge(figure, label, rows.get(label, {}), floor, confidence, to_fail) for label, floor in asked.items()]
    verdict = intervals.overall([one.verdict for one in judged])
    deciding = sorted((one for one in judged if one.verdict == verdict), key=lambda one: (one.margin, one.label))
    worst = deciding[0]
    detail = "; ".join(_told(figure, one) for one in deciding[:_SHOWN])
    if verdict == intervals.PASS and len(judged) > 1:
        detail = f"lowest of {len(judged)} classes: {_told(figure, worst)}"
    elif len(deciding) > _SHOWN:
        detail += f"; and {len(deciding) - _SHOWN} more of {len(judged)} classes"
    if verdict == intervals.INCONCLUSIVE:
        detail += f"; {_more(figure, worst, confidence, to_fail)}"
    if verdict != intervals.PASS and len(asked) > 1:
        detail += f"; the high end allows for {len(asked)} classes"
    return sampled(
        PER_CLASS + figure,
        verdict,
        worst.interval,
        limit=worst.floor,
        unit="fraction",
        n=worst.share.n,
        confidence=confidence,
        detail=detail,
    )


def _judge(figure: str, label: str, rows: Rows, floor: float, confidence: float, to_fail: float) -> _Judged:
    share = share_of(figure, rows)
    found = interval(figure, share, confidence, to_fail)
    verdict = intervals.verdict_at_least(found, floor)
    margin = (found.high if verdict == intervals.FAIL else found.low) - floor
    return _Judged(label, share, found, floor, verdict, margin)


def _told(figure: str, one: _Judged) -> str:
    n = one.share.n
    of = {
        "recall": f"of {n} that are there",
        "precision": f"of {counted(n, 'answer')}",
        "f1": f"of {n} that are there or answered",
    }
    told = f"{one.label}: {one.share.right} right {of[figure]}"
    worth = math.floor(one.share.worth)
    return told if worth == n else f"{told}, worth {worth} since they come in the same texts"


def _more(figure: str, worst: _Judged, confidence: float, to_fail: float) -> str:
    """What would decide the worst class, in words."""
    right, n, worth = worst.share
    if n == 0:
        return "no answer gives it" if figure == "precision" else "nothing of it in the golden rows"
    limit = worst.floor / (2 - worst.floor) if figure == "f1" else worst.floor
    kind = "answers" if figure == "precision" else "rows" if worth == n else "spans"
    needed = intervals.n_for_proportion(right / n, limit, confidence, to_fail=to_fail, beyond=math.floor(worth))
    return would_decide(needed and math.ceil(needed * n / worth), f"{kind} of {worst.label}")
