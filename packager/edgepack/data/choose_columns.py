"""Detection of the columns of a data file (texts, labels, spans, tags) and of its task."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from shlex import quote
from typing import Final

from edgepack.data.column_counts import MAX_VALUES, Column, FileProfile
from edgepack.data.detect import (
    ANSWER_NAMES,
    CONTEXT_NAMES,
    INTENT_NAMES,
    LABEL_NAMES,
    PAIR_NAMES,
    QUESTION_NAMES,
    SLOT_NAMES,
    SPAN_NAMES,
    TAG_NAMES,
    TEXT_NAMES,
    TOKEN_NAMES,
    VALUE_NAMES,
    are_grades,
    are_many_numbers,
    are_measurements,
    are_numbers,
    is_tag_per_row,
)
from edgepack.data.record_forms import EACH, by_jq, target_for, typed
from edgepack.errors import RecipeInvalidError
from edgepack.messages import message
from edgepack.recipe.findings import Finding
from edgepack.recipe.messages import listed
from edgepack.recipe.model import Columns
from edgepack.recipe.paths import is_workbook
from edgepack.tasks.several_labels import FLAGS
from edgepack.tasks.tags import is_tag
from edgepack.util.text_digests import visible
from edgepack_runtime.rows.formats import JSON, TAGGED

_LONGEST_LABEL: Final = 40  # characters on average; longer cells are texts
_WRITTEN_NAMES: Final = (
    *(*LABEL_NAMES, "answer", "output", "response", "summary", "translation", "回答", "摘要", "译文", "翻译"),
    *("zh", "en", "ja", "ko", "de", "fr", "es", "ru"),
)
_TAGGED_SHARE: Final = 0.8  # of the characters of a text have a tag
_LONGEST_TOKEN: Final = 12  # characters on average
_SENTENCE_NAME: Final = re.compile(r"sent|doc|句|(?:^|[_ ])id$", re.IGNORECASE)
_ROW_NAME: Final = re.compile(rf"{_SENTENCE_NAME.pattern}|编号|序号|^(?:index|no|nr)$", re.IGNORECASE)  # numbers rows
_MEDIUM: Final = re.compile(r"\.(?:jpe?g|png|gif|bmp|webp|tiff?|wav|mp3|mp4)(?:\?|$)", re.IGNORECASE)
_FLAT: Final = '[paths(scalars) as $p | {key: ($p | map(tostring) | join(".")), value: getpath($p)}] | from_entries'
_AS_LISTS: Final = 'write each row as lists: {"tokens": ["北", "京"], "tags": ["B-city", "I-city"]}'
_SHORTEST_TEXT: Final = 6  # characters on average of the second of two texts; a name has fewer


def choose_columns(found: FileProfile) -> Columns:
    """The columns of texts and labels, by known names, else by their cells.

    Raises:
        RecipeInvalidError: there are none.
    """
    answers = found.answers
    for choice in (_reading, _intents, _tokens):
        columns = choice(found, answers)
        if columns is not None:
            return columns
    flags = _flags(answers)
    if flags:
        text = _text(found, None)
        if text is not None:
            first, second = _ordered(found, text, flags[0])
            pair = None if second is None else second.name
            return Columns(text=first.name, text_pair=pair, labels=tuple(flag.name for flag in flags))
    label = _label(answers)
    many = None if label is not None and _is_named_label(answers, label) else _lists_of_labels(answers)
    label = many or label
    text = _text(found, label)
    if text is not None and all(map(_MEDIUM.search, text.values)):
        raise _refusal(found, f"`{visible(text.name)}` names images or recordings", "give the texts themselves")
    measured = None if text is None else _measured(answers, label, text)
    if measured is not None and _may_be_no_answer(measured, label):  # a year, a number of words
        about = {"column": visible(measured.name[:40]), "shown": listed(sorted(measured.values)[:3])}
        raise _refusal(found, message("found.measurements", **about), message("found.rename_value", **about))
    if text is not None and measured is not None:
        first, second = _ordered(found, text, measured)
        return Columns(text=first.name, text_pair=None if second is None else second.name, value=measured.name)
    spaced = next((column for column in found.columns if _are_spaced_tags(column.values)), None)
    words = None if spaced is None else _text(found, spaced)
    if spaced is not None and words is not None:
        reason = f"`{visible(spaced.name)}` holds tags between spaces, not labels"
        raise _refusal(found, reason, _as_lines(found, words, spaced))
    written = _written(answers, text) if label is None else label if label.is_free_text else None
    if text is not None and written is not None and (label is None or label.label_separator is None):
        held = f"`{visible(written.name)}` holds a different text in each row"
        reason = f"{held}: these rows are for generation of text, which is not served"
        fix = "if another column has the labels, name it `label`: no classifier can learn texts"
        raise _refusal(found, reason, fix)
    if label is None or text is None:
        missing = "labels: few different short values" if label is None else "texts"
        shown = "; ".join(_described(column) for column in found.columns[:10])
        reason = f"no column seems to hold {missing}. It has {shown or 'no columns'}"
        fix = (
            "name the two columns `text` and `label` in the first line, or as the keys of each object, and run it again"
        )
        if found.form.kind == JSON and any(column.lists for column in found.columns):
            target = target_for(found.file, "flat", ".jsonl")
            command = by_jq(f"{EACH} | {_FLAT}", found.file, target)
            fix = f"{fix}; if they are within other objects, {_conversion(command, target)}"
        elif is_workbook(found.file) and len(found.columns) == 1:
            fix = "delete the rows above the names of the columns, such as a title, and run it again"
        raise _refusal(found, reason, fix)
    first, second = _ordered(found, text, label)
    pair = None if second is None else second.name
    if pair is not None and are_grades(label.values):
        return Columns(text=first.name, text_pair=pair, value=label.name)
    if many is not None or label.label_separator is not None:
        return Columns(text=first.name, text_pair=pair, labels=label.name)
    return Columns(text=first.name, text_pair=pair, label=label.name)


def _measured(found: FileProfile, label: Column | None, text: Column) -> Column | None:
    """The column of numbers by its name; else that of labels if it holds measurements; else one of many numbers."""
    by_name = found.column(VALUE_NAMES)
    if by_name is not None and are_numbers(by_name.values):
        return by_name
    named = label if label is not None else found.column(LABEL_NAMES)
    if named is not None:
        return named if are_measurements(named.values) else None
    others = [one for one in found.columns if one is not text and one.name and not _ROW_NAME.search(one.name)]
    return next((one for one in others if are_many_numbers(one.values)), None)


def _may_be_no_answer(measured: Column, label: Column | None) -> bool:
    return label is None and measured.name.lower() not in VALUE_NAMES and not are_measurements(measured.values)


def labels_not_taken(found: FileProfile, columns: Columns) -> list[str]:
    """Columns with values like those of the label column, where that was chosen by its cells and not by its name."""
    label = found.column([columns.label.lower()])
    if not columns.text_task.one_class or label is None:
        return []
    others = [one for one in found.answers.columns if one.name and one.name not in columns.wanted.values()]
    if label.name.lower() in LABEL_NAMES:  # only other columns that are called as one
        likely = [one for one in others if one.name.lower() in LABEL_NAMES and not one.lists]
        return [one.name for one in likely if 1 < len(one.values) <= min(MAX_VALUES, found.rows // 2)]
    return [
        one.name
        for one in others
        if not one.lists and len(one.values) > 1 and (one.values <= label.values or label.values <= one.values)
    ]


def _written(found: FileProfile, text: Column | None) -> Column | None:
    """A column that holds written answers, by its name or as lists of sentences."""
    others = {column.name.lower(): column for column in found.columns if column is not text}
    named = [others[name] for name in _WRITTEN_NAMES if name in others]
    likely = [column for column in named if column.mean_length > _LONGEST_LABEL / 2 or column.is_free_text]
    lists = [column for column in others.values() if column.of_words and column.is_free_text]
    return next(iter(likely or lists), None)


def _reading(found: FileProfile, answers: FileProfile) -> Columns | None:
    """The columns of questions, texts and their answers, by their names; None if there are none."""
    question, context, answer = found.column(QUESTION_NAMES), found.column(CONTEXT_NAMES), answers.column(ANSWER_NAMES)
    if question is None or context is None or answer is None or context.mean_length < question.mean_length:
        return None
    return Columns(text=question.name, text_pair=context.name, answers=answer.name)


def _intents(found: FileProfile, answers: FileProfile) -> Columns | None:
    """The columns of an intent and its slots, by their names; None if there are none."""
    intent, slots = answers.column(INTENT_NAMES), answers.column(SLOT_NAMES)
    if intent is None or slots is None or not (slots.of_slots or slots.of_spans):
        return None
    text = _text(found, intent)
    return None if text is None else Columns(text=text.name, intent=intent.name, slots=slots.name)


def _tokens(found: FileProfile, answers: FileProfile) -> Columns | None:
    """The columns of spans, or of tokens and tags; None if there are neither."""
    if found.form.kind == TAGGED:
        return Columns(spans="spans")
    spans = next((column for column in answers.columns if column.of_spans), None)
    if spans is not None:
        text = _text(found, None)
        if text is None:
            raise _refusal(found, f"there are spans in `{spans.name}`, and no texts", "add the texts as `text`")
        return Columns(text=text.name, spans=spans.name)
    tags = next((column for column in answers.columns if column.of_tags and column.of_tags == column.of_words), None)
    words = [column for column in found.columns if column is not tags and column.of_words]
    named = [column for column in words if column.name.lower() in TOKEN_NAMES]
    tokens = next(iter(named or (words if len(words) == 1 else [])), None)
    if tags is not None and tokens is not None:
        return Columns(tokens=tokens.name, tags=tags.name)
    if tags is not None and tags.of_words:
        text = _text(found, tags)
        if text is not None and tags.items >= _TAGGED_SHARE * tags.of_words * text.mean_length:
            reason = f"`{visible(tags.name)}` has a tag for each character of `{visible(text.name)}`, which is no list"
            raise _refusal(found, reason, _as_tokens(found, text, tags))
        reason = f"`{visible(tags.name)}` holds lists of tags, and no column the lists of their tokens"
        raise _refusal(found, reason, _AS_LISTS)
    odd = [
        column.name
        for column in answers.columns
        if column.lists > column.of_words + column.of_none and column.name.lower() in (*SPAN_NAMES, *TAG_NAMES)
    ]
    per_row = next((column for column in found.columns if is_tag_per_row(column.values)), None)
    if per_row is not None:
        word = _word(found, per_row)
        if word is not None:
            reason = f"each row is one token (`{visible(word.name)}`) and its tag (`{visible(per_row.name)}`)"
            raise _refusal(found, f"{reason}, and rows are whole texts", _as_conll(found, word, per_row))
    if odd:
        reason = (
            f"the lists in {listed(odd)} hold neither labels, nor spans as objects with `start` and `end`, nor tags"
        )
        fix = 'write spans as in [{"start": 0, "end": 2, "label": "city"}], tags as in ["B-city", "I-city"]'
        raise _refusal(found, reason, fix)
    return None


def _as_tokens(found: FileProfile, text: Column, tags: Column) -> str:
    """The command that writes texts with a tag for each character as lists of tokens and tags."""
    if found.form.kind != JSON:
        return _AS_LISTS
    keys = [json.dumps(one.name, ensure_ascii=False) for one in (text, tags)]
    row = f'{{tokens: (.[{keys[0]}] | split("")), tags: .[{keys[1]}]}}'
    target = target_for(found.file, "tokens", ".jsonl")
    return _conversion(by_jq(f"{EACH} | {row}", found.file, target), target)


def _are_spaced_tags(values: Collection[str]) -> bool:
    return bool(values) and all(" " in value and is_tag(value.partition(" ")[0]) for value in values)


def _as_lines(found: FileProfile, text: Column, tags: Column) -> str:
    """The command that writes texts and tags, both with spaces between, as CoNLL has them."""
    if found.form.kind == JSON or found.form.separator != "\t":
        return _AS_LISTS
    first, second = (found.columns.index(column) + 1 for column in (text, tags))
    rows = "NR>1 " if found.header else ""
    code = (
        f'{rows}{{n=split(${first},w," "); split(${second},t," "); for(i=1;i<=n;i++) print w[i] "\\t" t[i]; print ""}}'
    )
    target = target_for(found.file, "tokens", ".conll")
    return _conversion(f"awk -F'\\t' {quote(code)} {typed(found.file.name)} > {typed(target)}", target)


def _conversion(command: str, target: str) -> str:
    return f"convert it: {command}, then `edgepack init {typed(target)}`"


def _word(found: FileProfile, tag: Column) -> Column | None:
    """The column of the tokens beside a tag in each row."""
    others = [column for column in found.columns if column is not tag and column.filled and not column.lists]
    others = [column for column in others if not _SENTENCE_NAME.search(column.name)]
    named = [column for column in others if {column.name.lower(), f"{column.name.lower()}s"} & {*TOKEN_NAMES}]
    words = [column for column in named or others if column.mean_length <= _LONGEST_TOKEN]
    return max(words, key=lambda column: (len(column.values), column.prose), default=None)


def _as_conll(found: FileProfile, word: Column, tag: Column) -> str:
    """The command that writes a table of tokens as CoNLL has them; a new sentence begins where its column changes."""
    name = found.file.name
    if found.form.kind == JSON or is_workbook(found.file):
        return "write each token, a tab and its tag on a line of a .conll file, and a blank line between two sentences"
    place = {column.name: f"r[{index}]" for index, column in enumerate(found.columns)}
    kept = [column for column in found.columns if _SENTENCE_NAME.search(column.name) and column not in (word, tag)]
    new = next((place[column.name] for column in kept if 2 * len(column.values) <= found.rows), "")
    encoding = "utf-8-sig" if found.form.encoding == "utf-8" else found.form.encoding
    separator = found.form.separator
    written = "" if separator == "," else f", delimiter={json.dumps(separator)}"
    rows = f"csv.reader(open({json.dumps(name, ensure_ascii=False)}, encoding={json.dumps(encoding)}){written})"
    above = int(found.header and not is_tag(tag.name))  # a first row of a token and its tag is no header
    pair = f'{place[word.name]}+"\\t"+{place[tag.name]}'
    if new:
        line = f'"\\n"*(p!=""!={new}!=p)+{pair}'
        code = f'import csv; p=""; [print({line}) or (p:={new} or p) for r in [*{rows}][{above}:] if r]'
    else:
        code = f'import csv; [print({pair} if r else "") for r in [*{rows}][{above}:]]'
    target = target_for(found.file, "tokens", ".conll")
    return _conversion(f"python3 -I -c {quote(code)} > {typed(target)}", target)


def _flags(found: FileProfile) -> list[Column]:
    """Columns that are each for a label, with 1 or 0; at least two, and none has the name of labels."""
    flags = [
        column for column in found.columns if column.filled and {one.lower() for one in column.values} <= FLAGS.keys()
    ]
    return flags if len(flags) > 1 and found.column(LABEL_NAMES) is None else []


def _lists_of_labels(found: FileProfile) -> Column | None:
    lists = [c for c in found.columns if c.of_words and c.is_of_many and 1 < len(c.values) <= MAX_VALUES]
    by_name = [column for column in lists if column.name.lower() in (*LABEL_NAMES, *TAG_NAMES)]
    return next(iter(by_name or lists), None)


def _is_named_label(found: FileProfile, label: Column) -> bool:
    """Whether a column of single labels has the name of labels, and few different values."""
    by_name = label is found.column(LABEL_NAMES) and not label.lists
    return by_name and 2 <= len(label.values) <= max(2, found.rows // 2)


def _label(found: FileProfile) -> Column | None:
    by_name = found.column(LABEL_NAMES)
    if (
        by_name is not None
        and by_name.values
        and not by_name.is_of_many
        and (len(by_name.values) <= MAX_VALUES or by_name.label_separator is not None)
    ):
        return by_name
    most = max(2, found.rows // 2)
    named = [column for column in found.columns if column.name]
    likely = [c for c in named if 2 <= len(c.values) <= min(most, MAX_VALUES) and not c.is_of_many]
    likely = [
        column for column in likely if column.mean_length <= _LONGEST_LABEL and column.name.lower() not in TEXT_NAMES
    ]
    return min(likely, key=lambda column: len(column.values), default=None)


def _text(found: FileProfile, label: Column | None) -> Column | None:
    others = [
        column for column in found.columns if column is not label and column.name and column.filled and not column.lists
    ]
    by_name = [column for column in others if column.name.lower() in TEXT_NAMES]
    return max(by_name or others, key=lambda column: column.mean_length, default=None)


def _ordered(found: FileProfile, text: Column, label: Column) -> tuple[Column, Column | None]:
    """The columns of first and second texts; None for the second of single texts."""
    others = [column for column in found.columns if column is not text and column is not label]
    by_name = found.column(PAIR_NAMES)
    if by_name is not None and by_name in others and text.name.lower() not in PAIR_NAMES:
        return text, by_name
    second = next((column for column in others if _is_second_text(column, text)), None)
    if second is None or found.columns.index(text) < found.columns.index(second):
        return text, second
    return second, text


def _is_second_text(column: Column, text: Column) -> bool:
    return (
        not column.lists
        and column.prose >= column.filled / 2 > 0
        and column.mean_length >= max(_SHORTEST_TEXT, text.mean_length / 3)
        and len(column.values) > min(MAX_VALUES, column.filled / 5)
    )


def _described(column: Column) -> str:
    values = f"more than {MAX_VALUES}" if len(column.values) > MAX_VALUES else str(len(column.values))
    return f"`{visible(column.name[:40])}` with {values} values of {column.mean_length:.0f} characters"


def _refusal(found: FileProfile, reason: str, fix: str) -> RecipeInvalidError:
    findings: Sequence[Finding] = [Finding("error", found.file, None, reason, fix)]
    return RecipeInvalidError(f"no recipe was drafted for {found.file}", findings=findings)
