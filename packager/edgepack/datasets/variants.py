"""Labels that a person takes for one and a model for two: they differ in case, width, white space, or invisibly."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from edgepack.datasets.facts import SplitFacts
from edgepack.datasets.texts import shortened, without_unseen
from edgepack.wording import counted

# What a difference is called, and what takes it away; the first that does is named.
_DIFFERENCES: Final[Sequence[tuple[str, Callable[[str], str]]]] = (
    ("in white space", lambda label: "".join(label.split())),
    ("in characters that are not seen", without_unseen),
    ("in how their characters are composed (Unicode NFC or NFD)", lambda label: unicodedata.normalize("NFC", label)),
    ("in case", str.casefold),
    ("in width, full or half", lambda label: unicodedata.normalize("NFKC", label)),
)


def check_variants(splits: Sequence[SplitFacts]) -> None:
    """Warn, where it first comes up, of each label that looks like one with more rows."""
    rows: Counter[str] = Counter()
    first: dict[str, SplitFacts] = {}
    alike: dict[str, list[str]] = {}
    for split in splits:
        rows.update(split.label_rows)
        for label in split.label_rows:
            if first.setdefault(label, split) is split:
                alike.setdefault(_folded(label), []).append(label)
    for labels in alike.values():
        usual = max(labels, key=lambda label: rows[label])
        for label in labels:
            if label != usual:
                where = f"{first[usual].file.name}:{first[usual].label_lines[usual]}"
                reason = (
                    f"the label `{shortened(label)}` ({counted(rows[label], 'row')}, the first here) differs from "
                    f"`{shortened(usual)}` ({counted(rows[usual], 'row')}, the first at {where}) "
                    f"{_difference(label, usual)}: to a model they are two"
                )
                line, fix = first[label].label_lines[label], f"write `{shortened(usual)}` everywhere"
                first[label].log.add("labels that look alike", "warning", line, reason, fix)


def _folded(label: str) -> str:
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", label).casefold())
    return without_unseen(folded) or label


def _difference(first: str, second: str) -> str:
    named = [name for name, fold in _DIFFERENCES if fold(first) == fold(second)]
    return named[0] if named else "in more than one of case, width, white space and characters that are not seen"
