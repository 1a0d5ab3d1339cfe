"""Formatting of times, sizes, counts, verdicts and external texts; differences of nested documents."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edgepack_runtime.errors import printable, unheard
from edgepack_runtime.util.texts import counted as counted  # one for both sides


def unprintable_replaced(text: str) -> str:
    """`text` on one line, with `?` for what cannot be printed: for files that people read."""
    return "".join(character if character.isprintable() else "?" for character in text)


def safe(text: object) -> str:
    """`text` as one line that does nothing to a terminal, and is no command to a CI server."""
    return printable(str(text))


def safe_lines(text: object, indent: str) -> str:
    """`text` as safe lines, with `indent` before each line after the first."""
    return ("\n" + indent).join(map(safe, str(text).split("\n")))


def json_text(document: object, **options: Any) -> str:
    """`document` as JSON for standard output. The text is as safe as that of `safe`; Chinese is not escaped.

    Args:
        options: of `json.dumps`.
    """
    lines = json.dumps(document, ensure_ascii=False, **options).split("\n")
    return unheard("\n".join(line if line.isprintable() else "".join(map(_escaped, line)) for line in lines))


def _escaped(character: str) -> str:
    return character if character.isprintable() else json.dumps(character)[1:-1]


def as_text(value: object) -> str:
    """`value` of a JSON document: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def duration(seconds: float) -> str:
    """A duration: `12.3 s`, `5 min 50 s`, `2 h 05 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def rounded_duration(seconds: float) -> str:
    """An estimated duration: `8 s`, `3 min`, `2 h`. It is at least a second."""
    if seconds < 59.5:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{round(seconds / 3600)} h"


def shortest(path: Path) -> str:
    """`path` relative to the working directory if it lies below it, else as it is."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def two_digits_up(value: float) -> str:
    """A positive value, rounded up to two significant digits: `1.3` for 1.21, `120` for 113."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{math.ceil(value / step - 1e-9) * step:.6g}"  # 1.2 / 0.1 is above 12


def mib(size_bytes: int) -> str:
    """`4.8 MiB`."""
    return f"{size_bytes / 2**20:.1f} MiB"


def metric_name(metric: str) -> str:
    """A metric of `edgepack_runtime.stats.metrics` in words: `entity_f1` -> `entity F1`."""
    return metric.replace("_", " ").replace("f1", "F1")


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Dotted name -> old and new value, for all values that differ; None for a missing value."""
    one, two = dict(flat(before)), dict(flat(after))
    names = sorted({*one, *two})
    return {name: (one.get(name), two.get(name)) for name in names if one.get(name) != two.get(name)}


def flat(value: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested mappings with their dotted names, below the name `above`."""
    if not isinstance(value, Mapping):
        yield above, value
        return
    for key, below in value.items():
        yield from flat(below, f"{above}.{key}" if above else str(key))
