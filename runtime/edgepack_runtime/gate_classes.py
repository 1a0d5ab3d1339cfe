"""The floors of classes: that none is worse than the recipe allows, however good the mean is.

A class passes when the low end of its interval reaches its floor; the gate passes when every class does. For that no
correction is due, since each of them has to show it. For a fail one is: of many classes that are all as good as their
floors, some look worse by chance. So an interval has its low end at the gate's confidence, and its high end at one that
leaves a k-th of what the gate's leaves (C. E. Bonferroni), k being the number of classes that are looked at. A class
fails when even that is below its floor.

Standard library only.
"""

from __future__ import annotations

from typing import List, Mapping, NamedTuple, Sequence, Tuple

from edgepack_runtime import stats
from edgepack_runtime.accuracy_limits import PER_CLASS, Floors
from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.gate_limits import Check, sampled, would_decide
from edgepack_runtime.metrics import Tally
from edgepack_runtime.model_config import ModelConfig

_SHOWN = 3
_NONE = Tally(0, 0, 0)


class _Judged(NamedTuple):
    """One class: its share of right ones among `n`, and how far that is from its floor (negative: beyond it)."""

    label: str
    right: int
    n: int
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
    tallies: Mapping[str, Tally], floors: Mapping[str, Floors], classes: Sequence[str], confidence: float
) -> List[Check]:
    """A row of the receipt for each of recall, precision and F1 that has floors.

    Args:
        tallies: of the classes that occur, as `metrics.class_tallies` gives them.
        floors: by figure, as in `Limits.per_class`.
        classes: those of the model.
        confidence: of the intervals, 0 to 1, two-sided.
    """
    return [_check(figure, tallies, asked, classes, confidence) for figure, asked in floors.items()]


def interval(figure: str, tally: Tally, confidence: float, to_fail: float) -> stats.Interval:
    """`figure` (`recall`, `precision` or `f1`; 0 to 1) of one class; `to_fail` is the confidence of its high end.

    Recall and precision are proportions, of what is there and of what was answered. F1 = 2 j / (1 + j), where j is the
    share of right ones among all that are there or were answered: a proportion too, and F1 grows with it. Nothing is
    known of a class that has nothing of either.
    """
    right, n = _of(figure, tally)
    if n == 0:
        return stats.Interval(0.0, 0.0, 1.0)
    found = stats.proportion_between(right, n, confidence, to_fail)
    return stats.Interval(*(2 * end / (1 + end) for end in found)) if figure == "f1" else found


def _of(figure: str, tally: Tally) -> Tuple[int, int]:
    wrong = {"recall": tally.fn, "precision": tally.fp, "f1": tally.fn + tally.fp}[figure]
    return tally.tp, tally.tp + wrong


def _check(
    figure: str, tallies: Mapping[str, Tally], floors: Floors, classes: Sequence[str], confidence: float
) -> Check:
    asked = {label: floor for label in classes for floor in [floors.of(label)] if floor is not None}
    to_fail = 1 - (1 - confidence) / len(asked)
    judged = [
        _judge(figure, label, tallies.get(label, _NONE), floor, confidence, to_fail) for label, floor in asked.items()
    ]
    verdict = stats.overall([one.verdict for one in judged])
    deciding = sorted((one for one in judged if one.verdict == verdict), key=lambda one: (one.margin, one.label))
    worst = deciding[0]
    detail = "; ".join(_told(figure, one) for one in deciding[:_SHOWN])
    if verdict == stats.PASS:
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
        n=worst.n,
        confidence=confidence,
        detail=detail,
    )


def _judge(figure: str, label: str, tally: Tally, floor: float, confidence: float, to_fail: float) -> _Judged:
    right, n = _of(figure, tally)
    found = interval(figure, tally, confidence, to_fail)
    verdict = stats.verdict_at_least(found, floor)
    margin = (found.high if verdict == stats.FAIL else found.low) - floor
    return _Judged(label, right, n, found, floor, verdict, margin)


def _told(figure: str, one: _Judged) -> str:
    of = {"recall": "of {} that are there", "precision": "of {} answers", "f1": "of {} that are there or answered"}
    return f"{one.label}: {one.right} right {of[figure].format(one.n)}"


def _more(figure: str, worst: _Judged, confidence: float, to_fail: float) -> str:
    """What would decide the worst class, in words."""
    if worst.n == 0:
        return "nothing of it in the golden rows"
    share, floor = worst.right / worst.n, worst.floor
    limit = floor / (2 - floor) if figure == "f1" else floor
    kind = "answers" if figure == "precision" else "rows"
    needed = stats.n_for_proportion(share, limit, confidence, to_fail=to_fail, beyond=worst.n)
    return would_decide(needed, f"{kind} of {worst.label}")
