"""Text of the commented recipe that `edgepack init` drafts."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from string import Template
from typing import Final

from edgepack.artifacts import proportion
from edgepack.data.files import format_of
from edgepack.data.gates import (
    MOST_GATED_ROWS,
    SUGGESTED_DROPS,
    check_majority,
    drop_half_width,
    rows_for_drop,
    suggested_drop,
    suggested_min,
)
from edgepack.data.lengths import describe_lengths, suggest_max_length
from edgepack.data.split_stats import SplitFacts
from edgepack.messages import local, message
from edgepack.recipe import hub
from edgepack.recipe.model import CALIBRATION_ROWS, LEAST_CALIBRATION_ROWS, Columns, LabelSeparator, SplitName
from edgepack.recipe.yaml import scalar
from edgepack.util.text import mib, unprintable_replaced
from edgepack.util.text_digests import shortened
from edgepack_runtime.messages import CHINESE, language
from edgepack_runtime.rows.formats import TAGGED
from edgepack_runtime.stats import metrics
from edgepack_runtime.stats.intervals import CONFIDENCE

TEMPLATE: Final = "draft.yaml.txt"
TEACHER: Final = "ernie-3.0-medium-zh"
STUDENT: Final = "ernie-3.0-tiny-nano-v2-zh"
_SHOWN_LABELS: Final = 10
_TRIED_ACCURACY: Final = 0.9
_SPLIT_NAMES: Final = ("train", "dev", "test", "data", "dataset", "all", "labels")  # file names that name no task
_NAME_CHARACTERS: Final = 48
_WIDTH: Final = 114
_BREAK: Final = "\0"  # where a line may end without a space; no printable text has it


@dataclass(frozen=True)
class Draft:
    """Facts about the data of a drafted recipe.

    Attributes:
        source: the file from which it is drafted.
        recipe: path of the recipe, to which its paths are relative.
        files: files that the recipe names.
        facts: statistics of their rows.
        notes: further comments.
        label_separator: separator of labels in a cell, if a row may have several.
    """

    source: Path
    recipe: Path
    files: Mapping[SplitName, Path]
    columns: Columns
    facts: Mapping[SplitName, SplitFacts]
    notes: Sequence[str]
    label_separator: LabelSeparator = "|"


def recipe_text(draft: Draft) -> str:
    """The recipe as YAML, which `edgepack check` accepts unless the data have errors."""
    max_length = suggest_max_length(draft.facts["train"].lengths)
    fields = {
        "source": unprintable_replaced(draft.source.name),
        "recipe": unprintable_replaced(draft.recipe.name),
        "name": _name(draft.source),
        "about": _comment((*describe(draft.facts), *draft.notes)),
        "task": draft.columns.task,
        "columns": _columns(draft),
        "max_length": max_length,
        "lengths": _comment([_lengths(draft.facts)]),
        "accuracy": _accuracy(draft.facts["test"]),
        "teacher": TEACHER,
        "teacher_size": mib(hub.model(TEACHER).size_bytes or 0),
        "student": STUDENT,
        "student_size": mib(hub.model(STUDENT).size_bytes or 0),
        "calibration_rows": max(LEAST_CALIBRATION_ROWS, min(CALIBRATION_ROWS, len(draft.facts["train"]))),
    }
    fields |= {name: scalar(_relative(file, draft.recipe)) for name, file in draft.files.items()}
    template = Template((Path(__file__).parent / TEMPLATE).read_text(encoding="utf-8"))
    named = {found["named"] or found["braced"] for found in template.pattern.finditer(template.template)}
    comments = {name: local(message(f"draft.{name}", **fields)) for name in named - fields.keys()}
    return template.substitute(fields | comments)


def folder_recipe(folder: Path, recipe: Path) -> str:
    """The recipe of a model that is trained already, for rows that the user has to name."""
    given = scalar(_relative(folder, recipe))
    head = f"edgepack: 1\nname: {_name(folder)}\nversion: 0.1.0\n"
    return f"{head}model: {{folder: {given}}}\ndata: {{test: ROWS.xlsx, columns: {{text: TEXT, label: LABEL}}}}"


def _columns(draft: Draft) -> str:
    """Lines of the section `data` that name the columns of texts and labels."""
    if all(format_of(file).kind == TAGGED for file in draft.files.values()):
        return _comment([message("draft.no_columns")])
    columns = draft.columns
    if isinstance(columns.labels, tuple):
        named = {key: scalar(name) for key, name in columns.texts.items()}
        named["labels"] = f"[{', '.join(map(scalar, columns.labels))}]"
    else:
        named = {key: scalar(name) for key, name in columns.wanted.items()}
    lines = [f"  columns: {{{', '.join(f'{key}: {name}' for key, name in named.items())}}}"]
    if draft.columns.text_task.multi_label and draft.label_separator != "|":
        several = [] if isinstance(draft.label_separator, str) else draft.label_separator
        shown = f"[{', '.join(map(scalar, several))}]" if several else scalar(str(draft.label_separator))
        lines.append(f"  label_separator: {shown}")
    return "\n".join(lines)


def _accuracy(test: SplitFacts) -> str:
    """Lines of the accuracy gate, with limits that so many test rows can show; others are comments."""
    if not test.task.labelled:
        return _drop_gate(test)
    metric, rows = _measure(test)
    what = message("draft.of_metric", metric=message(f"metric.{metric}"), rows=len(test))
    of = [] if metric == metrics.ACCURACY else [f"metric: {metric} # {local(what)}"]
    least = suggested_min(_majority(test), min(len(test), MOST_GATED_ROWS), CONFIDENCE)
    limit = f"min: {least:.2g} # {local(message('draft.raise'))}"
    points = suggested_drop(rows, CONFIDENCE)
    if points is None:
        drop = [f"# {local(_too_few(test))}", f"# max_drop_points: {SUGGESTED_DROPS[-1]}"]
    else:
        shown = message("draft.may_lose", rows=rows, points=drop_half_width(rows, CONFIDENCE))
        drop = [f"max_drop_points: {points} # {local(shown)}"]
    lines = [*(f"# {local(line)}" for line in _known(test)), *of, limit, *drop, f"confidence: {CONFIDENCE}"]
    return "\n".join(["  accuracy:", *(f"    {line}" for line in lines)])


def _drop_gate(test: SplitFacts) -> str:
    """Lines of the gate of answers that are no labels: the floor of every build is to be better than a constant."""
    metric = message(f"metric.{test.task.usual_metric}")
    points = SUGGESTED_DROPS[0]
    lines = [
        f"metric: {test.task.usual_metric} # {local(message('draft.of_metric', metric=metric, rows=len(test)))}",
        f"max_drop_points: {points} # {local(message('draft.may_lose_points'))}",
        f"confidence: {CONFIDENCE}",
    ]
    return "\n".join(["  accuracy:", *(f"    {line}" for line in lines)])


def _majority(test: SplitFacts) -> float:
    """Score of the most frequent answer to every text, in the metric that a draft suggests."""
    rows = max(test.label_rows.values(), default=0)
    if test.task.one_class:
        return rows / max(1, len(test))
    return 2 * rows / max(1, len(test) + test.all_labels) if test.task.multi_label else 0.0


def _known(test: SplitFacts) -> list[str]:
    """Comment for the choice of `min`."""
    if not test.task.one_class or not len(test):
        return []
    majority = max(test.label_rows, key=lambda label: test.label_rows[label])
    known = proportion(round(_TRIED_ACCURACY * len(test)), len(test), CONFIDENCE)
    said = unprintable_replaced(f"`{shortened(majority)}`")
    return [
        message("draft.majority", said=said, share=_majority(test), rows=len(test)),
        message("draft.known", value=known.value, low=known.low, high=known.high),
    ]


def too_few_for_drop(test: SplitFacts) -> str | None:
    """Why a draft has no limit for the loss of INT8; None if it has one."""
    if not test.task.labelled:
        return None
    return _too_few(test) if suggested_drop(_measure(test)[1], CONFIDENCE) is None else None


def too_few_for_majority(test: SplitFacts) -> tuple[str, str] | None:
    """Reason and fix if the rows would not prove most good models better than the most frequent answer; else None."""
    if not test.task.one_class:
        return None
    most, rows = max(test.label_rows.values(), default=0), len(test)
    scale = min(1.0, MOST_GATED_ROWS / max(rows, 1))
    return next(check_majority(round(most * scale), round(rows * scale), CONFIDENCE), None)


def _too_few(test: SplitFacts) -> str:
    points = drop_half_width(_measure(test)[1], CONFIDENCE)
    needed, limit = rows_for_drop(CONFIDENCE), SUGGESTED_DROPS[-1]
    return message("draft.too_few", n=len(test), points=points, needed=needed, limit=limit)


def _measure(test: SplitFacts) -> tuple[str, int]:
    """The metric that a draft suggests, and the number of its test rows."""
    metric = test.task.usual_metric
    return metric, min(len(test), MOST_GATED_ROWS) if test.task.one_class or test.all_labels else 0


def describe(facts: Mapping[SplitName, SplitFacts]) -> list[str]:
    """Rows and labels of three splits, in two lines."""
    rows = [f"{len(split)} {name}" for name, split in facts.items()]
    train = facts["train"]
    if not train.task.labelled and not train.numbers:
        return [message("draft.rows", parts=rows)]
    if not train.task.labelled:
        ordered = sorted(train.numbers)
        shown = [f"{value:g}" for value in (ordered[0], ordered[len(ordered) // 2], ordered[-1])]
        about = message("draft.numbers_in_train", least=shown[0], median=shown[1], most=shown[2])
        return [message("draft.rows", parts=rows), about]
    ranked = sorted(train.label_rows.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"`{shortened(label)}` {count} ({count / len(train):.1%})" for label, count in ranked[:_SHOWN_LABELS]]
    shown += ["..."] if len(ranked) > _SHOWN_LABELS else []
    return [message("draft.rows", parts=rows), message("draft.labels_in_train", n=len(ranked), shown=shown)]


def _lengths(facts: Mapping[SplitName, SplitFacts]) -> str:
    parts = describe_lengths({name: split.lengths for name, split in facts.items()}).fields["parts"]
    return message("draft.estimated", parts=parts)


def _name(source: Path) -> str:
    """A bundle name from the file's name, or from its folder's if the file has a generic name such as `train`."""
    stem = source.resolve().parent.name if source.stem.lower() in _SPLIT_NAMES else source.stem
    name = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:_NAME_CHARACTERS].strip("-")
    return scalar(name) if name else "text-classifier"


def _relative(file: Path, recipe: Path) -> str:
    file, folder = file.absolute(), recipe.absolute().parent
    apart = os.path.commonpath([file, folder]) == file.root  # a path through the root says nothing of where they lie
    return str(file) if apart else os.path.relpath(file, folder)


def _comment(lines: Iterable[str]) -> str:
    wrapped = (_wrapped(unprintable_replaced(local(line))) for line in lines)
    return "\n".join(f"  # {line}" for line in chain.from_iterable(wrapped))


def _wrapped(line: str) -> list[str]:
    """The lines of a comment. A Chinese one is broken behind its punctuation, and its characters are wide."""
    chinese = language() == CHINESE
    marked = re.sub("([，；：。])", rf"\1{_BREAK} ", line) if chinese else line
    found = textwrap.wrap(marked, _WIDTH // 2 if chinese else _WIDTH, break_long_words=False)
    return [one.replace(f"{_BREAK} ", "").replace(_BREAK, "") for one in found]
