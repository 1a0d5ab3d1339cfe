"""The report as one self-contained HTML page: no network, no script, plots as inline SVG, light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import jinja2

from edgepack.report import CHOSEN_ON_DEV, NOTHING, limit, plots, quantity, span
from edgepack.report.document import dumps
from edgepack.report.languages import both
from edgepack.wording import metric_name

TEMPLATE: Final = "report.html.jinja"


def render(report: Mapping[str, Any]) -> str:
    """The page for a report made by `edgepack.report.document.make`. The same report gives the same bytes."""
    candidates = report["selection"]["candidates"] if report["selection"] else []
    costed = [row for row in report["ledger"] if row["model_mib"] is not None or row["p50_ms"] is not None]
    ledger, gate = report["ledger"], report["recipe"]["gates"]["accuracy"]
    return (
        environment()
        .get_template(TEMPLATE)
        .render(
            report=report,
            recipe_json=dumps(report["recipe"]),
            examples_by_targets=_examples(report["targets"]),
            rows_at_home=sorted({name for target in report["targets"] if (name := target["bundle"]["rows_name"])}),
            accuracy_plot=plots.svg("accuracy", lambda figure: plots.accuracy(figure, ledger, gate), len(ledger)),
            cost_plot=plots.svg("cost", lambda figure: plots.cost(figure, costed), len(costed)),
            candidates_plot=plots.svg("candidates", lambda figure: plots.candidates(figure, report), 8)
            if candidates
            else "",
        )
    )


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
    words = {"metric_name": metric_name, "quantity": quantity, "span": span, "limit": limit, "size": _size, "t": both}
    made.globals.update(words, NOTHING=NOTHING, CHOSEN_ON_DEV=CHOSEN_ON_DEV)
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


def _size(size_bytes: float) -> str:
    return quantity(size_bytes / 2**20, "MiB") if size_bytes >= 2**20 else f"{size_bytes / 2**10:.0f} KiB"
