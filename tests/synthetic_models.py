"""Models that exist as chances only: how often each is passed and failed by the accuracy gates, at a known truth.

The verdicts are those of `gate_accuracy` and `gate_classes`, on rows and answers made for the outcome that was drawn.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import NamedTuple

from edgepack_runtime import gate_accuracy, gate_classes, metrics
from edgepack_runtime.accuracy_limits import Floors
from edgepack_runtime.gate_limits import Limits
from edgepack_runtime.golden import GoldenRow
from edgepack_runtime.stats import FAIL, INCONCLUSIVE, PASS

LABELS = ("0", "1")


class Rates(NamedTuple):
    """Share of the models, 0 to 1, of each verdict. `wrong` ones contradict the truth."""

    models: int
    wrong_pass: float
    wrong_fail: float
    decided: float


def rates(judged: Iterable[tuple[bool, str]]) -> Rates:
    """Count pairs of (whether the truth keeps to the limit, the verdict)."""
    found = Counter(judged)
    models = sum(found.values())
    decided = sum(count for (_, verdict), count in found.items() if verdict != INCONCLUSIVE)
    return Rates(models, found[False, PASS] / models, found[True, FAIL] / models, decided / models)


@cache
def minimum(right: int, n: int, limit: float, confidence: float) -> str:
    """The verdict of `accuracy.min` on `n` rows of which `right` are answered rightly."""
    return _verdict(["1"] * n, ["1"] * right + ["0"] * (n - right), Limits(accuracy_min=limit, confidence=confidence))


@cache
def drop(lost: int, won: int, n: int, limit_points: float, confidence: float) -> str:
    """The verdict of `accuracy.max_drop_points`: `lost` rows only the float model has right, `won` only the other."""
    theirs = ["1"] * lost + ["0"] * won + ["1"] * (n - lost - won)
    ours = ["0"] * lost + ["1"] * won + ["1"] * (n - lost - won)
    return _verdict(theirs, ours, Limits(max_drop_points=limit_points, confidence=confidence))


def _verdict(theirs: Sequence[str], ours: Sequence[str], limits: Limits) -> str:
    rows = [GoldenRow("x", "1", answer) for answer in theirs]
    measured = gate_accuracy.measure(rows, ours, metrics.ACCURACY, limits.confidence, LABELS)
    (check,) = gate_accuracy.checks(measured, limits)
    return check.verdict


def minimums(
    models: int, n: int, limit: float, confidence: float, truth: Callable[[random.Random], float], seed: int
) -> Iterator[tuple[bool, str]]:
    """Models of a drawn true accuracy, each judged on `n` rows of its own."""
    source = random.Random(seed)
    for _ in range(models):
        accuracy = truth(source)
        right = sum(source.random() < accuracy for _ in range(n))
        yield accuracy >= limit, minimum(right, n, limit, confidence)


def drops(
    models: int,
    n: int,
    limit_points: float,
    confidence: float,
    chances: Callable[[random.Random], tuple[float, float]],
    seed: int,
) -> Iterator[tuple[bool, str]]:
    """Models of drawn chances that a row is lost, or won, against the float model."""
    source = random.Random(seed)
    for _ in range(models):
        lost_chance, won_chance = chances(source)
        drawn = Counter(bisected(source.random(), (lost_chance, won_chance)) for _ in range(n))
        verdict = drop(drawn[0], drawn[1], n, limit_points, confidence)
        yield 100 * (lost_chance - won_chance) <= limit_points + 1e-9, verdict


def bisected(drawn: float, chances: Sequence[float]) -> int:
    """Which of the `chances` (the rest is one more) a number from 0 to 1 falls into."""
    return sum(drawn >= edge for edge in accumulate(chances))


@dataclass(frozen=True)
class Confusing:
    """A model of several classes: how often each class occurs, and what is answered where it does.

    `answers[true][answered]` are chances that add up to 1.
    """

    shares: Sequence[float]
    answers: Sequence[Sequence[float]]

    @property
    def labels(self) -> list[str]:
        return [str(number) for number in range(len(self.shares))]

    def macro_f1(self) -> float:
        """What it tends to with more and more rows."""
        classes = range(len(self.shares))
        f1 = []
        for one in classes:
            found = sum(self.shares[true] * self.answers[true][one] for true in classes)
            f1.append(2 * self.shares[one] * self.answers[one][one] / (self.shares[one] + found))
        return sum(f1) / len(f1)

    def judged(
        self, models: int, n: int, minimums: Sequence[float], confidence: float, seed: int
    ) -> list[list[tuple[bool, str]]]:
        """As often as `models`, `n` rows and their answers: for each of `minimums` of the macro F1, how it was judged.

        The same rows are judged by each.
        """
        source = random.Random(seed)
        found: list[list[tuple[bool, str]]] = [[] for _ in minimums]
        for _ in range(models):
            truths = source.choices(self.labels, self.shares, k=n)
            answers = [source.choices(self.labels, self.answers[int(truth)])[0] for truth in truths]
            rows = [GoldenRow("x", truth, truth) for truth in truths]
            measured = gate_accuracy.measure(rows, answers, metrics.MACRO_F1, confidence, self.labels)
            for limit, verdicts in zip(minimums, found, strict=True):
                (check,) = gate_accuracy.checks(measured, Limits(accuracy_min=limit, confidence=confidence))
                verdicts.append((self.macro_f1() >= limit, check.verdict))
        return found


def even(classes: int, right: float) -> Confusing:
    """As many rows of each of `classes`, `right` of them answered rightly and the others anyhow."""
    wrong = (1 - right) / (classes - 1)
    answers = [[right if answered == true else wrong for answered in range(classes)] for true in range(classes)]
    return Confusing([1 / classes] * classes, answers)


def floors(
    models: int, n: int, limit: float, confidence: float, recalls: Sequence[float], seed: int
) -> Iterator[tuple[bool, str]]:
    """Models whose classes have these true recalls, each judged on `n` rows of each class."""
    source = random.Random(seed)
    labels = [str(number) for number in range(len(recalls))]
    for _ in range(models):
        right = [sum(source.random() < recall for _ in range(n)) for recall in recalls]
        tallies = {label: metrics.Tally(tp, 0, n - tp) for label, tp in zip(labels, right, strict=True)}
        (check,) = gate_classes.checks(tallies, {"recall": Floors(limit, {})}, labels, confidence)
        yield min(recalls) >= limit, check.verdict
