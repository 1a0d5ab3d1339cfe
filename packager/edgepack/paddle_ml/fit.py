"""Train one classifier of a recipe, teacher or student, and write it down with its scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edgepack.artifacts import DataArtifact, ModelArtifact, Row, proportion
from edgepack.paddle_ml import device, models
from edgepack.paddle_ml.checkpoint import Checkpoint
from edgepack.paddle_ml.models import Classifier
from edgepack.paddle_ml.predict import logits
from edgepack.paddle_ml.train import Examples, train
from edgepack.progress import Progress
from edgepack.recipe.model import Distill, FromScratch, Training
from edgepack.recipe.shapes import WEIGHTS_FILE


@dataclass(frozen=True)
class Lesson:
    """What to train and from whom to learn."""

    name: str  # ledger name: teacher, student
    model: str | FromScratch
    training: Training
    teacher: ModelArtifact | None = None
    distill: Distill | None = None


def fit(lesson: Lesson, data: DataArtifact, out: Path, progress: Progress, checkpoint: Path) -> ModelArtifact:
    """Train on `data.train`, choose the best epoch on `data.dev`, score `data.test`; write a PaddleNLP folder.

    `checkpoint` is the folder that tells how far an interrupted training came.
    """
    progress.line(f"{lesson.name}: device {device.choose(lesson.training.device)}")
    rows, dev, test = data.read("train"), data.read("dev"), data.read("test")
    classifier = models.create(
        lesson.model, data.labels, lesson.training.max_length, _texts(rows), lesson.training.seed, out
    )
    progress.line(f"{lesson.name}: {classifier.parameters / 1e6:.1f} M parameters, {len(rows)} training rows")
    soft = _soft_labels(lesson, rows, progress)
    examples = Examples(classifier.encode(_texts(rows)), _label_ids(rows, data.labels), soft)
    held_out = Examples(classifier.encode(_texts(dev)), _label_ids(dev, data.labels))
    result = train(
        classifier,
        examples,
        held_out,
        lesson.training,
        lesson.distill,
        progress,
        f"train {lesson.name}",
        Checkpoint(checkpoint),
    )
    test_logits = logits(classifier, classifier.encode(_texts(test)), progress, "test")
    classifier.save(out)
    np.save(out / "test_logits.npy", test_logits)
    right = int((test_logits.argmax(axis=1) == _label_ids(test, data.labels)).sum())
    dev_right = round(result.best_dev_accuracy * len(dev))
    return ModelArtifact(
        folder=out,
        labels=data.labels,
        max_length=lesson.training.max_length,
        parameters=classifier.parameters,
        weight_bytes=(out / WEIGHTS_FILE).stat().st_size,
        steps=result.steps,
        train_seconds=round(result.seconds, 1),
        dev_accuracy=proportion(dev_right, len(dev)),
        test_accuracy=proportion(right, len(test)),
    )


def reopen(artifact: ModelArtifact) -> Classifier:
    """The trained classifier, in evaluation mode."""
    return models.load(artifact.folder, artifact.labels, artifact.max_length)


def _soft_labels(lesson: Lesson, rows: Sequence[Row], progress: Progress) -> npt.NDArray[np.float32] | None:
    """The teacher's logits (N, C) on the training rows, each text in the teacher's own tokens."""
    if lesson.teacher is None or lesson.distill is None:
        return None
    teacher = reopen(lesson.teacher)
    return logits(teacher, teacher.encode(_texts(rows)), progress, "soft labels of the teacher")


def _texts(rows: Sequence[Row]) -> list[str]:
    return [row.text for row in rows]


def _label_ids(rows: Sequence[Row], labels: Sequence[str]) -> npt.NDArray[np.int64]:
    index = {label: position for position, label in enumerate(labels)}
    return np.array([index[row.label] for row in rows], dtype=np.int64)
