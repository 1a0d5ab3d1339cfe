"""What lies in bundles and how two of them differ, and what the build machine has, as tables and lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from edgepack.nvidia import sm_name
from edgepack.report import NOTHING, quantity
from edgepack.tables import STYLES, mib_column, score_head, shown, table
from edgepack.wording import counted, metric_name, mib, safe

if TYPE_CHECKING:
    from edgepack.examination import Report


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
        sizes.add_row(part, mib_column(size["packed"]), mib_column(size["unpacked"]))
    sizes.add_row("in all", mib_column(found["bundle_bytes"]), mib_column(found["unpacked_bytes"]))
    yield sizes
    yield Text("packages: " + ", ".join(f"{name} {mib(size)}" for name, size in found["packages"].items()) + "\n")
    gates = table(live, "gate", "limits")
    for name, limits in found["gates"].items():
        if limits is not None:
            gates.add_row(safe(name), safe(_limits(limits)))
    yield gates
    yield Text("")
    metrics = sorted({row["score"]["metric"] for row in found["ledger"]})
    rows = table(live, "stage", score_head(metrics), "MiB", "parity", "note")
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
