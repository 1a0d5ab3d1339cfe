"""Inline SVG from matplotlib. A plot holds names and figures; the words are in the page around it."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

_TAG: Final = re.compile(r"<[^>]*>")
# Coordinates need two decimals, and texts without rotation no transformation.
_NEEDLESS: Final = re.compile(r"(?<=\.\d\d)\d+| transform=\"rotate\(-0 [^\"]*\"")
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)  # matplotlib repeats each text in one
_REACH: Final = 2  # how far from the figures, in their own spread, a limit is still drawn
_WIDTH: Final = 8.4  # inches of 72 points; the page scales it
# Those of the light page (style.css.jinja), which inverts plots where it is dark.
INK, ACCENT, SECOND, LIMIT, GRID = "#1c2430", "#2563c9", "#0f8a80", "#c62828", "#d5dae1"
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",  # text stays text: the reader's fonts hold Chinese, matplotlib's may not
    "text.parse_math": False,  # a `$` in a stage's name is a dollar
    "font.sans-serif": ["DejaVu Sans"],  # matplotlib carries it; the page has its own
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
    "axes.titlelocation": "right",
    "axes.titlesize": 9,
    "axes.titlecolor": LIMIT,
}


def inline(name: str, draw: Callable[[Figure], None], rows: float) -> Markup:
    """Draw inline SVG with reproducible ids that differ from those of other plots of the page."""
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
    drawing = _COMMENT.sub("", drawing[drawing.index("<svg") :])
    drawing = _TAG.sub(lambda tag: _NEEDLESS.sub("", tag[0]), drawing)
    return Markup(re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", drawing))  # noqa: S704 - matplotlib escapes texts


def limit(axes: Axes, axis: str, value: float, figures: Sequence[float]) -> str:
    """Draw the limit of a gate as a dashed line; return "".

    A limit far from all figures would squeeze the plot: it is not drawn, and an arrow towards it is returned.
    """
    reach = _REACH * max(max(figures) - min(figures), 0.02 * max(figures))
    if value > max(figures) + reach:
        return " →" if axis == "x" else " ↑"
    if value < min(figures) - reach:
        return " ←" if axis == "x" else " ↓"
    line = axes.axvline if axis == "x" else axes.axhline
    line(value, color=LIMIT, linewidth=1.2, linestyle=(0, (4, 3)), zorder=0.8)
    return ""


def named_rows(axes: Axes, names: Sequence[str]) -> None:
    """Set up one row of the plot per name, the first on top."""
    axes.set_yticks(range(len(names)), list(names))
    axes.set_ylim(len(names) - 0.5, -0.7)
    axes.tick_params(length=0)
    axes.grid(axis="x", linewidth=0.6)
    axes.set_axisbelow(True)
