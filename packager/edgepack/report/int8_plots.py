"""The plots of what INT8 is made of: what it costs each part of a model, and what calibration decided about each.

Kinds are told apart by shape, not by colour alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from edgepack.report import drawing
from edgepack.report.drawing import ACCENT, INK, SECOND, words

MOST_PARTS: Final = 20  # of a model, that a plot has room for


def costly(parts: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The at most `MOST_PARTS` parts of an INT8 model that cost most, the worst first; [] where none costs anything."""
    found = sorted(parts, key=lambda part: (-part["divergence"], part["part"]))[:MOST_PARTS]
    return found if found and found[0]["divergence"] > 0 else []


def divergence(figure: Figure, parts: Sequence[Mapping[str, Any]], kept_float: Sequence[str]) -> None:
    """A mark for each of `costly` parts on a logarithmic axis; a hollow diamond for one that went back to float."""
    axes = figure.subplots()
    drawing.named_rows(axes, [part["part"] for part in parts])
    axes.set_xscale("log")
    told = [part["divergence"] for part in parts if part["divergence"] > 0]
    axes.set_xlim(min(told) / 1.8, max(told) * 1.8)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0) if max(told) < 100 * min(told) else (1.0,)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0e}"))
    for y, part in enumerate(parts):
        kept = part["part"] in kept_float
        if part["divergence"] > 0:
            inside = "none" if kept else ACCENT
            axes.plot(
                [part["divergence"]], [y], "D" if kept else "o", color=ACCENT, markerfacecolor=inside, markersize=7
            )  # fmt: skip
        else:
            axes.annotate("≤ 0", (0.0, y), (3, 0), axes.get_yaxis_transform(), "offset points", fontsize=9, va="center")
    axes.set_xlabel(words("divergence, nats"))


def widest(parts: Sequence[Mapping[str, Any]], way: str) -> list[Mapping[str, Any]]:
    """The at most `MOST_PARTS` calibrated parts with the widest ranges, the worst first.

    Ranges are those of `way`, or of the others where that has none; without any range, columns that differ most count.
    """

    def width(part: Mapping[str, Any]) -> float:
        ranges = part["activation"]
        counted = [ranges[way]] if way in ranges else list(ranges.values())
        return max((one["high"] - one["low"] for one in counted), default=0.0)

    return sorted(parts, key=lambda part: (-width(part), -(spread(part) or 0.0), part["part"]))[:MOST_PARTS]


def spread(part: Mapping[str, Any]) -> float | None:
    """How many times the least magnitude of a column of a part's weights its largest is; None if that one is all 0."""
    weight = part["weight"]
    return weight["most"] / weight["least"] if weight["least"] > 0 else None


def calibrated(figure: Figure, parts: Sequence[Mapping[str, Any]], way: str, kept_float: Sequence[str]) -> None:
    """Of each of the `widest` parts, on the left ranges of what it reads, on the right its weights' columns.

    A bar is the range of `way`, hollow of a part that went back to float, with its step beside it; a line is what the
    other ways found at most. Where no way found ranges, there is nothing on the left.
    """
    ranged = any(part["activation"] for part in parts)
    axes = figure.subplots(1, 2 if ranged else 1, squeeze=False, sharey=True, gridspec_kw={"wspace": 0.08})[0]
    drawing.named_rows(axes[0], [part["part"] for part in parts])
    if ranged:
        _ranges(axes[0], parts, way, kept_float)
    _columns(axes[-1], parts)


def _ranges(axes: Axes, parts: Sequence[Mapping[str, Any]], way: str, kept_float: Sequence[str]) -> None:
    others: list[tuple[float, float, float]] = []
    bars: list[tuple[float, float, float]] = []
    hollow: list[tuple[float, float, float]] = []
    for y, part in enumerate(parts):
        found = dict(part["activation"])
        own = found.pop(way, None)
        if own is not None:
            (hollow if part["part"] in kept_float else bars).append((y, own["low"], own["high"]))
        if found:
            others.append((y, min(one["low"] for one in found.values()), max(one["high"] for one in found.values())))
        if part["step"] is not None:
            end = max(one["high"] for one in part["activation"].values())
            drawing.label(axes, y, end, f"{part['step']:.2g}")
    drawing.boxes(axes, bars, facecolor=ACCENT, edgecolor=ACCENT)
    drawing.boxes(axes, hollow, facecolor="none", edgecolor=ACCENT)
    drawing.beams(axes, others, color=INK, linewidth=1)
    drawn = [*others, *bars, *hollow]
    low, high = min(one[1] for one in drawn), max(one[2] for one in drawn)
    axes.set_xlim(low - 0.04 * (high - low), high + 0.2 * (high - low))
    axes.set_xlabel(words("what a part reads; beside it: one step") if bars or hollow else words("what a part reads"))


def _columns(axes: Axes, parts: Sequence[Mapping[str, Any]]) -> None:
    """On a logarithmic axis, from the least to the largest magnitude of a column. One of zeros has no place there."""
    axes.set_xscale("log")
    axes.tick_params(length=0)
    lines = []
    for y, part in enumerate(parts):
        if (times := spread(part)) is not None:
            lines.append((y, part["weight"]["least"], part["weight"]["most"]))
            drawing.label(axes, y, part["weight"]["most"], f"× {times:.{0 if times >= 10 else 1}f}")
    drawing.beams(axes, lines, color=SECOND, linewidth=1.5)
    low, high = min((one[1] for one in lines), default=0.1), max((one[2] for one in lines), default=1.0)
    axes.set_xlim(low / 1.3, high * max(1.6, (high / low) ** 0.25))
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 50 * low else (1.0,)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.grid(axis="x", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel(words("largest weight of a column"))
