"""Checks of recipes with an imported model: its files, labels, vocabulary and handler."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from edgepack.recipe import huggingface_config, tokenizer_settings, trained_folder
from edgepack.recipe.messages import listed
from edgepack.recipe.model import CustomRecipe, ImportedTextModel, ImportedTextRecipe
from edgepack.recipe.paths import check_there, is_file, is_folder
from edgepack.recipe.section import AbsentError, or_none
from edgepack.recipe.tokenizer_settings import TOKENIZER_SETTINGS
from edgepack.recipe.trained_folder import read_labels
from edgepack.recipe.yaml import KeyPath, Problem
from edgepack.util import confined_files
from edgepack_runtime.bundle.model_config import (
    CONFIG_NAME,
    HANDLER_ITEMS,
    HANDLER_NAME,
    TokenizerConfig,
    label_problem,
)
from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.inference.handler import CLASS, METHODS
from edgepack_runtime.inference.tokenizer import read_vocab
from edgepack_runtime.tasks.intent_slots import INTENT
from edgepack_runtime.tasks.registry import task_by_name
from edgepack_runtime.tasks.task import Task
from edgepack_runtime.util.fs import read_regular
from edgepack_runtime.util.spans import OUTSIDE

GRAPHS: Final = (".json", ".pdmodel")  # of Paddle 3 and Paddle 2
_VOCABULARY: Final = "give the vocab.txt of a BERT or an ERNIE, with one token in each line"
_TOKENIZER: Final = "give a model with BERT's or ERNIE's tokenizer, or write a handler (docs/how-to/your-own-model.md)"
_FORM: Final = "docs/how-to/your-own-model.md shows a handler"


@dataclass(frozen=True)
class HandlerSource:
    """What the source of a handler declares: its kind of item and its methods, each with its parameters."""

    item: str | None
    methods: Mapping[str, tuple[str, ...]]


def read_handler(file: Path) -> HandlerSource:
    """The class `Handler` of a file, without running it.

    Raises:
        OSError: the file cannot be read.
        SyntaxError: it is not valid Python.
        ValueError: it has no class `Handler`, or is nested too deeply to be read.
    """
    try:
        tree = ast.parse(read_regular(file), str(file))
    except (MemoryError, RecursionError) as error:
        raise ValueError("it is nested too deeply") from error
    found = next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == CLASS), None)
    if found is None:
        raise ValueError(f"it has no class `{CLASS}`")
    item = None
    methods: dict[str, tuple[str, ...]] = {}
    for node in found.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == "item" for target in targets):
                item = str(node.value.value)
        elif isinstance(node, ast.FunctionDef):
            static = any(isinstance(one, ast.Name) and one.id == "staticmethod" for one in node.decorator_list)
            every = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
            required = every[: len(every) - len(node.args.defaults)]
            methods[node.name] = tuple(required if static else required[1:])
    return HandlerSource(item, methods)


def check_handler(recipe: CustomRecipe) -> Iterator[Problem]:
    """Problems of `handler`: the file, and what its class declares."""
    where: KeyPath = ("handler",)
    file = Path(recipe.handler)
    problems = list(_check_file(where, recipe.handler))
    yield from problems
    if problems:
        return
    try:
        source = read_handler(file)
    except SyntaxError as error:
        yield where, f"{file.name} is not valid Python: {error.msg} (line {error.lineno})", "correct that line"
        return
    except (OSError, ValueError) as error:
        yield where, f"{file.name}: {error}", _FORM
        return
    for reason in _reasons(source, several=len(recipe.model.graphs) > 1):
        yield where, f"{file.name}: {reason}", _FORM


def _reasons(source: HandlerSource, *, several: bool) -> Iterator[str]:
    if source.item not in HANDLER_ITEMS:
        yield f'`{CLASS}` declares no `item = "..."`, one of {", ".join(HANDLER_ITEMS)}'
    has = source.methods
    if "score" not in has:
        yield f"`{CLASS}` has no method `score(answer, expected)`"
    if "predict" not in has and several:
        yield f"several graphs need the method `predict(item, graphs)`, and `{CLASS}` has none"
    elif "predict" not in has:
        for name in ("preprocess", "postprocess"):
            if name not in has:
                yield f"`{CLASS}` has no method `{name}({', '.join(METHODS[name])})`, and no `predict(item, graphs)`"
    for name, parameters in METHODS.items():
        if name in has and len(has[name]) != len(parameters):
            given = f"`{name}({', '.join(has[name])})`"
            yield f"{given} should take {', '.join(parameters)}"


def check_model(recipe: CustomRecipe) -> Iterator[Problem]:
    """Problems of `model`: files that are not there, or of another kind."""
    graph = or_none(recipe.model, "graph")
    if isinstance(graph, dict):
        for name, file in graph.items():
            yield from _check_graph(("model", "graph", name), file)
    else:
        yield from _check_graph(("model", "graph"), graph or "")
    seen = {HANDLER_NAME, CONFIG_NAME}
    for index, file in enumerate(recipe.model.files):
        here: KeyPath = ("model", "files", index)
        name = PurePosixPath(file or "").name
        if name in seen or name.endswith(".onnx"):
            yield here, f"the name {name} is taken", "rename the file"
        elif name:
            yield from _check_file(here, file)
        seen.add(name)


def check_files(recipe: CustomRecipe) -> Iterator[Problem]:
    """Problems of `examples` and `packages`: files that are not there."""
    for key in ("examples", "packages"):
        if value := or_none(recipe, key):
            yield from _check_file((key,), value)


def _check_file(where: KeyPath, value: str) -> Iterator[Problem]:
    """As `check_there`; and a link stays in its folder: a model of somebody else must not lead to the user's files."""
    yield from check_there(where, value)
    file = Path(value)
    if is_file(file):
        try:
            confined_files.below(file.parent, file.name)
        except (OSError, ValueError) as error:
            yield where, str(error), "copy the file itself there: `cp -L`"


def _check_graph(where: KeyPath, file: str) -> Iterator[Problem]:
    path = Path(file)
    if not file:
        return
    if is_folder(path):
        yield from _check_graph_folder(where, path)
    elif path.name in trained_folder.WEIGHTS and trained_folder.is_trained_folder(path.parent):
        yield where, f"{path.name} holds the weights of a trained model, not a graph", _of_folder(path.parent)
    elif file.endswith((".onnx", *GRAPHS)):
        yield from _check_file(where, file)
    else:
        fix = "give an .onnx file, or a folder with a .json or .pdmodel and its .pdiparams"
        yield where, f"{file[:200]!r} is not a graph", fix


def _check_graph_folder(where: KeyPath, folder: Path) -> Iterator[Problem]:
    """A folder without a graph, such as one that a training wrote."""
    if any(is_file(file.with_suffix(".pdiparams")) for suffix in GRAPHS for file in folder.glob(f"*{suffix}")):
        return
    shown = f"the folder {folder.name[:200]!r}"
    if trained_folder.is_trained_folder(folder):
        yield where, f"{shown} holds a trained model, not a graph", _of_folder(folder)
    else:
        fix = "give a folder with a .json or .pdmodel and its .pdiparams, or an .onnx file; or `model.folder`"
        yield where, f"{shown} holds no graph of Paddle with its .pdiparams", fix


def _of_folder(folder: Path) -> str:
    return f"use model.folder: `model: {{folder: {folder.name}}}`, which needs no export"


def _beside(model: ImportedTextModel) -> Path:
    """The folder of the graph, which may have the settings of its model."""
    graph = Path(model.graph)
    return graph if is_folder(graph) else graph.parent


def with_settings(recipe: ImportedTextRecipe) -> ImportedTextRecipe:
    """The recipe with `lower_case` and `tokenizer` as tokenizer_config.json beside the graph says, if it has none."""
    with suppress(AbsentError, OSError, ValueError, RecursionError):
        model, folder = recipe.model, _beside(recipe.model)
        settings = huggingface_config.read_object(folder / TOKENIZER_SETTINGS)
        updates: dict[str, Any] = {}
        if "lower_case" not in model.model_fields_set and not tokenizer_settings.tokenizer_problems(folder):
            updates["lower_case"] = tokenizer_settings.lower_case(folder)
        if "tokenizer" not in model.model_fields_set and trained_folder.is_ernie(settings):
            updates["tokenizer"] = "ernie"
        return recipe.with_settings(**updates)
    return recipe


def check_settings(recipe: ImportedTextRecipe) -> Iterator[Problem]:
    """What the files beside the graph say and the recipe contradicts, or the runtime's tokenizer cannot do."""
    model, folder = recipe.model, _beside(recipe.model)
    problems = tokenizer_settings.tokenizer_problems(folder)
    if not problems and (kept := tokenizer_settings.kept_tokens(folder)):
        problems = [f"it keeps {listed(kept[:5])} whole; give the trained folder itself, as `model: {{folder: ...}}`"]
    for problem in problems:
        yield ("model", "vocab"), f"the tokenizer of the model cannot be used: {problem}", _TOKENIZER
    if not problems and model.lower_case != (found := tokenizer_settings.lower_case(folder)):
        reason = f"it is {_yaml(model.lower_case)}, and `do_lower_case` beside the graph is {_yaml(found)}"
        yield ("model", "lower_case"), reason, "remove the key, or correct tokenizer_config.json"
    try:
        settings, known = (
            huggingface_config.read_object(folder / TOKENIZER_SETTINGS),
            trained_folder.labels_of_config(folder),
        )
    except (OSError, ValueError, RecursionError):
        return
    if trained_folder.is_ernie(settings) and model.tokenizer != "ernie":
        reason = (
            f"it is {model.tokenizer}, and `tokenizer_class` beside the graph is {settings['tokenizer_class'][:80]}"
        )
        yield ("model", "tokenizer"), reason, "remove the key, or correct tokenizer_config.json"
    labels = or_none(model, "labels")
    if isinstance(labels, str):
        labels = read_labels(Path(labels)) if is_file(Path(labels)) else None
    if labels and known and None not in labels and _contradict(labels, known):
        reason = f"it is {listed(labels[:20])}, and `id2label` of config.json beside the graph is {listed(known[:20])}"
        yield ("model", "labels"), reason, "give them in the order of the outputs, or correct config.json"


def _contradict(labels: Sequence[str], known: Sequence[str]) -> bool:
    """Whether two lists cannot both be right: another number, or one name at two places. Translations can."""
    at = {label: index for index, label in enumerate(known)}
    return len(labels) != len(known) or any(at.get(label, index) != index for index, label in enumerate(labels))


def _yaml(value: bool) -> str:
    return "true" if value else "false"


def check_text_model(recipe: ImportedTextRecipe) -> Iterator[Problem]:
    """Problems of the files of an imported classifier."""
    yield from _check_graph(("model", "graph"), or_none(recipe.model, "graph") or "")
    for key in ("vocab", "labels"):
        file = or_none(recipe.model, key)
        if isinstance(file, str) and file:
            yield from _check_file(("model", key), file)


def check_labels(recipe: ImportedTextRecipe) -> Iterator[Problem]:
    """Problems of labels that no model can have."""
    where, labels = ("model", "labels"), recipe.model.labels
    if labels is None:
        if task_by_name(recipe.task).labelled:
            yield where, "it is missing", "give the labels in the order of the graph's outputs: `labels: [...]`"
        return
    if isinstance(labels, str):
        if not is_file(Path(labels)):
            return
        try:
            labels = read_labels(Path(labels))
        except (OSError, ValueError) as error:
            yield where, f"{labels[:200]!r} cannot be read: {error}", "write one label in each line"
            return
    if None not in labels:  # an entry of a wrong type, which another finding names
        task = task_by_name(recipe.task)
        ordered = [labels[index] for index in runtime_order(labels, task)]
        if (reason := label_problem(ordered, task)) is not None:
            yield where, f"it {reason}", "give them in the order of the graph's outputs"


def check_vocabulary(recipe: ImportedTextRecipe) -> Iterator[Problem]:
    """Problems of the vocabulary of an imported classifier."""
    file = Path(recipe.model.vocab)
    if not is_file(file):
        return
    try:
        tokens = set(read_vocab(file))
    except BundleInvalidError as error:
        yield ("model", "vocab"), f"{file.name[:200]!r} cannot be read: {error.why}", _VOCABULARY
        return
    used = TokenizerConfig()
    lacking = [one for one in (used.pad_token, used.unk_token, used.cls_token, used.sep_token) if one not in tokens]
    if lacking:
        yield ("model", "vocab"), f"{file.name[:200]!r} lacks {', '.join(lacking)}", _VOCABULARY


def runtime_order(labels: Sequence[str], task: Task) -> list[int]:
    """Positions of the labels in the order of the runtime: intents come first, and then the tag `O`."""

    def rank(index: int) -> tuple[bool, bool]:
        label = labels[index]
        return (False, False) if not task.per_token else (not label.startswith(INTENT), label != OUTSIDE)

    return sorted(range(len(labels)), key=rank)
