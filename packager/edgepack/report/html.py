"""HTML page of a report: one file without network and scripts, plots as inline SVG, light and dark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from edgepack.report import NOTHING, limit, measured, plots, quantity, span, svg, unmet
from edgepack.report.document import dumps
from edgepack.report.i18n import MESSAGES, t
from edgepack.util.text import metric_name
from edgepack_runtime.schema.gates import NOT_LIMITS
from edgepack_runtime.schema.receipt import UNGATED, is_accuracy_gated

TEMPLATE: Final = "report.html.jinja"
MOST_REASONS: Final = 5  # of a target, beside its verdict; its table has all
MOST_LATENCY_PLOTS: Final = 8  # of 18 KB each
_POINTS: Final = " points"  # the one unit of figures that is a word


def render(report: Mapping[str, Any]) -> str:
    """The page for a report made by `edgepack.report.document.make`. The same report gives the same bytes."""
    template = environment().get_template(TEMPLATE)
    return template.render(
        report=report,
        ungated=_asks_nothing(report["recipe"]["gates"]),
        recipe_json=dumps(report["recipe"]),
        examples_by_targets=_examples(report["targets"]),
        rows_at_home=sorted({name for target in report["targets"] if (name := target["bundle"]["rows_name"])}),
        plots=_plots(report),
        latency_plots=_latency_plots([target["receipt"] for target in report["targets"]]),
    )


def _asks_nothing(gates: Mapping[str, Any]) -> bool:
    """Whether a resolved recipe sets no limits."""
    return all(limits is None for name, limits in gates.items() if name not in NOT_LIMITS)


def _plots(report: Mapping[str, Any]) -> dict[str, Markup]:
    """The plots by name; "" for a plot without data."""
    ledger, int8 = report["ledger"], report["quantization"]["int8"]
    costly = plots.costly(int8["parts"]) if int8 else []
    asked: list[tuple[str, Callable[[Figure], None], float]] = [
        (
            "accuracy",
            lambda figure: plots.accuracy(figure, ledger, report["recipe"]["gates"]["accuracy"]),
            len(ledger),
        ),
        ("candidates", lambda figure: plots.candidates(figure, report), 8 if report["selection"] else 0),
        ("parts", lambda figure: plots.divergence(figure, costly, int8["kept_float"]), 0.6 * len(costly)),
    ]
    return {name: svg.inline(name, draw, rows) if rows else Markup() for name, draw, rows in asked}


def _latency_plots(receipts: Sequence[Mapping[str, Any] | None]) -> list[Markup]:
    """Latency plot of each target; "" if its receipt has no distribution.

    At most `MOST_LATENCY_PLOTS` targets have a plot, those with a missed latency gate first. With a plot for each, the
    page of 30 targets would be twice as large.
    """
    measured = {
        number: receipt
        for number, receipt in enumerate(receipts)
        if receipt is not None and (receipt["latency"] or {}).get("distribution")
    }
    drawn = sorted(measured, key=lambda number: (_is_fast(measured[number]), number))[:MOST_LATENCY_PLOTS]
    return [_latency(number, measured[number]) if number in drawn else Markup() for number in range(len(receipts))]


def _is_fast(receipt: Mapping[str, Any]) -> bool:
    """Whether every gate on latency passed."""
    return all(check["verdict"] == "pass" for check in receipt["checks"] if check["gate"].startswith("latency."))


def _latency(number: int, receipt: Mapping[str, Any]) -> Markup:
    return svg.inline(f"latency{number}", lambda figure: plots.latency(figure, receipt), 7)


def environment() -> jinja2.Environment:
    """Jinja environment with the templates of this package and the functions that they call."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.globals.update(
        t=t, metric_name=metric_name, metric=_metric, quantity=_quantity, measured=_measured, span=_span, limit=_limit,
        size=_size,
        condition_name=_condition_name, condition=_condition, unmet=unmet, shares=plots.shares,
        spread=spread, is_accuracy_gated=is_accuracy_gated, NOTHING=NOTHING, UNGATED=UNGATED,
        MOST_REASONS=MOST_REASONS, MOST_PARTS=plots.MOST_PARTS,
    )  # fmt: skip
    return made


def _examples(targets: Sequence[Mapping[str, Any]]) -> list[tuple[list[str], Mapping[str, Any]]]:
    """The examples of each shipped model, with the names of its targets."""
    found: list[tuple[list[str], Mapping[str, Any]]] = []
    for target in targets:
        same = next((names for names, examples in found if examples == target["examples"]), None)
        if same is not None:
            same.append(target["target"])
        elif target["examples"] is not None:
            found.append(([target["target"]], target["examples"]))
    return found


def _metric(name: str) -> Markup:
    return t(f"metric.{name}")


def _quantity(value: float | None, unit: str) -> Markup:
    """A figure as HTML; in both languages if its unit is a word."""
    return _with_unit(quantity(value, unit))


def _measured(check: Mapping[str, Any]) -> Markup:
    return _with_unit(measured(check))


def _with_unit(shown: str) -> Markup:
    return t("figure.points", value=shown.removesuffix(_POINTS)) if shown.endswith(_POINTS) else escape(shown)


def _limit(check: Mapping[str, Any]) -> Markup:
    direction, shown = limit(check).split(" ", 1)
    return Markup("{} {}").format(direction, _with_unit(shown))


def _span(low: float | None, high: float | None, unit: str) -> Markup:
    """An interval as HTML; in both languages if it has one end."""
    if (low is None) is (high is None):
        return escape(span(low, high, unit))
    if low is None:
        return t("figure.or_less", value=_quantity(high, unit))
    return t("figure.or_more", value=_quantity(low, unit))


def _condition_name(name: str) -> Markup:
    """The name of a condition of a receipt; unknown keys unchanged."""
    message = f"condition.{name}"
    return t(message) if message in MESSAGES else escape(name)


def _condition(value: Any) -> Markup:
    if isinstance(value, Mapping):
        members = [Markup("{} {}").format(_condition_name(name), _condition(member)) for name, member in value.items()]
        return t("mark.comma").join(members) or escape(NOTHING)
    if isinstance(value, list | tuple):
        return Markup(" ").join(map(_condition, value)) or escape(NOTHING)
    if isinstance(value, bool):
        return t("figure.yes") if value else t("figure.no")
    return escape(NOTHING if value is None else value)


def spread(part: Mapping[str, Any]) -> float | None:
    """Ratio of the largest to the smallest column magnitude of a part's weights; None if the smallest is 0."""
    weight = part["weight"]
    return weight["most"] / weight["least"] if weight["least"] > 0 else None


def _size(size_bytes: float) -> str:
    return quantity(size_bytes / 2**20, "MiB") if size_bytes >= 2**20 else f"{size_bytes / 2**10:.0f} KiB"
