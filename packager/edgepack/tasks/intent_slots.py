"""The intent of a text and its slots: token classification in which [CLS] has the intent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from edgepack.artifacts import Row
from edgepack.messages import message
from edgepack.recipe.finding_log import FindingLog
from edgepack.recipe.model import Columns, LabelSeparator
from edgepack.tasks.cells import label_of, text_of
from edgepack.tasks.labelled_spans import LabelledSpans, are_spans, spans_in
from edgepack.tasks.task import UNLABELLED, Array, Encoded, MakeRow, Objective, Values
from edgepack.util.text_digests import shortened
from edgepack_runtime.rows.label_cells import parsed
from edgepack_runtime.stats.metrics import Answer
from edgepack_runtime.tasks.intent_slots import INTENT
from edgepack_runtime.tasks.registry import INTENT_SLOTS, task_by_name
from edgepack_runtime.tasks.task import Task
from edgepack_runtime.util.spans import Span, tags_of_spans


class IntentSlots(LabelledSpans):
    """See `edgepack.tasks.task.TrainingTask`."""

    device: ClassVar[Task] = task_by_name(INTENT_SLOTS)

    @staticmethod
    def row_maker(columns: Columns, label_separator: LabelSeparator) -> MakeRow:
        return _row

    @classmethod
    def values(cls, answer: Answer) -> dict[str, Any]:
        intent, *slots = answer
        return {"intent": intent.removeprefix(INTENT), "slots": super().values(slots)["spans"]}

    def target(self, row: Row, encoded: Encoded) -> Array:
        intent, *slots = row.label
        found = self.of_tags(tags_of_spans(slots, encoded.offsets), encoded)
        found[0] = self._index[intent]
        return found

    def unlabelled(self, encoded: Encoded) -> Array:
        found = super().unlabelled(encoded)
        found[0] = UNLABELLED
        return found

    def objective(self, targets: Sequence[Array], *, balanced: bool) -> Objective:
        from edgepack.tasks.losses import IntentLoss, balanced_weights

        return IntentLoss(balanced_weights(targets, len(self.labels)) if balanced else None)


def _row(line: int, values: Values, log: FindingLog) -> Row | None:
    text = text_of(line, values[0], "text", log)
    intent = None if text is None else label_of(line, values[1], log)
    slots = None if text is None else slots_in(line, text, values[2], log)
    return None if text is None or intent is None or slots is None else Row(text, (INTENT + intent, *slots))


def are_slots(value: object) -> bool:
    """Whether a value of JSON is an object of slots with their texts, which is not empty."""
    found = parsed(value)
    return isinstance(found, dict) and bool(found) and all(_texts(said) is not None for said in found.values())


def slots_in(line: int, text: str, value: object, log: FindingLog) -> tuple[Span, ...] | None:
    """The sorted slots of a cell: spans as in token classification, or `{slot: its text, or a list of texts}`.

    A text that the row has several times is taken where it is first and free.
    """
    found = parsed(value)
    if found in (None, "", {}):
        return ()
    if not isinstance(found, dict) or are_spans(found):
        return _named_as_slots(line, spans_in(line, text, value, log), log)
    if not are_slots(found):
        log.add("slots of another type", "error", line, message("found.slot_type"), message("found.correct_slot"))
        return None
    taken: list[Span] = []
    places = _Places(text)
    for slot, said in _pairs(found):
        name = label_of(line, slot, log)
        if name is None:
            return None
        start = places.take(said)
        if start is None:
            reason = message("found.slot_not_in_text", slot=shortened(name), value=shortened(said))
            log.add("slots that are not in the text", "error", line, reason, message("found.correct_slot"))
            return None
        taken.append(Span(start, start + len(said), name))
    return _named_as_slots(line, tuple(sorted(set(taken))), log)


def _named_as_slots(line: int, slots: tuple[Span, ...] | None, log: FindingLog) -> tuple[Span, ...] | None:
    """The slots, of which none is called as an intent."""
    odd = next((span.label for span in slots or () if span.label.startswith(INTENT)), None)
    if odd is None:
        return slots
    reason = message("found.slot_as_intent", slot=shortened(odd), prefix=INTENT)
    log.add("slots with the name of an intent", "error", line, reason, message("found.rename_slot"))
    return None


class _Places:
    """Where texts of slots are in a text: each at its first place that no slot before has; else at its first place."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._taken = bytearray(len(text))
        self._next: dict[str, int] = {}  # of each text of a slot, where its search goes on: what was taken stays so

    def take(self, said: str) -> int | None:
        """The place of a slot; None if its text is nowhere."""
        start = self._text.find(said, self._next.get(said, 0))
        while start >= 0:
            last_taken = self._taken.rfind(1, start, start + len(said))
            if last_taken < 0:
                self._taken[start : start + len(said)] = b"\1" * len(said)
                self._next[said] = start + len(said)
                return start
            start = self._text.find(said, last_taken + 1)
        self._next[said] = len(self._text)
        first = self._text.find(said)
        return first if first >= 0 else None


def _pairs(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for slot, value in found.items():
        yield from ((slot, said) for said in _texts(value) or ())


def _texts(value: object) -> list[str] | None:
    """The texts of a slot, none for null or an empty text; None if they are something else."""
    several = value if isinstance(value, list) else [] if value in (None, "") else [value]
    return [str(said) for said in several] if all(isinstance(said, str) and said for said in several) else None
