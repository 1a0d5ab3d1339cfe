"""The plots of the report, as inline SVG in the colours of the page that they stand in."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from edgepack.report.languages import CHINESE
from edgepack.wording import metric_name

_BUBBLE: Final = 600  # square points, of the largest file
_BETWEEN: Final = "\u00a6"  # two languages of one text, until they are two
_TWO: Final = re.compile(rf"<text([^>]*)>([^<{_BETWEEN}]*){_BETWEEN}([^<]*)</text>")
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)  # matplotlib writes each text there once more
_REACH: Final = 2  # how far from the candidates, in their own spread, a limit is still drawn
_WIDTH: Final = 8.4  # inches of 72 points; the page scales it
# Matplotlib knows no CSS: it draws in these colours, and the page's own take their place in the finished SVG.
_INK, _ACCENT, _SECOND, _LIMIT, _GRID = "#010101", "#020202", "#030303", "#040404", "#050505"
_CSS: Final = {
    _INK: "currentColor",
    _ACCENT: "var(--accent)",
    _SECOND: "var(--second)",
    _LIMIT: "var(--fail)",
    _GRID: "var(--rule)",
}
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",  # text stays text: the reader's fonts hold Chinese, matplotlib's may not
    "text.parse_math": False,  # a `$` in a stage's name is a dollar
    "font.size": 10,
    "text.color": _INK,
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _INK,
    "xtick.color": _GRID,
    "xtick.labelcolor": _INK,
    "ytick.color": _GRID,
    "ytick.labelcolor": _INK,
    "grid.color": _GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def accuracy(figure: Figure, rows: Sequence[Mapping[str, Any]], gate: Mapping[str, Any] | None = None) -> None:
    """A dot with its interval for each row as of a ledger, and the limit of the `gate` on accuracy as a line."""
    axes = figure.subplots()
    _rows(axes, [row["stage"] for row in rows])
    for y, row in enumerate(rows):
        value, low, high = (100 * row["score"][key] for key in ("value", "low", "high"))
        axes.plot([low, high], [y, y], color=_ACCENT, linewidth=2, solid_capstyle="butt")
        axes.plot([value], [y], "o", color=_ACCENT, markersize=7)
        axes.annotate(f"{value:.1f}", (value, y), (0, 8), textcoords="offset points", ha="center", fontsize=9)
    if gate is not None and gate["min"] is not None and {gate["metric"]} == {row["score"]["metric"] for row in rows}:
        axes.axvline(100 * gate["min"], color=_LIMIT, linewidth=1.2, linestyle=(0, (4, 3)))
        told = _words("gate {}", f"{100 * gate['min']:.1f}")
        axes.annotate(
            told, (100 * gate["min"], -0.5), (4, -2), textcoords="offset points", color=_LIMIT, fontsize=9, va="top",
        )  # fmt: skip
    metrics = sorted({metric_name(row["score"]["metric"]) for row in rows})
    axes.set_xlabel(_words("{} on the test rows, with its interval, %", ", ".join(metrics)))


def cost(figure: Figure, rows: Sequence[Mapping[str, Any]]) -> None:
    """MiB on the left; on the right p50 as a bar and p95 as a line beyond it."""
    left, right = figure.subplots(1, 2, sharey=True, gridspec_kw={"wspace": 0.08})
    _rows(left, [row["stage"] for row in rows])
    right.tick_params(length=0)
    for y, row in enumerate(rows):
        if row["model_mib"] is not None:
            left.barh(y, row["model_mib"], height=0.5, color=_ACCENT)
            _label(left, y, row["model_mib"], f"{row['model_mib']:.3g}")
        if row["p50_ms"] is not None:
            p95_ms = row["p95_ms"] if row["p95_ms"] is not None else row["p50_ms"]
            right.plot([row["p50_ms"], p95_ms], [y, y], color=_SECOND, linewidth=2, solid_capstyle="butt")
            right.plot([p95_ms], [y], "|", color=_SECOND, markersize=10, markeredgewidth=2)
            right.barh(y, row["p50_ms"], height=0.5, color=_SECOND)
            _label(right, y, p95_ms, f"{row['p50_ms']:.3g} / {p95_ms:.3g}")
    for axes, label in ((left, "model, MiB"), (right, "text in to label out, ms: p50 / p95")):
        axes.set_xlim(left=0, right=axes.get_xlim()[1] * 1.3)
        axes.set_xlabel(_words(label))
        axes.grid(axis="x", linewidth=0.6)
        axes.set_axisbelow(True)


def candidates(figure: Figure, report: Mapping[str, Any]) -> None:
    """A bubble for each candidate, as large as its file, and the front of those that no other beats in both figures."""
    axes = figure.subplots()
    found = report["selection"]["candidates"]
    points = [(one["p50_ms"], 100 * one["dev_score"]["value"]) for one in found]
    largest = max(one["onnx_bytes"] for one in found)
    front = pareto(points)
    axes.plot(*zip(*front, strict=True), color=_GRID, linewidth=2, drawstyle="steps-post", zorder=1)
    for number, (one, (x, y)) in enumerate(zip(found, points, strict=True), 1):
        area = _BUBBLE * one["onnx_bytes"] / largest  # in square points
        colour = _LIMIT if one["missed"] else _SECOND
        inside = _ACCENT if one["name"] == report["selection"]["chosen"] else "none"
        axes.scatter([x], [y], s=area, facecolors=inside, edgecolors=colour, linewidths=1.5, alpha=0.8, zorder=2)
        above = math.sqrt(area / math.pi) + 3
        axes.annotate(str(number), (x, y), (0, above), textcoords="offset points", ha="center", fontsize=9)
    gates, metric = report["recipe"]["gates"], found[0]["dev_score"]["metric"]
    right, latency = gates["accuracy"] or {}, gates["latency"] or {}
    axes.margins(0.15)
    if latency.get("p50_ms") and latency["threads"] == 1:
        _gate(axes, "x", latency["p50_ms"], [x for x, _ in points], f"{latency['p50_ms']:g} ms")
    if right.get("min") and right["metric"] == metric:
        _gate(axes, "y", 100 * right["min"], [y for _, y in points], f"{100 * right['min']:.1f} %")
    axes.set_xlabel(_words("text in to label out, p50, ms; area: size of the file"))
    axes.set_ylabel(_words("{} on the dev rows, %", metric_name(metric)))
    axes.grid(linewidth=0.6)
    axes.set_axisbelow(True)


def pareto(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Of (cost, score) those that no other beats: the best score for each cost, cheapest first."""
    front: list[tuple[float, float]] = []
    for cost, score in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or score > front[-1][1]:
            front.append((cost, score))
    return front


def _gate(axes: Axes, axis: str, limit: float, figures: Sequence[float], figure: str) -> None:
    """A dashed line where a gate has its limit, which `figure` tells; one that is far from all figures would squeeze
    them, and is told of.
    """
    reach = _REACH * max(max(figures) - min(figures), 0.02 * max(figures))
    dashed: dict[str, Any] = {"color": _LIMIT, "linewidth": 1.2, "linestyle": (0, (4, 3)), "zorder": 0}
    told: dict[str, Any] = {"color": _LIMIT, "fontsize": 9, "textcoords": "offset points"}
    near = min(figures) - reach <= limit <= max(figures) + reach
    above = limit > max(figures)
    text = _words("gate {}" if near else "gate {} (far above)" if above else "gate {} (far below)", figure)
    if axis == "x":
        if near:
            axes.axvline(limit, **dashed)
        place = (limit, 1.0) if near else (1.0 if above else 0.0, 1.0)
        coordinates = axes.get_xaxis_transform() if near else axes.transAxes
        axes.annotate(text, place, (-4, -2), xycoords=coordinates, ha="right", va="top", **told)
    else:
        if near:
            axes.axhline(limit, **dashed)
        place = (0.0, limit) if near else (0.0, 1.0 if above else 0.0)
        coordinates = axes.get_yaxis_transform() if near else axes.transAxes
        axes.annotate(text, place, (4, 4), xycoords=coordinates, ha="left", va="bottom", **told)


def _words(words: str, *values: object) -> str:
    """Both languages in one text, which `svg` makes two of."""
    return f"{words.format(*values)}{_BETWEEN}{CHINESE[words].format(*values)}"


def _label(axes: Axes, y: int, end: float, text: str) -> None:
    """Figures right of what ends at `end`."""
    axes.annotate(text, (end, y), (6, 0), textcoords="offset points", va="center", fontsize=9)


def _rows(axes: Axes, names: Sequence[str]) -> None:
    """One line of the plot for each name, the first on top."""
    axes.set_yticks(range(len(names)), list(names))
    axes.set_ylim(len(names) - 0.5, -0.7)
    axes.tick_params(length=0)
    axes.grid(axis="x", linewidth=0.6)
    axes.set_axisbelow(True)


def svg(name: str, draw: Callable[[Figure], None], rows: int) -> Markup:
    """Draw into inline SVG whose ids are the same every time and shared with no other plot of the page."""
    stream = io.StringIO()
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()  # not what this machine's matplotlibrc says
        mpl.rcParams.update({**_STYLE, "svg.hashsalt": name})  # the salt makes ids repeatable
        # The browser draws the glyphs, so it does not matter which ones matplotlib's fonts lack.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=(_WIDTH, 0.42 * rows + 0.9), layout="constrained")
        FigureCanvasSVG(figure)
        figure.patch.set_alpha(0)
        draw(figure)
        for axes in figure.axes:
            axes.patch.set_alpha(0)
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(stream, format="svg", metadata=nothing)
    drawing = stream.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", drawing)
    for drawn, shown in _CSS.items():
        drawing = drawing.replace(drawn, shown)
    return Markup(_TWO.sub(r'<text class="en"\1>\2</text><text class="zh"\1>\3</text>', _COMMENT.sub("", drawing)))
