"""How a table fits into a terminal: which columns get narrower, and where long names go on in the next line."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import cell_len

_JOINTS = re.compile(r"[^._]*[._]+|[^._]+")  # `latency.max_tokens_32` is made of `latency.`, `max_`, `tokens_` and `32`


def widths(columns: Sequence[Sequence[str]], least: Sequence[int], order: Sequence[int], room: int) -> list[int] | None:
    """How wide each of `columns` (the texts in it) may be to take `room` together, without the gaps between them.

    Only those in `order` give way, each down to its `least` before the next one does. None where that is not enough.
    """
    found = [max(map(cell_len, column)) for column in columns]
    for place in order:
        found[place] -= min(max(sum(found) - room, 0), max(found[place] - least[place], 0))
    return found if sum(found) <= room else None


def longest_word(texts: Sequence[str]) -> int:
    """How wide a column of `texts` is where they go on in the next line between words."""
    return max((cell_len(word) for text in texts for word in text.split()), default=0)


def longest_part(names: Sequence[str]) -> int:
    """How wide a column of `names` is where they go on in the next line after a `.` or `_`."""
    return max((cell_len(part) for name in names for part in _JOINTS.findall(name)), default=0)


def at_joints(name: str, width: int) -> str:
    """`name` with line feeds after a `.` or `_`, so that lines have at most `width` columns where its parts do."""
    lines = [""]
    for part in _JOINTS.findall(name):
        if lines[-1] and cell_len(lines[-1] + part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)
