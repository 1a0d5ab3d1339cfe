"""What is wrong with the models that a recipe starts from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from edgepack.recipe import huggingface, shapes
from edgepack.recipe.document import Document, KeyPath, Problem
from edgepack.recipe.explain import did_you_mean, dotted, listed
from edgepack.recipe.missing import PATH_FIX, path_fix
from edgepack.recipe.presets import PRESETS, SENTENCEPIECE
from edgepack.recipe.sources import beside, is_file, is_folder, is_local
from edgepack.recipe.training import Training

MODEL_FILES: Final = (shapes.CONFIG_FILE, shapes.WEIGHTS_FILE, "vocab.txt")
_OWNED: Final = re.compile(r"[\w.-]+/[\w.-]+")  # whether the hub has it, only the hub knows


def check_models(document: Document) -> Iterator[Problem]:
    """Of the names, folders and shapes of both models."""
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
            reason = f"`hidden` is {hidden}, which is no multiple of `heads`, {heads}"
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
        otherwise = "use a name of docs/11-recipe-reference.md, or the path of a folder, as `./models/ernie`"
        yield where, reason, did_you_mean(model, PRESETS, otherwise)


def _check_folder(document: Document, where: KeyPath, model: str) -> Iterator[Problem]:
    folder = beside(document, model)
    if not is_folder(folder):
        reason = f"`{dotted(where)}`: there is no folder {model[:200]!r}"
        yield where, reason, path_fix(model) or "give a folder or a PaddleNLP name"
        return
    checkpoint = shapes.checkpoint_weights(folder) is not None
    files = [name for name in MODEL_FILES if not (checkpoint and name == shapes.WEIGHTS_FILE)]
    missing = [name for name in files if not is_file(folder / name)]
    if missing:
        reason = f"`{dotted(where)}`: the folder {model[:200]!r} lacks {listed(missing)}"
        fix = "give a folder as PaddleNLP's `save_pretrained` writes it"
        yield where, reason, "docs/10-recipe.md tells what a Hugging Face checkpoint has to hold" if checkpoint else fix
        return
    fields = shapes.read_config(folder)
    if fields is None:
        reason = f"`{dotted(where)}`: {model[:200]!r} holds a config.json that is no JSON object"
        yield where, reason, "copy the folder again from where the model was saved"
        return
    if checkpoint:
        for problem in [*huggingface.config_problems(fields), *huggingface.tokenizer_problems(folder)]:
            yield where, f"`{dotted(where)}`: {model[:200]!r} cannot be converted: {problem}", huggingface.UNFIT
    shape = shapes.of_folder(folder)
    if shape is not None:
        yield from _check_length(document, where, shape.positions)


def _check_length(document: Document, where: KeyPath, positions: int) -> Iterator[Problem]:
    section = str(where[0])
    path: KeyPath = (section, "max_length")
    length = document.get(*path) if document.holds(path) else Training.model_fields["max_length"].default
    if type(length) is int and 0 < positions < length:
        reason = f"`{dotted(path)}` is {length}, and this model has {positions} positions"
        yield path, reason, f"use at most {positions}: `max_length: {positions}`"
