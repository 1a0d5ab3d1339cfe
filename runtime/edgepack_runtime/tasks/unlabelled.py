"""What tasks share whose answers are no labels: there are no classes, and metrics have a module of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Optional, Sequence, Tuple

from edgepack_runtime.stats.metrics import Answer, Pair
from edgepack_runtime.util.texts import Item

if TYPE_CHECKING:
    from edgepack_runtime.stats.intervals import Interval  # slow to import, and every verb imports the tasks


class Unlabelled:
    """Base class of such tasks; see `edgepack_runtime.tasks.task.Task`."""

    other_columns: Mapping[str, str] = {}
    multi_label = False
    labelled = False
    one_class = False
    in_cells = True
    metric_names: Tuple[str, ...]
    # Returns the module of `stats` with values, interval and drop: slow to import, and most commands score nothing.
    statistics: Callable[[], Any]

    def classes(self, labels: Sequence[str]) -> Tuple[str, ...]:
        return ()

    def lead(self, logits: Sequence[float]) -> float:
        return 0.0  # any change of a logit may change the answer

    def classes_of(self, answer: Answer) -> Sequence[str]:
        return ()

    def rule_answer(self, item: Item) -> Optional[Answer]:
        return None

    def probability(self, prediction: Any, truth: Answer) -> None:
        """None: a prediction says nothing of other answers than its own."""

    def unfit(self, metric: str, n_labels: int) -> Optional[str]:
        return None if metric in self.metric_names else "use {}".format(" or ".join(self.metric_names))

    def positive(self, metric: str, classes: Sequence[str], truths: Sequence[Answer]) -> None:
        """None: there are no classes."""

    def values(self, pairs: Sequence[Pair], classes: Sequence[str]) -> Dict[str, float]:
        found: Dict[str, float] = self.statistics().values(pairs)
        return found

    def interval(
        self,
        metric: str,
        truths: Sequence[Answer],
        answers: Sequence[Answer],
        confidence: float,
        classes: Sequence[str],
    ) -> Interval:
        found: Interval = self.statistics().interval(metric, truths, answers, confidence)
        return found

    def drop(
        self,
        metric: str,
        truths: Sequence[Answer],
        first: Sequence[Answer],
        second: Sequence[Answer],
        confidence: float,
        classes: Sequence[str],
    ) -> Interval:
        found: Interval = self.statistics().drop(metric, truths, first, second, confidence)
        return found

    def confusion(self, pairs: Sequence[Pair]) -> None:
        """None: there are no classes."""
