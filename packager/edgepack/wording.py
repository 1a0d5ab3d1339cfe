"""How times, sizes, counts and foreign texts are written for people."""

from __future__ import annotations

import re
from typing import Final

# Control characters move cursors, bidirectional overrides reorder what is read: both are shown, not obeyed.
_UNSAFE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def safe(text: object) -> str:
    """`text` with whatever a terminal would obey shown as an escape."""
    return _UNSAFE.sub(lambda match: f"\\u{ord(match.group()):04x}", str(text))


def duration(seconds: float) -> str:
    """`12.3 s`, `5 min 50 s`, `2 h 05 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def mib(size_bytes: int) -> str:
    """`4.8 MiB`."""
    return f"{size_bytes / 2**20:.1f} MiB"


def metric_name(metric: str) -> str:
    """A metric of `edgepack_runtime.metrics` in words: `entity_f1` -> `entity F1`."""
    return metric.replace("_", " ").replace("f1", "F1")


def counted(number: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
