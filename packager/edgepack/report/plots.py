"""The plots of the report that score and cost are in: what the stages made of a model, and candidates of a search."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from edgepack.report import drawing
from edgepack.report.drawing import ACCENT, LIMIT, SECOND, words
from edgepack.wording import metric_name

_SAME_PERCENT: Final = 1e-4  # receipts round a fraction to six digits, and one row of 100,000 is ten times as much
_BUBBLE: Final = 600  # square points, of the largest file


def accuracy(figure: Figure, rows: Sequence[Mapping[str, Any]], gate: Mapping[str, Any] | None = None) -> None:
    """A dot with its interval for each row as of a ledger, and the limit of the `gate` on accuracy as a line.

    All rows are of one metric.
    """
    (metric,) = {row["score"]["metric"] for row in rows}
    axes = figure.subplots()
    drawing.named_rows(axes, [row["stage"] for row in rows])
    for y, row in enumerate(rows):
        value, low, high = (100 * row["score"][key] for key in ("value", "low", "high"))
        axes.plot([low, high], [y, y], color=ACCENT, linewidth=2, solid_capstyle="butt")
        axes.plot([value], [y], "o", color=ACCENT, markersize=7)
        axes.annotate(f"{value:.1f}", (value, y), (0, 8), textcoords="offset points", ha="center", fontsize=9)
    if gate is not None and gate["min"] is not None and gate["metric"] == metric:
        axes.axvline(100 * gate["min"], color=LIMIT, linewidth=1.2, linestyle=(0, (4, 3)))
        told = words("gate {}", f"{100 * gate['min']:.1f}")
        axes.annotate(
            told, (100 * gate["min"], -0.5), (4, -2), textcoords="offset points", color=LIMIT, fontsize=9, va="top",
        )  # fmt: skip
    axes.set_xlabel(words("{} on the test rows, with its interval, %", metric_name(metric)))


def cost(figure: Figure, rows: Sequence[Mapping[str, Any]]) -> None:
    """MiB on the left; on the right p50 as a bar and p95 as a line beyond it."""
    left, right = figure.subplots(1, 2, sharey=True, gridspec_kw={"wspace": 0.08})
    drawing.named_rows(left, [row["stage"] for row in rows])
    right.tick_params(length=0)
    for y, row in enumerate(rows):
        if row["model_mib"] is not None:
            left.barh(y, row["model_mib"], height=0.5, color=ACCENT)
            drawing.label(left, y, row["model_mib"], f"{row['model_mib']:.3g}")
        if row["p50_ms"] is not None:
            p95_ms = row["p95_ms"] if row["p95_ms"] is not None else row["p50_ms"]
            right.plot([row["p50_ms"], p95_ms], [y, y], color=SECOND, linewidth=2, solid_capstyle="butt")
            right.plot([p95_ms], [y], "|", color=SECOND, markersize=10, markeredgewidth=2)
            right.barh(y, row["p50_ms"], height=0.5, color=SECOND)
            drawing.label(right, y, p95_ms, f"{row['p50_ms']:.3g} / {p95_ms:.3g}")
    for axes, label in ((left, "model, MiB"), (right, "text in to label out, ms: p50 / p95")):
        axes.set_xlim(left=0, right=axes.get_xlim()[1] * 1.3)
        axes.set_xlabel(words(label))
        axes.grid(axis="x", linewidth=0.6)
        axes.set_axisbelow(True)


def timed(ledger: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows of a ledger that have a time as well as a score; [] for less than two."""
    rows = [row for row in ledger if row["p50_ms"] is not None]
    return rows if len(rows) > 1 else []


def trade(figure: Figure, rows: Sequence[Mapping[str, Any]], gates: Mapping[str, Any]) -> None:
    """A dot with its interval for each of `timed` rows, at its p50; their names stand beside the plot."""
    axes = figure.subplots()
    points = [(row["p50_ms"], 100 * row["score"]["value"]) for row in rows]
    right, latency = gates["accuracy"] or {}, gates["latency"] or {}
    metric = rows[0]["score"]["metric"]
    _front(axes, points)
    for row, (x, y) in zip(rows, points, strict=True):
        ends = (100 * row["score"]["low"], 100 * row["score"]["high"])
        axes.plot([x, x], ends, color=ACCENT, linewidth=1.5, zorder=2)
        axes.plot([x, x], ends, "_", color=ACCENT, markersize=7, zorder=2)
        axes.plot([x], [y], "o", color=ACCENT, markersize=6, zorder=3)
    _limits(axes, points, latency.get("p50_ms"), right.get("min") if right.get("metric") == metric else None)
    axes.set_xlabel(words("text in to label out, p50, ms"))
    axes.set_ylabel(words("{} on the test rows, %", metric_name(metric)))
    drawing.names_beside(axes, points, [row["stage"] for row in rows])


def candidates(figure: Figure, report: Mapping[str, Any]) -> None:
    """A bubble for each candidate, as large as its file, and the front of those that no other beats in both figures."""
    axes = figure.subplots()
    found = report["selection"]["candidates"]
    points = [(one["p50_ms"], 100 * one["dev_score"]["value"]) for one in found]
    largest = max(one["onnx_bytes"] for one in found)
    _front(axes, points)
    for number, (one, (x, y)) in enumerate(zip(found, points, strict=True), 1):
        area = _BUBBLE * one["onnx_bytes"] / largest  # in square points
        colour, rim = (LIMIT, (0, (2, 1.5))) if one["missed"] else (SECOND, "solid")
        inside = ACCENT if one["name"] == report["selection"]["chosen"] else "none"
        look: Any = {"facecolors": inside, "edgecolors": colour, "linewidths": 1.5, "linestyles": [rim], "alpha": 0.8}
        axes.scatter([x], [y], s=area, **look, zorder=2)
        above = math.sqrt(area / math.pi) + 3
        axes.annotate(str(number), (x, y), (0, above), textcoords="offset points", ha="center", fontsize=9)
    gates, metric = report["recipe"]["gates"], found[0]["dev_score"]["metric"]
    right, latency = gates["accuracy"] or {}, gates["latency"] or {}
    timed_alike = latency.get("threads") == 1
    _limits(
        axes,
        points,
        latency.get("p50_ms") if timed_alike else None,
        right.get("min") if right.get("metric") == metric else None,
    )
    axes.set_xlabel(words("text in to label out, p50, ms; area: size of the file"))
    axes.set_ylabel(words("{} on the dev rows, %", metric_name(metric)))


def pareto(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Of (cost, score) those that no other beats: the best score for each cost, cheapest first.

    Of points with one score the cheapest alone is left. Scores in % that differ by less than a receipt tells are one.
    """
    front: list[tuple[float, float]] = []
    for cost, score in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or score > front[-1][1] + _SAME_PERCENT:
            front.append((cost, score))
    return front


def _front(axes: Axes, points: Sequence[tuple[float, float]]) -> None:
    """The Pareto line through (ms, %)."""
    axes.plot(*zip(*pareto(points), strict=True), color=SECOND, linewidth=1.5, drawstyle="steps-post", zorder=1)


def _limits(axes: Axes, points: Sequence[tuple[float, float]], p50_ms: float | None, least: float | None) -> None:
    """Dashed lines where the gates on the median and on the score (a fraction) have their limits."""
    axes.margins(0.15)
    if p50_ms is not None:
        drawing.gate(axes, "x", p50_ms, [x for x, _ in points], f"{p50_ms:g} ms")
    if least is not None:
        drawing.gate(axes, "y", 100 * least, [y for _, y in points], f"{100 * least:.1f} %")
    axes.grid(linewidth=0.6)
    axes.set_axisbelow(True)
