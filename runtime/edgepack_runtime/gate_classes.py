"""The floors of classes: that none is worse than the recipe allows, however good the mean is.

A class passes when the low end of its interval reaches its floor; the gate passes when every class does. For that no
correction is due, since each of them has to show it. For a fail one is: of many classes that are all as good as their
floors, some look worse by chance. So an interval has its low end at the gate's confidence, and its high end at one that
leaves a k-th of what the gate's leaves (C. E. Bonferroni), k being the number of classes that are looked at. A class
fails when even that is below its floor.

Spans of one text fail together, so a class counts for fewer answers than it has spans: for n^2 / sum(m^2) where m are
the spans of each text (L. Kish's effective sample size, Survey Sampling (1965)). Where no text has two it is n.
"""

from __future__ import annotations

import math
from typing import List, Mapping, NamedTuple, Sequence

from edgepack_runtime import stats
from edgepack_runtime.accuracy_limits import PER_CLASS, Floors
from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.gate_limits import Check, sampled, would_decide
from edgepack_runtime.metrics import Tally
from edgepack_runtime.model_config import ModelConfig
from edgepack_runtime.wording import counted

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
    interval: stats.Interval
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


def checks(
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


def interval(figure: str, share: Share, confidence: float, to_fail: float) -> stats.Interval:
    """`figure` (0 to 1) of one class whose share is given; `to_fail` is the confidence of its high end.

    Recall and precision are proportions, and F1 grows with one. Nothing is known of a class that has nothing of either.
    """
    if share.n == 0:
        return stats.Interval(0.0, 0.0, 1.0)
    right = min(share.right * share.worth / share.n, share.worth)
    found = stats.proportion_between(right, share.worth, confidence, to_fail)
    return stats.f1_of_share(found) if figure == "f1" else found


def _check(figure: str, rows: Mapping[str, Rows], floors: Floors, classes: Sequence[str], confidence: float) -> Check:
    asked = {label: floor for label in classes for floor in [floors.of(label)] if floor is not None}
    to_fail = 1 - (1 - confidence) / len(asked)
    judged = [_judge(figure, label, rows.get(label, {}), floor, confidence, to_fail) for label, floor in asked.items()]
    verdict = stats.overall([one.verdict for one in judged])
    deciding = sorted((one for one in judged if one.verdict == verdict), key=lambda one: (one.margin, one.label))
    worst = deciding[0]
    detail = "; ".join(_told(figure, one) for one in deciding[:_SHOWN])
    if verdict == stats.PASS and len(judged) > 1:
        detail = f"lowest of {len(judged)} classes: {_told(figure, worst)}"
    elif len(deciding) > _SHOWN:
        detail += f"; and {len(deciding) - _SHOWN} more of {len(judged)} classes"
    if verdict == stats.INCONCLUSIVE:
        detail += f"; {_more(figure, worst, confidence, to_fail)}"
    if verdict != stats.PASS and len(asked) > 1:
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
    verdict = stats.verdict_at_least(found, floor)
    margin = (found.high if verdict == stats.FAIL else found.low) - floor
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
    needed = stats.n_for_proportion(right / n, limit, confidence, to_fail=to_fail, beyond=math.floor(worth))
    return would_decide(needed and math.ceil(needed * n / worth), f"{kind} of {worst.label}")
