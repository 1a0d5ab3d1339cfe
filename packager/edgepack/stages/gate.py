"""Stage `gate`: run the bundle's own `gate` verb in a separate process and keep its receipt."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from edgepack.artifacts import GateArtifact, LedgerRow, Score, mebibytes
from edgepack.gating.golden_rows_option import GoldenRowsOption
from edgepack.gating.local import gate_confined, gate_file
from edgepack.messages import message
from edgepack.results import NotRunHere
from edgepack.stages import keys
from edgepack.stages.bundle import BundleStage
from edgepack.stages.stage import Context, Input, Stage
from edgepack.targets import this_machine
from edgepack_runtime.schema.receipt import NO_GATES, VERDICTS, GateReceipt

RECEIPT_FILE = "receipt.json"


@dataclass(frozen=True, eq=False)
class GateStage(Stage[GateArtifact]):
    """Gates a bundle on this machine. The receipt is kept whatever the verdict."""

    target: str = field()  # no default, though the base class has one
    bundle: BundleStage

    name = "gate"
    version = 1
    kind = GateArtifact
    measures = True
    recipe_keys = {"": "target"}  # noqa: RUF012 - never changed

    @property
    def needs(self) -> tuple[Stage[Any], ...]:
        return (self.bundle,)

    def decides(self, ctx: Context) -> Any:
        return self.target

    def inputs(self, ctx: Context) -> list[Input]:
        return [keys.whole(ctx[self.bundle])]

    def lacking(self, ctx: Context) -> NotRunHere | None:
        """Why this machine cannot run the bundle; with more detail once the bundle is there."""
        profile = ctx.targets.profile(self.target)
        made = ctx.artifact(self.bundle) if ctx.has(self.bundle) else None
        found = this_machine.lacking(
            profile.machines,
            profile.provider,
            profile.interpreter,
            libc_min="" if made is None else made.libc_min,
            jetpack=profile.jetpack,
        )
        return found if found is None or made is None else replace(found, command=f"sh {made.file_name} gate")

    def run(self, ctx: Context, out: Path) -> GateArtifact:
        bundle = ctx.artifact(self.bundle)
        rows = GoldenRowsOption(bundle.rows_path)
        if self.bundle.shipment.is_imported:
            latency_gate = self.bundle.shipment.recipe(ctx).gates.latency
            sustained = None if latency_gate is None else latency_gate.sustained
            quiet_s = 0.0 if sustained is None else sustained.seconds
            exit_code, receipt = gate_confined(bundle.path, ctx.progress, rows, quiet_s=quiet_s)
        else:
            exit_code, receipt = gate_file(bundle.path, ctx.progress.line, rows, own=True)
        (out / RECEIPT_FILE).write_text(json.dumps(receipt, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        found = GateReceipt.parse(receipt)
        accuracy, latency = found.accuracy, found.latency
        row = LedgerRow(
            f"on {bundle.target}",
            Score(**{one.name: getattr(accuracy, one.name) for one in fields(Score)}),
            model_mib=mebibytes(self.bundle.shipment.weight_bytes(ctx, self.target)),
            p50_ms=latency.p50_ms if latency else None,
            p95_ms=latency.p95_ms if latency else None,
            mean_ms=latency.mean_ms if latency else None,
            note=message("note.gate", verdict=message(f"verdict.{found.verdict}")) if found.checks else NO_GATES,
        )
        return GateArtifact(out, bundle.target, exit_code, VERDICTS[exit_code], row, receipt)
