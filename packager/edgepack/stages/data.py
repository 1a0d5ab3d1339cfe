"""Read or generate the labelled rows and lay them down in one form for all later stages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

from edgepack.artifacts import DataArtifact, Row, Split
from edgepack.datasets.load import load_splits
from edgepack.progress import Progress
from edgepack.recipe.model import Data

VERSION = 1


def run(section: Data, out: Path, progress: Progress) -> DataArtifact:
    """Write `train`, `dev`, `test` and `calibration` rows; calibration rows are drawn from train, seeded.

    Raises:
        RecipeInvalidError: with every finding, when the data cannot be used.
    """
    splits = load_splits(section)
    random = Random(section.seed)
    train = splits.rows["train"]
    labels = tuple(sorted({row.label for row in train}))  # of all rows: the sample below may miss a rare one
    if section.train_rows is not None and section.train_rows < len(train):
        train = random.sample(train, section.train_rows)
    rows: dict[Split, list[Row]] = {
        "train": train,
        "dev": splits.rows["dev"],
        "test": splits.rows["test"],
        "calibration": random.sample(train, min(section.calibration.rows, len(train))),
    }
    for split, members in rows.items():
        _write(out / f"{split}.jsonl", members)
    counts = {split: len(members) for split, members in rows.items()}
    progress.line(
        f"data: {counts['train']} train, {counts['dev']} dev, {counts['test']} test; labels {', '.join(labels)}"
    )
    for warning in splits.warnings:
        progress.line(str(warning))
    return DataArtifact(
        out,
        labels=labels,
        rows=counts,
        source=section.train,
        warnings=tuple(str(item) for item in splits.warnings),
    )


def _write(file: Path, rows: Sequence[Row]) -> None:
    with file.open("w", encoding="utf-8") as stream:
        for row in rows:
            stream.write(json.dumps({"text": row.text, "label": row.label}, ensure_ascii=False) + "\n")
