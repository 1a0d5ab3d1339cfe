"""Conversion of records to rows or findings, and of tagged tokens to texts with spans.

White space around labels is removed, around texts it is kept. Findings go to a log; a row with an error is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

from edgepack.artifacts import Row
from edgepack.data.files import filled_lines
from edgepack.data.finding_log import FindingLog
from edgepack.data.text_digests import is_unseen, shortened
from edgepack.recipe.model import Columns
from edgepack.recipe.yaml import has_surrogate
from edgepack.util.text import counted
from edgepack_runtime.rows.reader import Rows
from edgepack_runtime.util.spans import Span, spans_of_tags, split_tag

_DOCUMENT: Final = "-DOCSTART-"  # token of a line that starts a document

Sentence = tuple[int, list[str], list[str]]  # line from 1 of the first token, tokens, tags


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


def tag_problem(tag: str) -> tuple[str, str] | None:
    """Reason and fix of a tag that is neither BIO nor BIOES; None for a valid tag."""
    try:
        split_tag(tag)
    except ValueError:
        reason = f"`{tag[:40]}` is not a tag of BIO or BIOES"
        return reason, "write `O`, `B-x`, `I-x`, and for BIOES `E-x`, `S-x`; what BMES calls `M-x` is `I-x`"
    return None


def sentences(rows: Rows, log: FindingLog) -> Iterator[Sentence]:
    """Read tokens and tags of a CoNLL file: a token and its tag on each line, a blank line between two sentences.

    They are the first and the last field of a line, separated by tabs or else by spaces. A sentence with an error is
    dropped.

    Raises:
        RowError: the rest of the file cannot be read.
    """
    start, tokens, tags = 0, list[str](), list[str]()
    complete, known = True, set[str]()
    for number, line in filled_lines(rows):
        if not line.strip():
            if tokens and complete:
                yield start, tokens, tags
            tokens, tags, complete = [], [], True
            continue
        fields = line.rstrip("\r\n").split("\t") if "\t" in line else line.split()
        token, tag = fields[0], fields[-1].strip()
        if token == _DOCUMENT:
            continue
        if len(fields) < 2 or not token.strip() or not tag:
            complete = False
            reason = f"this line has {counted(len(line.split()), 'field')}, and a token and its tag are wanted"
            fix = "write a token, a tab and its tag (`O` where it is in no span), or remove the line"
            log.add("lines without a token or a tag", "error", number, reason, fix)
            continue
        if tag not in known:
            if (problem := tag_problem(tag)) is not None:
                complete = False
                log.add("unknown tags", "error", number, *problem)
                continue
            known.add(tag)
        start = start if tokens else number
        tokens.append(token)
        tags.append(tag)
    if tokens and complete:
        yield start, tokens, tags


MAX_LABEL_CHARACTERS: Final = 200  # a longer label is a text in the wrong column

Values = Sequence[object]  # in the order of `Columns.wanted`
MakeRow = Callable[[int, Values, FindingLog], Row | None]  # with the line from 1 on which the row starts


def row_maker(columns: Columns, label_separator: str) -> MakeRow:
    """The converter from values of `columns.wanted` to rows; `label_separator` separates labels in a cell."""

    def labelled_with_many(line: int, values: Values, log: FindingLog) -> Row | None:
        texts = texts_of(line, values[:-1], log)
        labels = None if texts is None else _labels(line, values[-1], label_separator, log)
        return None if texts is None or labels is None else Row(texts[0], labels, texts[1])

    if columns.task == "token-classification":
        return _spanned if columns.tokens is None else _tagged
    if columns.labels is not None:
        return labelled_with_many
    return _labelled if columns.text_pair is None else _labelled_pair


def has_half(*values: object) -> bool:
    """Whether a string holds a lone surrogate, also a string inside a list or an object."""
    left = list(values)
    while left:
        value = left.pop()
        if isinstance(value, str) and has_surrogate(value):
            return True
        if isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            left += value.values()
    return False


def texts_of(line: int, values: Values, log: FindingLog) -> tuple[str, str | None] | None:
    """A text, or a pair of texts."""
    if len(values) == 1:
        text = _text(line, values[0], "text", log)
        return None if text is None else (text, None)
    first, second = (_text(line, value, what, log) for value, what in zip(values, _OF_A_PAIR, strict=True))
    return None if first is None or second is None else (first, second)


_OF_A_PAIR: Final = ("first text", "second text")


def _labelled(line: int, values: Values, log: FindingLog) -> Row | None:
    text = _text(line, values[0], "text", log)
    label = None if text is None else _label(line, values[1], log)
    return None if text is None or label is None else Row(text, label)


def _labelled_pair(line: int, values: Values, log: FindingLog) -> Row | None:
    texts = texts_of(line, values[:2], log)
    label = None if texts is None else _label(line, values[2], log)
    return None if texts is None or label is None else Row(texts[0], label, texts[1])


def _spanned(line: int, values: Values, log: FindingLog) -> Row | None:
    text = _text(line, values[0], "text", log)
    spans = None if text is None else _spans(line, text, values[1], log)
    return None if text is None or spans is None else Row(text, spans)


def _tagged(line: int, values: Values, log: FindingLog) -> Row | None:
    lists = [json_list(value) for value in values]
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
    for tag in dict.fromkeys(tags):
        if (problem := tag_problem(tag)) is not None:
            log.add("unknown tags", "error", line, *problem)
            return None
    return tagged_row(line, tokens, tags, log)


def tagged_row(line: int, tokens: Sequence[str], tags: Sequence[str], log: FindingLog) -> Row | None:
    """A row of tokens with a BIO or BIOES tag each."""
    joined, offsets = join(tokens)
    text = _text(line, joined, "text", log)
    if text is None:
        return None
    spans = spans_of_tags(tags, offsets)
    return Row(text, spans) if all(_label(line, span.label, log) is not None for span in spans) else None


_EXAMPLES: Final = {"tokens": '["北", "京"]', "tags": '["B-city", "I-city"]'}


def _text(line: int, value: object, what: str, log: FindingLog) -> str | None:
    if not isinstance(value, str):
        reason = f"the {what} is not a JSON string"
        log.add("texts that are not strings", "error", line, reason, "write the text in quotes")
        return None
    if is_unseen(value):
        fix = "give it a text, or remove the row"
        log.add("rows without a text", "error", line, f"the {what} {_emptiness(value)}", fix)
        return None
    _warn_of_lost_characters(line, what, value, log)
    if "\x00" in value:
        reason = f"the {what} holds NUL characters, which the tokenizer drops"
        log.add("texts with NUL", "warning", line, reason, "take the row from its source again, or remove it")
    return value


def _emptiness(value: str) -> str:
    unseen = value.strip()
    return f"holds nothing that is seen: `{shortened(unseen)}`" if unseen else "is empty"


def _warn_of_lost_characters(line: int, what: str, content: str, log: FindingLog) -> None:
    if "\ufffd" in content:
        reason = f"the {what} holds U+FFFD: characters were lost when it was decoded once before"
        fix = "take the row from its source again, or remove it"
        log.add("texts with U+FFFD", "warning", line, reason, fix)


def _label(line: int, value: object, log: FindingLog) -> str | None:
    if isinstance(value, str):
        label = value.strip()
    elif value is None:
        label = ""
    elif isinstance(value, int) and not isinstance(value, bool):
        label = str(value)
    else:
        reason, fix = "the label is neither a string nor a whole number", 'write it as a string: "positive"'
        log.add("labels of another type", "error", line, reason, fix)
        return None
    if is_unseen(label):
        fix = "give it a label, or remove the row"
        log.add("rows without a label", "error", line, f"the label {_emptiness(label)}", fix)
        return None
    if len(label) > MAX_LABEL_CHARACTERS:
        reason = f"the label has {len(label)} characters, and {MAX_LABEL_CHARACTERS} at most make sense"
        log.add("long labels", "error", line, reason, "set `data.columns.label` to the column of the labels")
        return None
    _warn_of_lost_characters(line, "label", label, log)
    return label


def json_list(value: object) -> list[Any] | None:
    """The JSON list in a value or in a cell of a table; None if it is not a list."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
        # The cell was checked as text before, in which an escape is six characters.
        if has_half(value):
            return None
    return value if isinstance(value, list) else None


def _labels(line: int, value: object, separator: str, log: FindingLog) -> tuple[str, ...] | None:
    """A sorted list of different labels, which may be empty."""
    found = json_list(value)
    if found is None and isinstance(value, str):
        found = [part for part in value.split(separator) if part.strip()]
    if found is None and value is not None:
        reason, fix = "the labels are neither a JSON list nor text", 'write them as a list: ["price", "service"]'
        log.add("labels of another type", "error", line, reason, fix)
        return None
    labels = [_label(line, item, log) for item in found or ()]
    return None if None in labels else tuple(sorted({label for label in labels if label is not None}))


def _spans(line: int, text: str, value: object, log: FindingLog) -> tuple[Span, ...] | None:
    """A sorted list of different spans, which may be empty.

    Overlapping spans are kept. A token has one tag, so a model learns the first span only, and is scored on both.
    """
    found = json_list(value)
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
    if not isinstance(value, dict) or not all(type(value.get(key)) is int for key in ("start", "end")):
        reason = "a span is not an object with `start`, `end` (whole numbers) and `label`"
        log.add("spans of another type", "error", line, reason, 'write it as {"start": 0, "end": 2, "label": "city"}')
        return None
    label = _label(line, value.get("label"), log)
    if label is None:
        return None
    span = Span(value["start"], value["end"], label)
    if (problem := _span_problem(span, text, value.get("text"))) is not None:
        log.add("spans that do not fit", "error", line, f"{_named(span)} {problem}", _COUNTED)
        return None
    held = text[span.start : span.end]
    if held != held.strip():
        reason = f"{_named(span)} has white space at its edges: {held[:40]!r}"
        log.add("spans with white space", "warning", line, reason, "move its ends: no token begins or ends there")
    return span


_COUNTED: Final = "`start` and `end` count characters of the text from 0; `end` is the one after the last of the span"


def _span_problem(span: Span, text: str, said: object) -> str | None:
    if span.start < 0 or span.end > len(text):
        return f"is not within the text, which has {len(text)} characters"
    if span.start >= span.end:
        return "holds no character"
    held = text[span.start : span.end]
    if isinstance(said, str) and said != held:
        return f"is {held[:40]!r} in the text, and its own `text` says {said[:40]!r}"
    return None


def _named(span: Span) -> str:
    return f"the span {span.start} to {span.end} (`{shortened(span.label)}`)"
