"""What a recipe's bundles weigh on each target, and what was found in them: one build, a row for each target.

    python benchmarks/targets.py RECIPE [--target NAME ...] [--wheel-cache DIR] [--workspace DIR]

Without --target: those that compute on a CPU, whose wheels are all on a package index. Sizes are MiB, compressed;
`unpacked` is what the device holds. Prints a Markdown table and ends in one JSON line. Stage results are taken up again
from the workspace.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgepack.bundle.inspect import PARTS
from edgepack.targets.profile_file import load_profiles

CHECKS = ("wheels", "licences", "ELF", "glibc", "libstdc++", "opset")
MIB = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--target", action="append", dest="targets")
    parser.add_argument("--wheel-cache", type=Path)
    parser.add_argument("--workspace", type=Path, default=Path(".edgepack"))
    parser.add_argument("--dist", type=Path, default=Path("dist"))
    options = parser.parse_args()
    report = built(options, options.targets or on_cpu())
    rows = [row(target) for target in report["targets"]]
    print(table(rows))
    print(json.dumps({"recipe": report["name"], "targets": rows}, ensure_ascii=False))


def on_cpu() -> list[str]:
    """Targets that need no wheel by path and no GPU."""
    return [name for name, profile in load_profiles().items() if profile.cuda is None]


def built(options: argparse.Namespace, targets: Sequence[str]) -> dict[str, Any]:
    """The report of one build for all of them."""
    command = [sys.executable, "-m", "edgepack.cli", "build", str(options.recipe), "--json"]
    command += ["--set", f"targets=[{','.join(targets)}]"]
    command += ["--workspace", str(options.workspace), "--dist", str(options.dist)]
    if options.wheel_cache:
        command += ["--wheel-cache", str(options.wheel_cache)]

    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def row(target: Mapping[str, Any]) -> dict[str, Any]:
    """One target: its sizes in MiB, what was found in it, and what its gate said here."""
    bundle, receipt = target["bundle"], target["receipt"] or {}
    latency = receipt.get("latency") or {}
    found = {check["check"]: f"{check['found']} {check['allowed']}".strip() for check in bundle["checks"]["passed"]}
    return {
        "target": target["target"],
        **{f"{part}_mib": round(bundle["bytes_by_part"][part] / MIB, 2) for part in PARTS},
        "bundle_mib": round(bundle["bundle_bytes"] / MIB, 1),
        "unpacked_mib": round(bundle["unpacked_bytes"] / MIB, 1),
        **{check: found.get(check, "-") for check in CHECKS},
        "gpu": "; ".join(f"{c['package']} {c['found']}" for c in bundle["checks"]["passed"] if c["package"]),
        "verdict": "not run here" if target["not_run_here"] else target["verdict"],
        "python": receipt.get("conditions", {}).get("python"),
        "p50_ms": latency.get("p50_ms"),
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown."""
    names = [name for name in rows[0] if any(row[name] not in (None, "") for row in rows)]
    lines = [
        names,
        ["---"] * len(names),
        *([str("" if row[name] is None else row[name]) for name in names] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    main()
