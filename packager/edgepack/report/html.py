"""The report as one self-contained HTML page: no network, no script, plots as inline SVG, light and dark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from edgepack.report import (
    CHOSEN_ON_DEV,
    NOTHING,
    device_plots,
    int8_plots,
    limit,
    plots,
    quantity,
    span,
    unmet,
)
from edgepack.report.document import dumps
from edgepack.report.drawing import svg
from edgepack.report.languages import CHINESE, both
from edgepack.report.said import CONDITIONS, both_of, condition, in_chinese, said, warned
from edgepack.wording import UNGATED, metric_name

TEMPLATE: Final = "report.html.jinja"
MOST_REASONS: Final = 5  # of a target, beside its verdict; its table has all
MOST_LATENCY_PLOTS: Final = 8  # of 18 KB each
_ON: Final = "on "  # before the name of a target, in the ledger
_POINTS: Final = " points"  # the one unit of figures that is a word
_LIMITS: Final = {">=": ">= {} points", "<=": "<= {} points"}


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
    """Whether a resolved recipe sets no gates (`recipe.gates.Gates.asks_nothing`): `golden` alone is always there."""
    return all(limits is None for name, limits in gates.items() if name != "golden")


def _plots(report: Mapping[str, Any]) -> dict[str, Markup]:
    """The plots by their names, empty where there is nothing to draw."""
    ledger, gates = report["ledger"], report["recipe"]["gates"]
    costed = [row for row in ledger if row["model_mib"] is not None or row["p50_ms"] is not None]
    timed = plots.timed(ledger)
    bundles = [(target["target"], target["bundle"]["bytes_by_part"]) for target in report["targets"]]
    int8 = report["quantization"]["int8"]
    costly = int8_plots.costly(int8["parts"]) if int8 else []
    widest = int8_plots.widest(report["quantization"]["parts"], int8["way"]) if int8 else []
    candidates = report["selection"]["candidates"] if report["selection"] else []
    asked: list[tuple[str, Callable[[Figure], None], float]] = [
        ("accuracy", lambda figure: plots.accuracy(figure, ledger, gates["accuracy"]), len(ledger)),
        ("cost", lambda figure: plots.cost(figure, costed), len(costed)),
        ("trade", lambda figure: plots.trade(figure, timed, gates), max(8, len(timed)) if timed else 0),
        ("candidates", lambda figure: plots.candidates(figure, report), 8 if candidates else 0),
        ("sizes", lambda figure: device_plots.sizes(figure, bundles), len(bundles) and len(bundles) + 0.8),
        ("parts", lambda figure: int8_plots.divergence(figure, costly, int8["kept_float"]), 0.6 * len(costly)),
        (
            "calibration",
            lambda figure: int8_plots.calibrated(figure, widest, int8["way"], int8["kept_float"]),
            0.6 * len(widest),
        ),
    ]
    stages = {row["stage"]: _stage_in_chinese(row["stage"]) for row in ledger}
    return {name: svg(name, draw, rows, stages) if rows else Markup() for name, draw, rows in asked}


def _stage(name: str) -> Markup:
    """The name of a row of the ledger; in both languages, where it is that of a target."""
    return both_of(name, _stage_in_chinese(name))


def _stage_in_chinese(name: str) -> str:
    return CHINESE["on {}"].format(name.removeprefix(_ON)) if name.startswith(_ON) else name


def _latency_plots(receipts: Sequence[Mapping[str, Any] | None]) -> list[Markup]:
    """How long the answers of each target took; empty where its receipt does not tell.

    Of many targets `MOST_LATENCY_PLOTS` have a plot, before all those where a gate on latency did not pass; for the
    others the page gives the figures alone. With a plot for each, the page of 30 targets is twice as large.
    """
    told = {
        number: receipt
        for number, receipt in enumerate(receipts)
        if receipt is not None and (receipt["latency"] or {}).get("distribution")
    }
    drawn = sorted(told, key=lambda number: (_is_fast(told[number]), number))[:MOST_LATENCY_PLOTS]
    return [_latency(number, told[number]) if number in drawn else Markup() for number in range(len(receipts))]


def _is_fast(receipt: Mapping[str, Any]) -> bool:
    """Whether every gate on latency passed."""
    return all(check["verdict"] == "pass" for check in receipt["checks"] if check["gate"].startswith("latency."))


def _latency(number: int, receipt: Mapping[str, Any]) -> Markup:
    return svg(f"latency{number}", lambda figure: device_plots.latency(figure, receipt), 8.4)


def environment() -> jinja2.Environment:
    """Templates of this package, and the words that they use."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.globals.update(
        metric_name=metric_name, quantity=_quantity, span=_span, limit=_limit, size=_size, t=both, told=_told,
        stage=_stage, unmet=unmet, MOST_REASONS=MOST_REASONS,
        said=said, warned=warned, condition=condition, shares=device_plots.shares, spread=int8_plots.spread,
        NOTHING=NOTHING, UNGATED=UNGATED, CHOSEN_ON_DEV=CHOSEN_ON_DEV, MOST_PARTS=int8_plots.MOST_PARTS,
    )  # fmt: skip
    return made


def _examples(targets: Sequence[Mapping[str, Any]]) -> list[tuple[list[str], Mapping[str, Any]]]:
    """The examples of each model that ships, with the names of its targets."""
    found: list[tuple[list[str], Mapping[str, Any]]] = []
    for target in targets:
        same = next((names for names, examples in found if examples == target["examples"]), None)
        if same is not None:
            same.append(target["target"])
        elif target["examples"] is not None:
            found.append(([target["target"]], target["examples"]))
    return found


def _quantity(value: float | None, unit: str) -> str:
    """A figure; in both languages, where its unit is a word."""
    return _with_unit(quantity(value, unit), "{} points")


def _limit(check: Mapping[str, Any]) -> str:
    """A limit with its direction, as `_quantity`."""
    shown = limit(check)
    direction, figure = shown.split(" ", 1)
    return _with_unit(figure, _LIMITS[direction]) if shown.endswith(_POINTS) else shown


def _with_unit(shown: str, words: str) -> str:
    return both(words, shown.removesuffix(_POINTS)) if shown.endswith(_POINTS) else shown


def _span(low: float | None, high: float | None, unit: str) -> Markup:
    """An interval; where it has one end, in both languages."""
    if (low is None) is (high is None):
        return Markup(escape(span(low, high, unit)))
    return both("{} or less", _quantity(high, unit)) if low is None else both("{} or more", _quantity(low, unit))


def _told(value: Any) -> Markup:
    """A condition of a measurement in both languages, whatever it is made of."""
    return both_of(_plain(value, chinese=False), _plain(value, chinese=True))


def _plain(value: Any, *, chinese: bool) -> str:
    if isinstance(value, Mapping):
        names = {name: CONDITIONS.get(name, name) if chinese else name for name in value}
        told = (f"{names[name]} {_plain(member, chinese=chinese)}" for name, member in value.items())
        return ("，" if chinese else ", ").join(told) or NOTHING
    if isinstance(value, list | tuple):
        return " ".join(_plain(member, chinese=chinese) for member in value) or NOTHING
    if isinstance(value, bool):
        english = "yes" if value else "no"
        return CHINESE[english] if chinese else english
    if value is None:
        return NOTHING
    return in_chinese(str(value)) if chinese else str(value)


def _size(size_bytes: float) -> str:
    return quantity(size_bytes / 2**20, "MiB") if size_bytes >= 2**20 else f"{size_bytes / 2**10:.0f} KiB"
