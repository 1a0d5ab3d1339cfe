"""The part of a text that answers a question: two softmaxes over the tokens of a window, for its start and its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from edgepack import calibration
from edgepack.artifacts import NO_SCALE, Row, Scale
from edgepack.messages import message
from edgepack.recipe.finding_log import FindingLog
from edgepack.recipe.model import Columns, LabelSeparator
from edgepack.tasks.cells import texts_of
from edgepack.tasks.task import NO_UNIT, UNLABELLED, Array, Encoded, Float, MakeRow, Objective, Values
from edgepack.util.text_digests import shortened
from edgepack_runtime.stats.metrics import Answer
from edgepack_runtime.tasks import reading
from edgepack_runtime.tasks.reading import NONE
from edgepack_runtime.tasks.registry import READING, task_by_name
from edgepack_runtime.tasks.task import Part, Task
from edgepack_runtime.util.spans import Span

_START, _END = 0, 1  # outputs
_NEAR: Final = 64  # characters: public data are off by a few where white space was taken out
_MOST_ANSWERS: Final = 256  # of a question
_LONGEST: Final = 4096  # characters of an answer


class Reading:
    """See `edgepack.tasks.task.TrainingTask`.

    Of several true answers a network learns the one that most annotators gave, which comes first in a row. A window
    without it learns that there is none.
    """

    device: ClassVar[Task] = task_by_name(READING)

    def __init__(self, labels: tuple[str, ...], scale: Scale) -> None:
        self.labels, self.scale = labels, scale

    @staticmethod
    def row_maker(columns: Columns, label_separator: LabelSeparator) -> MakeRow:
        return _row

    @classmethod
    def values(cls, answer: Answer) -> dict[str, Any]:
        return {"answers": [{"text": span.label, "answer_start": span.start} for span in answer]}

    @staticmethod
    def scale_of(rows: Iterable[Row]) -> Scale:
        return NO_SCALE

    def target(self, row: Row, encoded: Encoded) -> Array:
        found = self._ends(encoded)
        ends = _tokens(row.label[0], encoded) if row.label else None
        first, last = (NONE, NONE) if ends is None else ends
        found[first, _START] = found[last, _END] = 1
        return found

    def unlabelled(self, encoded: Encoded) -> Array:
        found = self._ends(encoded)
        found[found == 0] = UNLABELLED
        return found

    def learnt(self, row: Row, windows: Sequence[Encoded], number: int) -> Sequence[Encoded]:
        """Those with the answer, and one other: a long text has several times as many without, which teach little.

        None if no window has the whole answer: it would be taught that there is none.
        """
        within = [row.label != () and _tokens(row.label[0], one) is not None for one in windows]
        if row.label and not any(within):
            return []
        others = [one for one, has in zip(windows, within, strict=True) if not has]
        kept = others[number % len(others)] if others else None
        return [one for one, has in zip(windows, within, strict=True) if has or one is kept]

    def _ends(self, encoded: Encoded) -> Array:
        """0 for tokens that may be the start or the end of an answer, which [CLS] is for none; (T, 2)."""
        outside = np.array([end <= start for start, end in encoded.offsets])  # (T,)
        outside[NONE] = False
        return np.where(outside[:, None], NO_UNIT, np.zeros((1, 2), np.int64))

    def objective(self, targets: Sequence[Array], *, balanced: bool) -> Objective:
        from edgepack.tasks.losses import SpanLoss

        return SpanLoss()

    def divergence(self, before: Sequence[Float], after: Sequence[Float]) -> float:
        first, second = ([row.swapaxes(-1, -2) for row in rows] for rows in (before, after))  # (1, 2, T)
        return calibration.divergence(first, second, multi_label=False)

    def calibrated(self, *logits_and_targets: Any) -> None:
        """None: the temperature of two softmaxes over tokens is not fitted."""

    def answer(self, parts: Sequence[Part], row: Row) -> Answer:
        return self.device.predict(self.labels, parts, row.item).answer

    def fitted(self, logits: Array, truths: Array) -> Scale:
        return NO_SCALE


def _tokens(span: Span, encoded: Encoded) -> tuple[int, int] | None:
    """The first and the last token of a span; None if the window does not have both."""
    places = encoded.offsets
    inside = [token for token, (start, end) in enumerate(places) if end > start]
    within = [token for token in inside if places[token][1] > span.start and places[token][0] < span.end]
    if not within:
        return None
    first, last = within[0], within[-1]
    # The first and the last token of a window may be in the middle of a span that another window has whole.
    begins = first != inside[0] or places[first][0] <= span.start
    ends = last != inside[-1] or places[last][1] >= span.end
    return (first, last) if begins and ends else None


def _row(line: int, values: Values, log: FindingLog) -> Row | None:
    texts = texts_of(line, values[:-1], log)
    if texts is None or texts[1] is None:
        return None
    answers = answers_in(line, texts[1], values[-1], log)
    return None if answers is None else Row(texts[0], answers, texts[1])


def answers_in(line: int, context: str, value: object, log: FindingLog) -> tuple[Span, ...] | None:
    """The true answers of a cell, the most frequent first; () for a question without one.

    An answer is where it is nearest to its start in the text; the first place if none is given.
    """
    found = reading.answers_in(value)
    if found is None:
        log.add("answers of another type", "error", line, message("found.answer_type"), message("found.write_answers"))
        return None
    if len(found) > _MOST_ANSWERS or any(len(text) > _LONGEST for text, _ in found):
        reason = message("found.many_answers", count=_MOST_ANSWERS, characters=_LONGEST)
        log.add("too many answers", "error", line, reason, message("found.fewer_answers"))
        return None
    spans: Counter[Span] = Counter()
    for (text, start), times in Counter(found).items():
        place = _nearest(context, text, start)
        if place is not None:
            spans[Span(place, place + len(text), text)] += times
    if found and not spans:
        reason = message("found.answer_not_in_text", answer=shortened(found[0][0]))
        log.add("answers that are not in the text", "error", line, reason, message("found.correct_answer"))
        return None
    if lacking := len(found) - spans.total():
        reason = message("found.answers_not_in_text", count=lacking)
        log.add("answers left out", "warning", line, reason, message("found.correct_answer"))
    return tuple(span for span, _ in spans.most_common())


def _nearest(context: str, text: str, start: int | None) -> int | None:
    """Where `context` has `text`: within `_NEAR` characters of `start` the nearest place, else the first, or nowhere.

    Never searched backwards: in a text of one character that takes the product of both lengths.
    """
    if start is not None:
        first = max(0, start - _NEAR)
        window, places, at = context[first : start + _NEAR + len(text)], [], -1
        while (at := window.find(text, at + 1)) >= 0:
            places.append(first + at)
        if places:
            return min(places, key=lambda place: abs(place - start))
    place = context.find(text)
    return place if place >= 0 else None
