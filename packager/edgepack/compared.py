"""Builds side by side, as a table and lines; `console.Console` prints them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from edgepack.report import NOTHING, quantity, span
from edgepack.tables import STYLES, shown, table
from edgepack.wording import metric_name, mib, safe

if TYPE_CHECKING:
    from edgepack.history import History, Row

_HEADS: Final = ("build", "target", "verdict", "score", "interval", "n", "p50 ms", "p95 ms", "MiB", "packed MiB")
_NAMED: Final = 2  # the first of them, which say whose the others are
_SCORED: Final = 6  # the first of them, of which the last tell how good it is
_MOST_NAMED: Final = 5  # builds, in a line about some of them
_DOUBTED, _OTHER_ROWS = "*", "**"  # behind times, and behind scores
_MOST_CHANGES: Final = 30  # of a build; more of them are another recipe


def builds(found: History, *, live: bool, width: int) -> Iterator[Table | Text]:
    """A row for each build and target; below, what changed from each build to the next.

    Where `width` columns cannot hold the rows, what a build costs stands in a table below that of its scores.
    """
    rows = [[safe(row.build), safe(row.target), safe(row.verdict), *_figures(row)] for row in found.rows]
    gap = 3 if live else 2  # between two columns of `table`
    room = width + gap - sum(max(map(cell_len, column)) + gap for column in zip(_HEADS, *rows, strict=True))
    places = range(len(_HEADS))
    for chosen in (places,) if room >= 0 else (places[:_SCORED], (*places[:_NAMED], *places[_SCORED:])):
        made = table(live, *(_HEADS[place] for place in chosen))
        for column in made.columns[:_NAMED]:  # of names that are cut, nobody knows whose figures these are
            column.no_wrap, column.overflow = False, "fold"
        for row in rows:
            made.add_row(*(_cell(row[place]) for place in chosen))
        yield made
    yield from _marked(found)
    cpus = {row.cpu for row in found.rows if row.cpu is not None}
    if len(cpus) > 1:
        yield Text(safe(f"times are from different CPUs, and cannot be compared: {', '.join(sorted(cpus))}"), "yellow")
    threads = {row.threads for row in found.rows if row.threads is not None}
    if len(threads) > 1:
        told = _listed([f"{_named(row, found)}: {row.threads}" for row in found.rows if row.threads is not None])
        yield Text(safe(f"times are with different numbers of threads: {told}"), "yellow")
    metrics = {row.score.metric for row in found.rows if row.score is not None}
    if len(metrics) > 1:
        yield Text(f"scores are of different metrics: {', '.join(map(metric_name, sorted(metrics)))}", "yellow")
    for change in found.changes:
        yield Text(safe(f"{change.before} -> {change.after}"), "bold")
        yield from _changes(change.values)


def _marked(found: History) -> Iterator[Text]:
    """What the marks behind figures mean, and of which builds."""
    doubted = [f"{_named(row, found)}: {', '.join(row.doubts)}" for row in found.rows if row.doubts]
    if doubted:
        words = "may be the machine's rather than the model's"
        yield Text(safe(f"{_DOUBTED} times that {words}: {_listed(doubted)}"), "yellow")
    others = [_named(row, found) for row in found.rows if row.same_rows is False]
    if others:
        words = "scores on other test rows than those of the build before"
        yield Text(safe(f"{_OTHER_ROWS} {words}: {_listed(others)}"), "yellow")


def _named(row: Row, found: History) -> str:
    several = len({one.target for one in found.rows}) > 1
    return f"{row.build} on {row.target}" if several else row.build


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return "; ".join(names[:_MOST_NAMED]) + (f"; and {more} more: --json has them all" if more > 0 else "")


def _cell(text: str) -> Text:
    return Text(text, STYLES.get(text, ""))


def _figures(row: Row) -> Iterator[str]:
    score = row.score
    other_rows = f" {_OTHER_ROWS}" if row.same_rows is False else ""
    yield NOTHING if score is None else quantity(score.value, "fraction") + other_rows
    yield NOTHING if score is None else span(score.low, score.high, "fraction")
    yield NOTHING if score is None else str(score.n)
    for milliseconds in (row.p50_ms, row.p95_ms):
        doubted = _DOUBTED if row.doubts and milliseconds is not None else ""
        yield quantity(milliseconds, "ms").removesuffix(" ms") + doubted
    for size_bytes in (row.onnx_bytes, row.bundle_bytes):
        yield NOTHING if size_bytes is None else mib(size_bytes).removesuffix(" MiB")


def _changes(values: Any) -> Iterator[Text]:
    if not values:
        yield Text("  the same recipe, data and tools")
    for name, (before, after) in list(values.items())[:_MOST_CHANGES]:
        yield Text(safe(f"  {name}: {shown(before)} -> {shown(after)}"))
    if len(values) > _MOST_CHANGES:
        yield Text(f"  and {len(values) - _MOST_CHANGES} more: --json has them all", "dim")
