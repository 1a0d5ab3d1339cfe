"""Values of a record: texts, labels and JSON lists, with a finding about each that is wrong.

White space around labels is removed, around texts it is kept.
"""

from __future__ import annotations

from typing import Any, Final

from edgepack.messages import message
from edgepack.recipe.finding_log import FindingLog
from edgepack.tasks.task import Values
from edgepack.util.text_digests import shortened
from edgepack_runtime.rows.label_cells import NO_AGREEMENT, NOTHING_WRITTEN, labels_in, parsed, single
from edgepack_runtime.util.texts import is_unseen

MAX_LABEL_CHARACTERS: Final = 200  # a longer label is a text in the wrong column


def texts_of(line: int, values: Values, log: FindingLog) -> tuple[str, str | None] | None:
    """A text, or a pair of texts."""
    if len(values) == 1:
        text = text_of(line, values[0], "text", log)
        return None if text is None else (text, None)
    first, second = (text_of(line, value, what, log) for value, what in zip(values, _OF_A_PAIR, strict=True))
    return None if first is None or second is None else (first, second)


_OF_A_PAIR: Final = ("first text", "second text")
_NAMES: Final = {
    "label": "found.the_label", "text": "found.the_text",
    "first text": "found.the_first", "second text": "found.the_second",
}  # fmt: skip


def text_of(line: int, value: object, what: str, log: FindingLog) -> str | None:
    if not isinstance(value, str):
        reason = f"the {what} is not a JSON string"
        log.add("texts that are not strings", "error", line, reason, "write the text in quotes")
        return None
    if is_unseen(value):
        log.add("rows without a text", "error", line, _emptiness(what, value), message("found.give_text"))
        return None
    if value.strip() in NOTHING_WRITTEN:
        reason = f"the {what} is `{value.strip()}`, as programs write a missing value: left out"
        log.add(f"rows with `{value.strip()}` as text", "warning", line, reason, message("found.give_text"))
        return None
    _warn_of_lost_characters(line, what, value, log)
    if "\x00" in value:
        reason = f"the {what} holds NUL characters, which the tokenizer drops"
        log.add("texts with NUL", "warning", line, reason, "take the row from its source again, or remove it")
    return value


def _emptiness(what: str, value: str) -> str:
    unseen = value.strip()
    name = message(_NAMES[what])
    if unseen:
        return message("found.unseen", what=name, value=shortened(unseen))
    return message("found.empty", what=name)


def _warn_of_lost_characters(line: int, what: str, content: str, log: FindingLog) -> None:
    if "\ufffd" in content:
        reason = f"the {what} holds U+FFFD: characters were lost when it was decoded once before"
        fix = "take the row from its source again, or remove it"
        log.add("texts with U+FFFD", "warning", line, reason, fix)


def label_of(line: int, value: object, log: FindingLog) -> str | None:
    """One label; annotation tools write it as a list of one, too, and a row that nobody annotated as an empty one."""
    found = labels_in(value)
    if found == []:
        reason = "the row has an empty list of labels: nobody annotated it, and it is left out"
        fix = "annotate it; for rows with any number of labels name the column `labels`: `data.columns: {labels: ...}`"
        log.add("rows that nobody annotated", "warning", line, reason, fix)
        return None
    value = single(found)
    if isinstance(value, str):
        label = value.strip()
    elif value is None:
        label = ""
    elif isinstance(value, int) and not isinstance(value, bool):
        label = str(value)
    elif isinstance(value, list):
        fix = "for rows with any number of labels name the column `labels`: `data.columns: {labels: ...}`"
        log.add("rows with several labels", "error", line, f"this row has {len(value)} labels, not one", fix)
        return None
    else:
        reason, fix = "the label is neither a string nor a whole number", 'write it as a string: "positive"'
        log.add("labels of another type", "error", line, reason, fix)
        return None
    if label == NO_AGREEMENT:
        reason = f"the label is `{NO_AGREEMENT}`, which means in CLUE's files that nobody agreed on one: left out"
        log.add("rows without an agreed label", "warning", line, reason, "remove the row, or give it a label")
        return None
    if label in NOTHING_WRITTEN:
        reason = f"the row has no label: it is written as `{label}`, and left out"
        log.add(f"rows with `{label}` as label", "warning", line, reason, message("found.give_label"))
        return None
    if is_unseen(label):
        log.add("rows without a label", "error", line, _emptiness("label", label), message("found.give_label"))
        return None
    if len(label) > MAX_LABEL_CHARACTERS:
        reason = f"the label has {len(label)} characters, and {MAX_LABEL_CHARACTERS} at most make sense"
        log.add("long labels", "error", line, reason, "set `data.columns.label` to the column of the labels")
        return None
    _warn_of_lost_characters(line, "label", label, log)
    return label


def json_list(value: object) -> list[Any] | None:
    """The list in a value, or in a cell as JSON or with the separator U+0002 of PaddleNLP's examples; None without."""
    if isinstance(value, str) and LIST_SEPARATOR in value:
        return value.split(LIST_SEPARATOR)
    found = parsed(value)
    return found if isinstance(found, list) else None


LIST_SEPARATOR: Final = "\x02"
