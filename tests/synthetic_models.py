"""Models that exist as chances only: how often each is passed and failed by the accuracy gates, at a known truth.

The verdicts are those of `gate.accuracy`, on rows and answers made for the outcome that was drawn.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import NamedTuple

from edgepack_runtime.bundle.golden import GoldenRow
from edgepack_runtime.gate import accuracy as gate_accuracy
from edgepack_runtime.schema.gates import Floors, ManifestAccuracy
from edgepack_runtime.stats import intervals, metrics, scoring
from edgepack_runtime.stats.intervals import FAIL, INCONCLUSIVE, PASS
from edgepack_runtime.tasks.registry import ONE_TEXT, task_by_name
from edgepack_runtime.util.spans import Span

LABELS = ("0", "1")
CONFIDENCE = 0.95
Spans = tuple[Span, ...]


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
    return _verdict(["1"] * n, ["1"] * right + ["0"] * (n - right), ManifestAccuracy(min=limit, confidence=confidence))


@cache
def drop(lost: int, won: int, n: int, limit_points: float, confidence: float) -> str:
    """The verdict of `accuracy.max_drop_points`: `lost` rows only the float model has right, `won` only the other."""
    theirs = ["1"] * lost + ["0"] * won + ["1"] * (n - lost - won)
    ours = ["0"] * lost + ["1"] * won + ["1"] * (n - lost - won)
    return _verdict(theirs, ours, ManifestAccuracy(max_drop_points=limit_points, confidence=confidence))


def _verdict(theirs: Sequence[str], ours: Sequence[str], limits: ManifestAccuracy) -> str:
    rows = [GoldenRow("x", "1", answer) for answer in theirs]
    measured = gate_accuracy.measure(task_by_name(ONE_TEXT), rows, ours, metrics.ACCURACY, limits.confidence, LABELS)
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

    def figure(self, metric: str) -> float:
        """What its macro F1, or F1 of the second of two classes, tends to with more and more rows."""
        classes = range(len(self.shares))
        f1 = []
        for one in classes:
            found = sum(self.shares[true] * self.answers[true][one] for true in classes)
            f1.append(2 * self.shares[one] * self.answers[one][one] / (self.shares[one] + found))
        return f1[1] if metric == metrics.F1 else sum(f1) / len(f1)

    def judged(
        self, metric: str, models: int, n: int, minimums: Sequence[float], confidence: float, seed: int
    ) -> list[list[tuple[bool, str]]]:
        """As often as `models`, `n` rows and their answers: for each of `minimums` of `metric`, how it was judged.

        The same rows are judged by each. `metric` as for `figure`.
        """
        source, true = random.Random(seed), self.figure(metric)
        found: list[list[tuple[bool, str]]] = [[] for _ in minimums]
        for _ in range(models):
            truths = source.choices(self.labels, self.shares, k=n)
            answers = [source.choices(self.labels, self.answers[int(truth)])[0] for truth in truths]
            rows = [GoldenRow("x", truth, truth) for truth in truths]
            measured = gate_accuracy.measure(task_by_name(ONE_TEXT), rows, answers, metric, confidence, self.labels)
            for limit, verdicts in zip(minimums, found, strict=True):
                (check,) = gate_accuracy.checks(measured, ManifestAccuracy(min=limit, confidence=confidence))
                verdicts.append((true >= limit, check.verdict))
        return found


@dataclass(frozen=True)
class Losing:
    """Two models on the same rows: the second answers as `worse` in a share of them by their class, `redrawn`."""

    first: Confusing
    worse: Confusing
    redrawn: Sequence[float]

    def drop(self, metric: str) -> float:
        """How much lower the second's figure is, 0 to 1."""
        mixed = [
            [(1 - share) * chance + share * other for chance, other in zip(kept, lost, strict=True)]
            for share, kept, lost in zip(self.redrawn, self.first.answers, self.worse.answers, strict=True)
        ]
        return self.first.figure(metric) - Confusing(self.first.shares, mixed).figure(metric)

    def judged(
        self, metric: str, models: int, n: int, limits: Sequence[float], seed: int
    ) -> list[list[tuple[bool, str]]]:
        """As `Confusing.judged`, of limits of the drop."""
        source, labels, true = random.Random(seed), self.first.labels, self.drop(metric)
        found: list[list[tuple[bool, str]]] = [[] for _ in limits]
        for _ in range(models):
            truths = source.choices(labels, self.first.shares, k=n)
            theirs = [source.choices(labels, self.first.answers[int(truth)])[0] for truth in truths]
            ours = [
                source.choices(labels, self.worse.answers[int(truth)])[0]
                if source.random() < self.redrawn[int(truth)]
                else same
                for truth, same in zip(truths, theirs, strict=True)
            ]
            interval = scoring.drop(metric, truths, theirs, ours, CONFIDENCE, "1", labels)
            for limit, verdicts in zip(limits, found, strict=True):
                verdicts.append((true <= limit, intervals.verdict_at_most(interval, limit)))
        return found


def even(classes: int, right: float) -> Confusing:
    """As many rows of each of `classes`, `right` of them answered rightly and the others anyhow."""
    wrong = (1 - right) / (classes - 1)
    answers = [[right if answered == true else wrong for answered in range(classes)] for true in range(classes)]
    return Confusing([1 / classes] * classes, answers)


@dataclass(frozen=True)
class Spanning:
    """A model of texts with spans of one class, which are found or missed.

    `sizes` are equally likely numbers of spans of a text, `right` the chance of one to be found, `together` the share
    of them whose text decides it for all of those. Another model misses all that a text has with the chance
    `lost_texts`, and each by itself with the chance `lost_spans`.
    """

    sizes: Sequence[int]
    right: float
    together: float
    lost_texts: float = 0.0
    lost_spans: float = 0.0

    @property
    def f1(self) -> float:
        """What the first tends to with more and more texts: it finds nothing where there is nothing."""
        return 2 * self.right / (1 + self.right)

    @property
    def drop(self) -> float:
        """By how much the F1 of the other is lower."""
        found = self.right * (1 - self.lost_texts) * (1 - self.lost_spans)
        return self.f1 - 2 * found / (1 + found)

    def minimums(self, models: int, n: int, limits: Sequence[float], seed: int) -> list[list[tuple[bool, str]]]:
        """As often as `models`, `n` texts: for each of `limits` of the entity F1, how it was judged; all the same."""
        found: list[list[tuple[bool, str]]] = [[] for _ in limits]
        for truths, theirs, _ in self._drawn(models, n, seed):
            interval = scoring.interval(metrics.ENTITY_F1, truths, theirs, CONFIDENCE)
            for limit, verdicts in zip(limits, found, strict=True):
                verdicts.append((self.f1 >= limit, intervals.verdict_at_least(interval, limit)))
        return found

    def drops(self, models: int, n: int, limits: Sequence[float], seed: int) -> list[list[tuple[bool, str]]]:
        """The same of limits of the drop, 0 to 1."""
        found: list[list[tuple[bool, str]]] = [[] for _ in limits]
        for drawn in self._drawn(models, n, seed):
            interval = scoring.drop(metrics.ENTITY_F1, *drawn, CONFIDENCE)
            for limit, verdicts in zip(limits, found, strict=True):
                verdicts.append((self.drop <= limit, intervals.verdict_at_most(interval, limit)))
        return found

    def floors(self, models: int, n: int, limits: Sequence[float], seed: int) -> list[list[tuple[bool, str]]]:
        """The same of floors of the recall of the one class."""
        found: list[list[tuple[bool, str]]] = [[] for _ in limits]
        for truths, theirs, _ in self._drawn(models, n, seed):
            rows = metrics.tallies_of_rows(zip(truths, theirs, strict=True))
            share = gate_accuracy.class_share("recall", rows["X"])
            interval = gate_accuracy.class_interval("recall", share, CONFIDENCE, CONFIDENCE)
            for limit, verdicts in zip(limits, found, strict=True):
                verdicts.append((self.right >= limit, intervals.verdict_at_least(interval, limit)))
        return found

    def _drawn(self, models: int, n: int, seed: int) -> Iterator[tuple[list[Spans], list[Spans], list[Spans]]]:
        """Truths and the answers of both."""
        source = random.Random(seed)
        for _ in range(models):
            rows = [self._row(source) for _ in range(n)]
            truths, theirs, ours = zip(*rows, strict=True)
            yield list(truths), list(theirs), list(ours)

    def _row(self, source: random.Random) -> tuple[Spans, Spans, Spans]:
        size, shared = source.choice(self.sizes), source.random() < self.right
        truth = tuple(Span(2 * place, 2 * place + 1, "X") for place in range(size))
        theirs = tuple(
            span for span in truth if (shared if source.random() < self.together else source.random() < self.right)
        )
        lost = source.random() < self.lost_texts
        ours = () if lost else tuple(span for span in theirs if source.random() >= self.lost_spans)
        return truth, theirs, ours


def floors(
    models: int, n: int, limit: float, confidence: float, recalls: Sequence[float], seed: int
) -> Iterator[tuple[bool, str]]:
    """Models whose classes have these true recalls, each judged on `n` rows of each class."""
    source = random.Random(seed)
    labels = [str(number) for number in range(len(recalls))]
    for _ in range(models):
        right = [sum(source.random() < recall for _ in range(n)) for recall in recalls]
        rows = {label: one_each(metrics.Tally(tp, 0, n - tp)) for label, tp in zip(labels, right, strict=True)}
        (check,) = gate_accuracy.class_checks(rows, {"recall": Floors(limit, {})}, labels, confidence)
        yield min(recalls) >= limit, check.verdict


def one_each(tally: metrics.Tally) -> dict[metrics.Tally, int]:
    """The rows of a class that none has twice, with this tally in all."""
    kinds = (metrics.Tally(1, 0, 0), metrics.Tally(0, 1, 0), metrics.Tally(0, 0, 1))
    return {kind: count for kind, count in zip(kinds, tally, strict=True) if count}
