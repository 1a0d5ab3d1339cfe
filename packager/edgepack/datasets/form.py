"""How a table is written: its separator and its encoding. A recipe's files say it by their suffix."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Form:
    """`separator` is null for JSON lines. `encoding` is one of Python's; a recipe's files are all UTF-8."""

    separator: str | None
    encoding: str = "utf-8"


def form_by_suffix(file: Path) -> Form:
    """What a file named so is taken for: .jsonl is JSON lines, .csv has commas, anything else tabs."""
    return {".jsonl": Form(None), ".csv": Form(",")}.get(file.suffix.lower(), Form("\t"))
