"""Tables and lines for a terminal or a log: cells, widths, and the table of content checks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.cells import cell_len
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from edgepack.report import NOTHING
from edgepack.util.text import UNGATED, metric_name, mib, safe

if TYPE_CHECKING:
    from edgepack.artifacts import BundleArtifact, Check
    from edgepack.console.target_tables import Short
    from edgepack.pipeline.plan import Plan


STYLES: Final = {
    "pass": "green",
    "fail": "bold red",
    "inconclusive": "yellow",
    "not run here": "yellow",
    UNGATED: "yellow",
    "error": "red",
    "warning": "yellow",
}
_NUMERIC: Final = (
    "MiB",
    "packed MiB",
    "on the device MiB",
    "p50 ms",
    "p95 ms",
    "drift",
    "value",
    "limit",
    "n",
)


def targets(found: Sequence[Short], *, live: bool) -> Iterator[Table | Text]:
    """Profiles, a row each."""
    made = table(live, "target", "Python", "glibc", "runs on", "wheels", "runs here")
    for one in found:
        wheels = "not locked" if one.wheels is None else f"{one.wheels} locked"
        wheels = f"{wheels}, 1 by path" if one.by_path else wheels
        here = "yes" if one.runs_here else "no"
        made.add_row(safe(one.name), one.python, one.glibc or "any", one.provider, wheels, here)
    yield made
    yield Text("")
    yield from (Text(safe(f"{one.name}: {one.summary}")) for one in found)


def facts(found: Mapping[str, Any]) -> Iterator[Text]:
    """Facts by name, a line each; those of what is inside follow, indented."""
    width = max(map(len, found))
    for name, value in found.items():
        if isinstance(value, Mapping):
            yield Text(safe(name))
            yield from (Text(safe(f"  {key}: {shown(inner)}")) for key, inner in value.items())
        else:
            yield Text(safe(f"{name:<{width}}  {shown(value)}"))


def plan(made: Plan, *, live: bool) -> Iterator[Table | Text]:
    """Every resolved value, defaults dimmed (or marked, where there are no colours), then the stages."""
    width = max(len(value.key) for value in made.values)
    for value in made.values:
        line = f"{value.key:<{width}}  {safe(json.dumps(value.value, ensure_ascii=False))}"
        yield Text(line) if value.given else Text(line if live else f"{line}  (default)", style="dim")
    yield Text("")
    stages = table(live, "stage", "target", "state", "note")
    for stage in made.stages:
        note = "; ".join(str(part) for part in (stage.candidate, stage.about, stage.folder) if part)
        stages.add_row(stage.stage, safe(stage.target or NOTHING), stage.state, safe(note))
    yield stages


def shown(value: Any) -> str:
    """A value of a recipe or a manifest; `-` where there is none."""
    return (
        NOTHING if value is None else safe(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    )


def gap(live: bool) -> int:
    """Columns between two of `table`."""
    return 3 if live else 2


def table(live: bool, first: str, *columns: str) -> Table:
    """An empty table; `live` draws a rule below its head. Columns with figures stand to the right."""
    made = Table(
        box=box.SIMPLE_HEAD if live else None,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1) if live else (0, 2, 0, 0),
        header_style="bold",
    )
    made.add_column(first, no_wrap=True)
    for name in columns:
        justify: JustifyMethod = "right" if name in _NUMERIC else "left"
        if name in ("note", "before", "after", "candidate"):
            made.add_column(name, overflow="fold")
        else:  # a figure that does not fit ends in an ellipsis, so that its head is not read as all of it
            made.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis")
    return made


def wide(heads: Sequence[str], rows: Sequence[Sequence[str]], live: bool) -> int:
    """Columns that `table` takes when nothing is cut."""
    return sum(max(map(cell_len, column)) for column in zip(heads, *rows, strict=True)) + gap(live) * (len(heads) - 1)


def one_by_one(titles: Sequence[Text], heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[Text]:
    """In place of a table that does not fit: a line with the title of each row, and one for each figure that it has."""
    for title, figures in zip(titles, rows, strict=True):
        yield title
        for head, figure in zip(heads, figures, strict=True):
            if figure != NOTHING:
                yield Text(f"  {head} {figure}")


def mib_column(size_bytes: int) -> str:
    """A size below a head that says MiB."""
    return mib(size_bytes).removesuffix(" MiB")


def score_head(metrics: Sequence[str]) -> str:
    """What stands above scores in `metrics`: the name of the only one."""
    return metric_name(metrics[0]) if len(metrics) == 1 else "score"


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


def checks(bundles: Sequence[BundleArtifact], *, live: bool) -> Iterator[Table | Text]:
    """A row for each bundle, a column for each check; below them GPUs, which take more room, and what is to be told."""
    columns = list(dict.fromkeys(check.check for one in bundles for check in one.checks.passed if not check.package))
    if not columns:
        return
    made = table(live, "checked for", *columns)
    for one in bundles:
        found = {check.check: _cell(check) for check in one.checks.passed}
        made.add_row(safe(one.target), *(safe(found.get(column, NOTHING)) for column in columns))
    yield made
    yield Text("found, and what the target allows; where it does not say, the device compares", style="dim")
    for one in bundles:
        for check in one.checks.passed:
            if check.package:
                yield Text(safe(f"{one.target}: {check.package}: {check.found}; {check.allowed}"))
        for line in one.checks.notes:
            yield Text(safe(f"{one.target}: {line}"))


def _cell(check: Check) -> str:
    return f"{check.found} {check.allowed}".rstrip()
