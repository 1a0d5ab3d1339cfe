"""Train one model of a recipe, teacher or student, and write it down with its scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgepack import scores
from edgepack.artifacts import Answer, DataArtifact, ModelArtifact, Row
from edgepack.datasets.draw import Draw
from edgepack.errors import StageFailedError
from edgepack.paddle_ml import device, importance, models, prune
from edgepack.paddle_ml.batches import Array, Encoded, Examples
from edgepack.paddle_ml.checkpoint import Checkpoint
from edgepack.paddle_ml.match import Match
from edgepack.paddle_ml.models import Classifier
from edgepack.paddle_ml.predict import logits
from edgepack.paddle_ml.tasks import Task, task_of
from edgepack.paddle_ml.train import Course, train
from edgepack.progress import SILENT, Progress
from edgepack.recipe.model import Distill, FromScratch, FromTeacher, Training
from edgepack.recipe.shapes import WEIGHTS_FILE
from edgepack_runtime.model_config import VOCAB_NAME


@dataclass(frozen=True)
class Lesson:
    """What to train and from whom to learn. `teacher` is there when it is distilled from or started from."""

    name: str  # ledger name: teacher, student
    model: str | FromScratch | FromTeacher
    training: Training
    teacher: ModelArtifact | None = None
    distill: Distill | None = None


def fit(lesson: Lesson, data: DataArtifact, out: Path, progress: Progress, checkpoint: Path) -> ModelArtifact:
    """Train on `data.train`, choose the best epoch on `data.dev`, score `data.test`; write a PaddleNLP folder.

    `checkpoint` is the folder that tells how far an interrupted training came.
    """
    progress.line(f"{lesson.name}: device {device.choose(lesson.training.device)}")
    task, metric = task_of(data), scores.metric_of(data)
    rows, dev, test = data.read("train"), data.read("dev"), data.read("test")
    classifier = _create(lesson, data, rows, out, progress)
    progress.line(f"{lesson.name}: {classifier.parameters / 1e6:.1f} M parameters, {len(rows)} training rows")
    teacher = reopen(lesson.teacher, data) if lesson.teacher is not None and lesson.distill is not None else None
    examples = _examples(task, classifier, rows, teacher, data, progress)
    held_out = classifier.encode(dev)

    def on_dev() -> list[Answer]:
        return _answers(task, classifier, dev, held_out, SILENT, "dev")

    course = Course(
        label=f"train {lesson.name}",
        network=classifier.network,
        objective=task.objective(examples.targets, balanced=lesson.training.class_weights == "balanced"),
        examples=examples,
        settings=lesson.training,
        score=lambda: scores.value(metric, dev, on_dev()),
        distill=lesson.distill,
        match=_match(lesson, classifier, teacher, out),
    )
    result = train(course, progress, Checkpoint(checkpoint))
    usage = result.usage
    speed = f"{usage.tokens_per_second:,.0f} tokens/s ({usage.precision}, {usage.padding_share:.0%} padding)"
    best = f"best epoch {result.best_epoch} of {result.epochs}"
    progress.line(f"{lesson.name}: {speed}, peak memory {usage.peak_memory_mib:,.0f} MiB, {best}")
    classifier.save(out)
    on_test = _answers(task, classifier, test, classifier.encode(test), progress, "test")
    if len(set(on_test)) == 1:
        progress.line(f"warning: the {lesson.name} answers every test row alike: it has learnt nothing yet")
    return ModelArtifact(
        folder=out,
        labels=classifier.labels,
        max_length=lesson.training.max_length,
        parameters=classifier.parameters,
        weight_bytes=(out / WEIGHTS_FILE).stat().st_size,
        steps=result.steps,
        train_seconds=round(result.seconds, 1),
        dev_score=scores.score(metric, dev, on_dev()),
        test_score=scores.score(metric, test, on_test),
        test_metrics=scores.every_metric(data, test, on_test),
        epochs=result.epochs,
        best_epoch=result.best_epoch,
        usage=usage,
    )


def reopen(artifact: ModelArtifact, data: DataArtifact) -> Classifier:
    """The trained classifier, in evaluation mode."""
    return models.load(artifact.folder, artifact.labels, artifact.max_length, data.task)


def _create(lesson: Lesson, data: DataArtifact, rows: Sequence[Row], out: Path, progress: Progress) -> Classifier:
    training, model = lesson.training, lesson.model
    if isinstance(model, FromTeacher):
        assert lesson.teacher is not None, "a recipe without a teacher is refused before"
        kept = _kept(lesson, model.width, data, rows, progress) if model.width < 1 else None
        taught, labels = lesson.teacher.folder, data.model_labels
        return models.cut(taught, model.layers, labels, training.max_length, out, data.task, kept, training.seed)
    texts = [text for row in rows for text in (row.text, row.text_pair) if text is not None]
    return models.create(model, data.model_labels, training.max_length, texts, training.seed, out, data.task)


def _kept(
    lesson: Lesson, width: float, data: DataArtifact, rows: Sequence[Row], progress: Progress
) -> list[prune.Kept]:
    """The parts of each of the teacher's layers that matter most, by a seeded sample of the labelled rows."""
    assert lesson.teacher is not None
    draw = Draw(importance.SAMPLE_ROWS, len(rows), f"width/{lesson.training.seed}")
    sample = [row for row in rows if draw()]
    balanced = lesson.training.class_weights == "balanced"
    found = importance.measure(
        reopen(lesson.teacher, data), task_of(data), sample, balanced=balanced, progress=progress
    )
    kept = prune.choose(found, width)
    heads = f"{len(kept[0].heads)} of {len(found[0].heads)} heads"
    neurons = f"{len(kept[0].neurons)} of {len(found[0].neurons)} neurons"
    progress.line(f"{lesson.name}: every layer keeps {heads} and {neurons}, chosen on {len(sample)} training rows")
    return kept


def _examples(
    task: Task,
    classifier: Classifier,
    rows: Sequence[Row],
    teacher: Classifier | None,
    data: DataArtifact,
    progress: Progress,
) -> Examples:
    """The labelled rows, and where there is a teacher to label them, those without labels behind them."""
    encoded = classifier.encode(rows)
    targets = [task.target(row, tokens) for row, tokens in zip(rows, encoded, strict=True)]
    if teacher is None:
        return Examples(encoded, targets)
    unlabelled = data.read("unlabelled") if "unlabelled" in data.rows else []
    more = classifier.encode(unlabelled)
    targets += [task.unlabelled(tokens) for tokens in more]
    return Examples(
        [*encoded, *more], targets, _soft_labels(teacher, [*rows, *unlabelled], [*encoded, *more], progress)
    )


def _soft_labels(teacher: Classifier, rows: Sequence[Row], ours: Sequence[Encoded], progress: Progress) -> list[Array]:
    """The teacher's logits on every row, each text in the teacher's own tokens.

    Raises:
        StageFailedError: tokens are classified, and the teacher's are not the student's.
    """
    theirs = teacher.encode(rows)
    if teacher.task == "token-classification" and any(
        one.offsets != other.offsets for one, other in zip(theirs, ours, strict=True)
    ):
        raise _other_tokens("to learn each token's label from its teacher")
    return list(logits(teacher, theirs, progress, "soft labels of the teacher"))


def _match(lesson: Lesson, classifier: Classifier, teacher: Classifier | None, out: Path) -> Match | None:
    if lesson.distill is None or teacher is None or not (lesson.distill.hidden or lesson.distill.relations):
        return None
    assert lesson.teacher is not None
    if (lesson.teacher.folder / VOCAB_NAME).read_bytes() != (out / VOCAB_NAME).read_bytes():
        raise _other_tokens("to match what happens inside them")
    return Match(classifier.network, teacher.network, lesson.distill)


def _other_tokens(what_for: str) -> StageFailedError:
    return StageFailedError(
        f"student: it must cut texts into the same tokens as its teacher {what_for}",
        why="their vocabularies, or their max_length, differ",
        fix="use models of one family and one max_length, or distil logits alone",
    )


def _answers(
    task: Task,
    classifier: Classifier,
    rows: Sequence[Row],
    encoded: Sequence[Encoded],
    progress: Progress,
    label: str,
) -> list[Answer]:
    found = logits(classifier, encoded, progress, label)
    return [task.answer(row_logits, row, tokens) for row_logits, row, tokens in zip(found, rows, encoded, strict=True)]
