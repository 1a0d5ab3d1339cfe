"""Inline SVG of what matplotlib draws, in the colours of the page that it stands in and in both of its languages."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from html import escape
from types import MappingProxyType
from typing import Any, Final

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnnotationBbox, DrawingArea
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path as SvgPath

from edgepack.report.languages import CHINESE

Fill = tuple[str, str, str]  # colour inside, colour of the edge and of the hatching, hatching
_BETWEEN: Final = "\u00a6"  # two languages of one text, until they are two
_TWO: Final = re.compile(rf"<text([^>]*)>([^<{_BETWEEN}]*){_BETWEEN}([^<]*)</text>")
_TAG: Final = re.compile(r"<[^>]*>")
# Hundredths of a point are more than anyone sees, and a text that is not turned need not say so.
_NEEDLESS: Final = re.compile(r"(?<=\.\d\d)\d+| transform=\"rotate\(-0 [^\"]*\"")
_INDENTED: Final = re.compile(r"\n +")
_FONTS: Final = re.compile(r" font-family: [^;\"]*;?")  # the page has its own
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)  # matplotlib writes each text there once more
_REACH: Final = 2  # how far from the candidates, in their own spread, a limit is still drawn
_WIDTH: Final = 8.4  # inches of 72 points; the page scales it
_INNER: Final = 0.9  # of it, at least, are within the axes of a plot that takes the whole width
_GAP: Final = 12  # points between names that stand side by side
_LIFT: Final = 0.03  # of the height of a plot, by which names stand above it
# Matplotlib knows no CSS: it draws in these colours, and the page's own take their place in the finished SVG.
INK, ACCENT, SECOND, LIMIT, GRID = "#010101", "#020202", "#030303", "#040404", "#050505"
_CSS: Final = {
    INK: "currentColor",
    ACCENT: "var(--accent)",
    SECOND: "var(--second)",
    LIMIT: "var(--fail)",
    GRID: "var(--rule)",
}
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",  # text stays text: the reader's fonts hold Chinese, matplotlib's may not
    "text.parse_math": False,  # a `$` in a stage's name is a dollar
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": INK,
    "xtick.color": GRID,
    "xtick.labelcolor": INK,
    "ytick.color": GRID,
    "ytick.labelcolor": INK,
    "grid.color": GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def gate(axes: Axes, axis: str, limit: float, figures: Sequence[float], figure: str) -> None:
    """A dashed line where a gate has its limit, which `figure` tells; one that is far from all figures would squeeze
    them, and is told of.
    """
    reach = _REACH * max(max(figures) - min(figures), 0.02 * max(figures))
    dashed: dict[str, Any] = {"color": LIMIT, "linewidth": 1.2, "linestyle": (0, (4, 3)), "zorder": 0.8}
    told: dict[str, Any] = {"color": LIMIT, "fontsize": 9, "textcoords": "offset points"}
    near = min(figures) - reach <= limit <= max(figures) + reach
    above = limit > max(figures)
    text = words("gate {}" if near else "gate {} (far above)" if above else "gate {} (far below)", figure)
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


def words(words: str, *values: object) -> str:
    """Both languages in one text, which `svg` makes two of."""
    return f"{words.format(*values)}{_BETWEEN}{CHINESE[words].format(*values)}"


def label(axes: Axes, y: int, end: float, text: str) -> None:
    """Figures right of what ends at `end`."""
    axes.annotate(text, (end, y), (6, 0), textcoords="offset points", va="center", fontsize=9)


def beams(axes: Axes, ends: Sequence[tuple[float, float, float]], **look: Any) -> None:
    """A line with a stroke across each of its ends for every (y, from, to), all in one path, for they are many."""
    points: list[tuple[float, float]] = []
    for y, low, high in ends:
        one = [(low, y - 0.2), (low, y + 0.2), (low, y), (high, y), (high, y - 0.2), (high, y + 0.2)]
        points += [*one, (math.nan, math.nan)]
    if points:
        axes.plot(*zip(*points, strict=True), solid_capstyle="butt", **look)


def boxes(axes: Axes, ends: Sequence[tuple[float, float, float]], **look: Any) -> None:
    """A bar for every (y, from, to), all of them in one path."""
    corners = [
        corner
        for y, low, high in ends
        for corner in ((low, y - 0.25), (high, y - 0.25), (high, y + 0.25), (low, y + 0.25), (low, y - 0.25))
    ]
    codes = [SvgPath.MOVETO, *[SvgPath.LINETO] * 3, SvgPath.CLOSEPOLY] * len(ends)
    if corners:
        axes.add_patch(PathPatch(SvgPath(corners, codes), **look))


def names_beside(axes: Axes, points: Sequence[tuple[float, float]], names: Sequence[str]) -> None:
    """A name for each of `points` right of the plot, none over another, with a dotted line to what it names.

    Dotted, so that nobody takes it for data. Of points of one height the rightmost has the highest name, so that no
    line to a name runs through another point.
    """
    low, high = axes.get_ylim()
    step = min(0.09, 1 / len(names))
    places = [(y - low) / (high - low) for _, y in points]
    order = sorted(range(len(names)), key=lambda place: (-round(places[place], 2), -points[place][0], place))
    heights = [places[place] for place in order]
    for rank in range(len(order)):  # down from the top, each at least a step below the one before it
        heights[rank] = min(heights[rank], heights[rank - 1] - step if rank else 1.0)
    for rank in reversed(range(len(order))):  # and up again from the bottom
        heights[rank] = max(heights[rank], heights[rank + 1] + step if rank + 1 < len(order) else 0.0)
    for place, height in zip(order, heights, strict=True):
        axes.annotate(
            names[place], points[place], (1.04, height), textcoords="axes fraction", fontsize=9, va="center",
            arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 0.9, "linestyle": (0, (1, 3)), "alpha": 0.8,
                        "shrinkA": 2, "shrinkB": 7, "relpos": (0, 0.5)},
        )  # fmt: skip


def names_above(axes: Axes, names: Sequence[str], marks: Sequence[tuple[float, float]]) -> None:
    """A name in red for each of `marks` (x, y; x ascending) in a line above the plot, none over another, each as near
    to its mark as that allows; with a dotted line to it.
    """
    whole = _INNER * _WIDTH * 72
    sizes = [(max(map(_points, name.split(_BETWEEN))) + _GAP) / whole for name in names]
    to_axes = axes.transData + axes.transAxes.inverted()
    places = [to_axes.transform(mark)[0] for mark in marks]
    for rank in range(1, len(names)):  # each right of the one before it
        places[rank] = max(places[rank], places[rank - 1] + (sizes[rank - 1] + sizes[rank]) / 2)
    edge = 1.0
    for rank in reversed(range(len(names))):  # and none beyond the right edge
        places[rank] = min(places[rank], edge - sizes[rank] / 2)
        edge = places[rank] - sizes[rank] / 2
    line = {"arrowstyle": "-", "color": LIMIT, "linewidth": 0.9, "linestyle": (0, (1, 3)), "shrinkA": 1, "shrinkB": 0}
    for name, place, mark in zip(names, places, marks, strict=True):
        axes.annotate(
            name, mark, (place, 1.0 + _LIFT), textcoords="axes fraction", arrowprops={**line, "relpos": (0.5, 0)},
            ha="center", va="bottom", color=LIMIT, fontsize=9, zorder=4,
        ).set_in_layout(False)  # fmt: skip


def _points(text: str) -> float:
    """About how wide `text` is in the size of small words, 9 points, whatever the reader's font is."""
    return sum(9.2 if character > "\u2e80" else 5.6 for character in text)


def named_rows(axes: Axes, names: Sequence[str]) -> None:
    """One line of the plot for each name, the first on top."""
    axes.set_yticks(range(len(names)), list(names))
    axes.set_ylim(len(names) - 0.5, -0.7)
    axes.tick_params(length=0)
    axes.grid(axis="x", linewidth=0.6)
    axes.set_axisbelow(True)


def key(axes: Axes, told: Sequence[tuple[str, Fill]]) -> None:
    """What each fill means, in a line above the plot."""
    for place, (text, (inside, edge, hatch)) in enumerate(told):
        at = (place / len(told), 1.0)
        box = DrawingArea(16, 9)
        box.add_artist(Rectangle((0, 0), 16, 9, facecolor=inside, edgecolor=edge, hatch=hatch, linewidth=0.8))
        axes.add_artist(AnnotationBbox(box, at, (8, 9), axes.transAxes, "offset points", frameon=False, pad=0))
        axes.annotate(text, at, (21, 9), axes.transAxes, "offset points", va="center", fontsize=9)


def svg(
    name: str, draw: Callable[[Figure], None], rows: float, names: Mapping[str, str] = MappingProxyType({})
) -> Markup:
    """Draw into inline SVG whose ids are the same every time and shared with no other plot of the page.

    `names` are texts that are drawn in English, so that Chinese takes no room beside it, with their Chinese.
    """
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
    drawing = _INDENTED.sub("\n", _FONTS.sub("", drawing))
    drawing = _TAG.sub(lambda tag: _NEEDLESS.sub("", tag[0]), drawing)
    drawing = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", drawing)
    for drawn, shown in _CSS.items():
        drawing = drawing.replace(drawn, shown)
    for english, chinese in names.items():
        end = f">{escape(english, quote=False)}"
        drawing = drawing.replace(f"{end}</text>", f"{end}{_BETWEEN}{escape(chinese, quote=False)}</text>")
    return Markup(_TWO.sub(r'<text class="en"\1>\2</text><text class="zh"\1>\3</text>', _COMMENT.sub("", drawing)))
