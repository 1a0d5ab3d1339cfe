"""What the choices of a recipe bring and cost on real data: distillation, vocabulary, width, INT8, length of training.

    python benchmarks/choices.py --data DATA --weights WEIGHTS [--only vocabulary] [--work DIR]

DATA holds folders with train, dev and test files of hotel-sentiment, news-topics (.tsv) and entities (.jsonl); WEIGHTS
holds ERNIE folders for --teacher and --student. Each row is one recipe with some keys set, trained once a seed, and
the score of the model that ships on all test rows. Every training is a stage of a build, kept in --work: started again
it continues. Prints a table for each choice and ends in one JSON line.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

from build_recipe import build_recipe

from edgepack.artifacts import ExportArtifact, ModelArtifact, load
from edgepack.recipe.model import Observer

SCRATCH: Final = ("student.model={scratch: {layers: 2, hidden: 96, heads: 4}}",)
ALONE: Final = ("teacher=null", "student.distill=null")
FIXED: Final = ("student.epochs=8", "student.learning_rate=1e-4")
UNQUANTIZED: Final = ("quantize.method=none",)
SUFFIXES: Final = {"entities": "jsonl"}  # of the others: tsv
UNLABELLED_TEXTS: Final = 5000


@dataclass(frozen=True)
class Choice:
    """One question: the data, keys that all its rows set, and the keys of each row."""

    data: str
    train_rows: int
    common: Sequence[str]
    rows: Mapping[str, Sequence[str]]
    seeds: int = 1
    unlabelled: bool = False


CHOICES: Final = {
    "learning rate": Choice(
        "news-topics", 3000, (*ALONE, *UNQUANTIZED),
        {rate: (f"student.learning_rate={rate}",) for rate in ("1e-4", "2e-4", "4e-4")},
    ),
    "distillation": Choice(
        "news-topics", 3000, UNQUANTIZED,
        {
            "alone": ALONE,
            "temperature 1": ("student.distill={temperature: 1.0, hard_weight: 0.3}",),
            "temperature 1, half of the labels": ("student.distill={temperature: 1.0, hard_weight: 0.5}",),
            "temperature 2": ("student.distill={temperature: 2.0, hard_weight: 0.3}",),
        },
    ),
    "distillation, 500 labelled rows and 5,000 texts": Choice(
        "news-topics", 500, UNQUANTIZED, {"alone": (*ALONE, "data.unlabelled=null"), "distilled": ()}, seeds=3,
        unlabelled=True,
    ),
    "width": Choice(
        "news-topics", 3000, (), {str(width): (f"student.width={width}",) for width in (1, 0.75, 0.67, 0.5)}
    ),
    "vocabulary": Choice(
        "news-topics", 3000, ALONE,
        {
            "keep": (),
            "trim": ("student.vocabulary=trim",),
            "min_count: 2": ("student.vocabulary={trim: {min_count: 2}}",),
            "characters: all": ("student.vocabulary={trim: {characters: all}}",),
        },
    ),
    "INT8": Choice(
        "news-topics", 3000, ALONE,
        {
            "none": UNQUANTIZED,
            **{f"ptq, {name}": (f"quantize.observer={name}",) for name in get_args(Observer)},
            "dynamic": ("quantize.method=dynamic",),
            "qat": ("quantize.method=qat",),
        },
    ),
    **{
        f"epochs, {data}, {rows} rows": Choice(
            data, rows, (*ALONE, *SCRATCH, *UNQUANTIZED), {"8 epochs at 1e-4": FIXED, "chosen": ()}
        )
        for data, rows in (("hotel-sentiment", 300), ("hotel-sentiment", 3000), ("news-topics", 600), ("entities", 600))
    },
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--teacher", default="ernie-fixture-base6")
    parser.add_argument("--student", default="ernie-fixture-nano")
    parser.add_argument("--only", choices=[*CHOICES], action="append")
    parser.add_argument("--work", type=Path, default=Path("build/choices"))
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    found = {}
    for name in options.only or CHOICES:
        found[name] = measured(CHOICES[name], options)
        show(name, found[name])
    print(json.dumps({"benchmark": "choices", "choices": found}, ensure_ascii=False))


def measured(choice: Choice, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The figures of each row, a list with a figure for each seed."""
    found: dict[str, dict[str, Any]] = {}
    for name, settings in choice.rows.items():
        for seed in range(choice.seeds):
            file = recipe(choice, options, seed)
            folders = build_recipe(file, options.work / "workspace", "export", (*choice.common, *settings))
            ships = load(ExportArtifact, folders["export"]).shipped_model
            figures = {
                "percent": round(100 * ships.ledger.score.value, 2),
                "low": round(100 * ships.ledger.score.low, 2),
                "high": round(100 * ships.ledger.score.high, 2),
                "megabytes": round(ships.onnx_bytes / 1e6, 2),
                "p50_ms": ships.ledger.p50_ms,
                "precision": ships.precision,
            }
            if "teacher" in folders:
                score = load(ModelArtifact, folders["teacher"]).test_score
                figures["teacher_percent"] = round(100 * score.value, 2)
            for key, value in figures.items():
                found.setdefault(name, {}).setdefault(key, []).append(value)
    return found


def recipe(choice: Choice, options: argparse.Namespace, seed: int) -> Path:
    """Write the recipe that all rows of a choice set keys of; the seed is the student's."""
    source, suffix = options.data / choice.data, SUFFIXES.get(choice.data, "tsv")
    data = {split: str((source / f"{split}.{suffix}").absolute()) for split in ("train", "dev", "test")}
    if choice.unlabelled:
        data["unlabelled"] = str(texts(source / f"train.{suffix}", options.work))
    common = {"max_length": 32 if choice.data == "news-topics" else 96, "device": "cpu"}
    document = {
        "edgepack": 1,
        "name": "choices",
        "version": "1.0.0",
        "task": "token-classification" if suffix == "jsonl" else "text-classification",
        "data": {**data, "train_rows": choice.train_rows, "seed": 0},
        "teacher": {"model": str((options.weights / options.teacher).absolute()), **common},
        "student": {"model": str((options.weights / options.student).absolute()), **common, "seed": seed},
        "linear": "off",
    }
    path: Path = options.work / f"{choice.data}-{choice.train_rows}-{seed}.yaml"
    path.write_text(json.dumps(document, ensure_ascii=False, indent=2), encoding="utf-8")  # JSON is YAML
    return path


def texts(table: Path, folder: Path) -> Path:
    """Write the first texts of a table with a header, one a line and without their labels."""
    head, *lines = table.read_text(encoding="utf-8").splitlines()
    column = head.split("\t").index("text")
    out = (folder / "unlabelled.txt").absolute()
    out.write_text("".join(line.split("\t")[column] + "\n" for line in lines[:UNLABELLED_TEXTS]), encoding="utf-8")
    return out


def show(name: str, rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the medians of each row, and the lowest and highest score of several seeds, or the interval of one."""
    print(f"{name}\n{'':18}score, %                      MB   p50 ms")
    for row, figures in rows.items():
        values = figures["percent"]
        low, high = (min(values), max(values)) if len(values) > 1 else (figures["low"][0], figures["high"][0])
        cell = f"{statistics.median(values):6.2f} ({low:.2f} to {high:.2f})"
        sizes = f"{figures['megabytes'][0]:8.2f} {statistics.median(figures['p50_ms']):8.2f}"
        teacher = f"  teacher {figures['teacher_percent'][0]:.2f}" if "teacher_percent" in figures else ""
        print(f"{row:18}{cell:24}{sizes}  {figures['precision'][0]}{teacher}", flush=True)


if __name__ == "__main__":
    main()
