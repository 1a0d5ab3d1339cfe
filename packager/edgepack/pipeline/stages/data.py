"""Stage `data`: check or generate the labelled rows and write them as JSON lines for all later stages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from edgepack.artifacts import SPLITS, DataArtifact, Row, Split
from edgepack.data.loader import Splits, load_splits, load_test
from edgepack.data.sampling import Sampler
from edgepack.data.split_stats import HELD_OUT
from edgepack.data.unlabelled import HeldTexts
from edgepack.progress import SILENT, Progress, Task
from edgepack.recipe.model import AnswerKey, Data, GivenData
from edgepack_runtime.util.spans import types_of

VERSION = 5
BAR_FROM_ROWS: Final = 200_000  # fewer rows are written within two seconds, without a bar
_ROWS_PER_UPDATE: Final = 10_000


def run(section: Data, out: Path, progress: Progress) -> DataArtifact:
    """Write `train` (all rows or a seeded sample), `dev` and `test`, and unlabelled texts if the recipe names some.

    Unlabelled texts that also occur in train, dev or test are left out. The first of two passes checks and counts, the
    second writes; between them a row takes 26 bytes (34 with several labels or spans) and no text is kept.

    Raises:
        RecipeInvalidError: the data cannot be used; lists every finding.
        StageFailedError: a file changed between the passes.
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
    sizes = ", ".join(f"{counts[name]} {name}" for name in SPLITS if name in counts)
    progress.line(f"data: {sizes}; labels {', '.join(labels)}")
    return DataArtifact(
        out,
        labels=labels,
        rows=counts,
        # With the file's name, not its path: a project may move.
        warnings=tuple(str(replace(item, file=Path(item.file.name))) for item in splits.warnings),
        token_counts={name: lengths.rows_by_tokens for name, lengths in splits.lengths.items()},
        task=section.columns.task,
        multi_label=section.columns.answer == "labels",
    )


def run_given(
    section: GivenData, labels: Sequence[str], out: Path, progress: Progress, *, calibration: int = 0
) -> DataArtifact:
    """Write the `test` rows of a given model with these `labels`, in the order of its outputs.

    Args:
        calibration: the most rows whose texts become `unlabelled` instead, at most a quarter: what calibrates a model
            does not score it.

    Raises:
        RecipeInvalidError, StageFailedError: as `run`.
    """
    tokens = section.columns.task == "token-classification"
    classes = types_of(labels) if tokens else tuple(labels)
    rows, lengths = load_test(section, classes, progress)
    counts: dict[Split, int] = {}
    scored: Iterable[Row] = rows
    if calibration:
        wanted = min(calibration, len(rows) // 4)
        drawn = Sampler(wanted, len(rows), "calibration")
        apart = [drawn() for _ in rows]
        texts = (row for row, taken in zip(rows, apart, strict=True) if taken)
        counts["unlabelled"] = _write(out / "unlabelled.jsonl", texts, None)
        scored = (row for row, taken in zip(rows, apart, strict=True) if not taken)
    counts["test"] = _write(out / "test.jsonl", scored, section.columns.answer)
    sizes = ", ".join(f"{counts[name]} {name}" for name in SPLITS if name in counts)
    progress.line(f"data: {sizes}; labels {', '.join(classes)}")
    return DataArtifact(
        out,
        labels=classes,
        rows=counts,
        warnings=(),
        token_counts={"test": lengths.rows_by_tokens},
        task=section.columns.task,
        multi_label=section.columns.answer == "labels",
    )


def _write_train(section: Data, splits: Splits, out: Path, task: Task) -> dict[Split, int]:
    """Write the rows to train on, all or a sample, in file order."""
    rows = len(splits.rows["train"])
    training = Sampler(section.train_rows or rows, rows, f"train/{section.seed}")
    drawn = (row for row in _counted(splits.rows["train"], task) if training())
    return {"train": _write(out / "train.jsonl", drawn, section.columns.answer)}


def _untrained(extra: Iterable[Row], out: Path) -> Iterator[Row]:
    """The unlabelled texts that are not among the written training rows."""
    with (out / "train.jsonl").open(encoding="utf-8") as lines:
        trained = HeldTexts.of_rows(Row.from_document(json.loads(line)) for line in lines)
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
        if number % _ROWS_PER_UPDATE == 0:
            task.advance(_ROWS_PER_UPDATE)
    task.advance(number % _ROWS_PER_UPDATE)
