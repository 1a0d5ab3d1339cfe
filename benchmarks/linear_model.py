"""Is the encoder worth it? Linear model, teacher, student alone and distilled, INT8, sum and cascade, on real data.

Prints a table for each data set and ends in one JSON line. Started again it continues: every training is a stage of a
build, kept in --work.

    python benchmarks/linear_model.py --data DATA --weights WEIGHTS [--only hotel-sentiment] [--seeds 3] [--rows N]
        [--work DIR]

DATA holds folders with train, dev and test files (.tsv) of hotel-sentiment, news-topics and question-pairs; WEIGHTS
holds ERNIE folders for --teacher and --student. The built-in reviews need neither. The seeds are those of the students;
the teacher and the linear model are trained once. Times are text in to answer out, batch 1, one thread, all methods by
turns; accuracies are of the whole test file. Pairs have no linear model: the most frequent label stands in its place.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from build_recipe import build_recipe

from edgepack.artifacts import CombineArtifact, DataArtifact, ExportArtifact, ModelArtifact, Score, load, proportion

ROLES: Final = ("distilled", "alone")
REVIEWS: Final = "built-in reviews"
PAIRS: Final = "question-pairs"
SCRATCH: Final[Mapping[str, Any]] = {
    "teacher": {"scratch": {"layers": 4, "hidden": 440, "heads": 10, "dropout": 0.0}},
    "student": {"scratch": {"layers": 4, "hidden": 312, "heads": 12, "dropout": 0.0}},
}


@dataclass(frozen=True)
class Case:
    """Budget of the trainings on a data set."""

    rows: int | None
    max_length: int
    teacher: Mapping[str, Any]
    student: Mapping[str, Any]


CASES: Final = {
    "news-topics": Case(5000, 32, {"epochs": 2, "learning_rate": 5e-5}, {"epochs": 3, "learning_rate": 2e-4}),
    REVIEWS: Case(None, 32, {"epochs": 1.5, "learning_rate": 2e-4}, {"epochs": 2, "learning_rate": 3e-4}),
    "hotel-sentiment": Case(1500, 96, {"epochs": 2, "learning_rate": 5e-5}, {"epochs": 3, "learning_rate": 1e-4}),
    PAIRS: Case(5000, 48, {"epochs": 2, "learning_rate": 5e-5}, {"epochs": 3, "learning_rate": 2e-4}),
}


def recipe(name: str, case: Case, options: argparse.Namespace, seed: int, role: str) -> dict[str, Any]:
    """The recipe of one student; `alone` has no teacher."""
    data: dict[str, Any] = {"train": "builtin:reviews-zh"}
    models: Mapping[str, Any] = SCRATCH
    if name != REVIEWS:
        data = {split: str(options.data / name / f"{split}.tsv") for split in ("train", "dev", "test")}
        models = {part: str(options.weights / getattr(options, part)) for part in ("teacher", "student")}
    data |= {"train_rows": case.rows if options.rows is None else options.rows or None, "seed": 0}
    common = {"max_length": case.max_length, "batch_size": 32, "device": "cpu"}
    found = {
        "edgepack": 1,
        "name": "combine",
        "version": "0.0.1",
        "data": data,
        "teacher": {"model": models["teacher"], **case.teacher, **common, "seed": 0},
        "student": {"model": models["student"], **case.student, **common, "seed": seed},
    }
    if name == PAIRS:
        found["task"] = "text-pair-classification"
        data["columns"] = {"text": "text", "text_pair": "text_pair", "label": "label"}
    if role == "alone":
        return {**found, "teacher": None}
    found["student"]["distill"] = {"temperature": 2.0, "hard_weight": 0.3}
    return found


def measured(name: str, case: Case, options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """The figures of one seed: of each model and method to answer, and what `auto` ships."""
    rows: dict[str, Any] = {}
    for role in ROLES:
        work: Path = options.work / name.replace(" ", "-") / str(seed) / role
        work.mkdir(parents=True, exist_ok=True)
        file = work / "recipe.yaml"
        file.write_text(yaml.safe_dump(recipe(name, case, options, seed, role)), encoding="utf-8")
        folders = build_recipe(file, options.work / "workspace", "export" if name == PAIRS else "combine")
        rows[f"student {role}"] = of_score(load(ModelArtifact, folders["student"]).test_score)
        if role == "alone":
            continue
        rows["teacher"] = of_score(load(ModelArtifact, folders["teacher"]).test_score)
        if name == PAIRS:
            rows |= of_pairs(load(DataArtifact, folders["data"]), load(ExportArtifact, folders["export"]))
            continue
        combined = load(CombineArtifact, folders["combine"])
        for method in combined.methods:
            rows["INT8" if method.name == "encoder" else method.name] = {
                **of_score(method.test_scores[combined.metric]),
                "mean_ms": method.mean_ms,
                "p95_ms": method.p95_ms,
                "weight_mb": round(method.weight_bytes / 1e6, 2),
                "alone": round(method.share, 4),
                **asdict(method.reliability),
            }
        rows["auto"] = {"ships": combined.chosen, **rows["INT8" if combined.chosen == "encoder" else combined.chosen]}
    return rows


def of_pairs(data: DataArtifact, exported: ExportArtifact) -> dict[str, Any]:
    """The figures of the most frequent label and of the model that ships."""
    labels = [row.label for row in data.read("test")]
    ships = exported.shipped_model
    return {
        "majority": of_score(proportion(max(map(labels.count, set(labels))), len(labels))),
        {"int8": "INT8"}.get(ships.precision, ships.precision): {
            **of_score(ships.ledger.score),
            "mean_ms": ships.ledger.mean_ms,
            "p95_ms": ships.ledger.p95_ms,
            "weight_mb": round(ships.onnx_bytes / 1e6, 2),
        },
    }


def of_score(score: Score) -> dict[str, float]:
    """Accuracy and its interval in percent."""
    return {key: round(100 * getattr(score, key), 2) for key in ("value", "low", "high")}


def table(name: str, seeds: list[dict[str, Any]]) -> None:
    """Print the median of each figure over the seeds, and the spread of the accuracy."""
    print(f"{name}, {len(seeds)} seeds\n{'':18}accuracy, %            mean ms   p95 ms      MB  alone  ECE, points")
    for row in seeds[0]:
        found = [one[row] for one in seeds]
        values = sorted(one["value"] for one in found)
        cells = [f"{statistics.median(values):6.2f} ({values[0]:.2f} to {values[-1]:.2f})"]
        for key, digits in (("mean_ms", 3), ("p95_ms", 3), ("weight_mb", 2), ("alone", 2), ("ece_points", 1)):
            known = [one[key] for one in found if one.get(key) is not None]
            cells.append(f"{statistics.median(known):8.{digits}f}" if known else " " * 8)
        print(
            f"{row:18}{cells[0]:23}{' '.join(cells[1:])}  {', '.join(one.get('ships', '') for one in found)}".rstrip()
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--teacher", default="ernie-fixture-base6")
    parser.add_argument("--student", default="ernie-fixture-nano")
    parser.add_argument("--only", choices=[*CASES], action="append")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, help="training rows, a seeded sample; 0 for all")
    parser.add_argument("--work", type=Path, default=Path("build/combined"))
    options = parser.parse_args()
    results: dict[str, list[dict[str, Any]]] = {}
    for name in options.only or CASES:
        for seed in range(options.seeds):
            results.setdefault(name, []).append(measured(name, CASES[name], options, seed))
            print(f"{name}: seed {seed} done", file=sys.stderr)
        table(name, results[name])
    print(json.dumps({"benchmark": "combine", "rows": options.rows, "results": results}, ensure_ascii=False))
