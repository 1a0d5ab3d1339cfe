"""What tasks share whose answers are labels: one, several, or those of spans."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

from edgepack_runtime.stats import metrics
from edgepack_runtime.stats.metrics import Answer, Pair
from edgepack_runtime.util.texts import NOTHING, Item

if TYPE_CHECKING:
    from edgepack_runtime.stats.intervals import Interval  # slow to import, and every verb imports the tasks


class Classification:
    """Base class of such tasks; see `edgepack_runtime.tasks.task.Task`."""

    pairs = False
    multi_label = False
    other_columns: Mapping[str, str] = {}
    labelled = True
    one_class = False
    in_cells = False
    least_labels = 2
    per_token = False
    in_second = False
    linear = True
    exact = True
    metric_names: Tuple[str, ...] = (metrics.ACCURACY, metrics.MACRO_F1, metrics.MICRO_F1)
    usual_metric = metrics.ACCURACY

    def classes(self, labels: Sequence[str]) -> Tuple[str, ...]:
        return tuple(labels)

    def model_labels(self, classes: Sequence[str]) -> Tuple[str, ...]:
        return tuple(classes)

    def label_problem(self, labels: Sequence[str]) -> Optional[str]:
        return None

    def answer_in(self, cell: str) -> Optional[Answer]:
        return None

    def settled(self, labels: Sequence[str], wanted: Sequence[float], found: Sequence[float], tolerance: float) -> int:
        lead = self.lead(wanted)
        if lead <= tolerance:
            return 0
        should, first = (labels[row.index(max(row))] for row in (wanted, found))
        if first != should:
            raise ValueError(f"is {first!r} and should be {should!r}, which leads by {lead:.3g}")
        return 1

    def lead(self, logits: Sequence[float]) -> float:
        first, second = sorted(logits, reverse=True)[:2]
        return first - second

    def classes_of(self, answer: Answer) -> Sequence[str]:
        return metrics.classes_of(answer)

    def rule_answer(self, item: Item) -> None:
        """None: there is no rule."""

    def words(self, answer: Answer, text: Optional[str]) -> str:
        return str(answer) if isinstance(answer, str) else ", ".join(answer) or NOTHING

    def error(self, truth: Answer, answer: Answer) -> float:
        tallies = metrics.row_tallies(truth, answer).values()
        return float(sum(tally.fp + tally.fn for tally in tallies))

    def probability(self, prediction: Any, truth: Answer) -> Optional[float]:
        return None

    def unfit(self, metric: str, n_labels: int) -> Optional[str]:
        if metric == metrics.ENTITY_F1 and metric not in self.metric_names:
            return "entity_f1 is of spans and slots: labels of whole texts have micro_f1 and macro_f1"
        if metric == metrics.F1 and (metric not in self.metric_names or n_labels != 2):
            instead = metrics.ENTITY_F1 if metrics.ENTITY_F1 in self.metric_names else "macro_f1 or micro_f1"
            return f"f1 is defined for one of two labels: use {instead}"
        return None if metric in self.metric_names else "use {}".format(" or ".join(self.metric_names))

    def positive(self, metric: str, classes: Sequence[str], truths: Sequence[Answer]) -> Optional[str]:
        return metrics.positive_label(classes, truths) if metric == metrics.F1 else None

    def values(self, pairs: Sequence[Pair], classes: Sequence[str]) -> Dict[str, float]:
        has_f1 = self.unfit(metrics.F1, len(classes)) is None
        positive = metrics.positive_label(classes, [truth for truth, _ in pairs]) if has_f1 else None
        found = metrics.values(pairs, positive)
        return {name: found[name] for name in self.metric_names if name in found}

    def constant_answer(self, truths: Sequence[Answer], metric: str, classes: Sequence[str]) -> Answer:
        """The most frequent answer; but by F1 always the label that it is about, or all labels that gain by it."""
        if metric == metrics.F1:
            return metrics.positive_label(classes, truths)
        if metric == metrics.ACCURACY or isinstance(truths[0], str):
            return max(Counter(truths).items(), key=lambda item: (item[1], repr(item[0])))[0]
        if metric != metrics.MACRO_F1:
            return tuple(sorted(metrics.constant_claims(truths)))
        of_class: Dict[str, List[Any]] = {}  # whose claims decide the F1 of no other class
        for number, truth in enumerate(truths):
            for claim in truth:
                rows = of_class.setdefault(getattr(claim, "label", claim), [()] * len(truths))
                rows[number] = (*rows[number], claim)
        return tuple(sorted(claim for rows in of_class.values() for claim in metrics.constant_claims(rows)))

    def interval(
        self,
        metric: str,
        truths: Sequence[Answer],
        answers: Sequence[Answer],
        confidence: float,
        classes: Sequence[str],
    ) -> Interval:
        from edgepack_runtime.stats import scoring  # slow to import, and most commands score nothing

        positive = self.positive(metric, classes, truths)
        return scoring.interval(metric, truths, answers, confidence, positive, classes)

    def drop(
        self,
        metric: str,
        truths: Sequence[Answer],
        first: Sequence[Answer],
        second: Sequence[Answer],
        confidence: float,
        classes: Sequence[str],
    ) -> Interval:
        from edgepack_runtime.stats import scoring

        positive = self.positive(metric, classes, truths)
        return scoring.drop(metric, truths, first, second, confidence, positive, classes)

    def confusion(self, pairs: Sequence[Pair]) -> Optional[Dict[str, Dict[str, int]]]:
        return metrics.confusion(pairs)
