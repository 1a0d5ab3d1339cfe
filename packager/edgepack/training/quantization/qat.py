"""Quantization-aware training: the float student trains further while it rounds as its INT8 graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from edgepack.artifacts import DataArtifact, LinearScales, ModelArtifact, Row, weight_digest
from edgepack.errors import StageFailedError
from edgepack.progress import Progress
from edgepack.recipe.model import Quantize
from edgepack.recipe.training import Distill, Qat, Training
from edgepack.tasks.registry import task_of_data
from edgepack.training import devices
from edgepack.training.checkpoint import Checkpoint
from edgepack.training.distributed import ALONE
from edgepack.training.finetune import DevScore, examples, reopen, reopen_to_learn, summary
from edgepack.training.models import tokenizer_files
from edgepack.training.models.batches import EncodedRows
from edgepack.training.models.classifiers import Classifier
from edgepack.training.quantization.observers import column_magnitudes, observe
from edgepack.training.quantization.quanters import prepare, quantized
from edgepack.training.schedule import budget
from edgepack.training.trainer import TrainingRun, train

_LABEL: Final = "train quantized"
_TEMPERATURE: Final = 2.0  # of the float student, which the same network follows closely


def relearn(
    section: Quantize,
    settings: Training,
    data: DataArtifact,
    student: ModelArtifact,
    calibration: Sequence[Row],
    out: Path,
    progress: Progress,
    checkpoint: Path,
) -> tuple[LinearScales, ...]:
    """Train on `data.train` from the float student's weights, keep the best epoch on `data.dev`; return the ranges.

    The float student is the teacher. Ranges of activations start from those of the recipe's observer on `calibration`.

    Args:
        settings: settings of the student's training, for keys that `section.qat` lacks.
        out: receives a PaddleNLP model with the trained float weights, and the figures of the training.
        checkpoint: folder of the checkpoint of an interrupted training.

    Raises:
        EnvironmentUnfitError: the device cannot be used.
        StageFailedError: the training failed, or its result cannot be quantized.
    """
    assert section.qat is not None, "filled in for this method"
    if settings.ranks > 1:
        progress.line(f"quantize: one process trains, where the student had {settings.ranks}")
    settings = _settings(section.qat, settings)
    progress.line(f"quantize: device {devices.choose(settings.device)}")
    classifier = reopen_to_learn(student, data)
    learnt = examples(task_of_data(data), classifier, data.read("train"), classifier, data, progress, ALONE)
    found = observe(classifier, classifier.encode(calibration), section.observer, progress)
    ranges = {item.layer: item.activation for item in found if item.activation is not None}
    embeddings, reduced = section.embeddings == "int8", section.reduced_range
    prepare(classifier.network, ranges, section.qat.quanter, embeddings=embeddings, reduced=reduced)
    distill = Distill(temperature=_TEMPERATURE, hard_weight=section.qat.hard_weight)
    result = train(_training_run(classifier, learnt, settings, distill, data, out), progress, Checkpoint(checkpoint))
    progress.line(f"quantize: {summary(result)}, dev {result.best_score:.3f} in {result.seconds:.0f} s")
    classifier.rescale(data.scale)
    linears = ranges_of(classifier)
    _save(classifier, student, data, out)
    return linears


def _training_run(
    classifier: Classifier,
    learnt: EncodedRows,
    settings: Training,
    distill: Distill,
    data: DataArtifact,
    out: Path,
) -> TrainingRun:
    task = task_of_data(data)
    dev_score = DevScore(task, classifier, data)
    return TrainingRun(
        label=_LABEL,
        network=classifier.network,
        objective=task.objective(learnt.targets, balanced=settings.class_weights == "balanced"),
        examples=learnt,
        settings=settings,
        budget=budget(
            settings, len(learnt.rows), int(classifier.network.config.hidden_size), ALONE.count, random_weights=False
        ),
        score=dev_score,
        metric=dev_score.metric,
        floor=dev_score.floor,
        out=out,
        distill=distill,
    )


def _settings(section: Qat, student: Training) -> Training:
    """The student's settings with those of `section`, for one process and float32."""
    first = student.device.partition(",")[0]
    return Training.model_validate(
        {name: getattr(student, name) for name in Training.model_fields}
        | {"epochs": section.epochs, "learning_rate": section.learning_rate, "batch_size": section.batch_size}
        | {"device": first, "nodes": None, "precision": "fp32"}
    )


def ranges_of(classifier: Classifier) -> tuple[LinearScales, ...]:
    """The present ranges of every product of a prepared classifier.

    Raises:
        StageFailedError: a range is empty or not finite.
    """
    return tuple(_scales(name, layer) for name, layer in quantized(classifier.network).items())


def _scales(name: str, layer: Any) -> LinearScales:
    low, high = layer.activation_quanter.range()
    weight = layer.weight.numpy()  # (in, out)
    if not (np.isfinite([low, high]).all() and low <= 0 <= high and low < high):
        raise StageFailedError(f"quantize: the training left no usable range for {name}", why=f"{low} .. {high}")
    return LinearScales(name, weight_digest(weight), (low, high), column_magnitudes(weight))


def _save(classifier: Classifier, student: ModelArtifact, data: DataArtifact, out: Path) -> None:
    """Write the trained weights as a PaddleNLP network without quanters."""
    plain = reopen(student, data)
    trained = classifier.network.state_dict()
    plain.network.set_state_dict({name: trained[name] for name in plain.network.state_dict()})
    tokenizer_files.copy(student.folder, out)
    plain.save(out)
