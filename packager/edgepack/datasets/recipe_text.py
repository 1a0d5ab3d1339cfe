"""The commented recipe that `edgepack init` drafts."""

from __future__ import annotations

import json
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
from edgepack.datasets.facts import SplitFacts, SplitName
from edgepack.datasets.form import form_by_suffix
from edgepack.datasets.lengths import describe_lengths, suggest_max_length
from edgepack.datasets.texts import shortened
from edgepack.recipe.model import Columns

TEMPLATE: Final = "draft.yaml.txt"
_SHOWN_LABELS: Final = 10
_TRIED_ACCURACY: Final = 0.9
_PLAIN: Final = re.compile(r"[A-Za-z_\u4e00-\u9fff][\w./-]*\Z")
_WORDS_OF_YAML: Final = ("true", "false", "null")
_SPLIT_NAMES: Final = ("train", "dev", "test", "data", "dataset", "all", "labels")  # of files: they name no task
_P95_MS_AT_128: Final = 15
_NAME_CHARACTERS: Final = 48
_WIDTH: Final = 114


@dataclass(frozen=True)
class Draft:
    """What a drafted recipe says about its data.

    Args:
        source: the file it is drafted from.
        recipe: where it will lie; the paths in it start there.
        files: those that the recipe names.
        facts: of their rows.
        notes: what else is worth knowing about them, a comment each.
        label_separator: between the labels of a cell, where a row may have several.
    """

    source: Path
    recipe: Path
    files: Mapping[SplitName, Path]
    columns: Columns
    facts: Mapping[SplitName, SplitFacts]
    notes: Sequence[str]
    label_separator: str = "|"


def recipe_text(draft: Draft) -> str:
    """The recipe as YAML, one that `edgepack check` passes."""
    max_length = suggest_max_length(draft.facts["train"].lengths)
    fields = {
        "source": _printable(draft.source.name),
        "recipe": _printable(draft.recipe.name),
        "name": _name(draft.source),
        "about": _comment((*describe(draft.facts), *draft.notes)),
        "task": draft.columns.task,
        "columns": _columns(draft),
        "max_length": max_length,
        "lengths": _comment([_lengths(draft.facts)]),
        "accuracy": "\n".join(f"    {line}" for line in _accuracy(draft.facts["test"])),
        **_latency(max_length),
    }
    fields |= {name: _scalar(_relative(file, draft.recipe)) for name, file in draft.files.items()}
    template = Template((Path(__file__).parent / TEMPLATE).read_text(encoding="utf-8"))
    return template.substitute(fields)


def _columns(draft: Draft) -> str:
    """Where the texts and labels stand, as lines of the section `data`."""
    if all(form_by_suffix(file).tagged for file in draft.files.values()):
        return "  # Each line is a token and its tag, and a blank line ends a sentence: there are no columns to name."
    named = ", ".join(f"{key}: {_scalar(name)}" for key, name in draft.columns.wanted.items())
    lines = [f"  columns: {{{named}}}"]
    if draft.columns.answer == "labels" and draft.label_separator != "|":
        lines.append(f"  label_separator: {_scalar(draft.label_separator)}")
    return "\n".join(lines)


def _accuracy(test: SplitFacts) -> list[str]:
    """What to know before a limit is set, as lines of the section `accuracy`."""
    if test.columns.answer != "label":
        of = {"spans": "entity_f1 # F1 of exact spans, with their labels", "labels": "micro_f1 # F1 over all labels"}
        return [f"metric: {of[test.columns.answer]}, in the {len(test)} test rows"]
    majority, rows = max(test.label_rows.items(), key=lambda item: item[1])
    known = proportion(round(_TRIED_ACCURACY * len(test)), len(test))
    said = _printable(f"`{shortened(majority)}`")
    return [
        f"# A model that always says {said} has {rows / len(test):.1%} of the {len(test)} test rows right: "
        "`min` must be well above.",
        f"# An accuracy of {known.value:.3f} on them is known to lie between {known.low:.3f} and {known.high:.3f}, and "
        f"passes a `min` below {known.low:.3f}.",
    ]


def describe(facts: Mapping[SplitName, SplitFacts]) -> list[str]:
    """Rows and labels of three splits, in two lines."""
    rows = ", ".join(f"{len(split)} {name}" for name, split in facts.items())
    train = facts["train"]
    ranked = sorted(train.label_rows.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"`{shortened(label)}` {count} ({count / len(train):.1%})" for label, count in ranked[:_SHOWN_LABELS]]
    more = ", ..." if len(ranked) > _SHOWN_LABELS else ""
    return [f"Rows: {rows}.", f"{len(ranked)} labels in train: {', '.join(shown)}{more}."]


def _lengths(facts: Mapping[SplitName, SplitFacts]) -> str:
    return describe_lengths({name: split.lengths for name, split in facts.items()}).capitalize() + "."


def _latency(max_length: int) -> dict[str, int]:
    """Limits that a small model keeps on a current x86 core; the work grows with the length of the texts."""
    p95_ms = _P95_MS_AT_128 * max(1, -(-max_length // 128))
    return {"p50_ms": p95_ms // 3, "p95_ms": p95_ms}


def _name(source: Path) -> str:
    """A name for the bundle from that of the file, or of its folder where the file is only called `train` or so."""
    stem = source.resolve().parent.name if source.stem.lower() in _SPLIT_NAMES else source.stem
    name = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:_NAME_CHARACTERS].strip("-")
    return _scalar(name) if name else "text-classifier"


def _relative(file: Path, recipe: Path) -> str:
    file, folder = file.absolute(), recipe.absolute().parent
    apart = os.path.commonpath([file, folder]) == file.root  # a path through the root says nothing of where they lie
    return str(file) if apart else os.path.relpath(file, folder)


def _scalar(text: str) -> str:
    """`text` as a YAML scalar. A dollar sign is doubled, as recipes fill in variables."""
    text = text.replace("$", "$$")
    if _PLAIN.match(text) and text.lower() not in _WORDS_OF_YAML:
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _comment(lines: Iterable[str]) -> str:
    """`lines` as comments of a section."""
    wrapped = (textwrap.wrap(_printable(line), _WIDTH, break_long_words=False) for line in lines)
    return "\n".join(f"  # {line}" for line in chain.from_iterable(wrapped))


def _printable(text: str) -> str:
    """`text` on one line, with nothing that moves a cursor."""
    return "".join(character if character.isprintable() else "?" for character in text)
