"""HTML page of a report: one file without network and scripts, plots as inline SVG, light and dark."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup, escape

from edgepack.artifacts import Examples
from edgepack.messages import TEMPLATES, figure, message
from edgepack.messages import render as in_language
from edgepack.report import gates, plots
from edgepack.report.i18n import metric, part, shown, stage, t
from edgepack.report.model import CalibratedPart, Report, Target
from edgepack.util.text import metric_name
from edgepack_runtime.schema.figures import NOTHING, quantity, span
from edgepack_runtime.schema.gates import ungated
from edgepack_runtime.schema.receipt import UNGATED, GateReceipt
from edgepack_runtime.stats import intervals
from edgepack_runtime.stats.metrics import metric_of

TEMPLATE: Final = "report.html.jinja"
MOST_REASONS: Final = 5  # of a target, beside its verdict; its table has all
ON_PAPER: Final[Mapping[str, int]] = {  # how many of a list are printed; the screen has all
    "PAPER_LABELS": 10,
    "PAPER_CONFUSION": 12,  # names, above which the table is not printed
    "TALL_NAMES": 6,  # characters, above which heads of its columns are printed from top to bottom
    "PAPER_EXAMPLES": 4,
    "PAPER_CANDIDATES": 12,
    "PAPER_WARNINGS": 6,
}
MOST_LATENCY_PLOTS: Final = 1  # beside those of scores, candidates and parts


def render(report: Report, language: str = "en") -> str:
    """The page of a report, which shows `language` ("en" or "zh") first. Equal arguments give equal bytes."""
    template = environment().get_template(TEMPLATE)
    verdict = message(f"verdict.{report.verdict}")
    title = message("head.title", name=report.name, version=report.version, verdict=verdict)
    return template.render(
        report=report,
        language=language,
        title=in_language(title, language),
        gates=[target.receipt and gates.rows(target.receipt) for target in report.targets],
        ungated=ungated(report.recipe["gates"]),
        recipe_json=json.dumps(report.recipe, ensure_ascii=False, indent=1, sort_keys=True) + "\n",
        examples_by_targets=_examples(report.targets),
        rows_at_home=sorted({target.bundle.rows_name for target in report.targets if target.bundle.rows_name}),
        plots=_plots(report),
        latency_plots=_latency_plots([target.receipt for target in report.targets]),
    )


def _plots(report: Report) -> dict[str, Markup]:
    """The plots by name; "" for a plot without data."""
    int8 = report.quantization.int8
    costly = plots.costly(int8.parts) if int8 else []
    return {
        "accuracy": plots.accuracy(report.ledger, report.recipe["gates"]["accuracy"]),
        "candidates": plots.candidates(report) if report.selection else Markup(),
        "parts": plots.divergence(costly, int8.kept_float) if int8 and costly else Markup(),
    }


def _latency_plots(receipts: Sequence[GateReceipt | None]) -> list[Markup]:
    """Latency plot of each target; "" if its receipt has no distribution.

    At most `MOST_LATENCY_PLOTS` targets have a plot, those with a missed latency gate first.
    """
    measured = {
        number: receipt
        for number, receipt in enumerate(receipts)
        if receipt is not None and receipt.latency is not None and receipt.latency.distribution
    }
    drawn = sorted(measured, key=lambda number: (_is_fast(measured[number]), number))[:MOST_LATENCY_PLOTS]
    return [plots.latency(measured[number]) if number in drawn else Markup() for number in range(len(receipts))]


def _is_fast(receipt: GateReceipt) -> bool:
    """Whether every gate on latency passed."""
    return all(check.verdict == intervals.PASS for check in receipt.checks if check.gate.startswith("latency."))


@functools.cache
def environment() -> jinja2.Environment:
    """Jinja environment with the templates of this package and the functions that they call."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=shown,
    )
    made.globals.update(
        t=t, metric_name=metric_name, metric=metric, stage=stage, part_name=part, unit=_unit, figure=figure,
        quantity=_quantity, span=_span, size=_size,
        condition_name=_condition_name, condition=_condition, shares=plots.shares, spread=spread,
        NOTHING=NOTHING, UNGATED=UNGATED, MOST_REASONS=MOST_REASONS, MOST_PARTS=plots.MOST_PARTS,
        **ON_PAPER,
    )  # fmt: skip
    return made


def _examples(targets: Sequence[Target]) -> list[tuple[list[str], Examples]]:
    """The examples of each shipped model, with the names of its targets."""
    found: list[tuple[list[str], Examples]] = []
    for target in targets:
        same = next((names for names, examples in found if examples == target.examples), None)
        if same is not None:
            same.append(target.target)
        elif target.examples is not None:
            found.append(([target.target], target.examples))
    return found


def _unit(name: str) -> str:
    return metric_of(name).unit


def _quantity(value: float | None, unit: str, *, with_unit: bool = True) -> str:
    return figure(quantity(value, unit, with_unit=with_unit))


def _span(low: float | None, high: float | None, unit: str) -> str:
    return figure(span(low, high, unit))


def _condition_name(name: str) -> Markup:
    """The name of a condition of a receipt; unknown keys unchanged."""
    known = f"condition.{name}"
    return t(known) if known in TEMPLATES else escape(name)


def _condition(value: Any) -> Markup:
    if isinstance(value, Mapping):
        members = [Markup("{} {}").format(_condition_name(name), _condition(member)) for name, member in value.items()]
        return t("mark.comma").join(members) or escape(NOTHING)
    if isinstance(value, list | tuple):
        return Markup(" ").join(map(_condition, value)) or escape(NOTHING)
    if isinstance(value, bool):
        return t("figure.yes") if value else t("figure.no")
    return escape(NOTHING if value is None else shown(value))


def spread(part: CalibratedPart) -> float | None:
    """Ratio of the largest to the smallest column magnitude of a part's weights; None if the smallest is 0."""
    return part.weight.most / part.weight.least if part.weight.least > 0 else None


def _size(size_bytes: float) -> str:
    return quantity(size_bytes / 2**20, "MiB") if size_bytes >= 2**20 else f"{size_bytes / 2**10:.0f} KiB"
