"""How good answers are: accuracy, F1 in its forms, classes that fare badly (standard library only).

An answer is what a row says or a model predicts: one label (`str`), several (a tuple of `str`, possibly empty), or
the spans of a text (a tuple of `Span`, possibly empty). A class is a label, or the label of a span. All functions
are pure; their input is one (truth, answer) pair a row.

F1 = 2 tp / (2 tp + fp + fn). Where nothing is to be found and nothing was, precision, recall and F1 are 0, as in
scikit-learn and seqeval.
"""

from __future__ import annotations

from collections import Counter
from typing import Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from edgepack_runtime.util.spans import OUTSIDE, Span

Answer = Union[str, Tuple[str, ...], Tuple[Span, ...]]
Pair = Tuple[Answer, Answer]

ACCURACY, MACRO_F1, MICRO_F1, F1, ENTITY_F1 = METRICS = ("accuracy", "macro_f1", "micro_f1", "f1", "entity_f1")


class Tally(NamedTuple):
    """What was found rightly, found where it is not (`fp`), and missed (`fn`)."""

    tp: int
    fp: int
    fn: int

    @property
    def precision(self) -> float:
        """Share of what was found that is right, 0 to 1."""
        return self.tp / max(self.tp + self.fp, 1)

    @property
    def recall(self) -> float:
        """Share of what is there that was found, 0 to 1."""
        return self.tp / max(self.tp + self.fn, 1)

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall, 0 to 1."""
        return 2 * self.tp / max(2 * self.tp + self.fp + self.fn, 1)

    @property
    def support(self) -> int:
        """How many are there in truth."""
        return self.tp + self.fn


def same(truth: Answer, answer: Answer) -> bool:
    """Whether the whole answer is right: the label, all labels, or all spans and nothing else."""
    return _claims(truth) == _claims(answer)


def row_tallies(truth: Answer, answer: Answer) -> Dict[str, Tally]:
    """Class -> its tally in one row; classes of neither are left out. A span counts with exact ends and label."""
    wanted, found = _claims(truth), _claims(answer)
    counts: Dict[str, List[int]] = {}
    for place, claims in enumerate((wanted & found, found - wanted, wanted - found)):
        for claim in claims:
            counts.setdefault(_class_of(claim), [0, 0, 0])[place] += 1
    return {name: Tally(*numbers) for name, numbers in counts.items()}


def tallies_of_rows(pairs: Iterable[Pair]) -> Dict[str, Counter[Tally]]:
    """Class -> in how many rows it has which tally, sorted; classes of no truth and no answer are left out."""
    found: Dict[str, Counter[Tally]] = {}
    for truth, answer in pairs:
        for name, tally in row_tallies(truth, answer).items():
            found.setdefault(name, Counter())[tally] += 1
    return {name: found[name] for name in sorted(found)}


def class_tallies(pairs: Iterable[Pair]) -> Dict[str, Tally]:
    """Class -> its tally over all rows, sorted; classes that occur in no truth and no answer are left out."""
    return {name: pooled(rows.elements()) for name, rows in tallies_of_rows(pairs).items()}


def pooled(tallies: Iterable[Tally]) -> Tally:
    """The sum: its precision, recall and F1 are the micro averages, and over spans those of seqeval."""
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
    """F1 over all classes together; of spans, this is what seqeval calls the F1 of entities."""
    return pooled(tallies.values()).f1


def macro_f1(tallies: Mapping[str, Tally]) -> float:
    """Mean of the F1 of the classes, each counting the same; 0 when there are none."""
    return sum(tally.f1 for tally in tallies.values()) / max(len(tallies), 1)


def positive_label(labels: Sequence[str], truths: Iterable[Answer]) -> str:
    """Which of two labels `f1` is about: "1" where there is one, as in AFQMC, else the rarer one in `truths`.

    Of two that are equally common it is the later one when sorted: "yes" and not "no".

    Raises:
        ValueError: there are not two labels.
    """
    if len(labels) != 2:
        raise ValueError(f"{len(labels)} labels have no positive one")
    if "1" in labels:
        return "1"
    counts = Counter(truths)
    return min(sorted(labels, reverse=True), key=lambda label: counts[label])


def usual(*, multi_label: bool, tokens: bool) -> str:
    """What such models are compared by: accuracy, or F1 where an answer may be half right. Arguments as in `unfit`."""
    if tokens:
        return ENTITY_F1
    return MICRO_F1 if multi_label else ACCURACY


def unfit(metric: str, n_labels: int, *, multi_label: bool, tokens: bool) -> Optional[str]:
    """Why `metric` has no meaning for such a model, as the end of a sentence; None where it has one.

    Args:
        metric: one of `METRICS`.
        n_labels: labels of the model.
        multi_label: a row has any number of labels.
        tokens: an answer is the spans of a text.
    """
    if metric == ENTITY_F1 and not tokens:
        return "entity_f1 is for token classification: labels of whole texts have micro_f1 and macro_f1"
    if metric == F1 and (tokens or multi_label or n_labels != 2):
        instead = ENTITY_F1 if tokens else "macro_f1 or micro_f1"
        return f"f1 is that of one of two labels: use {instead}"
    return None


def values(pairs: Sequence[Pair], *, tokens: bool, positive: Optional[str]) -> Dict[str, float]:
    """Every metric that has a meaning here, 0 to 1.

    Args:
        pairs: at least one.
        tokens: an answer is the spans of a text.
        positive: the label that `f1` is about, where there is one.
    """
    tallies = class_tallies(pairs)
    found = {ACCURACY: accuracy(pairs), MACRO_F1: macro_f1(tallies), MICRO_F1: micro_f1(tallies)}
    if positive is not None:
        found[F1] = tallies.get(positive, Tally(0, 0, 0)).f1
    if tokens:
        found[ENTITY_F1] = found[MICRO_F1]
    return found


def worst(tallies: Mapping[str, Tally], most: int) -> List[str]:
    """At most `most` classes, the lowest F1 first; of equal ones the more frequent first."""
    return sorted(tallies, key=lambda name: (tallies[name].f1, -tallies[name].support, name))[:most]


def confusion(pairs: Iterable[Pair]) -> Dict[str, Dict[str, int]]:
    """True class -> answered class -> how often, without zeros.

    Of spans, those with the same ends are set against each other; one that was missed is answered `O`, and one
    found where there is none is an `O` in truth.

    Raises:
        ValueError: rows have several labels: it is not known which was taken for which.
    """
    counts: Dict[str, Counter[str]] = {}
    for truth, answer in pairs:
        for wanted, found in _set_against(truth, answer):
            counts.setdefault(wanted, Counter())[found] += 1
    return {wanted: dict(sorted(counts[wanted].items())) for wanted in sorted(counts)}


def _set_against(truth: Answer, answer: Answer) -> List[Tuple[str, str]]:
    if isinstance(truth, str) and isinstance(answer, str):
        return [(truth, answer)]
    wanted, found = ({(start, end): label for start, end, label in _spans(side)} for side in (truth, answer))
    return [(wanted.get(ends, OUTSIDE), found.get(ends, OUTSIDE)) for ends in {**wanted, **found}]


def _spans(answer: Answer) -> List[Span]:
    spans = [claim for claim in answer if isinstance(claim, Span)]
    if isinstance(answer, str) or len(spans) != len(answer):
        raise ValueError(f"{answer!r} is not made of spans")
    return spans


def _claims(answer: Answer) -> FrozenSet[Union[str, Span]]:
    return frozenset((answer,)) if isinstance(answer, str) else frozenset(answer)


def _class_of(claim: Union[str, Span]) -> str:
    return claim if isinstance(claim, str) else claim.label
