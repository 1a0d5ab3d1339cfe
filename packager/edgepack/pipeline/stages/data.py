"""Check or generate the labelled rows and lay them down in one form for all later stages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from edgepack.artifacts import SPLITS, DataArtifact, Row, Split
from edgepack.data.loader import Splits, load_splits
from edgepack.data.sampling import Draw
from edgepack.data.split_stats import HELD_OUT
from edgepack.data.unlabelled import HeldTexts
from edgepack.progress import SILENT, Progress, Task
from edgepack.recipe.model import AnswerKey, Data

VERSION = 5
BAR_FROM_ROWS: Final = 200_000  # fewer are written within two seconds, and need no bar
_SAY_EACH: Final = 10_000  # rows between two moves of the bar


def run(section: Data, out: Path, progress: Progress) -> DataArtifact:
    """Write `train`, `dev` and `test` rows; those to train on may be a sample, seeded.

    Unlabelled texts are written too where the recipe names some, without those that dev, test or the rows to train on
    hold: what is trained on with its label has no need of a guess.

    Two passes: the first checks and counts, the second writes. Of each row 26 bytes are kept in between, of one with
    several labels or spans 34; no text.

    Raises:
        RecipeInvalidError: with every finding, when the data cannot be used.
        StageFailedError: when a file changed between the passes.
    """
    splits = load_splits(section, progress)
    labels = tuple(sorted(splits.labels["train"]))  # of all rows: a sample may miss a rare one
    extra = splits.unlabelled
    with _bar(sum(map(len, splits.rows.values())) + len(extra or ()), progress) as task:
        counts = _write_train(section, splits, out, task)
        for name in HELD_OUT:
            counts[name] = _write(out / f"{name}.jsonl", _counted(splits.rows[name], task), section.columns.answer)
        if extra is not None:
            counts["unlabelled"] = _write(out / "unlabelled.jsonl", _counted(_untrained(extra, out), task), None)
    told = ", ".join(f"{counts[name]} {name}" for name in SPLITS if name in counts)
    progress.line(f"data: {told}; labels {', '.join(labels)}")
    for warning in splits.warnings:
        progress.line(str(warning))
    return DataArtifact(
        out,
        labels=labels,
        rows=counts,
        # By name alone: where the files lie today is no part of what they are.
        warnings=tuple(str(replace(item, file=Path(item.file.name))) for item in splits.warnings),
        token_counts={name: lengths.rows_by_tokens for name, lengths in splits.lengths.items()},
        task=section.columns.task,
        multi_label=section.columns.answer == "labels",
    )


def _write_train(section: Data, splits: Splits, out: Path, task: Task) -> dict[Split, int]:
    """The rows to train on, all or a sample, in file order."""
    rows = len(splits.rows["train"])
    training = Draw(section.train_rows or rows, rows, f"train/{section.seed}")
    drawn = (row for row in _counted(splits.rows["train"], task) if training())
    return {"train": _write(out / "train.jsonl", drawn, section.columns.answer)}


def _untrained(extra: Iterable[Row], out: Path) -> Iterator[Row]:
    """Those of the unlabelled texts that were not written as rows to train on."""
    with (out / "train.jsonl").open(encoding="utf-8") as lines:
        trained = HeldTexts.of_rows(Row.of(json.loads(line)) for line in lines)
    yield from (row for row in extra if row not in trained)


def _write(file: Path, rows: Iterable[Row], key: AnswerKey | None) -> int:
    count = 0
    with file.open("w", encoding="utf-8") as stream:
        for row in rows:
            stream.write(json.dumps(row.document(key), ensure_ascii=False) + "\n")
            count += 1
    return count


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
