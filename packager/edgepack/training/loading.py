"""A model that was trained elsewhere becomes a classifier of ours: encoder and head, with the same logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from paddlenlp.transformers import ErnieConfig

from edgepack.artifacts import DataArtifact, LoadedArtifact, Usage
from edgepack.calibration import fitting_order, units
from edgepack.errors import RecipeInvalidError, StageFailedError
from edgepack.progress import SILENT, Progress
from edgepack.recipe import trained_folder
from edgepack.recipe.encoder_shapes import (
    CONFIG_FILE,
    PADDLE_WEIGHTS,
    known_fields,
    parameters_at_once,
    shape_of_config,
)
from edgepack.recipe.huggingface_config import paddlenlp_config
from edgepack.recipe.model import FolderModel
from edgepack.recipe.trained_folder import TrainedFolder
from edgepack.tasks.registry import task_of_data
from edgepack.training import finetune
from edgepack.training.linear import MOST_NUMBERS
from edgepack.training.models import classifiers, encoder_names, huggingface, tokenizer_files
from edgepack.training.models.classifiers import Classifier
from edgepack.training.models.predict import logits
from edgepack_runtime.tasks.task import Task

_ENCODER, _HEAD = "ernie.", "classifier."
_HEAD_OF_ANSWERS: Final = "qa_outputs."  # of transformers' models
_FAR_BETTER: Final = 0.3  # of macro F1: an order of labels that is that much better is the one of the training
_UNITS_PER_LABEL: Final = 5  # fewer rows (or tokens) of dev fit some order by chance
_NO_TRAINING: Final = Usage("cpu", "float32", 0.0, 0.0, 0.0, 1)


def load(section: FolderModel, data: DataArtifact, out: Path, progress: Progress) -> LoadedArtifact:
    """Write the model of a folder as one of PaddleNLP's, with its scores on dev and test.

    Raises:
        StageFailedError: weights are missing, unknown or of another shape, or the tokenizer cannot be used.
        RecipeInvalidError: the labels are in another order.
    """
    found = trained_folder.read(Path(section.folder))
    if found.problems:  # the folder was changed after the check
        raise _refused(found, *found.problems[0])
    given, length = section.labels, section.max_length
    assert isinstance(given, tuple), "the loader reads labels and length"
    assert length is not None, "the loader reads labels and length"
    network = _network(found, given, data.model_labels, data.text_task)
    tokenizer_files.take(found.folder, out, int(network.config.vocab_size), found.folder.name, found.tokenizer)
    network.eval()
    tokenizer = tokenizer_files.open_tokenizer(out)
    classifier = Classifier(network, tokenizer, data.text_task, data.model_labels, length)
    progress.line(f"model: {classifier.parameters / 1e6:.1f} M parameters of {found.folder.name}")
    _require_order(classifier, data, given, found)
    scores = finetune.score(classifier, data, progress)
    classifier.save(out)
    return LoadedArtifact(
        folder=out,
        labels=classifier.labels,
        max_length=length,
        parameters=classifier.parameters,
        weight_bytes=(out / PADDLE_WEIGHTS).stat().st_size,
        steps=0,
        train_seconds=0.0,
        dev_score=scores.dev_score,
        test_score=scores.test_score,
        test_scores=scores.test_scores,
        epochs=0,
        best_epoch=0,
        usage=_NO_TRAINING,
        calibration=None,
    )


def _network(found: TrainedFolder, given: Sequence[str], labels: Sequence[str], task: Task) -> Any:
    """The network of a folder. Its logits are in the order of `labels`, which are those `given` in another order."""
    assert found.weights is not None, "without weights there is a problem"
    fields = dict(found.fields)
    config: Mapping[str, Any] = known_fields(fields) if found.is_paddle else paddlenlp_config(fields)
    shape = shape_of_config(config)
    weights = huggingface.read(found.weights, shape)
    if shape is None or parameters_at_once(shape) > sum(weight.nbytes for weight in weights.values()):
        raise _refused(found, f"its config describes another model than {found.weights.name}", _COPY)
    weights = {name.replace(_HEAD_OF_ANSWERS, _HEAD): weight for name, weight in weights.items()}
    head = weights.get(f"{_HEAD}bias")
    if head is None:
        why = f"{found.weights.name} has no {_HEAD}weight and {_HEAD}bias: it is an encoder without a head"
        raise _refused(found, why, "give the folder of the trained classifier, or train one: `student.model`")
    if head.shape != (len(given),):
        why = f"its head has {len(head)} outputs, and the labels are {', '.join(given)[:200]}"
        raise _refused(found, why, "write `model.labels` in the order of the outputs")
    network = classifiers.build(task, ErnieConfig(**config, num_labels=len(given)))
    shapes = {name.removeprefix(_ENCODER): tuple(weight.shape) for name, weight in network.state_dict().items()}
    if task.per_token and not any(".pooler." in f".{name}" for name in weights):  # transformers' has none, nor needs it
        shapes = {name: shape for name, shape in shapes.items() if not name.startswith("pooler.")}
    converted, problems = encoder_names.convert(shapes, weights, of_torch=not found.is_paddle)
    if problems:
        raise _refused(found, "; ".join(problems), _COPY)
    order = [given.index(label) for label in labels]
    for part in ("weight", "bias"):  # (hidden, labels) and (labels,)
        converted[f"{_HEAD}{part}"] = converted[f"{_HEAD}{part}"][..., order]
    network.set_state_dict(
        {name if name.startswith(_HEAD) else f"{_ENCODER}{name}": weight for name, weight in converted.items()}
    )
    return network


_COPY: Final = "copy the folder again from where it was trained, or save the model with `save_pretrained` there"


def _refused(found: TrainedFolder, why: str, fix: str) -> StageFailedError:
    return StageFailedError(f"model: the folder {found.folder.name!r} cannot be loaded", why=why, fix=fix)


def _require_order(classifier: Classifier, data: DataArtifact, given: Sequence[str], found: TrainedFolder) -> None:
    """Compare the order of the labels with the one that fits the dev rows best.

    Raises:
        RecipeInvalidError: another order is far better.
    """
    if not data.text_task.labelled:
        return
    task, dev = task_of_data(data), data.read("dev")[: MOST_NUMBERS // len(given)]
    encoded = classifier.encode(dev)
    targets = [task.target(row, tokens) for row, tokens in zip(dev, encoded, strict=True)]
    made = units(list(logits(classifier, encoded, SILENT, "dev")), targets)
    if len(made.logits) < _UNITS_PER_LABEL * len(given):
        return
    order, as_given, best = fitting_order(made, multi_label=data.multi_label)
    if best - as_given < _FAR_BETTER:
        return
    fits = {label: classifier.labels[index] for label, index in zip(classifier.labels, order, strict=True)}
    wanted = ", ".join(fits[label] for label in given)
    source = "the recipe" if found.labels != tuple(given) else found.labels_from
    fix = f"write `model: {{folder: {found.folder.name}, labels: [{wanted}]}}`"
    if found.labels_from == CONFIG_FILE:  # which a recipe may not contradict
        fix = f"correct `id2label` in {CONFIG_FILE} of {found.folder.name}: the order is {wanted}"
    raise RecipeInvalidError(
        f"`model.labels`: the model was trained with its labels in another order: on {len(dev)} dev rows macro F1 is "
        f"{as_given:.0%} as {', '.join(given)} ({source}), and {best:.0%} as {wanted}",
        why="output i belongs to label i",
        fix=fix,
    )
