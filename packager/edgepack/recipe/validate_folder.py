"""Recipes of a trained folder: what the folder decides, and contradictions between both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from edgepack.recipe import trained_folder
from edgepack.recipe.encoder_shapes import CONFIG_FILE
from edgepack.recipe.messages import listed
from edgepack.recipe.model import FolderRecipe
from edgepack.recipe.paths import check_there, is_file
from edgepack.recipe.section import AbsentError, or_none
from edgepack.recipe.trained_folder import TrainedFolder
from edgepack.recipe.validate_imported import runtime_order
from edgepack.recipe.yaml import KeyPath, Problem
from edgepack_runtime.bundle.model_config import label_problem
from edgepack_runtime.tasks.registry import TASK_NAMES, TaskName, task_by_name

_FOLDER: KeyPath = ("model", "folder")
_LABELS: KeyPath = ("model", "labels")


def with_settings(recipe: FolderRecipe) -> FolderRecipe:
    """The recipe with what it leaves to the settings of its folder: task, labels, length, column of several labels."""
    with suppress(AbsentError):
        found, model, data = trained_folder.read(Path(recipe.model.folder)), recipe.model, recipe.data
        updates: dict[str, Any] = {
            "model": model.changed(labels=_labels(recipe, found), max_length=_length(recipe, found))
        }
        columns = data.columns
        task = _task(recipe, found)
        if found.multi_label and not {"label", "labels"} & columns.model_fields_set:
            columns = columns.changed(labels="labels")
        updates |= {"task": task, "data": data.changed(columns=columns)}
        return recipe.changed(**updates)
    return recipe


def _task(recipe: FolderRecipe, found: TrainedFolder) -> TaskName:
    if "task" in recipe.model_fields_set:
        return recipe.task
    pairs = found.is_reading or (or_none(recipe.data.columns, "text_pair") is not None and not found.per_token)
    wanted = (bool(found.per_token), found.is_labelled, pairs)
    kinds = ((name, task_by_name(name)) for name in TASK_NAMES)
    return next(name for name, task in kinds if (task.per_token, task.labelled, task.pairs) == wanted)


def _labels(recipe: FolderRecipe, found: TrainedFolder) -> Any:
    labels = recipe.model.labels
    if labels is None or found.is_number:
        return found.labels
    if isinstance(labels, str):
        with suppress(OSError, ValueError):
            return trained_folder.read_labels(Path(labels))
    return labels


def _length(recipe: FolderRecipe, found: TrainedFolder) -> int | None:
    asked = recipe.model.max_length
    return (found.max_length or None) if asked is None else asked


def check_folder(recipe: FolderRecipe) -> Iterator[Problem]:
    """Problems of `model.folder`, and what contradicts its settings."""
    found = trained_folder.read(Path(recipe.model.folder))
    for reason, fix in found.problems:
        yield _FOLDER, reason, fix
    if found.weights is None:
        return
    task = task_by_name(recipe.task)
    if (found.is_labelled, found.is_reading) != (task.labelled, task.in_second):
        what = f"it is {recipe.task}, and config.json says that the model gives "
        what += "one number (regression)" if found.is_number else "an answer" if found.is_reading else "labels"
        yield ("task",), what, "remove `task`, or give the folder of a model of this task"
    elif found.per_token is not None and found.per_token != task.per_token:
        what = f"it is {recipe.task}, and `architectures` of config.json is {found.fields['architectures'][0]}"
        yield ("task",), what, "remove `task`, or give the folder of a model of this task"
    elif found.multi_label is not None and found.multi_label != recipe.data.columns.text_task.multi_label:
        named = "several labels (`columns.labels`)" if recipe.data.columns.text_task.multi_label else "one label"
        what = f"the rows have {named}, and `problem_type` of config.json is {found.fields['problem_type']}"
        yield (
            ("data", "columns"),
            what,
            "name the column of the labels as the model was trained, or correct config.json",
        )
    length = recipe.model.max_length
    if length is not None and 0 < found.positions < length:
        reason = f"it is {length}, and `max_position_embeddings` of config.json is {found.positions}"
        yield ("model", "max_length"), reason, f"use at most {found.positions}"


def check_labels(recipe: FolderRecipe) -> Iterator[Problem]:
    """Problems of the labels: none are named, others than the model has outputs, or no model can have them."""
    found, labels = trained_folder.read(Path(recipe.model.folder)), recipe.model.labels
    if found.weights is None:
        return
    if isinstance(labels, str):
        yield from check_there(_LABELS, labels)
        if is_file(Path(labels)):
            yield _LABELS, f"{labels[:200]!r} cannot be read", "write one label in each line"
        return
    if labels is None:
        if not any("labels" in reason for reason, _ in found.problems):
            files = listed(trained_folder.LABEL_FILES)
            reason = f"config.json does not name the labels, and there is none of {files} in the folder or beside it"
            yield _FOLDER, reason, "write them in the order of the training: `model: {folder: ..., labels: [...]}`"
        return
    if None in labels:
        return
    given = "labels" in recipe.model.model_fields_set
    where = _LABELS if given else _FOLDER
    if found.outputs not in (None, len(labels)):
        source = "the recipe" if given else found.labels_from
        known = f": {listed(found.labels[:20])} ({found.labels_from})" if given and found.labels is not None else ""
        reason = f"{source} has {len(labels)} labels, {listed(labels[:20])}, and the model has {found.outputs}{known}"
        yield where, reason, "write `model.labels` in the order of the outputs"
        return
    if (
        given
        and found.is_labelled
        and found.labels_from == CONFIG_FILE
        and found.labels is not None
        and tuple(labels) != found.labels
    ):
        same = "in another order" if set(labels) == set(found.labels) else "with other names"
        reason = f"it is {listed(labels[:20])}, and `id2label` of config.json is {listed(found.labels[:20])}, {same}"
        yield where, reason, "remove it; or, if the model was trained with these, correct `id2label` in config.json"
        return
    yield from ((where, reason, fix) for reason, fix in _label_problems(labels, recipe.task))


def _label_problems(labels: Sequence[str], name: TaskName) -> Iterator[tuple[str, str]]:
    task = task_by_name(name)
    ordered = [labels[index] for index in runtime_order(labels, task)]
    fix = "write `model.labels` in the order of the outputs"
    if (reason := label_problem(ordered, task)) is not None:
        yield f"the list of its labels {reason}", fix
    elif lacking := sorted(set(task.model_labels(task.classes(labels))) - set(labels)):
        yield f"the model has no tag {listed(lacking[:5])}, and each type needs `B-` and `I-`", fix


def check_use(recipe: FolderRecipe) -> Iterator[Problem]:
    """Keys that need a training, or training rows."""
    if recipe.quantize.method == "qat" or recipe.quantize.qat is not None:
        yield ("quantize", "method"), "`qat` trains, and nothing is trained here", "use `ptq` or `auto`"
    if recipe.linear in ("baseline", "ensemble", "cascade") and or_none(recipe.data, "train") is None:
        reason = f"it is {recipe.linear}, and there are no training rows to fit a linear model"
        yield ("linear",), reason, "add `data.train`, or remove it"
