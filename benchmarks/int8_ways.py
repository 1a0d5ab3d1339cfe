"""What each way to quantize loses on real data: the INT8 file of each against the float file, on the same test rows.

Prints a table for each data set and ends in one JSON line. Goes on where it was when it is started again: a student is
trained once, and each way is an export of it, all kept in --work.

    python benchmarks/int8_ways.py --data DATA --weights WEIGHTS [--only news-topics] [--ways hist dynamic] [--work DIR]

Data, budgets and rows are those of benchmarks/distillation.py, whose students of seed 0 are taken up if --work is the
same. No part goes back to float here, whatever it costs. Drops are percentage points with their paired 95 % interval.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import distillation
import numpy as np
from build_recipe import build_recipe

from edgepack import evaluation
from edgepack.artifacts import Row
from edgepack.onnx_graph.parity import divergence
from edgepack.progress import SILENT
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.stats import scoring

WAYS: Final = {
    **{name: ("method=ptq", f"observer={name}") for name in ("hist", "kl", "mse", "emd", "avg", "abs_max")},
    "dynamic": ("method=dynamic",),
}
CASES: Final = ("news-topics", "hotel-sentiment", "entities")


@dataclass(frozen=True)
class Lost:
    """Against float: points of the metric with their interval, logits, and bytes of the file as a share of float's."""

    score: float
    drop_points: float
    low_points: float
    high_points: float
    answers_changed: int
    logits_mean: float
    logits_largest: float
    divergence: float
    bytes_share: float


def lost(folder: Path, rows: list[Row], metric: str) -> tuple[float, Lost]:
    """The float model's score, 0 to 1, and what the INT8 one beside it loses."""
    models = [Predictor(folder / name) for name in ("onnx-float", "onnx-int8")]
    answers = [evaluation.answers(model, rows, "test", SILENT) for model in models]
    before, after = (evaluation.logits(model, rows) for model in models)
    apart = np.concatenate([np.abs(one - other).ravel() for one, other in zip(before, after, strict=True)])
    truths = [row.label for row in rows]
    drop = scoring.drop(metric, truths, *answers, 0.95)
    score = scoring.interval(metric, truths, answers[0], 0.95).value
    sizes = [(folder / name / "model.onnx").stat().st_size for name in ("onnx-float", "onnx-int8")]
    return score, Lost(
        score - drop.value,
        *(100 * value for value in (drop.value, drop.low, drop.high)),
        sum(one != other for one, other in zip(*answers, strict=True)),
        float(apart.mean()),
        float(apart.max()),
        divergence(before, after, multi_label=False),
        sizes[1] / sizes[0],
    )


def measured(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """All ways of one data set."""
    case = distillation.CASES[name]
    folder = options.work / name
    folder.mkdir(parents=True, exist_ok=True)
    recipe = distillation.recipe(case, options, 0, "distilled", folder)
    found: dict[str, Lost] = {}
    float_score, rows = 0.0, []
    for way in options.ways:
        settings = [f"quantize.{setting}" for setting in (*WAYS[way], "max_drop_points=null")]
        folders = build_recipe(recipe, options.work / "stages", "export", settings)
        rows = rows or test_rows(folders["data"])
        float_score, found[way] = lost(folders["export"], rows, case.metric)
        told = f"{found[way].drop_points:+.2f} points lost, {found[way].answers_changed} answers changed"
        print(f"== {name}, {way}: {told}", file=sys.stderr, flush=True)
    print(table(name, float_score, len(rows), found))
    ways = {way: asdict(one) for way, one in found.items()}
    return {"metric": case.metric, "rows": len(rows), "float": float_score, "ways": ways}


def test_rows(data: Path) -> list[Row]:
    """As the stage data has them in its folder."""
    return [
        Row.from_document(json.loads(line)) for line in (data / "test.jsonl").read_text(encoding="utf-8").splitlines()
    ]


def table(name: str, float_score: float, rows: int, found: dict[str, Lost]) -> str:
    """Markdown: a line a way."""
    lines = [
        f"{name}, {rows:,} rows, float {100 * float_score:.2f} %",
        "| way | score, % | points lost | answers changed | logits: mean, largest | divergence, nats | bytes |",
        "|---|---|---|---|---|---|---|",
    ]
    for way, one in found.items():
        points = f"{one.drop_points:.2f} ({one.low_points:.2f} to {one.high_points:.2f})"
        cells = [
            way, f"{100 * one.score:.2f}", points, str(one.answers_changed),
            f"{one.logits_mean:.3f}, {one.logits_largest:.2f}", f"{one.divergence:.1e}", f"{one.bytes_share:.3f}",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = distillation.arguments(__doc__)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), help="data sets")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    options = distillation.parsed(parser)
    print(json.dumps({name: measured(name, options) for name in options.only}, ensure_ascii=False))


if __name__ == "__main__":
    main()
