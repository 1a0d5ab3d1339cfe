"""Stage `data`: check or generate the labelled rows and write them as JSON lines for all later stages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from edgepack import evaluation
from edgepack.artifacts import NO_SCALE, SPLITS, DataArtifact, Row, Scale, Split, split_file
from edgepack.data.sampling import Sampler
from edgepack.data.splits import Splits, load_splits
from edgepack.data.unlabelled import TextSet
from edgepack.progress import SILENT, Progress
from edgepack.progress import Task as Bar
from edgepack.recipe.model import HELD_OUT, Columns, Data
from edgepack.stages import keys
from edgepack.stages.stage import Context, Input, PlannedRows, Stage
from edgepack.tasks.registry import scale_of
from edgepack_runtime.tasks.task import Task

BAR_FROM_ROWS: Final = 200_000  # fewer rows are written within two seconds, without a bar
_ROWS_PER_UPDATE: Final = 10_000


@dataclass(frozen=True)
class DataStage(Stage[DataArtifact]):
    """Writes `train` (all rows or a seeded sample), `dev` and `test`, and unlabelled texts if the recipe names some.

    Unlabelled texts that also occur in dev or test (`load_splits`) or in the written training rows are left out.
    `load_splits` reads the files once, to check and count; iterating over its rows reads them again, to write. Between
    the two a row takes 26 bytes (34 with several labels or spans), and no text is kept.

    Errors of `run`: RecipeInvalidError with every finding, if the data cannot be used; StageFailedError if a file
    changed between the passes.
    """

    section: Data

    name = "data"
    version = 7
    kind = DataArtifact

    def decides(self, ctx: Context) -> Any:
        return keys.data_section(self.section)

    def inputs(self, ctx: Context) -> list[Input]:
        return keys.data_digests(self.section)

    def planned_rows(self, cached: DataArtifact | None) -> PlannedRows:
        """The rows of a build: those of its `cached` data, else counted in the files.

        Raises:
            RecipeInvalidError: the data cannot be used.
        """
        if cached is not None:
            return PlannedRows(cached.rows, cached.token_counts.get("train", {}))
        splits, wanted = load_splits(self.section), self.section.train_rows
        counts: dict[Split, int] = {name: len(rows) for name, rows in splits.rows.items()}
        if splits.unlabelled:
            counts["unlabelled"] = len(splits.unlabelled)
        if wanted is not None:
            counts["train"] = min(counts["train"], wanted)
        return PlannedRows(counts, splits.lengths["train"].rows_by_tokens)

    def run(self, ctx: Context, out: Path) -> DataArtifact:
        section, progress = self.section, ctx.progress
        splits = load_splits(section, progress)
        labels = splits.classes  # of all rows: a sample may miss a rare one
        unlabelled = splits.unlabelled
        with _bar(sum(map(len, splits.rows.values())) + len(unlabelled or ()), progress) as bar:
            counts = _write_train(section, splits, out, bar)
            for name in HELD_OUT:
                rows = _counted(splits.rows[name], bar)
                counts[name] = write_rows(out / split_file(name), rows, section.columns.answer)
            if unlabelled is not None:
                untrained = _not_in_train(unlabelled, section.columns.text_task, out)
                counts["unlabelled"] = write_rows(out / split_file("unlabelled"), _counted(untrained, bar), None)
        progress.line(describe(counts, labels))
        scale = scale_of(section.columns.text_task, _written(out, section.columns.text_task))
        return data_artifact(out, section.columns, labels, counts, splits, scale)


def data_artifact(
    out: Path,
    columns: Columns,
    labels: tuple[str, ...],
    counts: Mapping[Split, int],
    splits: Splits,
    scale: Scale = NO_SCALE,
) -> DataArtifact:
    """The artifact of rows that were written to `out`; `scale` is for those that a network learns."""
    task = columns.text_task
    made = DataArtifact(
        out,
        labels=labels,
        rows={split: counts[split] for split in SPLITS if split in counts},
        # With the file's name, not its path: a project may move.
        warnings=tuple(replace(item, file=Path(item.file.name)).sentence for item in splits.warnings),
        token_counts={name: lengths.rows_by_tokens for name, lengths in splits.lengths.items()},
        task=task.name,
        multi_label=task.multi_label,
        scale=scale,
    )
    return replace(made, rule=evaluation.rule_scores(made))


def describe(counts: Mapping[Split, int], labels: Iterable[str]) -> str:
    """The number of rows in each split, and the labels if there are any."""
    sizes = ", ".join(f"{counts[name]} {name}" for name in SPLITS if name in counts)
    names = ", ".join(labels)
    return f"data: {sizes}; labels {names}" if names else f"data: {sizes}"


def _write_train(section: Data, splits: Splits, out: Path, bar: Bar) -> dict[Split, int]:
    """Write the rows to train on, all or a sample, in file order."""
    rows = len(splits.rows["train"])
    is_drawn = Sampler(section.train_rows or rows, rows, f"train/{section.seed}")
    sample = (row for row in _counted(splits.rows["train"], bar) if is_drawn())
    return {"train": write_rows(out / split_file("train"), sample, section.columns.answer)}


def _not_in_train(unlabelled: Iterable[Row], task: Task, out: Path) -> Iterator[Row]:
    """The unlabelled texts that are not among the written training rows."""
    trained = TextSet.of_rows(_written(out, task))
    yield from (row for row in unlabelled if row not in trained)


def _written(out: Path, task: Task) -> Iterator[Row]:
    """The written training rows."""
    with (out / split_file("train")).open(encoding="utf-8") as lines:
        yield from (Row.from_document(json.loads(line), task) for line in lines)


def write_rows(file: Path, rows: Iterable[Row], key: str | None) -> int:
    """Write rows as JSON lines, with the label under the name `key` (None: without labels); return their number."""
    count = 0
    with file.open("w", encoding="utf-8") as stream:
        for row in rows:
            stream.write(json.dumps(row.document(key), ensure_ascii=False) + "\n")
            count += 1
    return count


@contextmanager
def _bar(rows: int, progress: Progress) -> Iterator[Bar]:
    with (progress if rows >= BAR_FROM_ROWS else SILENT).task("writing, rows", rows) as task:
        yield task


def _counted(rows: Iterable[Row], bar: Bar) -> Iterator[Row]:
    number = 0
    for number, row in enumerate(rows, start=1):
        yield row
        if number % _ROWS_PER_UPDATE == 0:
            bar.advance(_ROWS_PER_UPDATE)
    bar.advance(number % _ROWS_PER_UPDATE)
