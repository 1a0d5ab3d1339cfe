"""The protocol of a task: everything that the device side knows of one.

Encoding, files, HTTP, KServe, OpenAPI, the self-test and the gates ask the task of the model's configuration, and know
no task themselves. A new task is a class with this protocol, and its line in `registry`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, AbstractSet, Any, Dict, List, Mapping, NamedTuple, Optional, Protocol, Sequence, Tuple

from edgepack_runtime.errors import StageFailedError
from edgepack_runtime.stats import metrics
from edgepack_runtime.stats.metrics import Answer, Pair
from edgepack_runtime.util.texts import Item

if TYPE_CHECKING:
    from edgepack_runtime.stats.intervals import Interval  # slow to import, and every verb imports the tasks

Offsets = Sequence[Tuple[int, int]]
SCORE_DECIMALS = 6  # of a score in JSON
SCORE_SCHEMA: Mapping[str, Any] = {"type": "number", "minimum": 0, "maximum": 1}


class Prediction(Protocol):
    """The answer to one item."""

    @property
    def answer(self) -> Any:
        """The answer in the form of a labelled row, which metrics compare."""

    def as_json(self, *, with_scores: bool) -> Any:
        """The JSON value that command line, files and HTTP give, on request with further scores."""


class Output(NamedTuple):
    """A key of a prediction in JSON.

    `is_extra`: it is there on request alone. `by_label`: its value is an object with a number for each label.
    """

    name: str
    schema: Mapping[str, Any]  # JSON Schema of its value
    is_extra: bool = False
    by_label: bool = False


class Part(NamedTuple):
    """The logits of a row (an item, or one window of a long text), and the weight of the row's own tokens.

    `logits` has a number for each output of the model; if the task is `per_token` it has such a list for each token,
    [CLS] and [SEP] included, and `offsets` the characters of that: of the text, or if the task is `in_second` of the
    second text. Those of other tokens are (0, 0).
    """

    logits: Sequence[Any]
    weight: int
    offsets: Offsets = ()


class Task(Protocol):
    """What an item and an answer of a model are. `labels` are those of `model.json`: logit i belongs to label i."""

    name: str  # in `model.json` and in recipes
    answer_key: str  # JSON key of the answer in a labelled row
    columns: Mapping[str, str]  # of the answer in a table of labelled rows, and an example of each in JSON
    other_columns: Mapping[str, str]  # that a table may have instead of texts and answer; {} if none
    example: str  # a prediction in JSON, for help texts
    pairs: bool  # an item is a pair of texts
    multi_label: bool  # a row has any number of labels, so each logit is an answer by itself: yes or no
    labelled: bool  # answers are made of labels, which are classes
    one_class: bool  # an answer is one class
    in_cells: bool  # an answer can be written in one cell of a table
    least_labels: int  # of a model: its logits
    per_token: bool  # the model has logits for each token, not for each row
    in_second: bool  # the answer is a part of the second text, which is read in windows with the first before each
    linear: bool  # a linear model may answer beside the encoder, or alone
    exact: bool  # an answer is right or wrong; else nearer to the truth or farther from it
    metric_names: Tuple[str, ...]  # that may be defined for a model of the task
    usual_metric: str  # by which models are chosen during a build

    def classes(self, labels: Sequence[str]) -> Tuple[str, ...]:
        """The classes of answers; none if answers are not labels."""

    def model_labels(self, classes: Sequence[str]) -> Tuple[str, ...]:
        """The labels of a model with these classes, in the order of its logits: the inverse of `classes`."""

    def label_problem(self, labels: Sequence[str]) -> Optional[str]:
        """What of `labels`, which are unlike texts, does not fit the task, as `holds 'X-'`; None if they do."""

    def outputs(self, labels: Sequence[str]) -> Sequence[Output]:
        """The keys of a prediction, in their order."""

    def predict(self, labels: Sequence[str], parts: Sequence[Part], item: Item) -> Prediction:
        """The prediction for an item.

        Args:
            parts: one, or one for each window of a long text, in their order. Where tokens have labels it is one
                always, in which each token has the logits of the window that it belongs to.

        Raises:
            StageFailedError: a logit is not a number.
        """

    def settled(self, labels: Sequence[str], wanted: Sequence[float], found: Sequence[float], tolerance: float) -> int:
        """How many answers of the logits `wanted` lead by more than `tolerance`, so that `found` must have them too.

        Where a logit is the answer itself, it is settled.

        Args:
            wanted, found: logits (C,) that differ by at most `tolerance`.

        Raises:
            ValueError: such an answer of `found` is another one; the text says which.
        """

    def lead(self, logits: Sequence[float]) -> float:
        """How sure a linear model is: the least change of a logit (of a difference of two) that changes the answer.

        It is 0 where each change does, so that a linear model never answers instead of the encoder.
        """

    def parse_answer(self, value: Any, known: AbstractSet[str], length: int) -> Optional[Answer]:
        """The answer in a JSON `value`; None if it is invalid.

        Args:
            known: the classes.
            length: characters of the text; of a pair, of the second.
        """

    def answer_of(self, value: Any) -> Answer:
        """The answer in a JSON `value` that edgepack wrote."""

    def answer_in(self, cell: str) -> Optional[Answer]:
        """The true answer in a cell of a table, if answers are `in_cells`; None if it holds none."""

    def classes_of(self, answer: Answer) -> Sequence[str]:
        """The distinct classes of an answer, sorted."""

    def rule_answer(self, item: Item) -> Optional[Answer]:
        """The answer of a simple rule, which needs no learning; None if the task has no rule."""

    def words(self, answer: Answer, text: Optional[str]) -> str:
        """An answer as a reader of a report sees it; `text` is the (first) text of the row, None if it is not shown."""

    def error(self, truth: Answer, answer: Answer) -> float:
        """How far an answer is from the truth, in any unit: 0 if it is right."""

    def probability(self, prediction: Any, truth: Answer) -> Optional[float]:
        """The probability (0 to 1) that a prediction gives to the true answer; None if it has none."""

    def answer_form(self, known: Sequence[str]) -> str:
        """What `parse_answer` takes, in words."""

    def unfit(self, metric: str, n_labels: int) -> Optional[str]:
        """Why a metric is not defined for a model of so many labels; None if it is defined."""

    def positive(self, metric: str, classes: Sequence[str], truths: Sequence[Answer]) -> Optional[str]:
        """The class that a metric is about, if it is about one."""

    def values(self, pairs: Sequence[Pair], classes: Sequence[str]) -> Dict[str, float]:
        """Every metric of (truth, answer) pairs, at least one."""

    def constant_answer(self, truths: Sequence[Answer], metric: str, classes: Sequence[str]) -> Answer:
        """The best answer by a metric of a model that gives every row the same: it needs no learning."""

    def interval(
        self,
        metric: str,
        truths: Sequence[Answer],
        answers: Sequence[Answer],
        confidence: float,
        classes: Sequence[str],
    ) -> Interval:
        """A metric with its interval.

        Args:
            confidence: 0 to 1, two-sided.
            classes: of the model.
        """

    def drop(
        self,
        metric: str,
        truths: Sequence[Answer],
        first: Sequence[Answer],
        second: Sequence[Answer],
        confidence: float,
        classes: Sequence[str],
    ) -> Interval:
        """How much worse a second model is than a first on the same rows, paired: above 0 where an error grows, too.

        Arguments as of `interval`.
        """

    def confusion(self, pairs: Sequence[Pair]) -> Optional[Dict[str, Dict[str, int]]]:
        """True class -> answered class -> count, without zeros; None where answers cannot be paired."""


def hundred_points(task: Task, metric: str, truths: Sequence[Answer], classes: Sequence[str]) -> float:
    """The difference in a metric that counts as 100 points.

    Where more is better it is 1. Of an error it is the median error of the best constant answer, so a point is about a
    hundredth of what a model can win over an answer that needs no learning. A mean would be what one row says that is
    far from the others; it is taken where most rows are equal. It is 1 if all are.
    """
    if metrics.metric_of(metric).more_is_better:
        return 1.0
    constant = task.constant_answer(truths, metric, classes)
    errors = sorted(task.error(truth, constant) for truth in truths)
    mean = task.values([(truth, constant) for truth in truths], classes)[metric]
    return errors[len(errors) // 2] or mean or 1.0


def unlearned(
    task: Task, items: Sequence[Item], truths: Sequence[Answer], metric: str, classes: Sequence[str]
) -> Tuple[Optional[Answer], List[Answer]]:
    """The best answers by a metric that need no learning: the same one to every row, or those of the task's rule.

    Returns:
        That answer, None if the rule is better, and all answers.
    """
    same = task.constant_answer(truths, metric, classes)
    by_rule = [task.rule_answer(item) for item in items]
    tried: List[Tuple[Optional[Answer], List[Answer]]] = [(same, [same] * len(items))]
    if None not in by_rule:
        tried.append((None, by_rule))
    more = metrics.metric_of(metric).more_is_better

    def score(answers: Sequence[Answer]) -> float:
        found = task.values(list(zip(truths, answers)), classes)[metric]
        return found if more else -found

    return max(tried, key=lambda one: score(one[1])) if len(tried) > 1 else tried[0]


def unlearned_score(task: Task, items: Sequence[Item], truths: Sequence[Answer]) -> Optional[float]:
    """The best usual score that needs no learning; None if the same answer is right for every row."""
    _, answers = unlearned(task, items, truths, task.usual_metric, ())
    if all(task.error(truth, answer) == 0 for truth, answer in zip(truths, answers)):
        return None
    return task.values(list(zip(truths, answers)), ())[task.usual_metric]


def row_errors(task: Task, truths: Sequence[Answer], answers: Sequence[Answer]) -> List[float]:
    """The error of each row's answer; 0 or 1 if the task is `exact`."""
    found = list(map(task.error, truths, answers))
    return [float(error > 0) for error in found] if task.exact else found


def not_finite(logits: Sequence[Any]) -> StageFailedError:
    """The error for logits that are not numbers."""
    return StageFailedError("the model returned logits that are not finite", why=f"its logits are {logits}")


def rounded(score: float) -> float:
    """A score as in JSON."""
    return round(float(score), SCORE_DECIMALS)
