"""Detection of what the columns of a table hold, and of its header."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from edgepack.tasks.cells import LIST_SEPARATOR
from edgepack.tasks.tags import is_tag
from edgepack_runtime.util.spans import OUTSIDE

TEXT_NAMES: Final = (
    *("text", "sentence", "review", "content", "comment", "title", "query", "question", "body", "message"),
    *("文本", "内容", "评论", "句子", "标题", "正文", "问题", "text_a", "sentence1", "query1", "question1"),
)
PAIR_NAMES: Final = ("text_pair", "text_b", "textb", "sentence2", "query2", "question2", "text2")
LABEL_NAMES: Final = (
    *("label", "labels", "gold_label", "class", "category", "target", "sentiment", "topic", "intent"),
    *("polarity", "score", "stars", "star", "rating", "y"),
    *("标签", "类别", "分类", "情感", "评分", "意图", "主题"),
)
VALUE_NAMES: Final = ("value", "similarity", "数值", "相似度")  # numbers, however few
TOKEN_NAMES: Final = ("tokens", "words", "chars", "text")
TAG_NAMES: Final = ("tags", "ner_tags", "bio", "labels", "label")
INTENT_NAMES: Final = ("intent", "意图")
SLOT_NAMES: Final = ("slots", "slot", "槽位")
QUESTION_NAMES: Final = ("question", "query", "问题")  # where a part of a text is the answer
CONTEXT_NAMES: Final = ("context", "passage", "paragraph", "document", "文章", "段落")
ANSWER_NAMES: Final = ("answers", "answer", "答案")
SPAN_NAMES: Final = ("spans", "entities", "ner", "tags", "label")
_AGREEMENT: Final = 0.9  # of the lines or values of a sample must be alike
_LONGEST_NAME: Final = 40  # characters of a column's name; longer cells are texts
_NUMBER: Final = re.compile(r"[-+]?(\d+|\d*[.,]\d+)(e[-+]?\d+)?%?", re.IGNORECASE)
_PLAIN_NUMBER: Final = re.compile(r"[-+]?\d{1,15}(\.\d{1,15})?")
_SCALE: Final = 5
_GRADES: Final = 20  # different numbers that may be labels: 0.5, 1, ... 10 stars
_MIXED_SEPARATORS: Final = ("\n", "|", ";", ",", "、", "；", "，", "/", "#")
_LABEL_SEPARATORS: Final = (*_MIXED_SEPARATORS, "+", "&", " ")
_PARTS_OF_NAMES: Final = ("/", "#", "+", "&", " ")  # of labels, too
_LATIN: Final = re.compile("[A-Za-z]")  # has spaces within a label
_RECURRENCE: Final = 1.5  # times that a label must occur, on average
_ALONE: Final = 0.2  # of the labels, or one, may never stand beside another: `其他`
_COMBINATIONS: Final = 3  # distinct cells for each label, at least, where few labels are combined
_SENTENCE: Final = frozenset("。！？，；!?")


def looks_tagged(lines: Sequence[str]) -> bool:
    """Whether these lines hold a token and its tag (`B-place`, `O`), for token classification."""
    if any(LIST_SEPARATOR in line for line in lines):
        return False  # a table of lists, of which the last may begin like a tag
    filled = [line.split() for line in lines if line.strip() and not line.startswith("#")]  # no comments of CoNLL-U
    tagged = [fields for fields in filled if len(fields) > 1 and is_tag(fields[-1])]
    last = {fields[-1] for fields in tagged}
    others = {fields[-2] for fields in tagged if len(fields) > 2 and is_tag(fields[-2])}  # outer spans
    return len(tagged) >= _AGREEMENT * len(filled) and bool((last | others) - {OUTSIDE})


def is_tag_per_row(values: Collection[str]) -> bool:
    """Whether the values of a column are the tags of single tokens: of two forms at least, as `O` and `B-x`."""
    return OUTSIDE in values and len(values) > 1 and all(map(is_tag, values))


def separator_between_labels(distinct_cells: Collection[str]) -> str | None:
    """The separator of the labels in cells; None if each cell is one label.

    Labels recur in several distinct cells. A slash or `#` may be part of a label, as in `sport/football` and `C#`: then
    no part is the first one in one cell and a later one in another.
    """
    for separator in _LABEL_SEPARATORS:
        if separator == " " and any(map(_LATIN.search, distinct_cells)):
            continue
        split = [[part.strip() for part in cell.split(separator)] for cell in distinct_cells]
        parts = Counter(part for cell in split for part in cell)
        # Labels stand in any order, and the parts of one name do not: `sport/football`, never `football/sport`.
        moved = {cell[0] for cell in split} & {part for cell in split for part in cell[1:]}
        if (moved or separator not in _PARTS_OF_NAMES) and parts.total() >= _RECURRENCE * len(parts):
            return separator
    return None


def mixed_separators(distinct_cells: Collection[str]) -> tuple[tuple[str, ...], list[str]] | None:
    """Several separators in cells and the few labels between them, where no single one separates these; else None."""
    used = tuple(one for one in _MIXED_SEPARATORS if any(one in cell for cell in distinct_cells))
    used = tuple(one for one in used if one not in _PARTS_OF_NAMES or _is_between_labels(one, used, distinct_cells))
    parts = Counter(part for cell in distinct_cells for part in _parts(cell, used))
    alone = sum(times == 1 for times in parts.values())
    few = len(parts) * _COMBINATIONS <= len(distinct_cells) and alone <= max(1, _ALONE * len(parts))
    return (used, sorted(parts)) if len(used) > 1 and few else None


def _is_between_labels(separator: str, used: Sequence[str], cells: Collection[str]) -> bool:
    """Whether what stands around a separator is a label elsewhere: else it is a part of names (`价格##正面`)."""
    others = [one for one in used if one != separator]
    parts = [part for cell in cells for part in _parts(cell, others)]
    around = {one for part in parts if separator in part for one in _parts(part, [separator])}
    return len(around.difference(parts)) <= _ALONE * len(around)


def _parts(cell: str, separators: Sequence[str]) -> list[str]:
    found = re.split("|".join(map(re.escape, separators)), cell) if separators else [cell]
    return [part.strip() for part in found if part.strip()]


def are_measurements(distinct_values: Collection[str]) -> bool:
    """Whether the values of a column are measurements: numbers with fractions, too many different ones for grades."""
    total = len(distinct_values)
    numbers = [value for value in distinct_values if _NUMBER.fullmatch(value.strip())]
    with_fraction = sum("." in value or "," in value for value in numbers)
    return total > _GRADES and len(numbers) >= _AGREEMENT * total and with_fraction * 2 > len(numbers)


def are_numbers(values: Collection[str]) -> bool:
    """Whether all values of a column are plain numbers, at least two."""
    return len(values) > 1 and all(_PLAIN_NUMBER.fullmatch(value.strip()) for value in values)


def are_many_numbers(distinct_values: Collection[str]) -> bool:
    """Whether the values of a column are numbers, and too many different ones for grades."""
    return len(distinct_values) > _GRADES and all(_NUMBER.fullmatch(value.strip()) for value in distinct_values)


def may_be_measurements(labels: Collection[str]) -> bool:
    """Whether labels are numbers that may be measurements: many whole ones, or more halves than a scale of five has."""
    numbers = [float(label) for label in labels if _PLAIN_NUMBER.fullmatch(label)]
    if len(numbers) < _AGREEMENT * len(labels):
        return False
    # 4.5 of five stars is a grade; 20 whole numbers may be classes, and six with fractions hardly are.
    return len(numbers) > (_GRADES if all(number.is_integer() for number in numbers) else _SCALE)


def are_grades(distinct_values: Collection[str]) -> bool:
    """Whether the values of a column beside pairs of texts are grades of similarity: more numbers than classes have."""
    return len(distinct_values) >= _SCALE and are_numbers(distinct_values)


def looks_like_a_row(first: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether the first line of a table is a row and not a header.

    It is a row if one of its cells repeats below (as labels do), is a number or a sentence, or if two cells are equal.
    Known names of columns of texts or labels always make a header.
    """
    cells = [cell.strip() for cell in first]
    if {cell.lower() for cell in cells} & {*TEXT_NAMES, *LABEL_NAMES}:
        return False
    if any(_is_content(cell) for cell in cells) or len(set(cells)) < len(cells):
        return True
    columns = zip(*(row for row in below if len(row) == len(cells)), strict=True)
    return any(_recurs(cell, values) for cell, values in zip(cells, columns, strict=False))  # no columns without rows


def likely_columns(rows: Sequence[Sequence[str]], texts: int = 1) -> tuple[int, ...]:
    """Positions (from 0) of the text columns, which are the `texts` longest ones, and of the label column.

    Labels are in the other column with the fewest values. Empty if there are too few columns.
    """
    widths = Counter(len(row) for row in rows if len(row) > 1).most_common(1)
    width = widths[0][0] if widths else 0
    if width <= texts:
        return ()
    columns = list(zip(*(row for row in rows if len(row) == width), strict=True))
    by_length = sorted(range(width), key=lambda index: -sum(map(len, columns[index])))
    label = min(sorted(by_length[texts:]), key=lambda index: len(set(columns[index])))
    return (*sorted(by_length[:texts]), label)


def _is_content(cell: str) -> bool:
    number = cell.replace(".", "", 1).lstrip("-")
    return number.isdecimal() or len(cell) > _LONGEST_NAME or bool(_SENTENCE & set(cell))


def _recurs(cell: str, values: Sequence[str]) -> bool:
    stripped = [value.strip() for value in values]
    return cell in stripped and len(set(stripped)) <= max(2, len(stripped) // 2)
