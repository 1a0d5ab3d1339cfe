"""The part of a text that answers a question, or none: a softmax over tokens for its start, and one for its end."""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from typing import AbstractSet, Any, Deque, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from edgepack_runtime.stats import metrics
from edgepack_runtime.stats.metrics import Answer
from edgepack_runtime.tasks.labelled_spans import parsed_span
from edgepack_runtime.tasks.task import SCORE_SCHEMA, Output, Part, not_finite, rounded
from edgepack_runtime.tasks.unlabelled import Unlabelled
from edgepack_runtime.util.spans import Span
from edgepack_runtime.util.texts import NOTHING, Item

START_END = ("start", "end")  # the outputs of a model for each token
OR_NONE = ("start or none", "end or none")  # of one that knows questions without an answer; START_END always answers
NO_ANSWER = "none"  # the class of such questions
MOST_TOKENS = 128  # of an answer: 99 % of those in CMRC 2018 have at most 78 characters
_CONSTANTS = 5  # frequent answers that are tried as the same answer to every question
_SENTENCE = re.compile(r"[^\s。！？!?；;][^。！？!?；;\n]*")
_SAY_NOTHING = frozenset("的是了在，？?、。 ")  # of a question
NONE = 0  # the token of both ends where there is no answer: [CLS]


class AnswerPrediction(NamedTuple):
    """The `text` of an answer, from character `start` to `end` (exclusive) of the second text; "" and 0, 0 if none.

    `score` is its probability (0 to 1): that of its start times that of its end, in the window that has it.
    """

    text: str
    start: int
    end: int
    score: float

    @property
    def answer(self) -> Tuple[Span, ...]:
        return (Span(self.start, self.end, self.text),) if self.text else ()

    def as_json(self, *, with_scores: bool) -> Dict[str, Any]:
        """`answer`, `start`, `end` and `score`. There are no further scores."""
        return {"answer": self.text, "start": self.start, "end": self.end, "score": rounded(self.score)}


class Reading(Unlabelled):
    """The most probable span, of the window where it leads most over none. See `edgepack_runtime.tasks.task.Task`.

    An answer is a tuple of at most one span, whose label is its text. A true answer may have several, each of which is
    right. For a question without an answer both ends are at [CLS] (Devlin et al., "BERT", 2019, section 4.3), and so
    they are in a window without the answer. A model that has seen no such question always gives its best span.
    """

    answer_key = "answers"
    columns: Mapping[str, str] = {"answers": '["..."]'}
    example = '{"answer": "...", "start": 7, "end": 12, "score": 0.93}'
    pairs = True
    least_labels = len(START_END)
    per_token = True
    in_second = True
    linear = False
    exact = True
    metric_names = metrics.READING_METRICS
    usual_metric = metrics.CHARACTER_F1

    def __init__(self, name: str) -> None:
        self.name = name

    @staticmethod
    def statistics() -> Any:
        from edgepack_runtime.stats import reading

        return reading

    def classes(self, labels: Sequence[str]) -> Tuple[str, ...]:
        return (NO_ANSWER,) if tuple(labels) == OR_NONE else ()

    def model_labels(self, classes: Sequence[str]) -> Tuple[str, ...]:
        return OR_NONE if NO_ANSWER in classes else START_END

    def classes_of(self, answer: Answer) -> Sequence[str]:
        return () if answer else (NO_ANSWER,)

    def label_problem(self, labels: Sequence[str]) -> Optional[str]:
        return None if len(labels) == 2 else f"has {len(labels)} outputs, and an answer has a start and an end"

    def outputs(self, labels: Sequence[str]) -> Sequence[Output]:
        place = {"type": "integer", "minimum": 0}
        return (
            Output("answer", {"type": "string"}),
            Output("start", place),
            Output("end", place),
            Output("score", SCORE_SCHEMA),
        )

    def predict(self, labels: Sequence[str], parts: Sequence[Part], item: Item) -> AnswerPrediction:
        may_be_none = tuple(labels) == OR_NONE
        best = max((_best(part, may_be_none) for part in parts), key=lambda found: found.lead)
        start, end = best.place
        return AnswerPrediction(item[1][start:end], start, end, best.score)

    def settled(self, labels: Sequence[str], wanted: Sequence[float], found: Sequence[float], tolerance: float) -> int:
        return 0  # of one token: an answer is decided by all of them

    def parse_answer(self, value: Any, known: AbstractSet[str], length: int) -> Optional[Tuple[Span, ...]]:
        if not isinstance(value, list):
            return None
        found = [parsed_span(item, None, length) for item in value]
        return tuple(sorted(span for span in found if span is not None)) if None not in found else None

    def answer_of(self, value: Any) -> Tuple[Span, ...]:
        return tuple(Span(*span) for span in value)

    def answer_in(self, cell: str) -> Optional[Tuple[Span, ...]]:
        found = answers_in(cell)
        return None if found is None else tuple(Span(0, len(text), text) for text, _ in found)

    def rule_answer(self, item: Item) -> Answer:
        """The sentence with the most of the question's characters, without its full stop; of equal ones the first."""
        question, text = str(item[0]), str(item[1])
        asked = set(question) - _SAY_NOTHING
        sentences = [found.span() for found in _SENTENCE.finditer(text)]
        if not sentences:
            return ()
        start, end = max(sentences, key=lambda place: len(asked.intersection(text[slice(*place)])))
        return (Span(start, end, text[start:end]),)

    def words(self, answer: Answer, text: Optional[str]) -> str:
        places = (span.label if text is not None else f"{span.start}-{span.end}" for span in answer)
        return " / ".join(dict.fromkeys(places)) or NOTHING

    def error(self, truth: Answer, answer: Answer) -> float:
        """0 if it is right, else what its F1 lacks of 1; punctuation alone is no error."""
        from edgepack_runtime.stats import reading  # slow to import, and most commands score nothing

        return 0.0 if reading.exact_match(truth, answer) else 1 - reading.character_f1(truth, answer)

    def answer_form(self, known: Sequence[str]) -> str:
        return "lists of [start, end, text], characters of the second text"

    def constant_answer(self, truths: Sequence[Answer], metric: str, classes: Sequence[str]) -> Answer:
        """The best of the most frequent answers, or none."""
        from edgepack_runtime.stats import reading

        counts = Counter(text for truth in truths for text in {span.label for span in truth})
        texts = sorted(counts, key=lambda text: (-counts[text], text))[:_CONSTANTS]
        tried = [(), *((Span(0, len(text), text),) for text in texts)]
        return max(tried, key=lambda answer: sum(reading.scores(metric, truths, [answer] * len(truths))))


def answers_in(value: Any) -> Optional[List[Tuple[str, Optional[int]]]]:
    """Texts and starts of the answers in a value of JSON or in a cell; none of a cell without one.

    They are texts, or SQuAD's `{"text": ..., "answer_start": ...}`, alone or in a list, or Hugging Face's lists of
    both. None if the value holds something else.
    """
    from edgepack_runtime.rows.label_cells import parsed  # only tables have cells

    value = parsed(value)
    if isinstance(value, dict) and isinstance(value.get("text"), list):
        texts, starts = value["text"], value.get("answer_start") or [None] * len(value["text"])
        if not isinstance(starts, list) or len(starts) != len(texts):
            return None
        value = [{"text": text, "answer_start": start} for text, start in zip(texts, starts)]
    several = value if isinstance(value, list) else [] if value in (None, "") else [value]
    found = [_answer(item) for item in several]
    return [one for one in found if one is not None and one[0]] if None not in found else None


def _answer(item: Any) -> Optional[Tuple[str, Optional[int]]]:
    text, start = item, None
    if isinstance(item, dict):
        text, start = item.get("text"), next((item[key] for key in ("answer_start", "start") if key in item), None)
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        text = str(text)
    if not isinstance(text, str) or (start is not None and type(start) is not int):
        return None
    return text.strip(), None if start is None else start + len(text) - len(text.lstrip())


class _Best(NamedTuple):
    """The best answer of one window. `lead`: how much its logits exceed those of none."""

    lead: float
    place: Tuple[int, int]
    score: float


def _best(part: Part, may_be_none: bool) -> _Best:
    """The span with the highest sum of its start's and its end's logit; or none, as where the window has no text."""
    starts, ends = ([row[side] for row in part.logits] for side in (0, 1))
    if not math.isfinite(sum(starts) + sum(ends)):
        raise not_finite(part.logits)
    inside = [token for token, (start, end) in enumerate(part.offsets) if end > start]
    first = last = NONE
    none = starts[NONE] + ends[NONE]
    waiting: Deque[int] = deque()  # starts of the last MOST_TOKENS tokens, by falling logit
    found = -math.inf
    for token in inside:
        while waiting and starts[waiting[-1]] < starts[token]:
            waiting.pop()
        waiting.append(token)
        if token - waiting[0] >= MOST_TOKENS:
            waiting.popleft()
        if starts[waiting[0]] + ends[token] > found:
            first, last, found = waiting[0], token, starts[waiting[0]] + ends[token]
    if found <= none and may_be_none:
        first = last = NONE
    allowed = [NONE, *inside] if may_be_none or not inside else inside
    score = _probability(starts, first, allowed) * _probability(ends, last, allowed)
    place = (part.offsets[first][0], part.offsets[last][1]) if first != NONE else (0, 0)
    return _Best(found - none, place, score)


def _probability(logits: Sequence[float], token: int, allowed: Sequence[int]) -> float:
    """The softmax at `token` over the tokens `allowed`."""
    highest = max(logits[place] for place in allowed)
    total = sum(math.exp(logits[place] - highest) for place in allowed)
    return math.exp(logits[token] - highest) / total
