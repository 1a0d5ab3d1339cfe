"""Labelled spans of a text, from spans or from a tag for each token: a softmax over BIO tags for each token."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Final

import numpy as np

from edgepack.artifacts import Row
from edgepack.recipe.finding_log import FindingLog
from edgepack.recipe.model import Columns, LabelSeparator
from edgepack.tasks.cells import json_list, label_of, text_of
from edgepack.tasks.classification import Classification
from edgepack.tasks.tags import TagReader
from edgepack.tasks.task import NO_UNIT, UNLABELLED, Array, Encoded, MakeRow, Objective, Values
from edgepack.util.text_digests import shortened
from edgepack_runtime.rows.label_cells import parsed
from edgepack_runtime.stats.metrics import Answer
from edgepack_runtime.tasks.registry import TOKENS, task_by_name
from edgepack_runtime.tasks.task import Task
from edgepack_runtime.util.spans import Span, spans_of_tags, tags_of_spans

_NO_OFFSET: Final = (0, 0)  # of [CLS] and [SEP]


class LabelledSpans(Classification):
    """See `edgepack.tasks.task.TrainingTask`."""

    device: ClassVar[Task] = task_by_name(TOKENS)

    @staticmethod
    def row_maker(columns: Columns, label_separator: LabelSeparator) -> MakeRow:
        return _spanned if columns.tokens is None else partial(_tagged, TagReader())

    @classmethod
    def values(cls, answer: Answer) -> dict[str, Any]:
        return {"spans": [span._asdict() for span in _spans_of(answer)]}

    def target(self, row: Row, encoded: Encoded) -> Array:
        return self.of_tags(tags_of_spans(_spans_of(row.label), encoded.offsets), encoded)

    def of_tags(self, tags: Sequence[str], encoded: Encoded) -> Array:
        """The target of a row with a tag for each token."""
        numbers = [
            NO_UNIT if offset == _NO_OFFSET else self._index[tag]
            for tag, offset in zip(tags, encoded.offsets, strict=True)
        ]
        return np.array(numbers, dtype=np.int64)  # (T,)

    def unlabelled(self, encoded: Encoded) -> Array:
        numbers = [NO_UNIT if offset == _NO_OFFSET else UNLABELLED for offset in encoded.offsets]
        return np.array(numbers, dtype=np.int64)  # (T,)

    def objective(self, targets: Sequence[Array], *, balanced: bool) -> Objective:
        from edgepack.tasks.losses import TokenLoss, balanced_weights

        return TokenLoss(balanced_weights(targets, len(self.labels)) if balanced else None)


def _spans_of(answer: Answer) -> Any:
    assert not isinstance(answer, str), "the data stage checks what the task needs"
    return answer


def join(tokens: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """The text of `tokens`, and the characters (start, end exclusive) of each token in it.

    A space separates two tokens if the first ends and the second begins with an ASCII letter or digit, as in Latin
    script.
    """
    text, offsets = "", []
    for token in tokens:
        text += " " if text and _is_latin(text[-1]) and _is_latin(token[0]) else ""
        offsets.append((len(text), len(text) + len(token)))
        text += token
    return text, offsets


def _is_latin(character: str) -> bool:
    return character.isascii() and character.isalnum()


def _spanned(line: int, values: Values, log: FindingLog) -> Row | None:
    text = text_of(line, values[0], "text", log)
    spans = None if text is None else spans_in(line, text, values[1], log)
    return None if text is None or spans is None else Row(text, spans)


def _tagged(reader: TagReader, line: int, values: Values, log: FindingLog) -> Row | None:
    lists = [json_list(value) for value in values]
    if lists == [None, None] and all(isinstance(value, str) and len(value.split()) == 1 for value in values):
        lists = [[value] for value in values]  # of a single token, which needs no separator
    for what, found in zip(("tokens", "tags"), lists, strict=True):
        if found is None or not all(isinstance(item, str) and item.strip() for item in found):
            reason = f"the {what} are not a JSON list of strings, each with a character at least"
            fix = f"write them as in {_EXAMPLES[what]}; tags by name, not by number"
            log.add(f"{what} of another type", "error", line, reason, fix)
            return None
    tokens, tags = ([str(item) for item in found or ()] for found in lists)
    if len(tokens) != len(tags):
        reason = f"there are {len(tokens)} tokens and {len(tags)} tags"
        log.add("tokens without their tags", "error", line, reason, "give each token a tag, `O` where it is in no span")
        return None
    read = {tag: reader.read(tag) for tag in dict.fromkeys(tags)}
    for _, problem in read.values():
        if problem is not None:
            log.add("unknown tags", "error", line, *problem)
            return None
    return tagged_row(line, tokens, [read[tag][0] for tag in tags], log)


def tagged_row(line: int, tokens: Sequence[str], tags: Sequence[str], log: FindingLog) -> Row | None:
    """A row of tokens with a BIO or BIOES tag each."""
    joined, offsets = join(tokens)
    text = text_of(line, joined, "text", log)
    if text is None:
        return None
    spans = spans_of_tags(tags, offsets)
    return Row(text, spans) if all(label_of(line, span.label, log) is not None for span in spans) else None


_EXAMPLES: Final = {"tokens": '["北", "京"]', "tags": '["B-city", "I-city"]'}


# How annotation tools and public data sets call the parts of a span; the first of each are ours.
_START: Final = ("start", "start_offset", "start_idx", "start_pos")
_END: Final = ("end", "end_offset", "end_idx", "end_pos")
_LABEL: Final = ("label", "type", "labels", "label_type", "entity_type")
_TEXT: Final = ("text", "entity")


def are_spans(value: object) -> bool:
    """Whether a value of JSON is a list of spans that is not empty, in one of the forms that are read."""
    found = _listed(value)
    return bool(found) and all(_parts(item) is not None for item in found or ())


def _listed(value: object) -> list[Any] | None:
    """The spans of a value; those of CLUENER's `{type: {text: [[first, last]]}}` as objects."""
    value = parsed(value)
    if not isinstance(value, dict):
        return value if isinstance(value, list) else None
    found = []
    for label, places in value.items():
        if not isinstance(places, dict) or not all(isinstance(ends, list) for ends in places.values()):
            return None
        for text, ends in places.items():
            for pair in ends:
                if not isinstance(pair, list) or len(pair) != 2:
                    return None
                found.append({"start": pair[0], "end": pair[1], "label": label, "text": text})
    return found


def _parts(item: object) -> tuple[int, int, object, object] | None:
    """Start, end, label and, if it is known, text of a span; doccano writes it as a list, too."""
    if isinstance(item, list) and len(item) == 3:
        start, end, label, said = *item, None
    elif isinstance(item, dict):
        start, end, label, said = (
            next((item[key] for key in keys if key in item), None) for keys in (_START, _END, _LABEL, _TEXT)
        )
    else:
        return None
    return (start, end, label, said) if type(start) is type(end) is int else None


def spans_in(line: int, text: str, value: object, log: FindingLog) -> tuple[Span, ...] | None:
    """A sorted list of different spans, which may be empty.

    Overlapping spans are kept. A token has one tag, so a model learns the first span only, and is scored on both.
    """
    found = _listed(value)
    if found is None:
        fix = 'write a list, empty where there are none: [{"start": 0, "end": 2, "label": "city"}]'
        log.add("spans of another type", "error", line, "the spans are not a JSON list", fix)
        return None
    spans = [_span(line, text, item, log) for item in found]
    if None in spans:
        return None
    ordered = sorted({span for span in spans if span is not None})
    for before, after in pairwise(ordered):
        if after.start < before.end:
            reason = f"{_named(before)} and {_named(after)} overlap: only the first is learnt, and both are asked for"
            log.add("spans that overlap", "warning", line, reason, "keep one of them: a token can have one tag only")
    return tuple(ordered)


def _span(line: int, text: str, value: object, log: FindingLog) -> Span | None:
    parts = _parts(value)
    if parts is None:
        reason = "a span is not an object with `start`, `end` (whole numbers) and `label`"
        log.add("spans of another type", "error", line, reason, 'write it as {"start": 0, "end": 2, "label": "city"}')
        return None
    start, end, given, said = parts
    label = label_of(line, given, log)
    if label is None:
        return None
    if isinstance(said, str) and len(said) == end + 1 - start and text.startswith(said, max(start, 0)):
        end += 1  # some data sets name the last character of a span: only its own text tells
    span = Span(start, end, label)
    if (problem := _span_problem(span, text, said)) is not None:
        log.add("spans that do not fit", "error", line, f"{_named(span)} {problem}", _COUNTED)
        return None
    if text[span.start].isspace() or text[span.end - 1].isspace():  # not by a copy: many spans may cover a long text
        reason = f"{_named(span)} has white space at its edges: {text[span.start : min(span.end, span.start + 40)]!r}"
        log.add("spans with white space", "warning", line, reason, "move its ends: no token begins or ends there")
    return span


_COUNTED: Final = "`start` and `end` count characters of the text from 0; `end` is the one after the last of the span"


def _span_problem(span: Span, text: str, said: object) -> str | None:
    if span.start < 0 or span.end > len(text):
        return f"is not within the text, which has {len(text)} characters"
    if span.start >= span.end:
        return "holds no character"
    if isinstance(said, str) and not (len(said) == span.end - span.start and text.startswith(said, span.start)):
        held = text[span.start : min(span.end, span.start + 40)]
        return f"is {held!r} in the text, and its own `text` says {said[:40]!r}"
    return None


def _named(span: Span) -> str:
    return f"the span {span.start} to {span.end} (`{shortened(span.label)}`)"
