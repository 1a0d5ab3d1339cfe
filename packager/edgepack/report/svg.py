"""Charts as inline SVG, coloured by the style sheet of the page, which has the words: a chart holds names and figures.

Lengths are in units of the drawing, which the page scales: a text is 12 units high.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup, escape
from rich.cells import cell_len

from edgepack.report.i18n import in_languages
from edgepack_runtime.messages import LANGUAGES

_WIDTH: Final = 760.0
_PHONE: Final = 340.0  # as wide as the page of a phone, so that a text has 11 px or more
_ROW: Final = 30.0  # of a chart with a name in each
_TEXT: Final = 12.0
_CHARACTER: Final = 6.6  # a column of a terminal: half of a Chinese character
_BELOW: Final = 40.0  # room for figures and name of the axis below
_ABOVE: Final = 22.0
_REACH: Final = 2.0  # how far from the figures, in their own spread, a limit is still drawn
_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
_MARKS: Final = {_WIDTH: 6, _PHONE: 4}  # at most, of an axis

Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """What an axis shows from end to end; its marks are the figures with a line across the chart.

    Attributes:
        names: what it shows, in English and Chinese.
        write: text of a mark.
    """

    low: float
    high: float
    marks: Sequence[float]
    names: tuple[str, str] = ("", "")
    is_log: bool = False
    write: Callable[[float], str] = "{:g}".format

    def share(self, value: float) -> float:
        """Where `value` lies between the ends, from 0 to 1."""
        scale: Callable[[float], float] = math.log if self.is_log else float
        return (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))


def linear_axis(
    values: Iterable[float],
    names: tuple[str, str] = ("", ""),
    *,
    margin: float = 0.08,
    width: float = _WIDTH,
) -> Axis:
    """An axis with room around `values`, and marks at round figures.

    Args:
        margin: of the span of the values, at each end.
        width: of the chart.
    """
    found = list(values)
    spread = (max(found) - min(found)) or abs(found[0]) or 1.0
    begin, end = min(found) - margin * spread, max(found) + margin * spread
    step = _step((end - begin) / _MARKS[width])
    first = math.ceil(begin / step)
    marks = [round(number * step, 12) for number in range(first, math.floor(end / step) + 1)]
    return Axis(begin, end, marks, names)


def log_axis(
    low: float,
    high: float,
    names: tuple[str, str],
    steps: Sequence[float],
    write: Callable[[float], str] = "{:g}".format,
) -> Axis:
    """A logarithmic axis with marks at `steps` of each power of ten."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    marks = [step * 10.0**power for power in powers for step in steps]
    return Axis(low, high, [mark for mark in marks if low <= mark <= high], names, is_log=True, write=write)


def _step(least: float) -> float:
    """The smallest round figure that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in _STEPS if step * power >= least * (1 - 1e-9))


class Chart:
    """A drawing with its axes. What is drawn first lies below.

    Args:
        x, y: axes; `y` may be names, one a row, the first on top, whose places are 0, 1, 2, ...
        height: of the inside; that of the rows by default.
        width: of all.
    """

    def __init__(self, x: Axis, y: Axis | Sequence[str], height: float | None = None, width: float = _WIDTH) -> None:
        rows = None if isinstance(y, Axis) else list(y)
        self._x, self._width = x, width
        # Rows are read from the top down: their axis ends at the first.
        self._y = y if isinstance(y, Axis) else Axis(len(y) - 0.5, -0.5, range(len(y)))
        marks = [self._y.write(mark) for mark in self._y.marks] if rows is None else rows
        labels = list(map(in_languages, marks))
        widest = max((cell_len(text) for texts in labels for text in texts), default=0)
        self._left = 10 + _CHARACTER * widest + (0 if rows is not None else 18)
        self._height = height if height is not None else _ROW * len(labels)
        self._parts: list[Markup] = []
        for mark in x.marks:
            self._line_at("x", mark, "grid")
            self.text((mark, self._y.low), x.write(mark), below=_TEXT + 4)
        self._named((self._left + (self._width - self._left) / 2, _ABOVE + self._height + 34), x.names)
        for mark, texts in zip(self._y.marks, labels, strict=True):
            if rows is None:
                self._line_at("y", mark, "grid")
            place = _ABOVE + self._height * (1 - self._y.share(mark)) + 4
            self._words(texts, x=self._left - 8, y=place, text_anchor="end")
        if rows is None:
            self._named((_TEXT, _ABOVE + self._height / 2), self._y.names, turned=True)

    def line(self, points: Sequence[Point], look: str) -> None:
        """A line through points; `look` is a class of the style sheet."""
        self._add("polyline", points=_joined(map(self._place, points)), look=look)

    def steps(self, points: Sequence[Point], look: str) -> None:
        """A line that rises or falls only where a point lies."""
        corners = [points[0]]
        for before, after in itertools.pairwise(points):
            corners += [(after[0], before[1]), after]
        self.line(corners, look)

    def dot(self, point: Point, look: str, radius: float = 4.5) -> None:
        x, y = self._place(point)
        self._add("circle", cx=x, cy=y, r=radius, look=look)

    def diamond(self, point: Point, look: str) -> None:
        x, y = self._place(point)
        self._add("polygon", points=_joined([(x, y - 6), (x + 6, y), (x, y + 6), (x - 6, y)]), look=look)

    def text(self, point: Point, words: str, *, above: float = 0.0, below: float = 0.0) -> None:
        """Text centred over or below a point."""
        x, y = self._place(point)
        self._add("text", words, x=x, y=y - above + below, text_anchor="middle")

    def begin(self, row: int, words: str) -> None:
        """Text at the left end of a row."""
        self._add("text", words, x=self._left + 4, y=self._place((self._x.low, row))[1] + 4)

    def title(self, words: str) -> None:
        """Text in the corner above, of the limits."""
        self._add("text", words, x=self._width - 2, y=_TEXT + 2, text_anchor="end", look="limit")

    def name_limit(self, value: float, words: str) -> None:
        """Text over the line of a limit on the axis `x`."""
        x = self._place((value, self._y.low))[0]
        left = x < (self._left + self._width) / 2
        self._add("text", words, x=x, y=_TEXT + 2, text_anchor="start" if left else "end", look="limit")

    def limit(self, axis: str, value: float) -> str:
        """Draw the limit of a gate on the axis `x` or `y`; return "", or an arrow towards one outside of the chart."""
        shown = self._x if axis == "x" else self._y
        if value > max(shown.low, shown.high):
            return " →" if axis == "x" else " ↑"
        if value < min(shown.low, shown.high):
            return " ←" if axis == "x" else " ↓"
        self._line_at(axis, value, "limit")
        return ""

    def drawing(self) -> Markup:
        """The element."""
        height = _ABOVE + self._height + _BELOW
        look = Markup(' class="phone"') if self._width == _PHONE else Markup()
        return Markup('<svg{} viewBox="0 0 {} {}">{}</svg>').format(
            look, _short(self._width), _short(height), Markup("").join(self._parts)
        )

    def _place(self, point: Point) -> Point:
        x = self._left + (self._width - self._left - 14) * self._x.share(point[0])
        return x, _ABOVE + self._height * (1 - self._y.share(point[1]))

    def _line_at(self, axis: str, value: float, look: str) -> None:
        x, y = self._x, self._y
        self.line([(value, y.low), (value, y.high)] if axis == "x" else [(x.low, value), (x.high, value)], look)

    def _named(self, place: Point, names: tuple[str, str], *, turned: bool = False) -> None:
        """The name of an axis in both languages, of which the page shows one."""
        turn = f"rotate(-90 {_short(place[0])} {_short(place[1])})" if turned else None
        self._words(tuple(dict.fromkeys(names)), x=place[0], y=place[1], text_anchor="middle", transform=turn)

    def _words(self, texts: tuple[str, ...], **values: float | str | None) -> None:
        """A text in each language, of which the page shows one; or one text."""
        for look, words in zip(LANGUAGES if len(texts) > 1 else ("",), texts, strict=True):
            self._add("text", words, look=look, **values)

    def _add(self, tag: str, content: str = "", *, look: str = "", **values: float | str | None) -> None:
        attributes = {"class": look or None, **{name.replace("_", "-"): value for name, value in values.items()}}
        written = "".join(
            f' {name}="{escape(_short(value) if isinstance(value, float) else value)}"'
            for name, value in attributes.items()
            if value is not None
        )
        self._parts.append(Markup(f"<{tag}{written}>") + content + Markup(f"</{tag}>"))  # noqa: S704 - escaped above


def in_widths(draw: Callable[[float], Markup]) -> Markup:
    """What `draw` makes of each width: the page shows the one that fits."""
    return Markup("").join(map(draw, (_WIDTH, _PHONE)))


def reach(figures: Sequence[float], limits: Iterable[float]) -> list[float]:
    """The `figures`, and those of the `limits` that are near: a limit far from all figures would squeeze the chart."""
    # Figures that are all alike have a spread of 2 % of themselves.
    spread = _REACH * max(max(figures) - min(figures), 0.02 * max(figures))
    return [*figures, *(one for one in limits if min(figures) - spread <= one <= max(figures) + spread)]


def _joined(places: Iterable[Point]) -> str:
    return " ".join(f"{_short(x)},{_short(y)}" for x, y in places)


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
