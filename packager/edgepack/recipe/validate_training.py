"""Checks of a recipe's models: missing files, unknown layers, widths without heads, teachers with other tokens.

They run before anything is trained, for models with known sizes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from edgepack.recipe import pretrained_models
from edgepack.recipe.messages import did_you_mean, dotted, listed
from edgepack.recipe.paths import PATH_FIX, beside, is_file, is_folder, is_local, path_fix
from edgepack.recipe.pretrained_models import PRESETS, SENTENCEPIECE
from edgepack.recipe.training import Scratch, Training
from edgepack.recipe.yaml import Document, KeyPath, Problem
from edgepack_runtime.util.fs import read_regular

_LAYERS: KeyPath = ("student", "model", "layers")
_TAUGHT_WIDTH: KeyPath = ("student", "model", "width")
_WIDTH: KeyPath = ("student", "width")
_MAP: KeyPath = ("student", "distill", "layers")
_ONCE = "name each layer once, the lowest first"


@dataclass(frozen=True)
class _Words:
    """Identity of a vocabulary: the content of its file, or its number of entries."""

    kind: Literal["built", "of the hub", "file"]
    known: int | bytes


@dataclass(frozen=True)
class _Side:
    """Teacher or student. Unknown values are None."""

    layers: int | None
    heads: int | None
    positions: int | None
    words: _Words | None
    max_length: int


def check_distillation(document: Document) -> Iterator[Problem]:
    """Path, reason and fix of every error."""
    student, taught = document.get("student"), document.get("teacher") is not None
    if not isinstance(student, dict):
        return
    distill, model = student.get("distill"), student.get("model")
    if distill is not None and not taught:
        fix = "add a `teacher`, or write `distill: null` to train on the labels alone"
        yield ("student", "distill"), "`student.distill` is set, but there is no teacher", fix
    if isinstance(model, dict) and "from" in model and not taught:
        yield ("student", "model"), "`student.model` starts from a teacher, but there is none", "add a `teacher`"
    alone = not taught or ("distill" in student and distill is None)
    if alone and isinstance(document.get("data", "unlabelled"), str):
        reason = "`data.unlabelled` is set, but without distillation nothing labels those texts"
        yield ("data", "unlabelled"), reason, "add a `teacher` to distil from, or remove the key"
    settings = distill if isinstance(distill, dict) else {}
    inside = bool(settings.get("hidden") or settings.get("relations"))
    if settings.get("layers") is not None and not inside:
        yield (
            _MAP,
            "`student.distill.layers` maps layers, but `hidden` does not match them",
            "set `hidden: true`, or remove it",
        )
    teacher = _side(document, "teacher", None) if taught else None
    student = _side(document, "student", teacher)
    yield from _check_width(document, student)
    if teacher is not None:
        yield from _check_pair(document, teacher, student, settings if inside else {}, alone)


def _check_width(document: Document, student: _Side) -> Iterator[Problem]:
    width, of_teacher = document.get(*_WIDTH), document.get(*_TAUGHT_WIDTH)
    if _is_part(width) and _is_part(of_teacher):
        reason = f"`student.width` is {width:g} and `student.model.width` {of_teacher:g}: it would be narrowed twice"
        fix = "keep `student.width`, to narrow it when it is trained, or the other, to narrow it before"
        yield _WIDTH, reason, fix
    else:
        yield from _check_heads(_WIDTH, width, student.heads, "the student")


def _check_heads(where: KeyPath, width: object, heads: int | None, whose: str) -> Iterator[Problem]:
    """Check that a width leaves at least one head, if their number is known."""
    if type(width) is float and heads is not None and 0 < width * heads < 0.5:
        reason = f"`{dotted(where)}` is {width:g}, which leaves none of the {heads} heads of {whose}"
        yield where, reason, f"use at least {math.ceil(100 / heads) / 100:g}, which leaves one"


def _is_part(width: object) -> bool:
    return type(width) is float and 0 < width < 1


def _check_pair(
    document: Document, teacher: _Side, student: _Side, settings: dict[str, Any], alone: bool
) -> Iterator[Problem]:
    yield from _check_cut(document, teacher, student)
    if settings:
        yield from _check_map(settings.get("layers"), teacher, student)
    tokens = document.get("task") == "token-classification" and not alone
    if settings or tokens:
        what = "matches what happens inside its teacher" if settings else "learns each token from its teacher"
        yield from _check_tokens(what, teacher, student)


def _check_cut(document: Document, teacher: _Side, student: _Side) -> Iterator[Problem]:
    """Find errors in a student that starts from layers of its teacher."""
    model = document.get("student", "model")
    if not isinstance(model, dict) or "from" not in model:
        return
    yield from _check_heads(_TAUGHT_WIDTH, model.get("width"), teacher.heads, "its teacher")
    layers = model.get("layers")
    chosen = [layers] if type(layers) is int else layers if isinstance(layers, list) else []
    if not all(type(layer) is int for layer in chosen):
        return
    if teacher.layers is not None and any(layer > teacher.layers for layer in chosen):
        reason = f"`student.model.layers` is {layers}, and the teacher has {teacher.layers} layers"
        yield _LAYERS, reason, f"name layers from 1 to {teacher.layers}, or how many of them"
    elif chosen != sorted(set(chosen)):
        yield _LAYERS, f"`student.model.layers` is {layers}: each layer can be taken once, from below", _ONCE
    if teacher.positions is not None and student.max_length > teacher.positions:
        reason = f"`student.max_length` is {student.max_length}, and its teacher has {teacher.positions} positions"
        yield ("student", "max_length"), reason, f"use at most {teacher.positions}, or a longer `teacher.max_length`"


def _check_map(layers: object, teacher: _Side, student: _Side) -> Iterator[Problem]:
    """Find errors in the mapping between layers of student and teacher."""
    if not isinstance(layers, list) or not all(type(layer) is int for layer in layers):
        return
    if student.layers is not None and len(layers) != student.layers:
        reason = f"`student.distill.layers` names {len(layers)}, and the student has {student.layers} layers"
        yield _MAP, reason, "name one layer of the teacher for each layer of the student, or remove it"
    elif teacher.layers is not None and any(layer > teacher.layers for layer in layers):
        reason = f"`student.distill.layers` is {layers}, and the teacher has {teacher.layers} layers"
        yield _MAP, reason, f"name layers from 1 to {teacher.layers}"


def _check_tokens(what: str, teacher: _Side, student: _Side) -> Iterator[Problem]:
    if teacher.max_length != student.max_length:
        reason = f"a student that {what} must read the same tokens: its `max_length` is {student.max_length}"
        fix = f"use {teacher.max_length}, as the teacher does, or another `teacher.max_length`"
        yield ("student", "max_length"), f"{reason}, and the teacher's {teacher.max_length}", fix
    if _differ(teacher.words, student.words):
        reason = f"a student that {what} must read the same tokens, and the vocabularies of the two differ"
        yield ("student", "model"), reason, "use two models of one family, or `{from: teacher, layers: ...}`"


def _differ(one: _Words | None, other: _Words | None) -> bool:
    """Whether two vocabularies certainly differ. A local folder may hold a model of the hub."""
    if one is None or other is None:
        return False
    kinds = {one.kind, other.kind}
    return one != other if len(kinds) == 1 else "built" in kinds


def _side(document: Document, role: str, teacher: _Side | None) -> _Side:
    model, length = document.get(role, "model"), document.get(role, "max_length")
    if type(length) is not int:
        length = Training.model_fields["max_length"].default
    if isinstance(model, dict) and "from" in model and teacher is not None:
        layers = model.get("layers")
        count = layers if type(layers) is int else len(layers) if isinstance(layers, list) else None
        return _Side(count, teacher.heads, teacher.positions, teacher.words, length)
    if isinstance(model, dict):
        scratch = model.get("scratch")
        found = scratch if isinstance(scratch, dict) else {}
        layers, heads = (value if type(value := found.get(key)) is int else None for key in ("layers", "heads"))
        most = found.get("max_vocabulary", Scratch.model_fields["max_vocabulary"].default)
        return _Side(layers, heads, length, _Words("built", most), length)
    if not isinstance(model, str):
        return _Side(None, None, None, None, length)
    if is_local(document, model):
        folder = beside(document, model)
        shape, words = pretrained_models.of_folder(folder), _words(folder)
    else:
        shape = PRESETS.get(model)
        words = _Words("of the hub", shape.vocabulary) if shape is not None else None
    if shape is None:
        return _Side(None, None, None, words, length)
    return _Side(shape.layers, shape.heads, shape.positions, words, length)


def _words(folder: Path) -> _Words | None:
    """The vocabulary of a local folder; None if there is none."""
    try:
        return _Words("file", read_regular(folder / "vocab.txt"))
    except (OSError, ValueError):
        return None


MODEL_FILES: Final = (pretrained_models.CONFIG_FILE, pretrained_models.WEIGHTS_FILE, "vocab.txt")
_OWNED: Final = re.compile(r"[\w.-]+/[\w.-]+")  # a model of the hub is checked when it is loaded


def check_models(document: Document) -> Iterator[Problem]:
    """Find errors in names, folders and shapes of both models."""
    for role in ("teacher", "student"):
        where: KeyPath = (role, "model")
        model = document.get(*where)
        if isinstance(model, str) and not model.strip():
            yield where, f"`{role}.model` is empty", "name a PaddleNLP model or a local folder"
        elif isinstance(model, str) and is_local(document, model):
            yield from _check_folder(document, where, model)
        elif isinstance(model, str) and "/" not in model:
            yield from _check_preset(document, where, model)
        elif isinstance(model, str) and not _OWNED.fullmatch(model):
            reason = f"`{dotted(where)}`: {model[:200]!r} is neither a folder here nor a hub's `owner/name`"
            yield where, reason, path_fix(model) or PATH_FIX
        hidden, heads = (document.get(*where, "scratch", key) for key in ("hidden", "heads"))
        if type(hidden) is int and type(heads) is int and heads > 0 and hidden % heads:
            reason = f"`hidden` is {hidden}, which is not a multiple of `heads`, {heads}"
            fix = f"use `hidden: {(hidden // heads + 1) * heads}`, or other `heads`"
            yield (*where, "scratch", "hidden"), reason, fix


def _check_preset(document: Document, where: KeyPath, model: str) -> Iterator[Problem]:
    if model in PRESETS:
        yield from _check_length(document, where, PRESETS[model].positions)
    elif model == SENTENCEPIECE:
        reason = f"`{dotted(where)}`: `{model}` needs a SentencePiece tokenizer, which edgepack does not have"
        yield where, reason, "use `ernie-3.0-tiny-mini-v2-zh`, which is smaller and better"
    else:
        reason = f"`{dotted(where)}`: PaddleNLP has no ERNIE model {model[:200]!r}, and no folder here has this name"
        otherwise = "use a name of docs/reference/recipe.md, or the path of a folder, as `./models/ernie`"
        yield where, reason, did_you_mean(model, PRESETS, otherwise)


def _check_folder(document: Document, where: KeyPath, model: str) -> Iterator[Problem]:
    folder = beside(document, model)
    if not is_folder(folder):
        reason = f"`{dotted(where)}`: there is no folder {model[:200]!r}"
        yield where, reason, path_fix(model) or "give a folder or a PaddleNLP name"
        return
    if problems := pretrained_models.file_problems(folder):
        reason = f"`{dotted(where)}`: the folder {model[:200]!r} cannot be used: {problems[0]}"
        yield where, reason, "copy the folder with the files that links lead to: `cp -rL FOLDER COPY`"
        return
    checkpoint = pretrained_models.checkpoint_weights(folder) is not None
    files = [name for name in MODEL_FILES if not (checkpoint and name == pretrained_models.WEIGHTS_FILE)]
    missing = [name for name in files if not is_file(folder / name)]
    if missing:
        reason = f"`{dotted(where)}`: the folder {model[:200]!r} lacks {listed(missing)}"
        fix = "give a folder that PaddleNLP's `save_pretrained` wrote"
        yield (
            where,
            reason,
            "docs/reference/recipe-file.md lists the conditions for a Hugging Face checkpoint" if checkpoint else fix,
        )
        return
    fields = pretrained_models.read_config(folder)
    if fields is None:
        reason = f"`{dotted(where)}`: {model[:200]!r} holds a config.json that is not a JSON object"
        yield where, reason, "copy the folder again from where the model was saved"
        return
    if checkpoint:
        for problem in [*pretrained_models.config_problems(fields), *pretrained_models.tokenizer_problems(folder)]:
            yield where, f"`{dotted(where)}`: {model[:200]!r} cannot be converted: {problem}", pretrained_models.UNFIT
    shape = pretrained_models.of_folder(folder)
    if shape is not None:
        yield from _check_length(document, where, shape.positions)


def _check_length(document: Document, where: KeyPath, positions: int) -> Iterator[Problem]:
    section = str(where[0])
    path: KeyPath = (section, "max_length")
    length = document.get(*path) if document.holds(path) else Training.model_fields["max_length"].default
    if type(length) is int and 0 < positions < length:
        reason = f"`{dotted(path)}` is {length}, and this model has {positions} positions"
        yield path, reason, f"use at most {positions}: `max_length: {positions}`"
