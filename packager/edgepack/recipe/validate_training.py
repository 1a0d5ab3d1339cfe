"""Checks of a recipe's models and their training, before anything is trained, for models with known sizes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from edgepack.messages import message
from edgepack.recipe import encoder_shapes, huggingface_config, tokenizer_settings
from edgepack.recipe.encoder_shapes import PRESETS, SENTENCEPIECE, shape_of_model
from edgepack.recipe.messages import did_you_mean, listed
from edgepack.recipe.model import Recipe
from edgepack.recipe.paths import PATH_FIX, is_file, is_folder, path_fix
from edgepack.recipe.section import AbsentError, or_none
from edgepack.recipe.training import FromScratch, FromTeacher, Student, Teacher, is_local_folder
from edgepack.recipe.yaml import KeyPath, Problem
from edgepack_runtime.bundle.model_config import VOCAB_NAME
from edgepack_runtime.tasks.registry import task_by_name

_MODEL: Final[KeyPath] = ("student", "model")
_LAYERS: Final[KeyPath] = (*_MODEL, "layers")
_MAP: Final[KeyPath] = ("student", "distill", "layers")
MODEL_FILES: Final = (encoder_shapes.CONFIG_FILE, encoder_shapes.PADDLE_WEIGHTS, VOCAB_NAME)
_OWNED: Final = re.compile(r"[\w.-]+/[\w.-]+")  # a model of the hub is checked when it is loaded


@dataclass(frozen=True)
class _Words:
    """Identity of a vocabulary: the content of its file, or its number of entries."""

    kind: Literal["built", "of the hub", "file"]
    known: int | bytes


@dataclass(frozen=True)
class _Side:
    """Teacher or student. Unknown values are None."""

    max_length: int | None
    layers: int | None = None
    heads: int | None = None
    positions: int | None = None
    words: _Words | None = None


def check_use_of_teacher(recipe: Recipe) -> Iterator[Problem]:
    """Problems of keys that need a teacher, or distillation from it."""
    student, taught = recipe.student, recipe.teacher is not None
    alone = not taught or student.distill is None
    if not taught and "distill" in student.model_fields_set and student.distill is not None:
        fix = "add a `teacher`, or write `distill: null` to train on the labels alone"
        yield ("student", "distill"), "there is no teacher", fix
    if not taught and isinstance(or_none(student, "model"), FromTeacher):
        yield _MODEL, "it starts from a teacher, but there is none", "add a `teacher`"
    if alone and recipe.data.unlabelled is not None:
        reason = "without distillation nothing labels those texts"
        yield ("data", "unlabelled"), reason, "add a `teacher` to distil from, or remove the key"


def check_student(recipe: Recipe) -> Iterator[Problem]:
    """Problems of the layers, the width and the tokens of a student, and how they fit its teacher."""
    student, distill = recipe.student, or_none(recipe.student, "distill")
    # A wrong value counts as set.
    is_matched = distill is not None and any(or_none(distill, key) is not False for key in ("hidden", "relations"))
    layers = None if distill is None else or_none(distill, "layers")
    if layers is not None and not is_matched:
        yield _MAP, "they are mapped, but `hidden` does not match them", "set `hidden: true`, or remove it"
    teacher = None if recipe.teacher is None else _side(recipe.teacher, None)
    side = _side(student, teacher)
    if teacher is not None:
        if is_matched and layers is not None:
            yield from _check_map(layers, teacher, side)
        if is_matched or (distill is not None and _is_per_token(recipe)):
            what = "matches what happens inside its teacher" if is_matched else "learns each token from its teacher"
            yield from _check_tokens(what, teacher, side)
        if isinstance(model := or_none(student, "model"), FromTeacher):
            yield from _check_cut(model, teacher, side)
    yield from _check_width(student, side.heads)


def _is_per_token(recipe: Recipe) -> bool:
    name = or_none(recipe, "task")
    return name is not None and task_by_name(name).per_token


def _check_width(student: Student, heads: int | None) -> Iterator[Problem]:
    width, model = student.width, or_none(student, "model")
    if width < 1 and isinstance(model, FromTeacher) and model.width < 1:
        reason = f"it is {width:g} and `student.model.width` {model.width:g}: it would be pruned in width twice"
        fix = "keep `student.width`, to prune it after its training, or the other, to prune it before"
        yield ("student", "width"), reason, fix
    else:
        yield from _check_heads(("student", "width"), width, heads, "the student")


def _check_heads(where: KeyPath, width: float, heads: int | None, whose: str) -> Iterator[Problem]:
    """Check that a width leaves at least one head, if their number is known."""
    if heads is not None and width * heads < 0.5:
        reason = f"{width:g} leaves none of the {heads} heads of {whose}"
        yield where, reason, f"use at least {math.ceil(100 / heads) / 100:g}, which leaves one"


def _check_cut(model: FromTeacher, teacher: _Side, student: _Side) -> Iterator[Problem]:
    """Find errors in a student that starts from layers of its teacher."""
    if teacher.positions is not None and student.max_length is not None and student.max_length > teacher.positions:
        reason = f"it is {student.max_length}, and its teacher has {teacher.positions} positions"
        yield ("student", "max_length"), reason, f"use at most {teacher.positions}, or a longer `teacher.max_length`"
    chosen = [model.layers] if isinstance(model.layers, int) else [layer for layer in model.layers if layer is not None]
    if teacher.layers is not None and max(chosen, default=0) > teacher.layers:
        fix = f"name layers from 1 to {teacher.layers}, or how many of them"
        yield _LAYERS, f"the teacher has {teacher.layers} layers", fix
    elif chosen != sorted(set(chosen)):
        yield _LAYERS, "each layer can be taken once, from below", "name each layer once, the lowest first"
    yield from _check_heads((*_MODEL, "width"), model.width, teacher.heads, "its teacher")


def _check_map(layers: tuple[int, ...], teacher: _Side, student: _Side) -> Iterator[Problem]:
    """Find errors in the mapping between layers of student and teacher."""
    if student.layers is not None and len(layers) != student.layers:
        reason = f"it names {len(layers)}, and the student has {student.layers} layers"
        yield _MAP, reason, "name one layer of the teacher for each layer of the student, or remove it"
    elif teacher.layers is not None and any(layer is not None and layer > teacher.layers for layer in layers):
        yield _MAP, f"the teacher has {teacher.layers} layers", f"name layers from 1 to {teacher.layers}"


def _check_tokens(what: str, teacher: _Side, student: _Side) -> Iterator[Problem]:
    must = f"a student that {what} must read the same tokens"
    if None not in (teacher.max_length, student.max_length) and teacher.max_length != student.max_length:
        reason = f"{must}: its `max_length` is {student.max_length}, and the teacher's {teacher.max_length}"
        fix = f"use {teacher.max_length}, as the teacher does, or another `teacher.max_length`"
        yield ("student", "max_length"), reason, fix
    if _differ(teacher.words, student.words):
        fix = "use two models of one family, or `{from: teacher, layers: ...}`"
        yield _MODEL, f"{must}, and the vocabularies of the two differ", fix


def _differ(one: _Words | None, other: _Words | None) -> bool:
    """Whether two vocabularies certainly differ. A local folder may hold a model of the hub."""
    if one is None or other is None:
        return False
    kinds = {one.kind, other.kind}
    return one != other if len(kinds) == 1 else "built" in kinds


def _side(section: Teacher | Student, teacher: _Side | None) -> _Side:
    model, length = or_none(section, "model"), or_none(section, "max_length")
    if isinstance(model, FromTeacher):
        layers = or_none(model, "layers")
        count = len(layers) if isinstance(layers, tuple) else layers
        known = teacher or _Side(length)
        return _Side(length, count, known.heads, known.positions, known.words)
    try:
        shape = None if model is None else shape_of_model(model, length or 0)
    except AbsentError:  # a size of a model from scratch is wrong
        return _Side(length)
    if isinstance(model, str) and is_local_folder(model):
        words = _words(Path(model))
    else:
        built = isinstance(model, FromScratch)
        words = None if shape is None else _Words("built" if built else "of the hub", shape.vocabulary)
    if shape is None:
        return _Side(length, words=words)
    return _Side(length, shape.layers, shape.heads, shape.positions, words)


def _words(folder: Path) -> _Words | None:
    """The vocabulary of a local folder; None if there is none."""
    try:
        return _Words("file", tokenizer_settings.vocabulary(folder))
    except (OSError, ValueError, RecursionError):
        return None


def check_model(recipe: Recipe, role: str) -> Iterator[Problem]:
    """Problems of the name, the folder or the shape of the model of `role`."""
    section = recipe.value_at(role)
    where, model = (role, "model"), None if section is None else section.model
    if model is None or isinstance(model, FromTeacher):
        return
    if isinstance(model, FromScratch):
        hidden, heads = model.scratch.hidden, model.scratch.heads
        if hidden % heads:
            fix = f"use `hidden: {(hidden // heads + 1) * heads}`, or other `heads`"
            yield (*where, "scratch", "hidden"), f"{hidden} is not a multiple of `heads`, {heads}", fix
    elif not model.strip():
        yield where, "it is empty", "name a PaddleNLP model or a local folder"
    elif is_local_folder(model):
        problems = list(_folder_problems(Path(model)))
        yield from ((where, reason, fix) for reason, fix in problems)
        if not problems:
            yield from _check_length(role, section)
    elif model in PRESETS:
        yield from _check_length(role, section)
    elif model == SENTENCEPIECE:
        reason = f"`{model}` needs a SentencePiece tokenizer, which edgepack does not have"
        yield where, reason, "use `ernie-3.0-tiny-mini-v2-zh`, which is smaller and better"
    elif "/" not in model:
        reason = message("mistake.no_model", model=repr(model[:200]))
        otherwise = message("mistake.name_model")
        yield where, reason, did_you_mean(model, PRESETS, otherwise)
    elif not _OWNED.fullmatch(model):
        reason = f"{model[:200]!r} is neither a folder here nor a hub's `owner/name`"
        yield where, reason, path_fix(model) or PATH_FIX


def _folder_problems(folder: Path) -> Iterator[tuple[str, str]]:
    """Reason and fix of everything that is wrong in the folder of a model."""
    shown = f"the folder {str(folder)[:200]!r}"
    if not is_folder(folder):
        yield f"there is no folder {str(folder)[:200]!r}", path_fix(str(folder)) or "give a folder or a PaddleNLP name"
        return
    if problems := encoder_shapes.file_problems(folder):
        fix = "copy the folder with the files that links lead to: `cp -rL FOLDER COPY`"
        yield f"{shown} cannot be used: {problems[0]}", fix
        return
    checkpoint = encoder_shapes.is_huggingface_folder(folder)
    files = [name for name in MODEL_FILES if not (checkpoint and name == encoder_shapes.PADDLE_WEIGHTS)]
    if is_file(folder / tokenizer_settings.FAST_TOKENIZER):  # has a vocabulary, too
        files.remove(VOCAB_NAME)
    if missing := [name for name in files if not is_file(folder / name)]:
        fix = "give a folder that PaddleNLP's `save_pretrained` wrote"
        if checkpoint:
            fix = "docs/reference/recipe-file.md lists the conditions for a Hugging Face checkpoint"
        yield f"{shown} lacks {listed(missing)}", fix
        return
    fields = encoder_shapes.read_config(folder)
    if fields is None:
        reason = f"{shown} holds a config.json that is not a JSON object"
        yield reason, "copy the folder again from where the model was saved"
        return
    if checkpoint:
        problems = huggingface_config.config_problems(fields) + tokenizer_settings.tokenizer_problems(folder)
        what, fix = "converted", huggingface_config.CHECKPOINT_FIX
    else:
        problems = huggingface_config.paddle_problems(fields)
        what, fix = "loaded", "name a folder with another model"
    for problem in problems or tokenizer_settings.vocabulary_problems(folder, fields.get("vocab_size")):
        yield f"{shown} cannot be {what}: {problem}", fix


def _check_length(role: str, section: Teacher | Student) -> Iterator[Problem]:
    shape = shape_of_model(str(section.model), section.max_length)
    if shape is not None and 0 < shape.positions < section.max_length:
        reason = f"it is {section.max_length}, and this model has {shape.positions} positions"
        fix = f"use at most {shape.positions}: `max_length: {shape.positions}`"
        yield (role, "max_length"), reason, fix


def check_steps(recipe: Recipe, role: str) -> Iterator[Problem]:
    """Problems of `gradient_accumulation`: more parts than rows."""
    if (section := recipe.value_at(role)) is not None and section.gradient_accumulation > section.batch_size:
        rows = section.batch_size
        reason = f"it is {section.gradient_accumulation}, and a step has {rows} rows (`batch_size`) to divide"
        yield (role, "gradient_accumulation"), reason, f"use at most {rows}, or a larger `batch_size`"


def check_class_weights(recipe: Recipe, role: str) -> Iterator[Problem]:
    """Problems of `class_weights`: data without them."""
    section = recipe.value_at(role)
    if section is None or section.class_weights != "balanced":
        return
    if recipe.data.columns.text_task.multi_label:
        reason = "texts with any number of labels have no such weights"
        yield (role, "class_weights"), reason, "remove it: each label has its own loss"
    elif not task_by_name(recipe.task).labelled:
        yield (role, "class_weights"), f"rows of {recipe.task} have no classes", "remove it"


def check_device(recipe: Recipe, role: str) -> Iterator[Problem]:
    """Problems of `device` and `precision`."""
    if (section := recipe.value_at(role)) is None:
        return
    numbers = section.device.removeprefix("gpu:").split(",")
    if len(set(numbers)) < len(numbers):
        reason = "a GPU is named twice, and each trains in one process"
        yield (role, "device"), reason, f"use `gpu:{','.join(dict.fromkeys(numbers))}`"
    if section.precision in ("fp16", "bf16") and section.device == "cpu":
        reason = f"`{section.precision}` needs a GPU, and `{role}.device` is cpu"
        yield (role, "precision"), reason, "use `auto`, or another device"


def check_nodes(recipe: Recipe, role: str) -> Iterator[Problem]:
    """Problems of `nodes`: a port that there is not, a device that is not named."""
    if (section := recipe.value_at(role)) is None or section.nodes is None:
        return
    if or_none(section, "device") == "auto":
        reason = "each machine would choose its device for itself, and they may not agree"
        yield (role, "nodes"), reason, f"say which: `{role}.device: gpu`, `gpu:0,1` or `cpu`"
    port = int(section.nodes.master.rpartition(":")[2])
    if not 0 < port < 2**16:
        yield (role, "nodes", "master"), f"there is no port {port}", "name a free one from 1 to 65535"
