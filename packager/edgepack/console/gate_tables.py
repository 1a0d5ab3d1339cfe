"""Tables of gate receipts, of one device or many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table
from rich.text import Text

from edgepack.console import tables
from edgepack.console.tables import COLUMN_GAP, STYLES, column_head, one_by_one, safe, table, verdict_name
from edgepack.messages import figure, local, message
from edgepack.report import gates
from edgepack.report.gates import CheckRow
from edgepack.util.text import counted
from edgepack_runtime.schema.conditions import Conditions
from edgepack_runtime.schema.figures import NOTHING, quantity
from edgepack_runtime.schema.receipt import ACCURACY_NOT_GATED, NO_GATES, UNGATED, BundleFacts, GateReceipt
from edgepack_runtime.stats import intervals

if TYPE_CHECKING:
    from edgepack.gating.receipts_summary import DeviceSummary, Fleet
    from edgepack.results import NotRunHere

SLOWER: Final = 1.2  # ratio from which a later p95 is worth a remark


def gate(receipt: Mapping[str, Any], *, live: bool, width: int) -> Iterator[Table | Text]:
    """A gate receipt: verdict, checks, reasons, and conditions."""
    read = GateReceipt.parse(receipt)
    found, bundle = gates.rows(read), read.bundle or BundleFacts("?")
    about = {"name": bundle.name, "version": bundle.version, "target": bundle.target}
    head = Text(safe(message("say.gate_of", **about)))
    yield head.append(verdict_name(found.verdict).upper(), style=STYLES[found.verdict])
    if found.checks:
        yield from _checks(found.checks, live=live, width=width)
    for check in found.checks:
        if check.verdict != intervals.PASS:
            word = message(f"verdict.{check.verdict}")
            yield Text(safe(message("say.check_line", gate=check.gate, verdict=word, detail=check.detail)))
    if found.verdict == UNGATED:
        yield Text(safe(message("say.nothing_judged", no_gates=NO_GATES)), style="bold")
    else:
        if not found.is_accuracy_gated:
            yield Text(safe(ACCURACY_NOT_GATED), style="bold")
        for one in found.left_out:
            how = "say.waived" if one.waived else "say.not_measured"
            yield Text(safe(message(how, gate=one.gate, why=one.why)), style="bold")
    yield Text(safe(_conditions(read.where)), style="dim")


def _checks(checks: Sequence[CheckRow], *, live: bool, width: int) -> Iterator[Table | Text]:
    """A row for each check. A limit has the unit of the value beside it.

    If `width` columns are too few, names wrap at `.` and `_`, then other cells between words. If
    the longest words do not fit (usually below 60 columns), each check has several lines. No figure is cut.
    """
    heads = ("check", "verdict", "value", "interval", "limit", "n")
    rows = [
        (
            safe(check.gate),
            check.verdict,
            *map(local, map(figure, (check.value, check.interval, _bare(check)))),
            check.n,
        )
        for check in checks
    ]
    shown = [(name, verdict_name(word), *figures) for name, word, *figures in rows]
    columns = list(zip(map(column_head, heads), *shown, strict=True))
    least = [tables.longest_part(columns[0]), *map(tables.longest_word, columns[1:])]
    widths = tables.widths(columns, least, (0, 4, 3, 2), width - COLUMN_GAP * (len(heads) - 1))
    if widths is None:
        titles = [
            Text(f"{name}: ", style="bold").append(verdict_name(word), style=STYLES[word]) for name, word, *_ in rows
        ]
        yield from one_by_one(titles, heads[2:], [figures for _, _, *figures in rows])
        return
    made = table(live, *heads)
    for head, column, columns_wide in zip(heads, made.columns, widths, strict=True):
        column.overflow, column.no_wrap = "fold", head in ("verdict", "n")
        column.width = columns_wide
    for name, word, *figures in rows:
        made.add_row(tables.at_joints(name, widths[0]), Text(verdict_name(word), style=STYLES[word]), *figures)
    yield made


def _bare(check: CheckRow) -> str:
    """The limit, without the unit if the value has it."""
    _, space, unit = check.value.partition(" ")
    return check.limit.removesuffix(space + unit)


def _conditions(where: Conditions) -> str:
    parts = (
        where.gpu,
        where.cpu_model,
        where.threads and message("say.threads", n=where.threads),
        where.governor and message("say.governor", name=where.governor),
        where.engine,
        where.emulated and message("say.emulated"),
        where.device_clock_utc and message("say.by_clock", moment=where.device_clock_utc),
    )
    known = [part for part in parts if part]
    return message("say.measured_on", parts=known) if known else message("say.measured_unknown")


def not_run(bundle: str, target: str, gate: NotRunHere, *, ungated: bool) -> Iterator[Table | Text]:
    """A gate that this machine cannot run, with the command for the device. `ungated`: the recipe sets no gates."""
    head = Text(safe(message("say.gate_of_file", bundle=bundle, target=target)))
    yield head.append(safe(message("say.not_run_here")), style=STYLES["not run here"])
    yield Text(safe(message("say.line", text=gate.why)))
    there = message("say.measures_there", no_gates=NO_GATES) if ungated else message("say.gates_there")
    yield Text(safe(message("say.on_the_device", command=gate.command, there=there)))


def fleet(found: Fleet, *, live: bool) -> Iterator[Table | Text]:
    """The result of `receipts_summary.summarize`: a row per device, remarks, and the number of each release."""
    made = table(live, "device", "active", "gate", "score", "drift", "p95 ms", "limit")
    for device in found.devices:
        gated = f"({device.gated_release})" if device.gate is not None and device.serving is None else NOTHING
        made.add_row(safe(device.name), safe(device.serving or gated), *_gated(device))
    yield made
    if any(device.gate is not None and device.serving is None for device in found.devices):
        yield Text("active in brackets: gated, and not installed by these receipts", style="dim")
    yield Text("score: on the bundle's rows; drift: points above what the file scored on them when built", style="dim")
    for device in found.devices:
        notes = [device.last] if device.last not in (None, "install: installed", "install: already installed") else []
        notes += [line for line in (device.error or "").splitlines() if line]
        if device.gate is not None:
            notes += device.missed
        if device.slower is not None and device.slower >= SLOWER:
            notes.append(f"p95 is {device.slower:.2f} times what the first gate of this release measured here")
        notes += [f"left out: {line}" for line in device.unreadable]
        notes += device.remarks
        if device.signers not in ((), (device.name,)):
            notes.append(f"receipts in this folder were signed by: {', '.join(device.signers)}")
        for line in notes:
            yield Text(safe(f"{device.name}: {line}"))
    for (bundle, release), devices in sorted(found.releases.items(), key=lambda item: -item[1]):
        what = f"{bundle} {release} is active" if release else f"nothing of {bundle or 'any bundle'} is active"
        yield Text(safe(f"{what} on {counted(devices, 'device')}"), style="bold")


def _gated(device: DeviceSummary) -> Sequence[Text | str]:
    gate = device.gate
    if gate is None:
        return ()
    p95_ms = None if gate.latency is None else gate.latency.p95_ms
    return (
        Text(verdict_name(gate.judged), style=STYLES.get(gate.judged, "")),
        NOTHING if gate.accuracy is None else quantity(gate.accuracy.value, gate.accuracy.unit),
        NOTHING if device.drift_points is None else f"{device.drift_points:+.2f}",
        quantity(p95_ms, "ms", with_unit=False),
        NOTHING if device.p95_limit_ms is None else f"{device.p95_limit_ms:g}",
    )
