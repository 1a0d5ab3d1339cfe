"""Plots of the report: score of stages and candidates, latency, and what INT8 costs each part of a model.

Kinds differ by hatching or shape, not only by colour. Axes show units and metrics; the page has the words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from edgepack.artifacts import LedgerRow, PartCost
from edgepack.report import svg
from edgepack.report.model import Report
from edgepack.report.svg import ACCENT, LIMIT, SECOND
from edgepack.util.text import metric_name
from edgepack_runtime.schema.figures import UNITS, quantity
from edgepack_runtime.schema.receipt import GateReceipt
from edgepack_runtime.stats.metrics import metric_of

_SAME_PERCENT: Final = 1e-4  # receipts round a fraction to six digits, and one row of 100,000 is ten times as much
_BUBBLE: Final = 600  # square points, of the largest file
_LIMITED: Final = ("p50_ms", "p95_ms", "p99_ms")
_FAR: Final = 1.3  # times the slowest answer: a limit beyond that would squeeze the curve
_TICKS: Final = 5  # at most, of times: there may be many targets
_WIDE: Final = 5.0  # from where on the slowest answer against the fastest makes the axis logarithmic
MOST_PARTS: Final = 20  # of a model, that a plot has room for


def accuracy(figure: Figure, rows: Sequence[LedgerRow], gate: Mapping[str, Any] | None = None) -> None:
    """Score with interval of each ledger row, all in one metric, and the limit of the accuracy `gate` as a line."""
    (metric,) = {row.score.metric for row in rows}
    unit = metric_of(metric).unit
    factor = UNITS[unit].factor
    axes = figure.subplots()
    svg.named_rows(axes, [row.stage for row in rows])
    for y, row in enumerate(rows):
        value, low, high = (factor * end for end in (row.score.value, row.score.low, row.score.high))
        axes.plot([low, high], [y, y], color=ACCENT, linewidth=2, solid_capstyle="butt")
        axes.plot([value], [y], "o", color=ACCENT, markersize=7)
        axes.annotate(
            quantity(row.score.value, unit, with_unit=False),
            (value, y),
            (0, 8),
            textcoords="offset points",
            ha="center",
            fontsize=9,
        )
    for key, sign in (("min", "≥"), ("max", "≤")):
        if gate is not None and gate[key] is not None and gate["metric"] == metric:
            axes.axvline(factor * gate[key], color=LIMIT, linewidth=1.2, linestyle=(0, (4, 3)))
            axes.set_title(f"{sign} {quantity(gate[key], unit)}")
    axes.set_xlabel(_score_axis(metric, unit))


def candidates(figure: Figure, report: Report) -> None:
    """Score against p50 of each candidate as a bubble of its size, with the Pareto front."""
    axes = figure.subplots()
    assert report.selection is not None
    found = report.selection.candidates
    unit = found[0].dev_score.unit
    factor = UNITS[unit].factor
    points = [(one.p50_ms, factor * one.dev_score.value) for one in found]
    largest = max(one.onnx_bytes for one in found)
    _front(axes, points)
    for number, (one, (x, y)) in enumerate(zip(found, points, strict=True), 1):
        area = _BUBBLE * one.onnx_bytes / largest  # in square points
        colour, rim = (LIMIT, (0, (2, 1.5))) if one.missed else (SECOND, "solid")
        inside = ACCENT if one.name == report.selection.chosen else "none"
        look: Any = {"facecolors": inside, "edgecolors": colour, "linewidths": 1.5, "linestyles": [rim], "alpha": 0.8}
        axes.scatter([x], [y], s=area, **look, zorder=2)
        above = math.sqrt(area / math.pi) + 3
        axes.annotate(str(number), (x, y), (0, above), textcoords="offset points", ha="center", fontsize=9)
    gates, metric = report.recipe["gates"], found[0].dev_score.metric
    right, latency = gates["accuracy"] or {}, gates["latency"] or {}
    timed_alike = latency.get("threads") == 1
    _limits(
        axes,
        points,
        latency.get("p50_ms") if timed_alike else None,
        right.get("min") if right.get("metric") == metric else None,
        unit,
    )
    axes.set_xlabel("p50, ms")
    axes.set_ylabel(_score_axis(metric, unit))


def _score_axis(metric: str, unit: str) -> str:
    sign = UNITS[unit].sign
    return f"{metric_name(metric)},{sign}" if sign else metric_name(metric)


def pareto(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The Pareto front of (cost, score), cheapest first. Scores that a receipt shows as equal are equal."""
    front: list[tuple[float, float]] = []
    for cost, score in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or score > front[-1][1] + _SAME_PERCENT:
            front.append((cost, score))
    return front


def _front(axes: Axes, points: Sequence[tuple[float, float]]) -> None:
    """Draw the Pareto front through (ms, score)."""
    axes.plot(*zip(*pareto(points), strict=True), color=SECOND, linewidth=1.5, drawstyle="steps-post", zorder=1)


def _limits(
    axes: Axes, points: Sequence[tuple[float, float]], p50_ms: float | None, least: float | None, unit: str
) -> None:
    """Draw the limits of the gates on p50 and score (in its unit) as dashed lines, with their names above."""
    axes.margins(0.15)
    named = []
    if least is not None:
        place = UNITS[unit].factor * least
        named.append(f"≥ {quantity(least, unit)}{svg.limit(axes, 'y', place, [y for _, y in points])}")
    if p50_ms is not None:
        named.append(f"≤ {p50_ms:g} ms{svg.limit(axes, 'x', p50_ms, [x for x, _ in points])}")
    axes.set_title(", ".join(named))
    axes.grid(linewidth=0.6)
    axes.set_axisbelow(True)


def shares(distribution: Mapping[str, float]) -> list[tuple[float, float]]:
    """The points (ms, percent of answers within this time) of a receipt's `latency.distribution`, in order."""
    ends = {"min_ms": 0.0, "max_ms": 100.0}
    found = [(ms, ends[key] if key in ends else _percent(key)) for key, ms in distribution.items()]
    return sorted(found, key=lambda point: point[1])


def latency(figure: Figure, receipt: GateReceipt) -> None:
    """Cumulative distribution of latency, with the limits of the percentile gates."""
    axes = figure.subplots()
    assert receipt.latency is not None
    points = shares(receipt.latency.distribution)
    _cumulative(axes, points)
    limits = {check.gate.removeprefix("latency."): check.limit for check in receipt.checks}
    named = []
    for key in [key for key in _LIMITED if key in limits]:
        near = limits[key] <= _FAR * points[-1][0]
        if near:  # a dashed line that the curve has to reach its height left of
            axes.plot([limits[key]] * 2, [0, _percent(key)], color=LIMIT, linewidth=1.2, linestyle=(0, (4, 3)))
            axes.plot([limits[key]], [_percent(key)], "_", color=LIMIT, markersize=12, markeredgewidth=2)
        named.append(f"{key.removesuffix('_ms')} ≤ {limits[key]:g} ms{'' if near else ' →'}")
    axes.set_title(", ".join(named))
    axes.set_xlabel("ms")
    axes.set_ylabel("%")


def _percent(key: str) -> float:
    """95 of `p95_ms`."""
    return float(key.removeprefix("p").removesuffix("_ms"))


def _logarithmic(axes: Axes, *steps: float, form: str = "g") -> None:
    """Ticks at `steps` of each power of ten, in plain numbers: by default they would be LaTeX."""
    axes.xaxis.set_major_locator(LogLocator(subs=steps))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:{form}}"))


def _cumulative(axes: Axes, points: Sequence[tuple[float, float]]) -> None:
    axes.plot(*zip(*points, strict=True), "o-", color=ACCENT, linewidth=2, markersize=4, zorder=3)
    axes.set_ylim(0, 104)
    axes.yaxis.set_major_locator(FixedLocator([0, 25, 50, 75, 95]))
    axes.xaxis.set_major_locator(MaxNLocator(_TICKS))
    fastest, slowest = points[0][0], points[-1][0]
    if 0 < _WIDE * fastest < slowest:
        axes.set_xscale("log")
        _logarithmic(axes, 1.0, 2.0, 5.0)
    axes.margins(x=0.06)
    axes.grid(linewidth=0.6)
    axes.set_axisbelow(True)


def costly(parts: Sequence[PartCost]) -> list[PartCost]:
    """The most expensive parts of an INT8 model, at most `MOST_PARTS`; [] if none costs anything."""
    found = sorted(parts, key=lambda part: (-part.divergence, part.part))[:MOST_PARTS]
    return found if found and found[0].divergence > 0 else []


def divergence(figure: Figure, parts: Sequence[PartCost], kept_float: Sequence[str]) -> None:
    """Cost of the `costly` parts on a logarithmic axis; hollow diamonds for parts that returned to float."""
    axes = figure.subplots()
    svg.named_rows(axes, [part.part for part in parts])
    axes.set_xscale("log")
    drawn = [part.divergence for part in parts if part.divergence > 0]
    axes.set_xlim(min(drawn) / 1.8, max(drawn) * 1.8)
    _logarithmic(axes, *((1.0, 3.0) if max(drawn) < 100 * min(drawn) else (1.0,)), form=".0e")
    for y, part in enumerate(parts):
        kept = part.part in kept_float
        if part.divergence > 0:
            inside = "none" if kept else ACCENT
            axes.plot(
                [part.divergence], [y], "D" if kept else "o", color=ACCENT, markerfacecolor=inside, markersize=7
            )  # fmt: skip
        else:
            axes.annotate("≤ 0", (0.0, y), (3, 0), axes.get_yaxis_transform(), "offset points", fontsize=9, va="center")
    axes.set_xlabel("KL, nat")
