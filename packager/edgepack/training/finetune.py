"""Fine-tune one model of a recipe (teacher, student, width-pruned student), score it, and write its folder."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np

from edgepack import evaluation
from edgepack.artifacts import NO_SCALE, DataArtifact, ModelArtifact, Row, Scale, Score
from edgepack.calibration import ScoreCalibration
from edgepack.data.sampling import Sampler
from edgepack.errors import StageFailedError
from edgepack.progress import SILENT, Progress
from edgepack.recipe.encoder_shapes import PADDLE_WEIGHTS
from edgepack.recipe.training import MOST_EPOCHS, Distill, FromScratch, FromTeacher, Training
from edgepack.tasks.registry import task_of_data
from edgepack.tasks.task import Array, Encoded, Float, TrainingTask
from edgepack.training import importance
from edgepack.training.checkpoint import Checkpoint
from edgepack.training.distillation import Match
from edgepack.training.distributed import Ranks
from edgepack.training.models import classifiers, width_pruning
from edgepack.training.models.batches import EncodedRows
from edgepack.training.models.classifiers import Classifier
from edgepack.training.models.predict import logits
from edgepack.training.schedule import Budget, budget
from edgepack.training.trainer import Trained, TrainingRun, train
from edgepack.util.text import counted
from edgepack_runtime.bundle.model_config import VOCAB_NAME
from edgepack_runtime.stats.metrics import Answer
from edgepack_runtime.tasks.task import Part

_MORE_EPOCHS: Final = 2.5  # factor of the epochs to try after a training that learnt nothing


@dataclass(frozen=True)
class WidthPrunedModel:
    """A start from all layers of a trained model with fewer heads and neurons, the same labels and `max_length`."""

    whole: ModelArtifact
    width: float  # share of each layer's heads and neurons that stays, above 0, at most 1


@dataclass(frozen=True)
class TrainingJob:
    """One training of a recipe. `teacher` is set if the model is distilled from it or starts from it."""

    name: str  # of its row in the ledger: teacher, student, width-pruned
    model: str | FromScratch | FromTeacher | WidthPrunedModel
    training: Training
    teacher: ModelArtifact | None = None
    distill: Distill | None = None

    @property
    def is_teacher(self) -> bool:
        """Whether the model only teaches, and never ships."""
        return self.name == "teacher"

    def budget(self, rows: int, hidden: int, ranks: int) -> Budget:
        """Length and learning rate of the training; arguments as of `schedule.budget`."""
        return budget(self.training, rows, hidden, ranks, random_weights=isinstance(self.model, FromScratch))


@dataclass(frozen=True)
class Scores:
    """Scores of a classifier, as in a `ModelArtifact`."""

    dev_score: Score
    test_score: Score
    test_scores: dict[str, Score]
    calibration: ScoreCalibration | None  # not applied; None if the logits are no probabilities


@dataclass(frozen=True)
class _Evaluated:
    """The result of the first rank, which it sends to the others."""

    trained: Trained
    scores: Scores


def finetune(
    job: TrainingJob, data: DataArtifact, out: Path, progress: Progress, checkpoint: Path, ranks: Ranks
) -> ModelArtifact:
    """Train on `data.train`, keep the best epoch on `data.dev`, score `data.test`, and write a PaddleNLP folder.

    The head of a model that may ship is divided by its temperature on dev, so that its scores are probabilities. A
    teacher keeps its logits: its soft labels have a temperature of their own.

    Runs on the device that Paddle is set to. With several `ranks`, each calls this with a separate `out`; all end with
    the same weights and figures.

    Args:
        checkpoint: folder of the checkpoint of an interrupted training.

    Raises:
        StageFailedError: the model is not better on dev than answers without learning.
    """
    task, rows = task_of_data(data), data.read("train")
    classifier = _create(job, data, rows, out, progress)
    progress.line(f"{job.name}: {classifier.parameters / 1e6:.1f} M parameters, {len(rows)} training rows")
    teacher = reopen_to_learn(job.teacher, data) if job.teacher is not None and job.distill is not None else None
    learnt = examples(task, classifier, rows, teacher, data, progress, ranks)
    dev_score = DevScore(task, classifier, data)
    chosen = job.budget(len(learnt.rows), int(classifier.network.config.hidden_size), ranks.count)
    progress.line(
        f"{job.name}: {counted(chosen.epochs, 'epoch')} of {counted(chosen.epoch_steps, 'step')}, "
        f"learning rate {chosen.learning_rate:g}"
    )
    run = TrainingRun(
        label=f"train {job.name}",
        network=classifier.network,
        objective=task.objective(learnt.targets, balanced=job.training.class_weights == "balanced"),
        examples=learnt,
        settings=job.training,
        budget=chosen,
        score=dev_score,
        metric=dev_score.metric,
        floor=dev_score.floor,
        out=out,
        distill=job.distill,
        match=_match(job, classifier, teacher, out),
        ranks=ranks,
    )
    result = train(run, progress, Checkpoint(checkpoint))
    progress.line(f"{job.name}: {summary(result)}")
    if run.floor is not None and result.best_score <= run.floor:
        raise _nothing_learnt(job, data, run, result)
    classifier.rescale(ranks.of_first(Scale, dev_score.scale))
    evaluated = ranks.of_first(_Evaluated, lambda: _Evaluated(result, score(classifier, data, progress)))
    calibration = evaluated.scores.calibration
    if calibration is not None and not job.is_teacher:
        classifier.rescale(Scale(1 / calibration.temperature))
        progress.line(f"{job.name}: {calibration.text}")
    classifier.rescale(data.scale)
    classifier.save(out)
    return _artifact(job, classifier, evaluated, out)


def _nothing_learnt(job: TrainingJob, data: DataArtifact, run: TrainingRun, result: Trained) -> StageFailedError:
    """The error of a training that ended where it began, with settings to try."""
    section, used = "teacher" if job.is_teacher else "student", run.budget
    open_job = replace(job, training=job.training.model_copy(update={"epochs": None, "learning_rate": None}))
    usual = open_job.budget(len(run.examples.rows), int(run.network.config.hidden_size), run.ranks.count)
    more = min(max(usual.epochs, math.ceil(_MORE_EPOCHS * used.epochs)), MOST_EPOCHS)
    retry = f"`--set {section}.epochs={more:g} --set {section}.learning_rate={usual.learning_rate:g}`"
    linear = ", or ship the linear model alone: `--set linear=only`" if data.text_task.linear else ""
    return StageFailedError(
        f"{job.name}: it learnt nothing: {run.metric} {result.best_score:.3f} on dev; "
        f"answers without learning have {run.floor:.3f}",
        why=f"{min(result.epochs, used.epochs):g} of {used.epochs:g} epochs ran ({counted(result.steps, 'step')}), "
        f"learning rate {used.learning_rate:g}, patience {job.training.patience or 'null'}",
        fix=f"try {retry}; it trains from the start. Where the loss is near 0 already, more epochs do not help: give "
        f"more rows, or weights that were trained before{linear}",
    )


def score(classifier: Classifier, data: DataArtifact, progress: Progress) -> Scores:
    """Score a classifier on the dev and test rows."""
    task, metric = task_of_data(data), evaluation.metric_of(data)
    dev, test = data.read("dev"), data.read("test")
    dev_answers, *on_dev = _answered(classifier, task, dev, SILENT, "dev")
    test_answers, *on_test = _answered(classifier, task, test, progress, "test")
    test_scores = evaluation.every_score(data, test, test_answers)
    return Scores(
        evaluation.score(task.device, metric, dev, dev_answers, data.labels),
        test_scores[metric],
        test_scores,
        task.calibrated(*on_dev, *on_test),
    )


def _answered(
    classifier: Classifier, task: TrainingTask, rows: Sequence[Row], progress: Progress, label: str
) -> tuple[list[Answer], list[Float], list[Array]]:
    """The classifier's answers to `rows`, with their logits and targets."""
    windows = classifier.windows(rows)
    found = list(logits(classifier, list(chain.from_iterable(windows)), progress, label))
    return answers_of(task, rows, windows, found), found, targets_of(task, rows, windows)


def answers_of(
    task: TrainingTask, rows: Sequence[Row], windows: Sequence[Sequence[Encoded]], found: Iterable[Float]
) -> list[Answer]:
    """The answer to each row from the logits `found` of all windows, in their order."""
    logits_of = iter(found)
    return [
        task.answer([Part(next(logits_of).tolist(), 1, one.offsets) for one in several], row)
        for row, several in zip(rows, windows, strict=True)
    ]


def targets_of(task: TrainingTask, rows: Sequence[Row], windows: Sequence[Sequence[Encoded]]) -> list[Array]:
    """The target of each window."""
    return [task.target(row, one) for row, several in zip(rows, windows, strict=True) for one in several]


def summary(trained: Trained) -> str:
    """Speed, memory and best epoch of a training, as one line."""
    usage = trained.usage
    speed = f"{usage.tokens_per_second:,.0f} tokens/s ({usage.precision}, {usage.padding_share:.0%} padding)"
    best = f"best epoch {trained.best_epoch} of {trained.epochs}"
    return f"{speed}, peak memory {usage.peak_memory_mib:,.0f} MiB, {best}"


def _artifact(job: TrainingJob, classifier: Classifier, evaluated: _Evaluated, out: Path) -> ModelArtifact:
    return ModelArtifact(
        folder=out,
        labels=classifier.labels,
        max_length=job.training.max_length,
        parameters=classifier.parameters,
        weight_bytes=(out / PADDLE_WEIGHTS).stat().st_size,
        steps=evaluated.trained.steps,
        train_seconds=round(evaluated.trained.seconds, 1),
        dev_score=evaluated.scores.dev_score,
        test_score=evaluated.scores.test_score,
        test_scores=evaluated.scores.test_scores,
        calibration=None if job.is_teacher else evaluated.scores.calibration,
        epochs=evaluated.trained.epochs,
        best_epoch=evaluated.trained.best_epoch,
        usage=evaluated.trained.usage,
    )


def reopen(artifact: ModelArtifact, data: DataArtifact) -> Classifier:
    """The trained classifier, in evaluation mode."""
    return classifiers.load(artifact.folder, artifact.labels, artifact.max_length, data.text_task)


def reopen_to_learn(artifact: ModelArtifact, data: DataArtifact) -> Classifier:
    """The trained classifier in the unit in which networks learn (`TrainingTask`)."""
    classifier = reopen(artifact, data)
    classifier.rescale(data.scale.inverse)
    return classifier


def _create(job: TrainingJob, data: DataArtifact, rows: Sequence[Row], out: Path, progress: Progress) -> Classifier:
    training, model = job.training, job.model
    if isinstance(model, WidthPrunedModel):
        return _cut(job, model.whole, None, model.width, data, rows, out, progress)
    if isinstance(model, FromTeacher):
        assert job.teacher is not None, "the recipe's validation requires a teacher"
        return _cut(job, job.teacher, model.layers, model.width, data, rows, out, progress)
    texts = [text for row in rows for text in row.texts]
    return classifiers.create(model, data.model_labels, training.max_length, texts, training.seed, out, data.text_task)


def _cut(
    job: TrainingJob,
    whole: ModelArtifact,
    layers: int | Sequence[int] | None,
    width: float,
    data: DataArtifact,
    rows: Sequence[Row],
    out: Path,
    progress: Progress,
) -> Classifier:
    """A part of a trained model.

    Args:
        layers: number of layers, or their indices; None for all.
        width: share of each layer's heads and neurons, from 0 to 1.
    """
    training = job.training
    kept = _kept(job, whole, width, data, rows, progress) if width < 1 else None
    part = classifiers.cut(
        whole.folder, layers, data.model_labels, training.max_length, out, data.text_task, kept, training.seed
    )
    part.rescale(data.scale.inverse)
    return part


def _kept(
    job: TrainingJob, whole: ModelArtifact, width: float, data: DataArtifact, rows: Sequence[Row], progress: Progress
) -> list[width_pruning.Kept]:
    """The most important heads and neurons of each layer, measured on a seeded sample of the labelled rows."""
    draw = Sampler(importance.SAMPLE_ROWS, len(rows), f"width/{job.training.seed}")
    sample = [row for row in rows if draw()]
    balanced = job.training.class_weights == "balanced"
    found = importance.measure(
        reopen_to_learn(whole, data), task_of_data(data), sample, balanced=balanced, progress=progress
    )
    kept = width_pruning.choose(found, width)
    heads = f"{len(kept[0].heads)} of {len(found[0].heads)} heads"
    neurons = f"{len(kept[0].neurons)} of {len(found[0].neurons)} neurons"
    progress.line(f"{job.name}: every layer keeps {heads} and {neurons}, chosen on {len(sample)} training rows")
    return kept


def examples(
    task: TrainingTask,
    classifier: Classifier,
    rows: Sequence[Row],
    teacher: Classifier | None,
    data: DataArtifact,
    progress: Progress,
    ranks: Ranks,
) -> EncodedRows:
    """The labelled rows; with a teacher, its soft labels, and the unlabelled rows after them."""
    windows = _learnt(task, classifier, rows)
    encoded, targets = list(chain.from_iterable(windows)), targets_of(task, rows, windows)
    if teacher is None:
        return EncodedRows(encoded, targets)
    unlabelled = data.read("unlabelled") if "unlabelled" in data.rows else []
    more = list(chain.from_iterable(_learnt(task, classifier, unlabelled)))
    targets += [task.unlabelled(tokens) for tokens in more]
    theirs = [*_learnt(task, teacher, rows), *_learnt(task, teacher, unlabelled)]
    soft = _soft_labels(teacher, list(chain.from_iterable(theirs)), [*encoded, *more], progress, ranks)
    return EncodedRows([*encoded, *more], targets, soft)


def _learnt(task: TrainingTask, classifier: Classifier, rows: Sequence[Row]) -> list[Sequence[Encoded]]:
    """The windows of each row that are learnt, with the tokenizer of a model."""
    windows = classifier.windows(rows)
    return [task.learnt(row, several, n) for n, (row, several) in enumerate(zip(rows, windows, strict=True))]


def _soft_labels(
    teacher: Classifier, theirs: Sequence[Encoded], ours: Sequence[Encoded], progress: Progress, ranks: Ranks
) -> list[Array]:
    """The teacher's logits on every row, with the teacher's tokenizer. Each rank computes its share of the rows."""
    if teacher.task.per_token and [row.offsets for row in theirs] != [row.offsets for row in ours]:
        raise _other_tokens("to learn the label of each token")
    found = list(logits(teacher, ranks.share(theirs), progress, "soft labels"))
    if ranks.count == 1:
        return found
    shares = ranks.all_bytes(b"".join(row.tobytes() for row in found))
    soft: list[Array] = [np.empty(0, dtype=np.float32)] * len(theirs)
    by_tokens = teacher.task.per_token
    for rank, share in enumerate(shares):
        flat, start = np.frombuffer(share, dtype=np.float32).reshape(-1, len(teacher.labels)), 0
        for index in range(rank, len(theirs), ranks.count):
            stop = start + (len(theirs[index]) if by_tokens else 1)
            soft[index] = flat[start:stop] if by_tokens else flat[start]  # (T, C) or (C,)
            start = stop
    return soft


def _match(job: TrainingJob, classifier: Classifier, teacher: Classifier | None, out: Path) -> Match | None:
    if job.distill is None or teacher is None or not (job.distill.hidden or job.distill.relations):
        return None
    assert job.teacher is not None
    if (job.teacher.folder / VOCAB_NAME).read_bytes() != (out / VOCAB_NAME).read_bytes():
        raise _other_tokens("to match hidden states")
    return Match(classifier.network, teacher.network, job.distill)


def _other_tokens(purpose: str) -> StageFailedError:
    return StageFailedError(
        f"student: it must split texts into the same tokens as its teacher {purpose}",
        why="their vocabularies, or their max_length, differ",
        fix="use models of one family and one max_length, or distil logits alone",
    )


class DevScore:
    """The score on the dev rows, which selects the best epoch. They are tokenized once."""

    def __init__(self, task: TrainingTask, classifier: Classifier, data: DataArtifact) -> None:
        self._task, self._classifier, self._labels, self._rows = task, classifier, data.labels, data.read("dev")
        self._windows = classifier.windows(self._rows)
        self._encoded = list(chain.from_iterable(self._windows))
        self.metric, self.floor = evaluation.value_name(data), evaluation.floor(task.device, self._rows)

    def __call__(self) -> float:
        found = logits(self._classifier, self._encoded, SILENT, "dev")
        answers = answers_of(self._task, self._rows, self._windows, found)
        return evaluation.value(self._task.device, self._rows, answers, self._labels)

    def scale(self) -> Scale:
        """What makes the numbers of the classifier fit those of the dev rows best; nothing of labels.

        A correlation, which selects the epoch, knows no unit.
        """
        if self._task.device.exact:
            return NO_SCALE
        found = np.stack(list(logits(self._classifier, self._encoded, SILENT, "dev")))  # (R, 1)
        targets = targets_of(self._task, self._rows, self._windows)
        return self._task.fitted(found, np.array([[target] for target in targets], np.float64))
