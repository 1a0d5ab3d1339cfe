"""Stage `gate`: run the bundle's own `gate` verb in a separate process and keep its receipt."""

from __future__ import annotations

import json
from pathlib import Path

from edgepack.artifacts import BundleArtifact, GateArtifact, LedgerRow, Score
from edgepack.gating.local import DECIDED, gate_file
from edgepack.gating.rows import GoldenRowsOption
from edgepack.progress import Progress
from edgepack_runtime.stats.checks import NO_GATES

VERSION = 1
RECEIPT_FILE = "receipt.json"


def run(bundle: BundleArtifact, model_mib: float, out: Path, progress: Progress) -> GateArtifact:
    """Gate `bundle` on this machine. The receipt is kept whatever the verdict."""
    rows = GoldenRowsOption(bundle.rows_path)
    exit_code, receipt = gate_file(bundle.path, progress.line, rows, own=True)
    (out / RECEIPT_FILE).write_text(json.dumps(receipt, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    accuracy, latency = receipt["accuracy"], receipt["latency"]
    row = LedgerRow(
        f"on {bundle.target}",
        Score(**{key: accuracy[key] for key in ("value", "low", "high", "n", "confidence", "metric")}),
        model_mib=model_mib,
        p50_ms=latency and latency["p50_ms"],
        p95_ms=latency and latency["p95_ms"],
        mean_ms=latency and latency["mean_ms"],
        note=f"gate: {receipt['verdict']}" if receipt["checks"] else NO_GATES,
    )
    return GateArtifact(out, bundle.target, exit_code, DECIDED[exit_code], row, receipt)
