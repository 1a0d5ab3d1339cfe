"""What a metric is; accuracy, F1 scores, per-class scores and confusion matrix of predictions that are labels.

An answer is the label of a row or of a prediction: one label (`str`), several (a tuple of `str`, possibly empty), or
the spans of a text (a tuple of `Span`, possibly empty). A class is a label, or the label of a span. Tasks without
labels have answers of other types, and metrics of their own. All functions are pure; their input is one (truth,
answer) pair per row.

F1 = 2 tp / (2 tp + fp + fn). For 0 / 0, precision, recall and F1 are 0, as in scikit-learn and seqeval.
"""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from typing import (
    Any,
    Dict,
    FrozenSet,
    Iterable,
    List,
    Literal,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from edgepack_runtime.util.spans import OUTSIDE, Span

Label = Union[str, Tuple[str, ...], Tuple[Span, ...]]
Answer = Any  # a `Label`, or what another task says
Pair = Tuple[Answer, Answer]

MetricName = Literal[
    "accuracy", "macro_f1", "micro_f1", "f1", "entity_f1", "intent_accuracy", "spearman", "pearson", "mae",
    "exact_match", "character_f1",
]  # fmt: skip
LABEL_METRICS: Tuple[str, ...] = ("accuracy", "macro_f1", "micro_f1", "f1", "entity_f1")
ACCURACY, MACRO_F1, MICRO_F1, F1, ENTITY_F1 = LABEL_METRICS
INTENT_ACCURACY = "intent_accuracy"
NUMBER_METRICS: Tuple[str, ...] = ("spearman", "pearson", "mae")  # `stats.numbers`
SPEARMAN, PEARSON, MAE = NUMBER_METRICS
READING_METRICS: Tuple[str, ...] = ("exact_match", "character_f1")  # `stats.reading`
EXACT_MATCH, CHARACTER_F1 = READING_METRICS
SCORE = "score"  # the mean of what a handler says of its answers; no recipe names it


class Metric(NamedTuple):
    """What a metric is, in half a sentence, and how its figures are read.

    Where more is better it is 1 at most. Where less is better it is an error in the unit of the answers. `unit` is one
    of `schema.figures`. For points of either see `tasks.task.hundred_points`.
    """

    about: str = ""
    unit: str = "fraction"
    more_is_better: bool = True


METRICS: Mapping[str, Metric] = {  # of each `MetricName`, in the order of help texts
    ACCURACY: Metric("share of rows with the right answer"),
    MACRO_F1: Metric("mean of the F1 of all labels"),
    MICRO_F1: Metric("F1 over all labels together"),
    F1: Metric("F1 of the rarer of two labels (of `1`, if there is one)"),
    ENTITY_F1: Metric("F1 of exact spans"),
    INTENT_ACCURACY: Metric("share of rows with the right intent"),
    SPEARMAN: Metric("rank correlation of numbers", ""),
    PEARSON: Metric("linear correlation of numbers", ""),
    MAE: Metric("mean absolute error of numbers, in their unit", "", more_is_better=False),
    EXACT_MATCH: Metric("share of questions with the right answer"),
    CHARACTER_F1: Metric("mean F1 of the characters of an answer"),
    SCORE: Metric("mean of a handler's scores"),
}


def metric_of(name: str) -> Metric:
    """The metric with a name; of one that a later version knows, plain numbers."""
    return METRICS.get(name, Metric(unit=""))


class Tally(NamedTuple):
    """Numbers of true positives, false positives and false negatives."""

    tp: int
    fp: int
    fn: int

    @property
    def precision(self) -> float:
        """Precision, 0 to 1."""
        return self.tp / max(self.tp + self.fp, 1)

    @property
    def recall(self) -> float:
        """Recall, 0 to 1."""
        return self.tp / max(self.tp + self.fn, 1)

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall, 0 to 1."""
        return 2 * self.tp / max(2 * self.tp + self.fp + self.fn, 1)

    @property
    def support(self) -> int:
        """Number of true labels or spans."""
        return self.tp + self.fn


def same(truth: Label, answer: Label) -> bool:
    """Whether the whole answer is right: exactly the true label, labels or spans."""
    return _claims(truth) == _claims(answer)


def row_tallies(truth: Label, answer: Label) -> Dict[str, Tally]:
    """Class -> its tally in one row, without classes of neither. A span counts with exact ends and label."""
    wanted, found = _claims(truth), _claims(answer)
    counts: Dict[str, List[int]] = {}
    # In the order of `Tally`: true positives, false positives, false negatives.
    for place, claims in enumerate((wanted & found, found - wanted, wanted - found)):
        for claim in claims:
            counts.setdefault(claim if isinstance(claim, str) else claim.label, [0, 0, 0])[place] += 1
    return {name: Tally(*numbers) for name, numbers in counts.items()}


def tallies_of_rows(pairs: Iterable[Pair]) -> Dict[str, Counter[Tally]]:
    """Class -> tally -> number of rows, sorted, without classes of no truth and no answer."""
    found: Dict[str, Counter[Tally]] = {}
    for truth, answer in pairs:
        for name, tally in row_tallies(truth, answer).items():
            found.setdefault(name, Counter())[tally] += 1
    return {name: found[name] for name in sorted(found)}


def class_tallies(pairs: Iterable[Pair]) -> Dict[str, Tally]:
    """Class -> its tally over all rows, sorted, without classes of no truth and no answer."""
    return {name: pooled(rows.elements()) for name, rows in tallies_of_rows(pairs).items()}


def pooled(tallies: Iterable[Tally]) -> Tally:
    """Sum of tallies: its precision, recall and F1 are the micro averages, for spans those of seqeval."""
    columns = list(zip(*tallies)) or [(), (), ()]
    return Tally(*(sum(column) for column in columns))


def accuracy(pairs: Sequence[Pair]) -> float:
    """Share of rows whose whole answer is right, 0 to 1.

    Raises:
        ValueError: there are no rows.
    """
    if not pairs:
        raise ValueError("no rows")
    return sum(same(truth, answer) for truth, answer in pairs) / len(pairs)


def micro_f1(tallies: Mapping[str, Tally]) -> float:
    """F1 over all classes together; for spans this is seqeval's entity F1."""
    return pooled(tallies.values()).f1


def constant_claims(truths: Iterable[Label]) -> List[Union[str, Span]]:
    """The labels or spans with the highest micro F1 if every row is given all of them: it needs no learning.

    With the k most frequent ones that F1 is 2 x their number / (k x rows + number of all).
    """
    rows = [_claims(truth) for truth in truths]
    counts = Counter(claim for row in rows for claim in row)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], repr(item[0])))
    total, best, most = sum(counts.values()), 0, 0.0
    for k, found in enumerate(accumulate(count for _, count in ranked), 1):
        if (score := 2 * found / (k * len(rows) + total)) > most:
            best, most = k, score
    return [claim for claim, _ in ranked[:best]]


def macro_f1(tallies: Mapping[str, Tally]) -> float:
    """Unweighted mean of the F1 of the classes; 0 without classes."""
    return sum(tally.f1 for tally in tallies.values()) / max(len(tallies), 1)


def positive_label(labels: Sequence[str], truths: Iterable[Answer]) -> str:
    """Positive label of two for `f1`: "1" if present, as in AFQMC, otherwise the rarer one in `truths`.

    If both are equally common it is the one that sorts last: "yes" and not "no".

    Raises:
        ValueError: there are not two labels.
    """
    if len(labels) != 2:
        raise ValueError(f"{len(labels)} labels have no positive one")
    if "1" in labels:
        return "1"
    counts = Counter(truths)
    return min(sorted(labels, reverse=True), key=lambda label: counts[label])


def classes_of(answer: Label) -> List[str]:
    """The distinct classes of an answer, sorted."""
    labels = {answer} if isinstance(answer, str) else {one.label if isinstance(one, Span) else one for one in answer}
    return sorted(labels)


def values(pairs: Sequence[Pair], positive: Optional[str] = None) -> Dict[str, float]:
    """Every metric, 0 to 1; `f1` with a `positive` label only. `pairs` has at least one."""
    tallies = class_tallies(pairs)
    micro = micro_f1(tallies)
    found = {ACCURACY: accuracy(pairs), MACRO_F1: macro_f1(tallies), MICRO_F1: micro, ENTITY_F1: micro}
    if positive is not None:
        found[F1] = tallies.get(positive, Tally(0, 0, 0)).f1
    return found


def worst(tallies: Mapping[str, Tally], most: int) -> List[str]:
    """At most `most` classes by ascending F1; with equal F1 the more frequent first."""
    return sorted(tallies, key=lambda name: (tallies[name].f1, -tallies[name].support, name))[:most]


def confusion(pairs: Iterable[Pair]) -> Dict[str, Dict[str, int]]:
    """Confusion matrix: true class -> answered class -> count, without zeros.

    Spans with the same ends are paired; a missed span counts as answer `O`, a spurious one as truth `O`.

    Raises:
        ValueError: rows have several labels, which cannot be paired.
    """
    counts: Dict[str, Counter[str]] = {}
    for truth, answer in pairs:
        for wanted, found in _paired_classes(truth, answer):
            counts.setdefault(wanted, Counter())[found] += 1
    return {wanted: dict(sorted(counts[wanted].items())) for wanted in sorted(counts)}


def _paired_classes(truth: Label, answer: Label) -> List[Tuple[str, str]]:
    if isinstance(truth, str) and isinstance(answer, str):
        return [(truth, answer)]
    wanted, found = ({(start, end): label for start, end, label in _spans(side)} for side in (truth, answer))
    return [(wanted.get(ends, OUTSIDE), found.get(ends, OUTSIDE)) for ends in {**wanted, **found}]


def _spans(answer: Label) -> List[Span]:
    spans = [claim for claim in answer if isinstance(claim, Span)]
    if isinstance(answer, str) or len(spans) != len(answer):
        raise ValueError(f"{answer!r} is not made of spans")
    return spans


def _claims(answer: Label) -> FrozenSet[Union[str, Span]]:
    return frozenset((answer,)) if isinstance(answer, str) else frozenset(answer)
