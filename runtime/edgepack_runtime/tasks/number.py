"""A number for a text, or for a pair of texts: a rating, graded similarity."""

from __future__ import annotations

import math
from typing import AbstractSet, Any, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from edgepack_runtime.stats import metrics
from edgepack_runtime.tasks.task import Output, Part, not_finite, rounded
from edgepack_runtime.tasks.unlabelled import Unlabelled
from edgepack_runtime.util.texts import Item

NUMBER_LABELS = ("value",)  # the only output of a model
MOST = 1e9  # of a number of a row, on either side of 0: a float holds six decimals of it
_MOST_ANSWER = 1e15  # of a model, which may leave the range of its rows; squares of it are numbers


class NumberPrediction(NamedTuple):
    """A number, in the unit of the training rows. It may lie outside of their range."""

    value: float

    @property
    def answer(self) -> float:
        return rounded(self.value)

    def as_json(self, *, with_scores: bool) -> Dict[str, Any]:
        """`value`. There are no scores."""
        return {"value": rounded(self.value)}


class Number(Unlabelled):
    """The only logit; for windows, the mean weighted by their tokens. See `edgepack_runtime.tasks.task.Task`."""

    answer_key = "value"
    columns: Mapping[str, str] = {"value": "3.62"}
    example = '{"value": 3.62}'
    least_labels = 1
    per_token = False
    in_second = False
    linear = True
    exact = False
    metric_names = metrics.NUMBER_METRICS
    usual_metric = metrics.SPEARMAN

    def __init__(self, name: str, *, pairs: bool) -> None:
        self.name, self.pairs = name, pairs

    @staticmethod
    def statistics() -> Any:
        from edgepack_runtime.stats import numbers

        return numbers

    def model_labels(self, classes: Sequence[str]) -> Tuple[str, ...]:
        return NUMBER_LABELS

    def label_problem(self, labels: Sequence[str]) -> Optional[str]:
        return None if len(labels) == 1 else f"has {len(labels)} outputs, and a number is one"

    def outputs(self, labels: Sequence[str]) -> Sequence[Output]:
        return (Output("value", {"type": "number"}),)

    def predict(self, labels: Sequence[str], parts: Sequence[Part], item: Item) -> NumberPrediction:
        value = parts[0].logits[0]
        if len(parts) > 1:  # one alone is taken as it is, to the last bit
            total = sum(part.weight for part in parts)
            value = math.fsum(part.logits[0] * part.weight for part in parts) / total
        if not math.isfinite(value):
            raise not_finite([part.logits for part in parts])
        return NumberPrediction(value)

    def settled(self, labels: Sequence[str], wanted: Sequence[float], found: Sequence[float], tolerance: float) -> int:
        return 1  # the logit is the answer, and differs by at most `tolerance`

    def parse_answer(self, value: Any, known: AbstractSet[str], length: int) -> Optional[float]:
        return float(value) if type(value) in (int, float) and abs(value) <= _MOST_ANSWER else None

    def answer_of(self, value: Any) -> float:
        return float(value)

    def answer_in(self, cell: str) -> Optional[float]:
        from edgepack_runtime.rows.label_cells import number_in  # only tables have cells

        return number_in(cell)

    def words(self, answer: float, text: Optional[str]) -> str:
        return f"{answer:.4g}"

    def error(self, truth: float, answer: float) -> float:
        return abs(truth - answer)

    def answer_form(self, known: Sequence[str]) -> str:
        return "numbers"

    def constant_answer(self, truths: Sequence[float], metric: str, classes: Sequence[str]) -> float:
        """The median, which has the least mean absolute error."""
        return float(sorted(truths)[len(truths) // 2])
