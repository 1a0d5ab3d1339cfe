"""What distillation is worth on real data: teacher, student alone and student distilled, several seeds each.

Prints a table and ends in one JSON line. Goes on where it was when it is started again: every training is a stage of
a build, kept in --work.

    python benchmarks/distillation.py --data DATA --weights WEIGHTS [--only news-topics] [--seeds 3] [--work DIR]

DATA holds folders with train, dev and test files of hotel-sentiment, news-topics (.tsv) and entities (.jsonl); of
news-topics, whose test file has four of the ten topics, the dev file serves for both: 800 rows to choose epochs by, the
others to test with. WEIGHTS
holds ERNIE folders for --teacher and --student. The budgets below are small, so that two CPU cores finish: a part of
the rows, few epochs. Each seed draws other rows, other first weights of the head, another order and other dropout.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from build_recipe import build_recipe

# Of the dev file, to choose the epoch by: scoring all 4,000 after every epoch takes as long as training.
DEV_ROWS: Final = 800
# A teacher knows the rows that it was trained on nearly by heart: softened, its labels tell more than its choices. That
# takes many steps to learn; in few of them, or from texts that the teacher has not seen, sharp labels teach more.
SOFT: Final = {"temperature": 2.0, "hard_weight": 0.1}
SHARP: Final = {"temperature": 1.0, "hard_weight": 0.5}
ROLES: Final = ("teacher", "alone", "distilled")


@dataclass(frozen=True)
class Case:
    """A data set with the budget of one training of each model. Without `unlabelled`, the labelled rows are all."""

    data: str
    task: str
    metric: str  # what epochs are chosen by, and what the table shows
    suffix: str
    rows: int
    max_length: int
    teacher: dict[str, Any]
    student: dict[str, Any]
    unlabelled: int = 0  # texts of the training rows, their labels thrown away
    distilled_epochs: float | None = None  # of the distilled student, where texts make its epochs longer
    distill: Mapping[str, float] = field(default_factory=lambda: SHARP)
    tested_on_dev: bool = False  # on the rows of the dev file that no epoch is chosen by


CASES: Final = {
    "news-topics": Case(
        "news-topics", "text-classification", "accuracy", "tsv", 3000, 28,
        {"epochs": 4, "learning_rate": 1e-4}, {"epochs": 10, "learning_rate": 2e-4},
        distill=SOFT, tested_on_dev=True,
    ),
    "news-topics, few labels": Case(
        "news-topics", "text-classification", "accuracy", "tsv", 500, 28,
        {"epochs": 6, "learning_rate": 1e-4}, {"epochs": 8, "learning_rate": 2e-4},
        unlabelled=5000, distilled_epochs=3, tested_on_dev=True,
    ),
    "news-topics, more texts": Case(
        "news-topics", "text-classification", "accuracy", "tsv", 3000, 28,
        {"epochs": 4, "learning_rate": 1e-4}, {"epochs": 10, "learning_rate": 2e-4},
        unlabelled=6000, distilled_epochs=4, tested_on_dev=True,
    ),
    "entities": Case(
        "entities", "token-classification", "entity_f1", "jsonl", 1200, 52,
        {"epochs": 4, "learning_rate": 1e-4}, {"epochs": 6, "learning_rate": 3e-4},
    ),
    "hotel-sentiment": Case(
        "hotel-sentiment", "text-classification", "accuracy", "tsv", 800, 64,
        {"epochs": 3, "learning_rate": 1e-4}, {"epochs": 4, "learning_rate": 2e-4},
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Trained:
    """One training: its scores on test and dev (0 to 1), seconds an epoch with dev in them, tokens a second."""

    score: float
    dev_score: float
    seconds_per_epoch: float
    tokens_per_second: float
    steps: int


def recipe(case: Case, options: argparse.Namespace, seed: int, role: str, folder: Path) -> Path:
    """Write the recipe of one training; `alone` has no teacher."""
    source = options.data / case.data
    files = {name: source / f"{name}.{case.suffix}" for name in ("train", "dev", "test")}
    dev = files["dev"]
    files["dev"] = rows_of(dev, slice(DEV_ROWS), folder / f"dev.{case.suffix}")
    if case.tested_on_dev:
        files["test"] = rows_of(dev, slice(DEV_ROWS, None), folder / f"test.{case.suffix}")
    data = {**{name: str(file) for name, file in files.items()}, "train_rows": case.rows, "seed": seed}
    common = {"max_length": case.max_length, "seed": seed, "device": "cpu"}
    teacher = {"model": str(options.weights / options.teacher), **case.teacher, **common}
    student = {"model": str(options.weights / options.student), **case.student, **common}
    if role == "distilled":
        student |= {"distill": dict(case.distill)}
        if case.distilled_epochs is not None:
            student |= {"epochs": case.distilled_epochs}
        if case.unlabelled:
            data |= {"unlabelled": str(texts_of(source / f"train.{case.suffix}", case.unlabelled, folder))}
    document = {
        "edgepack": 1, "name": "distillation", "version": "1.0.0", "task": case.task, "data": data,
        **({} if role == "alone" else {"teacher": teacher}), "student": student,
    }  # fmt: skip
    path = folder / f"{role}-{seed}.yaml"
    path.write_text(json.dumps(document, ensure_ascii=False, indent=2), encoding="utf-8")  # JSON is YAML
    return path


def rows_of(table: Path, some: slice, out: Path) -> Path:
    """Write some rows of a table that has one line a row, with its header."""
    lines = table.read_text(encoding="utf-8").splitlines(keepends=True)
    header = 1 if table.suffix == ".tsv" else 0
    out.write_text("".join([*lines[:header], *lines[header:][some]]), encoding="utf-8")
    return out


def texts_of(table: Path, count: int, folder: Path) -> Path:
    """The first texts of a TSV with a header, one a line and without their labels."""
    lines = table.read_text(encoding="utf-8").splitlines()
    column = lines[0].split("\t").index("text")
    out = folder / "unlabelled.txt"
    out.write_text("".join(line.split("\t")[column] + "\n" for line in lines[1 : count + 1]), encoding="utf-8")
    return out


def read(folder: Path, metric: str) -> Trained:
    """What a stage wrote down about its model."""
    found = json.loads((folder / "artifact.json").read_text(encoding="utf-8"))
    return Trained(
        found["test_scores"][metric]["value"],
        found["dev_score"]["value"],
        found["train_seconds"] / found["epochs"],
        found["usage"]["tokens_per_second"],
        found["steps"],
    )


def measure(name: str, options: argparse.Namespace) -> dict[str, list[Trained]]:
    """Train a case's three models once a seed."""
    case = CASES[name]
    folder = options.work / name.replace(",", "").replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[Trained]] = {role: [] for role in ROLES}
    for seed in range(options.seeds):
        paths = {role: recipe(case, options, seed, role, folder) for role in ("alone", "distilled")}
        alone = build_recipe(paths["alone"], options.work / "stages", "student")
        both = build_recipe(paths["distilled"], options.work / "stages", "student")
        folders = {"teacher": both["teacher"], "alone": alone["student"], "distilled": both["student"]}
        for role, at in folders.items():
            found[role].append(read(at, case.metric))
        said = ", ".join(f"{role} {found[role][-1].score:.1%} ({found[role][-1].dev_score:.1%} dev)" for role in ROLES)
        print(f"== {name}, seed {seed}: {said}", file=sys.stderr, flush=True)
    return found


def spread(values: Sequence[float]) -> str:
    """Mean and range of scores, in percent."""
    mean, low, high = (100 * value for value in (statistics.mean(values), min(values), max(values)))
    return f"{mean:.1f} ({low:.1f}-{high:.1f})"


def gap_closed(found: dict[str, list[Trained]]) -> float | None:
    """What part of the teacher's lead over the student alone distillation gained; None without a lead."""
    teacher, alone, distilled = (statistics.mean(run.score for run in found[role]) for role in ROLES)
    return (distilled - alone) / (teacher - alone) if teacher > alone else None


def table(results: dict[str, dict[str, list[Trained]]]) -> str:
    """Markdown: a line a case."""
    lines = [
        "| data, labelled rows, metric in %: test; dev | teacher | student alone | student distilled | of the gap | "
        "s an epoch: teacher, alone, distilled |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in results.items():
        case = CASES[name]
        closed = gap_closed(found)
        cells = [
            f"{name}, {case.rows:,}, {case.metric}",
            *(
                f"{spread([run.score for run in found[role]])}; {spread([run.dev_score for run in found[role]])}"
                for role in ROLES
            ),
            "no gap" if closed is None else f"{closed:.0%}",
            ", ".join(f"{statistics.median(run.seconds_per_epoch for run in found[role]):.0f}" for role in ROLES),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def arguments(about: str | None) -> argparse.ArgumentParser:
    """What every benchmark on these cases is told."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--teacher", default="ernie-fixture-base6", help="folder in WEIGHTS")
    parser.add_argument("--student", default="ernie-fixture-nano", help="folder in WEIGHTS")
    parser.add_argument("--work", type=Path, default=Path(".edgepack/distillation"))
    return parser


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The arguments, every path absolute."""
    options = parser.parse_args()
    for name in ("data", "weights", "work"):
        setattr(options, name, getattr(options, name).resolve())
    return options


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--only", action="append", choices=list(CASES), help="a case; several may be named")
    parser.add_argument("--seeds", type=int, default=3)
    options = parsed(parser)
    results = {name: measure(name, options) for name in options.only or CASES}
    print(table(results))
    document = {
        name: {
            "labelled_rows": CASES[name].rows,
            "unlabelled_texts": CASES[name].unlabelled,
            "metric": CASES[name].metric,
            "gap_closed": gap_closed(found),
            **{role: [asdict(run) for run in runs] for role, runs in found.items()},
        }
        for name, found in results.items()
    }
    print(json.dumps(document, ensure_ascii=False))


if __name__ == "__main__":
    main()
