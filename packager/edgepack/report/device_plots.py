"""The plots of what a device has to carry and to wait for: latency, and size by part.

Kinds are told apart by hatching or by shape, not by colour alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from edgepack.report import drawing
from edgepack.report.drawing import ACCENT, GRID, INK, LIMIT, SECOND, Fill, words

# No dots: each would be a path of its own, a quarter of a megabyte in all.
_FILLS: Final[tuple[Fill, ...]] = (
    (ACCENT, ACCENT, ""),
    ("none", SECOND, "////"),
    ("none", INK, "||||"),
    (GRID, GRID, ""),
    ("none", ACCENT, "xxxx"),
)
_LIMITED: Final = ("p50_ms", "p95_ms", "p99_ms")
_LINE: Final = 0.05  # of the height of the plot of latency, above it, for a line of words about its limits
_LINE_ABOVE: Final = 1.1  # of the axes: above such a line
_STEPS: Final = (("tokenizer {}", "tokenize_p50_ms"), ("model {}", "run_p50_ms"), ("label {}", "post_p50_ms"))
_FAR: Final = 1.3  # times the slowest answer: a limit beyond that would squeeze the curve
_TICKS: Final = 5  # at most, of times: there may be many targets
_WIDE: Final = 5.0  # from where on the slowest answer against the fastest makes the axis logarithmic


def shares(distribution: Mapping[str, float]) -> list[tuple[float, float]]:
    """(ms, percent of the answers that took no longer), of a receipt's `latency.distribution`, in order."""
    ends = {"min_ms": 0.0, "max_ms": 100.0}
    found = [(ms, ends[key] if key in ends else _percent(key)) for key, ms in distribution.items()]
    return sorted(found, key=lambda point: point[1])


def latency(figure: Figure, receipt: Mapping[str, Any]) -> None:
    """How many answers took how long with the limits of the gates on percentiles; below, the parts of the median."""
    above, below = figure.subplots(2, 1, gridspec_kw={"height_ratios": (6, 1)})
    points = shares(receipt["latency"]["distribution"])
    _cumulative(above, points)
    limits = {check["gate"].removeprefix("latency."): check["limit"] for check in receipt["checks"]}
    asked = {key: limits[key] for key in _LIMITED if key in limits}
    near = {key: limit_ms for key, limit_ms in asked.items() if limit_ms <= _FAR * points[-1][0]}
    far = {key: limit_ms for key, limit_ms in asked.items() if key not in near}
    figure.set_layout_engine("constrained", rect=(0, 0, 1, 1 - _LINE * (bool(near) + bool(far))))
    _asked(above, near)
    _far_above(above, far, _LINE_ABOVE if near else 1.0)
    above.set_xlabel(words("text in to label out, ms"))
    above.set_ylabel(words("answers within that time, %"))
    _steps(below, receipt["latency"])


def sizes(figure: Figure, bundles: Sequence[tuple[str, Mapping[str, int]]]) -> None:
    """A bar of packed MiB for each target, made of its parts, the largest part of all first."""
    axes = figure.subplots()
    drawing.named_rows(axes, [target for target, _ in bundles])
    names = sorted({part for _, sizes in bundles for part in sizes})
    names.sort(key=lambda part: -sum(sizes.get(part, 0) for _, sizes in bundles))
    fills = [_FILLS[place % len(_FILLS)] for place in range(len(names))]
    for y, (_, parts) in enumerate(bundles):
        ends = _stack(axes, y, [parts.get(name, 0) / 2**20 for name in names], fills)
        drawing.label(axes, y, ends, f"{ends:.1f}")
    axes.set_xlim(0, axes.get_xlim()[1] * 1.1)
    axes.set_xlabel(words("packed, MiB"))
    drawing.key(axes, list(zip(names, fills, strict=True)))


def _percent(key: str) -> float:
    """95 of `p95_ms`."""
    return float(key.removeprefix("p").removesuffix("_ms"))


def _cumulative(axes: Axes, points: Sequence[tuple[float, float]]) -> None:
    axes.plot(*zip(*points, strict=True), "o-", color=ACCENT, linewidth=2, markersize=4, zorder=3)
    axes.set_ylim(0, 104)
    axes.yaxis.set_major_locator(FixedLocator([0, 25, 50, 75, 95]))
    axes.xaxis.set_major_locator(MaxNLocator(_TICKS))
    fastest, slowest = points[0][0], points[-1][0]
    if 0 < _WIDE * fastest < slowest:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.margins(x=0.06)
    axes.grid(linewidth=0.6)
    axes.set_axisbelow(True)


def _asked(axes: Axes, limits: Mapping[str, float]) -> None:
    """Dashed lines that the curve has to reach their height left of, named above the plot, where no curve runs."""
    ordered = sorted(limits.items(), key=lambda limit: (limit[1], _percent(limit[0])))
    marks = [(limit_ms, _percent(key)) for key, limit_ms in ordered]
    for limit_ms, percent in marks:
        axes.plot([limit_ms] * 2, [0, percent], color=LIMIT, linewidth=1.2, linestyle=(0, (4, 3)), zorder=2)
        axes.plot([limit_ms], [percent], "_", color=LIMIT, markersize=12, markeredgewidth=2, zorder=2)
    axes.get_xlim()  # from here on it holds the lines
    drawing.names_above(axes, [words("gate {}", _limit(*limit)) for limit in ordered], marks)


def _far_above(axes: Axes, limits: Mapping[str, float], height: float) -> None:
    """Those beyond the right edge are told there, at `height` of the axes or higher."""
    if limits:
        told = words("gate {} (far above)", ", ".join(_limit(*limit) for limit in limits.items()))
        axes.annotate(
            told, (1.0, height), (0, 6), "axes fraction", "offset points",
            ha="right", va="bottom", color=LIMIT, fontsize=9, zorder=4,
        ).set_in_layout(False)  # fmt: skip


def _limit(key: str, limit_ms: float) -> str:
    """`p95 15 ms`."""
    return f"{key.removesuffix('_ms')} {limit_ms:g} ms"


def _steps(axes: Axes, told: Mapping[str, Any]) -> None:
    """The medians of what an answer is made of, one after the other."""
    figures = [told[key] for _, key in _STEPS]
    fills = _FILLS[: len(figures)]
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(_TICKS))
    axes.set_xlim(0, _stack(axes, 0, figures, fills))
    axes.set_xlabel(words("one answer at the median, ms"))
    texts = [words(text, f"{ms:.3g}") for (text, _), ms in zip(_STEPS, figures, strict=True)]
    drawing.key(axes, list(zip(texts, fills, strict=True)))


def _stack(axes: Axes, y: int, widths: Sequence[float], fills: Sequence[Fill]) -> float:
    """Bars end to end at `y`, and where the last one ends."""
    end = 0.0
    for width, (inside, edge, hatch) in zip(widths, fills, strict=True):
        axes.barh(y, width, left=end, height=0.6, facecolor=inside, edgecolor=edge, hatch=hatch, linewidth=0.8)
        end += width
    return end
