"""Check or generate the labelled rows and lay them down in one form for all later stages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

from edgepack.artifacts import DataArtifact, Row, Split
from edgepack.datasets.draw import Draw
from edgepack.datasets.facts import HELD_OUT
from edgepack.datasets.load import Splits, load_splits
from edgepack.progress import SILENT, Progress, Task
from edgepack.recipe.model import Data

VERSION = 2
BAR_FROM_ROWS: Final = 200_000  # fewer are written within two seconds, and need no bar
_SAY_EACH: Final = 10_000  # rows between two moves of the bar


def run(section: Data, out: Path, progress: Progress) -> DataArtifact:
    """Write `train`, `dev`, `test` and `calibration` rows; calibration rows are drawn from train, seeded.

    Two passes: the first checks and counts, the second writes. Of each row 26 bytes are kept in between, no text.

    Raises:
        RecipeInvalidError: with every finding, when the data cannot be used.
        StageFailedError: when a file changed between the passes.
    """
    splits = load_splits(section, progress)
    labels = tuple(sorted(splits.labels["train"]))  # of all rows: a sample may miss a rare one
    with _bar(sum(map(len, splits.rows.values())), progress) as task:
        counts = _write_train(section, splits, out, task)
        for name in HELD_OUT:
            counts[name] = _write(out / f"{name}.jsonl", _counted(splits.rows[name], task))
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
        token_counts={name: lengths.rows_by_tokens for name, lengths in splits.lengths.items()},
    )


def _write_train(section: Data, splits: Splits, out: Path, task: Task) -> dict[Split, int]:
    """The rows to train on, all or a sample, and the sample of those that calibrates; both in file order."""
    rows = len(splits.rows["train"])
    training = Draw(section.train_rows or rows, rows, f"train/{section.seed}")
    calibrating = Draw(section.calibration.rows, training.size, f"calibration/{section.seed}")
    counts: dict[Split, int] = {"train": training.size, "calibration": calibrating.size}
    with (
        (out / "train.jsonl").open("w", encoding="utf-8") as train,
        (out / "calibration.jsonl").open("w", encoding="utf-8") as calibration,
    ):
        for row in _counted(splits.rows["train"], task):
            if training():
                _write_row(train, row)
                if calibrating():
                    _write_row(calibration, row)
    return counts


def _write(file: Path, rows: Iterable[Row]) -> int:
    count = 0
    with file.open("w", encoding="utf-8") as stream:
        for row in rows:
            _write_row(stream, row)
            count += 1
    return count


def _write_row(stream: TextIO, row: Row) -> None:
    stream.write(json.dumps({"text": row.text, "label": row.label}, ensure_ascii=False) + "\n")


@contextmanager
def _bar(rows: int, progress: Progress) -> Iterator[Task]:
    with (progress if rows >= BAR_FROM_ROWS else SILENT).task("writing, rows", rows) as task:
        yield task


def _counted(rows: Iterable[Row], task: Task) -> Iterator[Row]:
    number = 0
    for number, row in enumerate(rows, start=1):
        yield row
        if number % _SAY_EACH == 0:
            task.advance(_SAY_EACH)
    task.advance(number % _SAY_EACH)
