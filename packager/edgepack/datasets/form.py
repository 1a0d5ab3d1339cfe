"""How a data file is written: its separator and its encoding. A recipe's files say it by their suffix."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgepack.recipe.columns import TAGGED_SUFFIXES


@dataclass(frozen=True)
class Form:
    """`separator` is null for JSON lines, and for CoNLL, which is `tagged`: a token and its tag on each line.

    `encoding` is one of Python's; a recipe's files are all UTF-8.
    """

    separator: str | None
    encoding: str = "utf-8"
    tagged: bool = False


def form_by_suffix(file: Path) -> Form:
    """What a file named so is taken for: .jsonl is JSON lines, .conll and .bio CoNLL, .csv has commas, others tabs."""
    suffix = file.suffix.lower()
    if suffix in TAGGED_SUFFIXES:
        return Form(None, tagged=True)
    return {".jsonl": Form(None), ".csv": Form(",")}.get(suffix, Form("\t"))
