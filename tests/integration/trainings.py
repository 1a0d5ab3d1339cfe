"""Small trainings of the real stack that end in a second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from edgepack.artifacts import DataArtifact, Row, Usage
from edgepack.progress import SILENT
from edgepack.recipe.training import Distill, FromScratch, Training
from edgepack.tasks.number import Number
from edgepack.training import environment
from edgepack.training.checkpoint import Arrays, Checkpoint
from edgepack_runtime.tasks.registry import TaskName
from edgepack_runtime.util.spans import Span

SHAPE = FromScratch.model_validate({"scratch": {"layers": 2, "hidden": 16, "heads": 2, "dropout": 0.2}})
CALM = FromScratch.model_validate({"scratch": {"layers": 2, "hidden": 16, "heads": 2, "dropout": 0}})
ABLE = FromScratch.model_validate({"scratch": {"layers": 1, "hidden": 64, "heads": 4, "dropout": 0}})
SETTINGS = Training(epochs=2.5, batch_size=8, learning_rate=1e-3, max_length=16, seed=3)
ONE = [Row(f"第{number}间房{'很干净' if number % 2 else '不干净'}", "ab"[number % 2]) for number in range(52)]
PAIRS = [Row(f"第{n}间", "ab"[n % 2], f"{'很' if n % 2 else '不'}干净") for n in range(52)]
MANY = [
    Row(f"{'干净' * (n % 2)}安静{'便宜' * (n % 3 == 1)}", tuple("ab"[i] for i in range(2) if n % (i + 2) == 1))
    for n in range(52)
]
# The room, and what is said of it: "第7间" and "干净" in "第7间房很干净".
SPANS = [
    Row(f"第{n}间房很干净", (Span(0, 2 + len(str(n)), "a"), Span(4 + len(str(n)), 6 + len(str(n)), "b")))
    for n in range(52)
]


NUMBERS = [Row(f"第{n}间房{'很' * (n % 4)}干净", 500.0 + 100 * (n % 4)) for n in range(52)]  # far from 0 and 1


# The room is a slot, and what is wanted of it the intent.
INTENTS = [
    Row(f"{'打扫' if n % 2 else '预订'}第{n}间房", ("intent=" + "ab"[n % 2], Span(2, 4 + len(str(n)), "room")))
    for n in range(52)
]


# The number of the room is the answer; of texts of two windows it is in one of them. Each fourth has none.
ANSWERS = [
    Row(
        "几号房",
        (Span(start, start + len(str(n)), str(n)),) if n % 4 else (),
        f"{'很' * start}{n if n % 4 else ''}号房{'静' * (4 - n % 3)}",
    )
    for n in range(10, 62)
    for start in [n % 7]
]


class Heard:
    """A progress that keeps what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.line = self.lines.append
        self.task = SILENT.task

    @property
    def beside_epochs(self) -> list[str]:
        """The lines without the score of each epoch."""
        return [line for line in self.lines if ": epoch " not in line]


@dataclass(frozen=True)
class Ended:
    """How a training went."""

    weights: Arrays
    best_score: float
    epochs: int
    usage: Usage
    said: list[str]


def data_of(rows: Sequence[Row], folder: Path) -> DataArtifact:
    """What the data stage would say of rows like these."""
    row = rows[0]
    if isinstance(row.label, float):
        return DataArtifact(folder, (), {}, (), task="text-regression", scale=Number.scale_of(rows))
    if isinstance(row.label, tuple) and str(row.label[:1]).startswith("('intent="):
        return DataArtifact(folder, ("intent=a", "intent=b", "room"), {}, (), task="intent-slots")
    if rows is ANSWERS:
        return DataArtifact(folder, ("none",), {}, (), task="reading")
    tokens = any(isinstance(item, Span) for item in row.label)
    task: TaskName = "token-classification" if tokens else "text-classification"
    many = not tokens and isinstance(row.label, tuple)
    task = task if row.text_pair is None else "text-pair-classification"
    return DataArtifact(folder, ("a", "b"), {}, (), task=task, multi_label=many)


def classifier_of(rows: Sequence[Row], folder: Path, source: FromScratch = SHAPE, settings: Training = SETTINGS) -> Any:
    """A model from scratch for such rows."""
    environment.start()
    from edgepack.training.models import classifiers

    data = data_of(rows, folder)
    folder.mkdir(exist_ok=True, parents=True)
    texts = [row.text + (row.text_pair or "") for row in rows]
    labels, length = data.model_labels, settings.max_length
    return classifiers.create(source, labels, length, texts, settings.seed, folder, data.text_task)


def learn(
    rows: Sequence[Row],
    folder: Path,
    *,
    classifier: Any = None,
    settings: Training = SETTINGS,
    checkpoint: Checkpoint | None = None,
    distill: Distill | None = None,
    teacher: Any = None,
    unlabelled: Sequence[Row] = (),
    score: Callable[[Any], float] | None = None,
    floor: float | None = None,
    said: Heard | None = None,
    ranks: Any = None,
) -> Ended:
    """Train a classifier (one of SHAPE by default) on `rows`; it is judged by the same, or by `score` of it.

    `ranks` are `edgepack.training.distributed.Ranks` where there are others to train with.
    """
    environment.start()
    from edgepack import evaluation
    from edgepack.tasks.registry import task_of_data
    from edgepack.training import finetune
    from edgepack.training.distillation import Match
    from edgepack.training.distributed import ALONE
    from edgepack.training.models.batches import EncodedRows
    from edgepack.training.models.predict import logits
    from edgepack.training.schedule import budget
    from edgepack.training.trainer import TrainingRun, train

    heard = said or Heard()
    data = data_of(rows, folder)
    classifier = classifier or classifier_of(rows, folder, settings=settings)
    task = task_of_data(data)
    windows, more = classifier.windows(rows), list(chain.from_iterable(classifier.windows(unlabelled)))
    encoded, targets = list(chain.from_iterable(windows)), finetune.targets_of(task, rows, windows)
    targets += [task.unlabelled(tokens) for tokens in more]
    soft = list(logits(teacher, [*encoded, *more], SILENT, "soft")) if teacher is not None else None

    def on_rows() -> float:
        found = logits(classifier, encoded, SILENT, "dev")
        return evaluation.value(task.device, rows, finetune.answers_of(task, rows, windows, found), data.labels)

    matched = distill is not None and (distill.hidden or distill.relations)
    run = TrainingRun(
        label="train",
        network=classifier.network,
        objective=task.objective(targets, balanced=settings.class_weights == "balanced"),
        examples=EncodedRows([*encoded, *more], targets, soft),
        settings=settings,
        budget=budget(settings, len(targets), SHAPE.scratch.hidden, (ranks or ALONE).count, random_weights=True),
        score=on_rows if score is None else lambda: score(classifier),
        metric=evaluation.metric_of(data),
        floor=floor,
        out=folder,
        distill=distill,
        match=Match(classifier.network, teacher.network, distill) if matched and distill is not None else None,
        ranks=ranks or ALONE,
    )
    result = train(run, heard, checkpoint or Checkpoint(folder / "checkpoint", seconds=1e9))
    weights = {name: value.numpy() for name, value in classifier.network.state_dict().items()}
    return Ended(weights, result.best_score, result.epochs, result.usage, heard.beside_epochs)
