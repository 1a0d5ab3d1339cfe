"""Train one model of a recipe, teacher or student, and write it down with its scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgepack import evaluation
from edgepack.artifacts import Answer, DataArtifact, ModelArtifact, Row, Score
from edgepack.data.sampling import Draw
from edgepack.errors import StageFailedError
from edgepack.progress import SILENT, Progress
from edgepack.recipe.pretrained_models import WEIGHTS_FILE
from edgepack.recipe.training import Distill, FromScratch, FromTeacher, Training
from edgepack.training import importance
from edgepack.training.checkpoint import Checkpoint
from edgepack.training.distributed import Ranks
from edgepack.training.losses import Match, Task, task_of
from edgepack.training.models import classifiers, pruning
from edgepack.training.models.batches import Array, Encoded, Examples
from edgepack.training.models.classifiers import Classifier
from edgepack.training.models.predict import logits
from edgepack.training.trainer import Course, Trained, train
from edgepack_runtime.bundle.model_config import VOCAB_NAME


@dataclass(frozen=True)
class Narrowing:
    """A model that starts as all layers of a trained one, of the same labels and `max_length`, less wide."""

    whole: ModelArtifact
    width: float  # the part of each layer's heads and neurons that stays, above 0, at most 1


@dataclass(frozen=True)
class Lesson:
    """What to train and from whom to learn. `teacher` is there when it is distilled from or started from."""

    name: str  # ledger name: teacher, student, narrowed
    model: str | FromScratch | FromTeacher | Narrowing
    training: Training
    teacher: ModelArtifact | None = None
    distill: Distill | None = None


@dataclass(frozen=True)
class Judgement:
    """How good a classifier is: its fields are those of a `ModelArtifact`, but for the last."""

    dev_score: Score
    test_score: Score
    test_scores: dict[str, Score]
    answers_alike: bool  # every test row


@dataclass(frozen=True)
class _Judged:
    """What the first rank finds, and tells the others."""

    trained: Trained
    judgement: Judgement


def teach(
    lesson: Lesson, data: DataArtifact, out: Path, progress: Progress, checkpoint: Path, ranks: Ranks
) -> ModelArtifact:
    """Train on `data.train`, choose the best epoch on `data.dev`, score `data.test`; write a PaddleNLP folder.

    It runs on the device that Paddle is set to, and where there are other `ranks`, in all of them at once, each with an
    `out` of its own. All end with the same weights and figures.

    `checkpoint` is the folder that tells how far an interrupted training came.
    """
    task, metric = task_of(data), evaluation.metric_of(data)
    rows, dev = data.read("train"), data.read("dev")
    classifier = _create(lesson, data, rows, out, progress)
    progress.line(f"{lesson.name}: {classifier.parameters / 1e6:.1f} M parameters, {len(rows)} training rows")
    teacher = reopen(lesson.teacher, data) if lesson.teacher is not None and lesson.distill is not None else None
    learnt = examples(task, classifier, rows, teacher, data, progress, ranks)
    held_out = classifier.encode(dev)

    def on_dev() -> list[Answer]:
        return answers(task, classifier, dev, held_out, SILENT, "dev")

    course = Course(
        label=f"train {lesson.name}",
        network=classifier.network,
        objective=task.objective(learnt.targets, balanced=lesson.training.class_weights == "balanced"),
        examples=learnt,
        settings=lesson.training,
        score=lambda: evaluation.value(metric, dev, on_dev()),
        distill=lesson.distill,
        match=_match(lesson, classifier, teacher, out),
        ranks=ranks,
    )
    result = train(course, progress, Checkpoint(checkpoint))
    progress.line(f"{lesson.name}: {summary(result)}")
    classifier.save(out)

    judged = ranks.of_first(_Judged, lambda: _Judged(result, judge(classifier, data, progress)))
    if judged.judgement.answers_alike:
        progress.line(f"warning: {lesson.name}: it answers every test row alike, and has learnt nothing yet")
    return _artifact(lesson, classifier, judged, out)


def judge(classifier: Classifier, data: DataArtifact, progress: Progress) -> Judgement:
    """Score a classifier on the dev and test rows."""
    task, metric = task_of(data), evaluation.metric_of(data)
    dev, test = data.read("dev"), data.read("test")
    on_dev = answers(task, classifier, dev, classifier.encode(dev), SILENT, "dev")
    on_test = answers(task, classifier, test, classifier.encode(test), progress, "test")
    test_scores = evaluation.every_score(data, test, on_test)
    return Judgement(evaluation.score(metric, dev, on_dev), test_scores[metric], test_scores, len(set(on_test)) == 1)


def summary(trained: Trained) -> str:
    """How a training went, in a line."""
    usage = trained.usage
    speed = f"{usage.tokens_per_second:,.0f} tokens/s ({usage.precision}, {usage.padding_share:.0%} padding)"
    best = f"best epoch {trained.best_epoch} of {trained.epochs}"
    busy = "" if usage.gpu_utilisation_percent is None else f", GPU {usage.gpu_utilisation_percent:.0f} % busy"
    return f"{speed}{busy}, peak memory {usage.peak_memory_mib:,.0f} MiB, {best}"


def _artifact(lesson: Lesson, classifier: Classifier, judged: _Judged, out: Path) -> ModelArtifact:
    return ModelArtifact(
        folder=out,
        labels=classifier.labels,
        max_length=lesson.training.max_length,
        parameters=classifier.parameters,
        weight_bytes=(out / WEIGHTS_FILE).stat().st_size,
        steps=judged.trained.steps,
        train_seconds=round(judged.trained.seconds, 1),
        dev_score=judged.judgement.dev_score,
        test_score=judged.judgement.test_score,
        test_scores=judged.judgement.test_scores,
        epochs=judged.trained.epochs,
        best_epoch=judged.trained.best_epoch,
        usage=judged.trained.usage,
    )


def reopen(artifact: ModelArtifact, data: DataArtifact) -> Classifier:
    """The trained classifier, in evaluation mode."""
    return classifiers.load(artifact.folder, artifact.labels, artifact.max_length, data.task)


def _create(lesson: Lesson, data: DataArtifact, rows: Sequence[Row], out: Path, progress: Progress) -> Classifier:
    training, model = lesson.training, lesson.model
    if isinstance(model, Narrowing):
        return _cut(lesson, model.whole, None, model.width, data, rows, out, progress)
    if isinstance(model, FromTeacher):
        assert lesson.teacher is not None, "a recipe without a teacher is refused before"
        return _cut(lesson, lesson.teacher, model.layers, model.width, data, rows, out, progress)
    texts = [text for row in rows for text in row.texts]
    return classifiers.create(model, data.model_labels, training.max_length, texts, training.seed, out, data.task)


def _cut(
    lesson: Lesson,
    whole: ModelArtifact,
    layers: int | Sequence[int] | None,
    width: float,
    data: DataArtifact,
    rows: Sequence[Row],
    out: Path,
    progress: Progress,
) -> Classifier:
    """A part of a trained model: so many of its layers, or these, or all; of each so much of its width."""
    training = lesson.training
    kept = _kept(lesson, whole, width, data, rows, progress) if width < 1 else None
    return classifiers.cut(
        whole.folder, layers, data.model_labels, training.max_length, out, data.task, kept, training.seed
    )


def _kept(
    lesson: Lesson, whole: ModelArtifact, width: float, data: DataArtifact, rows: Sequence[Row], progress: Progress
) -> list[pruning.Kept]:
    """The parts of each layer of a trained model that matter most, by a seeded sample of the labelled rows."""
    draw = Draw(importance.SAMPLE_ROWS, len(rows), f"width/{lesson.training.seed}")
    sample = [row for row in rows if draw()]
    balanced = lesson.training.class_weights == "balanced"
    found = importance.measure(reopen(whole, data), task_of(data), sample, balanced=balanced, progress=progress)
    kept = pruning.choose(found, width)
    heads = f"{len(kept[0].heads)} of {len(found[0].heads)} heads"
    neurons = f"{len(kept[0].neurons)} of {len(found[0].neurons)} neurons"
    progress.line(f"{lesson.name}: every layer keeps {heads} and {neurons}, chosen on {len(sample)} training rows")
    return kept


def examples(
    task: Task,
    classifier: Classifier,
    rows: Sequence[Row],
    teacher: Classifier | None,
    data: DataArtifact,
    progress: Progress,
    ranks: Ranks,
) -> Examples:
    """The labelled rows, and where there is a teacher to label them, those without labels behind them."""
    encoded = classifier.encode(rows)
    targets = [task.target(row, tokens) for row, tokens in zip(rows, encoded, strict=True)]
    if teacher is None:
        return Examples(encoded, targets)
    unlabelled = data.read("unlabelled") if "unlabelled" in data.rows else []
    more = classifier.encode(unlabelled)
    targets += [task.unlabelled(tokens) for tokens in more]
    soft = _soft_labels(teacher, [*rows, *unlabelled], [*encoded, *more], progress, ranks)
    return Examples([*encoded, *more], targets, soft)


def _soft_labels(
    teacher: Classifier, rows: Sequence[Row], ours: Sequence[Encoded], progress: Progress, ranks: Ranks
) -> list[Array]:
    """The teacher's logits on every row, each text in the teacher's own tokens. Each rank finds those of its share.

    Raises:
        StageFailedError: tokens are classified, and the teacher's are not the student's.
    """
    theirs = teacher.encode(rows)
    if teacher.task == "token-classification" and any(
        one.offsets != other.offsets for one, other in zip(theirs, ours, strict=True)
    ):
        raise _other_tokens("to learn each token's label from its teacher")
    found = list(logits(teacher, ranks.share(theirs), progress, "soft labels"))
    if ranks.count == 1:
        return found
    told = ranks.all_bytes(b"".join(row.tobytes() for row in found))
    soft: list[Array] = [np.empty(0, dtype=np.float32)] * len(rows)
    by_tokens = teacher.task == "token-classification"
    for rank, share in enumerate(told):
        flat, start = np.frombuffer(share, dtype=np.float32).reshape(-1, len(teacher.labels)), 0
        for index in range(rank, len(rows), ranks.count):
            stop = start + (len(theirs[index]) if by_tokens else 1)
            soft[index] = flat[start:stop] if by_tokens else flat[start]  # (T, C) or (C,)
            start = stop
    return soft


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


def answers(
    task: Task,
    classifier: Classifier,
    rows: Sequence[Row],
    encoded: Sequence[Encoded],
    progress: Progress,
    label: str,
) -> list[Answer]:
    """What the classifier says of each row; `encoded` are its tokens of them."""
    found = logits(classifier, encoded, progress, label)
    return [task.answer(row_logits, row, tokens) for row_logits, row, tokens in zip(found, rows, encoded, strict=True)]
