"""Builds over time as one self-contained HTML page, in the style of the report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from markupsafe import Markup

from edgepack.report import NOTHING, html, plots
from edgepack.report.drawing import svg
from edgepack.wording import metric_name

TEMPLATE: Final = "over_time.html.jinja"


def render(rows: Sequence[Mapping[str, Any]], changes: Sequence[Mapping[str, Any]]) -> str:
    """The page for `rows` and `changes` as `edgepack.history.document` has them; the same ones give the same bytes."""
    targets = list(dict.fromkeys(row["target"] for row in rows))
    return (
        html.environment()
        .get_template(TEMPLATE)
        .render(
            rows=rows,
            changes=changes,
            value=_value,
            targets=[
                (target, *_plots(f"t{number}", [row for row in rows if row["target"] == target]))
                for number, target in enumerate(targets)
            ],
            metrics=list(dict.fromkeys(metric_name(row["score"]["metric"]) for row in rows if row["score"])),
        )
    )


def _plots(name: str, rows: Sequence[Mapping[str, Any]]) -> tuple[list[tuple[str, Markup]], Markup]:
    """Of one target: scores with their intervals, a plot for each metric, and what it costs in MiB and ms.

    No plot for what was not measured, an empty one for costs. Scores of two metrics share no axis.
    """
    stages = [
        {
            **row,
            "stage": row["build"] + " *" * bool(row["doubts"]),
            "model_mib": None if row["onnx_bytes"] is None else row["onnx_bytes"] / 2**20,
        }
        for row in rows
    ]
    scored: dict[str, list[Mapping[str, Any]]] = {}
    for row in stages:
        if row["score"] is not None:
            scored.setdefault(row["score"]["metric"], []).append({**row, "stage": row["build"]})
    costed = [row for row in stages if row["model_mib"] is not None or row["p50_ms"] is not None]
    return (
        [
            (metric_name(metric), svg(f"{name}-{metric}", partial(plots.accuracy, rows=some), len(some)))
            for metric, some in scored.items()
        ],
        svg(f"{name}-cost", lambda figure: plots.cost(figure, costed), len(costed)) if costed else Markup(),
    )


def _value(value: Any) -> str:
    return NOTHING if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
