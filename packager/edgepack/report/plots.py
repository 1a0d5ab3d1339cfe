"""Charts of the report: score of stages and candidates, latency, and what INT8 costs each part of a model.

Kinds differ by their outline or shape, not only by colour. Axes show units and metrics; the page has the words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup

from edgepack.artifacts import LedgerRow, PartCost
from edgepack.messages import render
from edgepack.report import i18n, svg
from edgepack.report.model import Report
from edgepack.report.svg import Axis, Chart, linear_axis, log_axis
from edgepack_runtime.messages import LANGUAGES
from edgepack_runtime.schema.figures import UNITS, quantity
from edgepack_runtime.schema.receipt import GateReceipt
from edgepack_runtime.stats.metrics import metric_of

_SAME_PERCENT: Final = 1e-4  # receipts round a fraction to six digits, and one row of 100,000 is ten times as much
_BUBBLE: Final = 16.0  # radius of the largest file
_LIMITED: Final = ("p50_ms", "p95_ms", "p99_ms")
_FAR: Final = 1.3  # times the slowest answer: a limit beyond that would squeeze the curve
_WIDE: Final = 5.0  # from where on the slowest answer against the fastest makes the axis logarithmic
_SHARES: Final = (0, 25, 50, 75, 95)  # percent of answers
_HEIGHT: Final = 240.0
MOST_PARTS: Final = 20  # of a model, that a chart has room for


def accuracy(rows: Sequence[LedgerRow], gate: Mapping[str, Any] | None = None) -> Markup:
    """Score with interval of each ledger row, all in one metric, and the limit of the accuracy `gate` as a line."""
    (metric,) = {row.score.metric for row in rows}
    unit = metric_of(metric).unit
    factor = UNITS[unit].factor
    judged = gate if gate is not None and gate["metric"] == metric else {}
    limits = [(sign, value) for key, sign in (("min", "≥"), ("max", "≤")) if (value := judged.get(key)) is not None]
    ends = [factor * end for row in rows for end in (row.score.low, row.score.high)]
    shown = [*ends, *(factor * value for _, value in limits)]
    names = _score_names(metric, unit)

    def drawn(width: float) -> Markup:
        chart = Chart(linear_axis(shown, names, width=width), [i18n.stage(row.stage) for row in rows], width=width)
        for y, row in enumerate(rows):
            value, low, high = (factor * end for end in (row.score.value, row.score.low, row.score.high))
            chart.line([(low, y), (high, y)], "accent")
            chart.dot((value, y), "accent filled")
            chart.text((value, y), quantity(row.score.value, unit, with_unit=False), above=8)
        for sign, value in limits:
            chart.limit("x", factor * value)
            chart.name_limit(factor * value, f"{sign} {quantity(value, unit)}")
        return chart.drawing()

    return svg.in_widths(drawn)


def candidates(report: Report) -> Markup:
    """Score against p50 of each candidate as a bubble of its size, with the Pareto front."""
    assert report.selection is not None
    found = report.selection.candidates
    metric, unit = found[0].dev_score.metric, found[0].dev_score.unit
    factor = UNITS[unit].factor
    points = [(one.p50_ms, factor * one.dev_score.value) for one in found]
    gates = report.recipe["gates"]
    right, latency = gates["accuracy"] or {}, gates["latency"] or {}
    p50_ms = latency.get("p50_ms") if latency.get("threads") == 1 else None  # timed alike
    least = right.get("min") if right.get("metric") == metric else None
    across = svg.reach([x for x, _ in points], [] if p50_ms is None else [p50_ms])
    upwards = svg.reach([y for _, y in points], [] if least is None else [factor * least])
    chart = Chart(
        linear_axis(across, ("p50, ms", "p50, ms"), margin=0.15),
        linear_axis(upwards, _score_names(metric, unit), margin=0.2),
        _HEIGHT,
    )
    chart.steps(pareto(points), "second")
    largest = max(one.onnx_bytes for one in found)
    for number, (one, point) in enumerate(zip(found, points, strict=True), 1):
        radius = _BUBBLE * math.sqrt(one.onnx_bytes / largest)
        inside = " filled" if one.name == report.selection.chosen else ""
        chart.dot(point, f"{'limit' if one.missed else 'second'}{inside}", radius)
        chart.text(point, str(number), above=radius + 4)
    named = []
    if least is not None:
        named.append(f"≥ {quantity(least, unit)}{chart.limit('y', factor * least)}")
    if p50_ms is not None:
        named.append(f"≤ {p50_ms:g} ms{chart.limit('x', p50_ms)}")
    chart.title(", ".join(named))
    return chart.drawing()


def _score_names(metric: str, unit: str) -> tuple[str, str]:
    english, chinese = (render(i18n.metric(metric), language) for language in LANGUAGES)
    sign = UNITS[unit].sign
    return (f"{english},{sign}", f"{chinese}（{sign.strip()}）") if sign else (english, chinese)


def pareto(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The Pareto front of (cost, score), cheapest first. Scores that a receipt shows as equal are equal."""
    front: list[tuple[float, float]] = []
    for cost, score in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or score > front[-1][1] + _SAME_PERCENT:
            front.append((cost, score))
    return front


def shares(distribution: Mapping[str, float]) -> list[tuple[float, float]]:
    """The points (ms, percent of answers within this time) of a receipt's `latency.distribution`, in order."""
    ends = {"min_ms": 0.0, "max_ms": 100.0}
    found = [(ms, ends[key] if key in ends else _percent(key)) for key, ms in distribution.items()]
    return sorted(found, key=lambda point: point[1])


def latency(receipt: GateReceipt) -> Markup:
    """Cumulative distribution of latency, with the limits of the percentile gates."""
    assert receipt.latency is not None
    points = shares(receipt.latency.distribution)
    fastest, slowest = points[0][0], points[-1][0]
    limits = {check.gate.removeprefix("latency."): check.limit for check in receipt.checks}
    gated = {key: limits[key] for key in _LIMITED if key in limits}
    near = {key: limit for key, limit in gated.items() if limit <= _FAR * slowest}
    ends = [fastest, slowest, *near.values()]
    is_wide = 0 < _WIDE * fastest < slowest
    milliseconds = ("ms", "ms")
    x = (
        log_axis(min(ends) / 1.1, 1.1 * max(ends), milliseconds, (1.0, 2.0, 5.0))
        if is_wide
        else linear_axis(ends, milliseconds)
    )
    chart = Chart(x, Axis(0, 104, _SHARES, ("%", "%")), _HEIGHT)
    chart.line(points, "accent")
    for point in points:
        chart.dot(point, "accent filled", 2.5)
    for key, limit in near.items():  # a dashed line that the curve has to reach its height left of
        share = _percent(key)
        chart.line([(limit, 0), (limit, share)], "limit")
        chart.dot((limit, share), "limit mark", 3)
    chart.title(
        ", ".join(f"{key.removesuffix('_ms')} ≤ {gated[key]:g} ms{'' if key in near else ' →'}" for key in gated)
    )
    return chart.drawing()


def _percent(key: str) -> float:
    """95 of `p95_ms`."""
    return float(key.removeprefix("p").removesuffix("_ms"))


def costly(parts: Sequence[PartCost]) -> list[PartCost]:
    """The most expensive parts of an INT8 model, at most `MOST_PARTS`; [] if none costs anything."""
    found = sorted(parts, key=lambda part: (-part.divergence, part.part))[:MOST_PARTS]
    return found if found and found[0].divergence > 0 else []


def divergence(parts: Sequence[PartCost], kept_float: Sequence[str]) -> Markup:
    """Cost of the `costly` parts on a logarithmic axis; hollow diamonds for parts that returned to float."""
    drawn = [part.divergence for part in parts if part.divergence > 0]
    steps = (1.0, 3.0) if max(drawn) < 100 * min(drawn) else (1.0,)
    names = ("KL, nat", "KL, nat")
    axis = log_axis(min(drawn) / 1.8, max(drawn) * 1.8, names, steps, "{:.0e}".format)
    chart = Chart(axis, [part.part for part in parts], 20.0 * len(parts))
    for y, part in enumerate(parts):
        if part.divergence <= 0:
            chart.begin(y, "≤ 0")
        elif part.part in kept_float:
            chart.diamond((part.divergence, y), "accent")
        else:
            chart.dot((part.divergence, y), "accent filled")
    return chart.drawing()
