"""What each stage of a build made of the model, and what was chosen, as tables for a terminal or a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from edgepack.report import NOTHING, quantity, span
from edgepack.report.i18n import text
from edgepack.tables import gap, mib_column, one_by_one, score_head, table, wide
from edgepack.wording import duration, metric_name, safe

if TYPE_CHECKING:
    from edgepack.artifacts import LedgerRow
    from edgepack.selection import SelectArtifact

LEAST_NOTE: Final = 24  # columns that notes need beside the figures of the ledger
MOST_NOTE_LINES: Final = 4  # of a note beside them; longer ones make a table that nobody can follow


def ledger(rows: Sequence[LedgerRow], *, live: bool, width: int) -> Iterator[Table | Text]:
    """The loss ledger: what each stage cost in accuracy, MiB and ms.

    Notes stand beside the figures where `width` columns leave room for them, and otherwise below the table: a line for
    each stage that has one. Where not even the figures fit beside each other, each stage has lines of its own.
    """
    bases, metrics = {_basis(row) for row in rows}, sorted({row.score.metric for row in rows})
    heads = ("stage", score_head(metrics), "MiB", "p50 ms", "p95 ms", "parity")
    figures = [_figures(row, metric=len(metrics) > 1, basis=len(bases) > 1) for row in rows]
    stages = [safe(row.stage) for row in rows]
    to = [_parity_to(row, before) for row, before in zip(rows, ("", *(row.stage for row in rows)), strict=False)]
    notes = [safe(_remark(row)) for row in rows]
    beside = [[*cells[:-1], f"{cells[-1]}{other and f' ({other})'}"] for cells, other in zip(figures, to, strict=True)]
    room = width - wide(heads, beside, live) - gap(live)
    fits = room >= LEAST_NOTE and max(map(cell_len, notes), default=0) <= MOST_NOTE_LINES * room
    if fits:
        yield _table((*heads, "note"), [[*cells, note] for cells, note in zip(beside, notes, strict=True)], live)
    elif wide(heads, figures, live) <= width:
        yield _table(heads, figures, live)
    else:
        yield from one_by_one([Text(stage, style="bold") for stage in stages], heads[1:], [row[1:] for row in figures])
    basis = f" ({bases.pop()})" if len(bases) == 1 else ""
    yield Text(
        f"{' or '.join(map(metric_name, metrics))} with its interval{basis}; "
        "parity: largest difference of a logit to the row before",
        style="dim",
    )
    for stage, other, note in zip(stages, to, notes, strict=True):
        told = "; ".join(part for part in (other and f"parity {other}", note) if part)
        if told and not fits:
            yield Text(f"{stage}: {told}")


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], live: bool) -> Table:
    made = table(live, *heads)
    for cells in rows:
        made.add_row(*cells)
    return made


def selection(selected: SelectArtifact, *, live: bool) -> Iterator[Table | Text]:
    """The candidates, by what would ship of each on the dev rows and on this machine, and why one was chosen."""
    first = selected.candidates[0].dev_score
    heads = ("p50 ms", "MiB", "precision", "chosen", "candidate")
    made = table(live, "dev " + metric_name(first.metric), *heads)
    for one in selected.candidates:
        score = one.dev_score
        made.add_row(
            f"{quantity(score.value, 'fraction')} {span(score.low, score.high, 'fraction')}",
            quantity(one.p50_ms, "ms").removesuffix(" ms"),
            mib_column(one.onnx_bytes),
            one.precision,
            "yes" if one.name == selected.chosen else "",
            safe("; ".join((one.name, *(f"misses {gate}" for gate in one.missed)))),
        )
    yield made
    yield Text(safe(f"chosen: {selected.chosen}: {selected.why}"))
    basis = f"{100 * first.confidence:.4g} %, n={first.n}"
    yield Text(f"{text('en', 'candidates.chosen_on_dev')} Intervals: {basis}.\n", style="dim")


def _basis(row: LedgerRow) -> str:
    return f"{100 * row.score.confidence:.4g} %, n={row.score.n}"


def _figures(row: LedgerRow, *, metric: bool, basis: bool) -> list[str]:
    """The cells of a row from stage to parity; its score with its metric and what it rests on, where those differ."""
    score = f"{quantity(row.score.value, 'fraction')} {span(row.score.low, row.score.high, 'fraction')}"
    name = metric_name(row.score.metric) if metric else ""
    return [
        safe(row.stage),
        " ".join(part for part in (name, score, _basis(row) if basis else "") if part),
        quantity(row.model_mib, "MiB").removesuffix(" MiB"),
        quantity(row.p50_ms, "ms").removesuffix(" ms"),
        quantity(row.p95_ms, "ms").removesuffix(" ms"),
        NOTHING if row.parity is None else f"{row.parity:.1e}",
    ]


def _remark(row: LedgerRow) -> str:
    return row.note if row.seconds is None else f"{row.note}, {duration(row.seconds)}"


def _parity_to(row: LedgerRow, before: str) -> str:
    """Which row the parity is to, where that is not the one before."""
    return "" if row.parity is None or row.parity_with in (None, before) else f"to {safe(row.parity_with)}"
