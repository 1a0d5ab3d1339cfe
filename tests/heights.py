"""A task whose answers are numbers, and whose metric is an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgepack_runtime.stats.intervals import Interval
from edgepack_runtime.stats.metrics import Answer, Metric, Pair

METRES = Metric("mean absolute error", unit="m", more_is_better=False)


class Height:
    """A task without labels: a number for a text, by its mean absolute error."""

    labelled = exact = False
    usual_metric = "metres"

    def positive(self, metric: str, classes: Sequence[str], truths: Sequence[Answer]) -> None: ...

    def classes_of(self, answer: Answer) -> Sequence[str]:
        return ()

    def words(self, answer: Answer, text: str | None) -> str:
        return f"{answer:g} m"

    def error(self, truth: Answer, answer: Answer) -> float:
        return abs(float(answer) - float(truth))

    def rule_answer(self, item: Any) -> None: ...

    def constant_answer(self, truths: Sequence[Answer], metric: str, classes: Sequence[str]) -> float:
        return sorted(truths)[len(truths) // 2]

    def values(self, pairs: Sequence[Pair], classes: Sequence[str]) -> dict[str, float]:
        return {"metres": sum(self.error(*pair) for pair in pairs) / len(pairs)}

    def interval(self, metric: str, truths: Any, answers: Any, confidence: float, classes: Any) -> Interval:
        mean = self.values(list(zip(truths, answers, strict=True)), classes)["metres"]
        return Interval(mean, 0.9 * mean, 1.1 * mean)

    def drop(self, metric: str, truths: Any, first: Any, second: Any, *further: Any) -> Interval:
        more = [self.interval(metric, truths, answers, *further).value for answers in (first, second)]
        return Interval(more[1] - more[0], more[1] - more[0] - 0.1, more[1] - more[0] + 0.1)
