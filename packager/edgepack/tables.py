"""What a build found, as tables and lines for a terminal or a log; `console.Console` prints them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.cells import cell_len
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from edgepack import fitting
from edgepack.nvidia import sm_name
from edgepack.report import CHOSEN_ON_DEV, NOTHING, limit, quantity, span
from edgepack.wording import UNGATED, counted, duration, metric_name, mib, safe, verdict
from edgepack_runtime.gate_limits import NO_GATES
from edgepack_runtime.model_config import ONNXRUNTIME

if TYPE_CHECKING:
    from edgepack.artifacts import LedgerRow
    from edgepack.examination import Report
    from edgepack.fleet import Device, Fleet
    from edgepack.outcome import NotRunHere
    from edgepack.plan import Plan
    from edgepack.selection import SelectArtifact
    from edgepack.targets.describe import Short

STYLES: Final = {
    "pass": "green",
    "fail": "bold red",
    "inconclusive": "yellow",
    "not run here": "yellow",
    UNGATED: "yellow",
    "error": "red",
    "warning": "yellow",
}
LEAST_NOTE: Final = 24  # columns that notes need beside the figures of the ledger
SLOWER: Final = 1.2  # from here on, a later p95 is no noise of an idle device
MOST_NOTE_LINES: Final = 4  # of a note beside them; longer ones make a table that nobody can follow
_NUMERIC: Final = (
    "MiB",
    "packed MiB",
    "on the device MiB",
    "p50 ms",
    "p95 ms",
    "drift",
    "value",
    "limit",
    "n",
)


def ledger(rows: Sequence[LedgerRow], *, live: bool, width: int) -> Iterator[Table | Text]:
    """The loss ledger: what each stage cost in accuracy, MiB and ms.

    Notes stand beside the figures where `width` columns leave room for them, and otherwise below the table: a line for
    each stage that has one.
    """
    bases, metrics = {_basis(row) for row in rows}, sorted({row.score.metric for row in rows})
    heads = ("stage", _score_head(metrics), "MiB", "p50 ms", "p95 ms", "parity")
    figures = [_figures(row, metric=len(metrics) > 1, basis=len(bases) > 1) for row in rows]
    stages = [safe(row.stage) for row in rows]
    to = [_parity_to(row, before) for row, before in zip(rows, ("", *(row.stage for row in rows)), strict=False)]
    notes = [safe(_remark(row)) for row in rows]
    beside = [[*cells[:-1], f"{cells[-1]}{other and f' ({other})'}"] for cells, other in zip(figures, to, strict=True)]
    gap = 3 if live else 2  # between two columns of `table`
    room = width - sum(max(map(cell_len, column)) + gap for column in zip(heads, *beside, strict=True))
    fits = room >= LEAST_NOTE and max(map(cell_len, notes), default=0) <= MOST_NOTE_LINES * room
    made = table(live, *heads, *(("note",) if fits else ()))
    for cells, note in zip(beside if fits else figures, notes, strict=True):
        made.add_row(*cells, *((note,) if fits else ()))
    yield made
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
            _column(one.onnx_bytes),
            one.precision if one.engine == ONNXRUNTIME else f"{one.precision} {one.engine}",
            "yes" if one.name == selected.chosen else "",
            safe("; ".join((one.name, *(f"misses {gate}" for gate in one.missed)))),
        )
    yield made
    yield Text(safe(f"chosen: {selected.chosen}: {selected.why}"))
    basis = f"{100 * first.confidence:.4g} %, n={first.n}"
    yield Text(f"{CHOSEN_ON_DEV} Intervals: {basis}.\n", style="dim")


def targets(found: Sequence[Short], *, live: bool) -> Iterator[Table | Text]:
    """Profiles, a row each."""
    made = table(live, "target", "Python", "glibc", "engines", "wheels", "runs here")
    for one in found:
        wheels = "not locked" if one.wheels is None else f"{one.wheels} locked"
        wheels = f"{wheels}, 1 by path" if one.by_path else wheels
        here = "yes" if one.runs_here else "no"
        made.add_row(safe(one.name), one.python, one.glibc or "any", "\n".join(one.engines), wheels, here)
    yield made
    yield Text("")
    yield from (Text(safe(f"{one.name}: {one.summary}")) for one in found)


def facts(found: Mapping[str, Any]) -> Iterator[Text]:
    """Facts by name, a line each; those of what is inside follow, indented."""
    width = max(map(len, found))
    for name, value in found.items():
        if isinstance(value, Mapping):
            yield Text(safe(name))
            yield from (Text(safe(f"  {key}: {shown(inner)}")) for key, inner in value.items())
        else:
            yield Text(safe(f"{name:<{width}}  {shown(value)}"))


def not_run(bundle: str, target: str, gate: NotRunHere, *, ungated: bool) -> Iterator[Table | Text]:
    """A gate that this machine could not run: neither passed nor failed, and what to type where it can.

    With `ungated` the recipe sets no gates, so that there is nothing to pass on the device either.
    """
    head = Text(safe(f"gate of {bundle} for {target}: "))
    yield head.append("NOT RUN HERE", style=STYLES["not run here"])
    yield Text(safe(f"  {gate.why}"))
    there = f"{NO_GATES}: it measures, and gates nothing, as install does" if ungated else "install gates it there too"
    yield Text(safe(f"  on the device: {gate.command}  ({there})"))


def gate(receipt: Mapping[str, Any], *, live: bool, width: int) -> Iterator[Table | Text]:
    """A gate receipt: the verdict, every check, why one did not pass, and where it was measured."""
    bundle, told = receipt["bundle"], verdict(receipt)
    head = Text(safe(f"gate of {bundle['name']} {bundle['version']} for {bundle['target']}: "))
    yield head.append(told.upper(), style=STYLES[told])
    if receipt["checks"]:
        yield _checks(receipt["checks"], live=live, width=width)
    for check in receipt["checks"]:
        if check["verdict"] != "pass":
            yield Text(safe(f"{check['gate']}: {check['verdict']}: {check['detail']}"))
    if told == UNGATED:
        yield Text(f"{NO_GATES}: nothing was judged", style="bold")
    for one in receipt.get("unmeasured", ()) if told != UNGATED else ():
        waived = ", waived" if one["waived"] else ""
        yield Text(safe(f"{one['gate']}: not measured{waived}: {one['why']}"), style="bold")
    yield Text(safe(_conditions(receipt.get("conditions") or {})), style="dim")


def _checks(checks: Sequence[Mapping[str, Any]], *, live: bool, width: int) -> Table:
    """A row for each check. Where `width` columns are too few, names go on in the next line between their parts, and
    then limits, intervals and values between words: no word and no figure is cut.
    """
    heads = ("check", "verdict", "value", "interval", "limit", "n")
    rows = [
        (
            safe(check["gate"]),
            check["verdict"],
            quantity(check["value"], check["unit"]),
            span(check["low"], check["high"], check["unit"]),
            limit(check),
            str(check["n"] or NOTHING),
        )
        for check in checks
    ]
    columns = list(zip(heads, *rows, strict=True))
    least = [fitting.longest_part(columns[0]), *map(fitting.longest_word, columns[1:])]
    gap = 3 if live else 2  # between two columns of `table`
    widths = fitting.widths(columns, least, (0, 4, 3, 2), width - gap * (len(heads) - 1))
    made = table(live, *heads)
    for place, column in enumerate(made.columns):
        column.overflow, column.no_wrap = "fold", column.header in ("verdict", "n")
        column.width = widths[place] if widths else None
    for name, told, *figures in rows:
        made.add_row(fitting.at_joints(name, widths[0]) if widths else name, Text(told, style=STYLES[told]), *figures)
    return made


def plan(made: Plan, *, live: bool) -> Iterator[Table | Text]:
    """Every resolved value, defaults dimmed (or marked, where there are no colours), then the stages."""
    width = max(len(value.key) for value in made.values)
    for value in made.values:
        line = f"{value.key:<{width}}  {safe(json.dumps(value.value, ensure_ascii=False))}"
        yield Text(line) if value.given else Text(line if live else f"{line}  (default)", style="dim")
    yield Text("")
    stages = table(live, "stage", "target", "state", "note")
    for stage in made.stages:
        note = "; ".join(str(part) for part in (stage.candidate, stage.about, stage.folder) if part)
        stages.add_row(stage.stage, safe(stage.target or NOTHING), stage.state, safe(note))
    yield stages


def examination(report: Report) -> Iterator[Text]:
    """What `edgepack doctor` found: facts, then what is wrong, then what training would run on."""
    facts = list(_examined(report))
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        yield Text(f"{name:<{width}}  {safe(value)}")
    for problem in report.problems:
        yield Text(f"{problem.severity}: ", style=STYLES[problem.severity]).append(
            safe(f"{problem.what}\n    why: {problem.why}\n    fix: {problem.fix}"), style="not bold default"
        )
    if report.can_train and report.device is not None:
        yield Text(safe(f"training can run here; device: auto chooses {report.device.splitlines()[0]}"), style="bold")


def _examined(report: Report) -> Iterator[tuple[str, str]]:
    driver, here = report.driver, report.machine
    yield "packages", ", ".join(f"{name} {version or 'MISSING'}" for name, version in report.packages.items())
    if report.paddle is not None:
        yield "paddle", report.paddle.about
    cuda = f", runs CUDA up to {driver.cuda}" if driver.cuda else ""
    yield "driver", f"{driver.driver}{cuda}" if driver.driver else f"none: {driver.why}"
    for gpu in driver.gpus:
        told = [gpu.name, gpu.sm and sm_name(gpu.sm), gpu.memory_mib and f"{gpu.memory_mib} MiB"]
        told += [] if gpu.mig is None else [f"MIG: {', '.join(gpu.mig) or 'no instance'}"]
        yield f"driver's GPU {gpu.index}", ", ".join(str(part) for part in told if part)
    for card in report.paddle.cards if report.paddle is not None else ():
        state = f"cannot compute: {card.failure}" if card.failure else "computes"
        yield f"gpu:{card.index}", f"{card.name}, {sm_name(card.sm)}, {card.memory_mib} MiB, {state}"
    yield "cpu", f"{here.cpu_model}, {here.cores}"
    memory = (
        ("", here.memory.total_bytes),
        ("available ", here.memory.available_bytes),
        ("limit of the container ", here.memory.limit_bytes),
    )
    yield "memory", ", ".join(name + mib(size) for name, size in memory if size is not None) or "unknown"
    for setting in report.settings:
        yield setting.name, f"{setting.value} ({'set by you; ' if setting.given else ''}{setting.why})"
    yield "disk", f"{mib(report.free_bytes)} free for {report.workspace}"


def inspection(found: Mapping[str, Any], *, live: bool) -> Iterator[Table | Text]:
    """What `edgepack.inspection.inspect` found."""
    target, model = found["target"], found["model"]
    yield Text(
        safe(f"{found['name']} {found['version']} for {target['profile']} ({found['release_id']})"), style="bold"
    )
    labels = ", ".join(found["labels"])
    facts = {
        "task": f"{found['task']}, {counted(len(found['labels']), 'label')}: {labels}",
        "model": f"{model['precision']}, cuts texts to {found['max_length']} tokens",
        "needs": f"{target['system']} on {target['machine']}, {target['libc']} {target['libc_min']} or newer, "
        f"Python {target['python']}, {target['provider']}",
        "sequence": found["sequence"],
        "built with": ", ".join(f"{name} {version}" for name, version in sorted(found["tools"].items())),
        "recipe": f"sha256 {found['recipe_sha256']}",
        "signed by": found["signed_by"] or "nobody",
    }
    width = max(map(len, facts))
    for name, value in facts.items():
        yield Text(f"{name:<{width}}  {safe(value)}")
    yield Text("")
    sizes = table(live, "part", "packed MiB", "on the device MiB")
    for part, size in found["parts"].items():
        sizes.add_row(part, _column(size["packed"]), _column(size["unpacked"]))
    sizes.add_row("in all", _column(found["bundle_bytes"]), _column(found["unpacked_bytes"]))
    yield sizes
    yield Text("packages: " + ", ".join(f"{name} {mib(size)}" for name, size in found["packages"].items()) + "\n")
    gates = table(live, "gate", "limits")
    for name, limits in found["gates"].items():
        if limits is not None:
            gates.add_row(safe(name), safe(_limits(limits)))
    yield gates
    yield Text("")
    metrics = sorted({row["score"]["metric"] for row in found["ledger"]})
    rows = table(live, "stage", _score_head(metrics), "MiB", "parity", "note")
    for row in found["ledger"]:
        name = f"{metric_name(row['score']['metric'])} " if len(metrics) > 1 else ""
        rows.add_row(
            safe(row["stage"]),
            name + quantity(row["score"]["value"], "fraction"),
            quantity(row["model_mib"], "MiB").removesuffix(" MiB"),
            NOTHING if row["parity"] is None else f"{row['parity']:.1e}",
            safe(row["note"]),
        )
    yield rows


def comparison(found: Mapping[str, Any], *, live: bool) -> Iterator[Table | Text]:
    """What `edgepack.inspection.compare` found."""
    if not found["values"] and not found["files"]:
        yield Text("the two bundles hold the same")
        return
    values = table(live, "what", "before", "after")
    for name, (before, after) in found["values"].items():
        values.add_row(safe(name), shown(before), shown(after))
    yield values
    for part, kinds in found["files"].items():
        counts = ", ".join(f"{len(paths)} {kind}" for kind, paths in kinds.items())
        few = [path for paths in kinds.values() for path in paths][:3]
        yield Text(safe(f"files of {part}: {counts} ({', '.join(few)}{', ...' if len(few) == 3 else ''})"))


def fleet(found: Fleet, *, live: bool) -> Iterator[Table | Text]:
    """What `edgepack.fleet.summarize` found: a row for each device, remarks, what serves how often."""
    made = table(live, "device", "serves", "gate", "score", "drift", "p95 ms", "limit")
    for device in found.devices:
        made.add_row(safe(device.name), safe(device.serving or NOTHING), *_gated(device))
    yield made
    yield Text("score: on the bundle's rows; drift: points above what the file scored on them when built", style="dim")
    for device in found.devices:
        told = [device.last] if device.last not in (None, "install: installed", "install: already installed") else []
        told += [line for line in (device.error or "").splitlines() if line]
        if device.gate is not None:
            told += device.gate.missed
        if device.slower is not None and device.slower >= SLOWER:
            told.append(f"p95 is {device.slower:.2f} times what the first gate of this release measured here")
        told += [f"left out: {line}" for line in device.unreadable]
        if device.signers not in ((), (device.name,)):
            told.append(f"receipts in this folder were signed by: {', '.join(device.signers)}")
        for line in told:
            yield Text(safe(f"{device.name}: {line}"))
    for (bundle, release), devices in sorted(found.releases.items(), key=lambda item: -item[1]):
        what = f"{bundle} {release} serves" if release else f"nothing of {bundle or 'any bundle'} serves"
        yield Text(safe(f"{what} on {counted(devices, 'device')}"), style="bold")


def _gated(device: Device) -> Sequence[Text | str]:
    gate = device.gate
    if gate is None:
        return ()
    limit_ms, drift = gate.p95_limit_ms, gate.drift_points
    return (
        Text(safe(gate.judged), style=STYLES.get(gate.judged, "")),
        NOTHING if gate.accuracy is None else quantity(gate.accuracy.value, "fraction"),
        NOTHING if drift is None else f"{drift:+.2f}",
        quantity(gate.latency.p95_ms, "ms").removesuffix(" ms"),
        NOTHING if limit_ms is None else f"{limit_ms:g}",
    )


def _limits(limits: Mapping[str, Any]) -> str:
    """`p95_ms 15.0, open_loop (rate_per_s 20.0, p95_ms 25.0)`: what is asked for, and not what is left open."""
    parts = []
    for key, value in limits.items():
        if isinstance(value, Mapping):
            parts.append(f"{key} ({_limits(value)})")
        elif isinstance(value, list):
            parts += [f"{key} ({_limits(one)})" for one in value]
        elif value is not None:
            parts.append(f"{key} {value}")
    return ", ".join(parts)


def _column(size_bytes: int) -> str:
    """A size below a head that says MiB."""
    return mib(size_bytes).removesuffix(" MiB")


def shown(value: Any) -> str:
    """A value of a recipe or a manifest; `-` where there is none."""
    return (
        NOTHING if value is None else safe(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    )


def table(live: bool, first: str, *columns: str) -> Table:
    """An empty table; `live` draws a rule below its head. Columns with figures stand to the right."""
    made = Table(
        box=box.SIMPLE_HEAD if live else None,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1) if live else (0, 2, 0, 0),
        header_style="bold",
    )
    made.add_column(first, no_wrap=True)
    for name in columns:
        justify: JustifyMethod = "right" if name in _NUMERIC else "left"
        if name in ("note", "before", "after", "candidate"):
            made.add_column(name, overflow="fold")
        else:  # a figure that does not fit ends in an ellipsis, so that its head is not read as all of it
            made.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis")
    return made


def _basis(row: LedgerRow) -> str:
    return f"{100 * row.score.confidence:.4g} %, n={row.score.n}"


def _score_head(metrics: Sequence[str]) -> str:
    """What stands above scores in `metrics`: the name of the only one."""
    return metric_name(metrics[0]) if len(metrics) == 1 else "score"


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


def _conditions(conditions: Mapping[str, Any]) -> str:
    """One line on where and how a receipt was measured."""
    parts = [str(conditions["cpu_model"])] if conditions.get("cpu_model") else []
    named = ((key, conditions.get(key)) for key in ("threads", "governor"))
    parts += [f"{key} {value}" for key, value in named if value is not None]
    parts += [str(conditions["engine"])] if conditions.get("engine") else []
    parts += ["emulated"] if conditions.get("emulated") else []
    parts += [f"{conditions['device_clock_utc']} by its clock"] if conditions.get("device_clock_utc") else []
    return "measured on " + ", ".join(parts) if parts else "measured under unknown conditions"
