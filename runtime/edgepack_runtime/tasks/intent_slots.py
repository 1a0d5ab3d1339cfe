"""The intent of a text and its slots, of one encoder and one head: [CLS] has the intent, and each token its tag."""

from __future__ import annotations

from typing import TYPE_CHECKING, AbstractSet, Any, Callable, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple, cast

from edgepack_runtime.stats import metrics
from edgepack_runtime.stats.metrics import Answer, Pair
from edgepack_runtime.tasks.labelled_spans import LabelledSpans, SpanPrediction, parsed_span, spans
from edgepack_runtime.tasks.one_label import one_label
from edgepack_runtime.tasks.task import SCORE_SCHEMA, Output, Part, rounded
from edgepack_runtime.util.spans import Span, tag_names, types_of
from edgepack_runtime.util.texts import Item

if TYPE_CHECKING:
    from edgepack_runtime.stats.intervals import Interval  # slow to import, and every verb imports the tasks

INTENT = "intent="  # before the name of an intent, in labels and classes: a slot may have the same name


class IntentPrediction(NamedTuple):
    """An `intent` with its probability (softmax over the intents, 0 to 1), and the `slots` in the order of the text."""

    intent: str
    score: float
    slots: Tuple[SpanPrediction, ...]

    @property
    def answer(self) -> Tuple[Any, ...]:
        slots = sorted(Span(slot.start, slot.end, slot.label) for slot in self.slots)
        return (INTENT + self.intent, *slots)

    def as_json(self, *, with_scores: bool) -> Dict[str, Any]:
        """`intent`, its `score`, and `slots` as `spans` of token classification. There are no further scores."""
        slots = [{**slot._asdict(), "score": rounded(slot.score)} for slot in self.slots]
        return {"intent": self.intent, "score": rounded(self.score), "slots": slots}


class IntentSlots(LabelledSpans):
    """The most probable intent at [CLS], and the slots from the most probable tag of each token.

    The labels of a model are its intents, with `INTENT` before each, then `O` and the tags of the slots. Every token
    has a logit for all of them. An answer is the label of the intent, and the sorted spans of the slots.
    """

    answer_key = "intent"
    columns: Mapping[str, str] = {"intent": '"..."', "slots": '{"city": "..."}'}
    other_columns: Mapping[str, str] = {}
    example = '{"intent": "play", "score": 0.98, "slots": [{"start": 0, "end": 2, "label": "song", ...}]}'
    metric_names: Tuple[str, ...] = (metrics.ACCURACY, metrics.INTENT_ACCURACY, metrics.ENTITY_F1)
    usual_metric = metrics.ACCURACY

    def classes(self, labels: Sequence[str]) -> Tuple[str, ...]:
        """The intents, and the sorted types of the slots."""
        intents, tags = _parts(labels)
        return (*intents, *types_of(tags))

    def model_labels(self, classes: Sequence[str]) -> Tuple[str, ...]:
        intents, types = _parts(classes)
        return (*intents, *tag_names(types))

    def label_problem(self, labels: Sequence[str]) -> Optional[str]:
        intents, tags = _parts(labels)
        if len(intents) < 2:
            return f"has {len(intents)} intents, labels that begin with {INTENT!r}, and two are the fewest"
        if tuple(labels) != (*intents, *tags):
            return "has an intent behind a tag; intents come first"
        return super().label_problem(tags) if tags else "has no 'O', the tag of tokens outside of slots"

    def outputs(self, labels: Sequence[str]) -> Sequence[Output]:
        intents, tags = _parts(labels)
        [slots] = super().outputs(tags)
        names = [label[len(INTENT) :] for label in intents]
        return (
            Output("intent", {"type": "string", "enum": names}),
            Output("score", SCORE_SCHEMA),
            slots._replace(name="slots"),
        )

    def predict(  # type: ignore[override]
        self, labels: Sequence[str], parts: Sequence[Part], item: Item
    ) -> IntentPrediction:
        [part] = parts
        intents, tags = _parts(labels)
        of_text = one_label(intents, part.logits[0][: len(intents)])
        found = spans(tags, [row[len(intents) :] for row in part.logits], part.offsets, cast(str, item))
        return IntentPrediction(of_text.label[len(INTENT) :], of_text.score, found.spans)

    def settled(self, labels: Sequence[str], wanted: Sequence[float], found: Sequence[float], tolerance: float) -> int:
        first = len(_parts(labels)[0])
        parts = ((labels[:first], wanted[:first], found[:first]), (labels[first:], wanted[first:], found[first:]))
        return sum(super(IntentSlots, self).settled(*part, tolerance) for part in parts if len(part[0]) > 1)

    def parse_answer(self, value: Any, known: AbstractSet[str], length: int) -> Optional[Tuple[Any, ...]]:
        if not isinstance(value, list) or not value or not isinstance(value[0], str):
            return None
        intent, found = value[0], [parsed_span(item, known, length) for item in value[1:]]
        slots = sorted({span for span in found if span is not None})
        is_known = intent.startswith(INTENT) and intent in known and len(slots) == len(found)
        return (intent, *slots) if is_known else None

    def answer_of(self, value: Any) -> Tuple[Any, ...]:
        return (str(value[0]), *(Span(*span) for span in value[1:]))

    def classes_of(self, answer: Answer) -> Sequence[str]:
        """The intent, and the sorted types of the slots."""
        return [_intent(answer), *metrics.classes_of(_slots(answer))]

    def words(self, answer: Answer, text: Optional[str]) -> str:
        """`play: 晴天 = song`."""
        intent = str(answer[0])[len(INTENT) :]
        return f"{intent}: {super().words(answer[1:], text)}" if answer[1:] else intent

    def answer_form(self, known: Sequence[str]) -> str:
        intents, types = _parts(known)
        return "lists of one of {} and then different [start, end, label] with a label out of {}".format(
            ", ".join(intents), ", ".join(types)
        )

    def unfit(self, metric: str, n_labels: int) -> Optional[str]:
        return None if metric in self.metric_names else "use {}".format(" or ".join(self.metric_names))

    def values(self, pairs: Sequence[Pair], classes: Sequence[str]) -> Dict[str, float]:
        intents, slots = ([(part(truth), part(answer)) for truth, answer in pairs] for part in (_intent, _slots))
        return {
            metrics.ACCURACY: metrics.accuracy(pairs),
            metrics.INTENT_ACCURACY: metrics.accuracy(intents),
            metrics.ENTITY_F1: metrics.micro_f1(metrics.class_tallies(slots)),
        }

    def constant_answer(self, truths: Sequence[Answer], metric: str, classes: Sequence[str]) -> Answer:
        """The most frequent one, of all, of the intent alone, or of that with the slots of the best F1."""
        if metric == metrics.ACCURACY:
            return super().constant_answer(truths, metric, classes)
        intent = super().constant_answer(list(map(_intent, truths)), metrics.ACCURACY, ())
        slots = list(map(_slots, truths)) if metric == metrics.ENTITY_F1 else []
        return (intent, *(super().constant_answer(slots, metric, classes) if slots else ()))

    def interval(
        self,
        metric: str,
        truths: Sequence[Answer],
        answers: Sequence[Answer],
        confidence: float,
        classes: Sequence[str],
    ) -> Interval:
        as_label, part = _measured(metric)
        return super().interval(as_label, part(truths), part(answers), confidence, classes)

    def drop(
        self,
        metric: str,
        truths: Sequence[Answer],
        first: Sequence[Answer],
        second: Sequence[Answer],
        confidence: float,
        classes: Sequence[str],
    ) -> Interval:
        as_label, part = _measured(metric)
        return super().drop(as_label, part(truths), part(first), part(second), confidence, classes)

    def confusion(self, pairs: Sequence[Pair]) -> Dict[str, Dict[str, int]]:
        """Of the intents."""
        return metrics.confusion([(_intent(truth), _intent(answer)) for truth, answer in pairs])


def _parts(labels: Sequence[str]) -> Tuple[Tuple[str, ...], Tuple[str, ...]]:
    """The intents among labels or classes, and the rest."""
    intents = tuple(label for label in labels if label.startswith(INTENT))
    return intents, tuple(label for label in labels if not label.startswith(INTENT))


def _intent(answer: Answer) -> str:
    return str(answer[0])


def _slots(answer: Answer) -> Tuple[Span, ...]:
    return cast(Tuple[Span, ...], answer[1:])


def _measured(metric: str) -> Tuple[str, Callable[[Sequence[Answer]], Sequence[Answer]]]:
    """The metric of labels that a metric is, and what takes the part of answers that it is about."""
    if metric == metrics.INTENT_ACCURACY:
        return metrics.ACCURACY, lambda answers: list(map(_intent, answers))
    if metric == metrics.ENTITY_F1:
        return metric, lambda answers: list(map(_slots, answers))
    return metric, lambda answers: answers
