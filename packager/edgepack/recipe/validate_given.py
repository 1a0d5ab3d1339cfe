"""Checks of recipes with a given model: its files, labels, the adapter, and gates that an adapter does not have."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from edgepack.recipe.messages import dotted
from edgepack.recipe.paths import beside, check_there, is_file, is_folder
from edgepack.recipe.yaml import Document, KeyPath, Problem
from edgepack.util import given_files
from edgepack_runtime.bundle.model_config import ADAPTER_ITEMS, ADAPTER_NAME, CONFIG_NAME, TokenizerConfig
from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.inference.adapter import CLASS, METHODS
from edgepack_runtime.inference.tokenizer import read_vocab
from edgepack_runtime.tasks.registry import TOKENS
from edgepack_runtime.util.fs import read_regular
from edgepack_runtime.util.spans import OUTSIDE

GRAPHS: Final = (".json", ".pdmodel")  # of Paddle 3 and Paddle 2
_VOCABULARY: Final = "give the vocab.txt of a BERT or an ERNIE, with one token in each line"
_FORM: Final = "docs/how-to/your-own-model.md shows an adapter"


@dataclass(frozen=True)
class AdapterSource:
    """What the source of an adapter declares: its kind of item and its methods, each with its parameters."""

    item: str | None
    methods: Mapping[str, tuple[str, ...]]


def read_adapter(file: Path) -> AdapterSource:
    """The class `Adapter` of a file, without running it.

    Raises:
        OSError: the file cannot be read.
        SyntaxError: it is no Python.
        ValueError: it has no class `Adapter`.
    """
    tree = ast.parse(read_regular(file), str(file))
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
            needed = len(node.args.args) - len(node.args.defaults)
            named = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args[: max(needed, 1)])]
            static = any(isinstance(one, ast.Name) and one.id == "staticmethod" for one in node.decorator_list)
            methods[node.name] = tuple(named if static else named[1:])
    return AdapterSource(item, methods)


def check_adapter(document: Document) -> Iterator[Problem]:
    """Find errors in `adapter`: the file and what its class declares."""
    where: KeyPath = ("adapter",)
    value = document.get(*where)
    if not isinstance(value, str) or not value:
        return
    problems = list(_check_file(document, where, value))
    if problems:
        yield from problems
        return
    try:
        source = read_adapter(beside(document, value))
    except SyntaxError as error:
        yield where, f"`adapter`: {value} is no Python: {error.msg} (line {error.lineno})", "correct that line"
        return
    except (OSError, ValueError) as error:
        yield where, f"`adapter`: {value}: {error}", _FORM
        return
    graph = document.get("model", "graph")
    for reason in _reasons(source, several=isinstance(graph, dict) and len(graph) > 1):
        yield where, f"`adapter`: {value}: {reason}", _FORM


def _reasons(source: AdapterSource, *, several: bool) -> Iterator[str]:
    if source.item not in ADAPTER_ITEMS:
        yield f'`{CLASS}` declares no `item = "..."`, one of {", ".join(ADAPTER_ITEMS)}'
    has = source.methods
    if "score" not in has:
        yield f"`{CLASS}` has no method `score(answer, expected)`"
    if "predict" not in has and several:
        yield f"several graphs need the method `predict(item, graphs)`, and `{CLASS}` has none"
    elif "predict" not in has:
        for name in ("prepare", "answer"):
            if name not in has:
                yield f"`{CLASS}` has no method `{name}({', '.join(METHODS[name])})`, and no `predict(item, graphs)`"
    for name, parameters in METHODS.items():
        if name in has and len(has[name]) != len(parameters):
            given = f"`{name}({', '.join(has[name])})`"
            yield f"{given} should take {', '.join(parameters)}"


def check_model(document: Document) -> Iterator[Problem]:
    """Find errors in `model`, `examples` and `packages`: files that are not there, or of another kind."""
    graph = document.get("model", "graph")
    graphs: dict[KeyPath, object] = {("model", "graph"): graph}
    if isinstance(graph, dict):
        graphs = {("model", "graph", name): file for name, file in graph.items()}
        if not graph:
            yield ("model", "graph"), "`model.graph` names no graph", "give an .onnx file"
    for where, file in graphs.items():
        yield from _check_graph(document, where, file)
    for key in ("examples", "packages"):
        value = document.get(key)
        if isinstance(value, str) and value:
            yield from _check_file(document, (key,), value)
    files = document.get("model", "files")
    seen = {ADAPTER_NAME, CONFIG_NAME}
    for index, file in enumerate(files if isinstance(files, list) else ()):
        if not isinstance(file, str) or not file:
            continue
        here: KeyPath = ("model", "files", index)
        name = PurePosixPath(file).name
        if name in seen or name.endswith(".onnx"):
            yield here, f"`model.files`: the name {name} is taken", "rename the file"
        else:
            yield from _check_file(document, here, file)
        seen.add(name)


def _check_file(document: Document, where: KeyPath, value: str) -> Iterator[Problem]:
    """As `check_there`; and a link stays in its folder: a model of somebody else must not lead to the user's files."""
    yield from check_there(document, where, value)
    file = beside(document, value)
    if is_file(file):
        try:
            given_files.below(file.parent, file.name)
        except (OSError, ValueError) as error:
            yield where, f"`{dotted(where)}`: {error}", "copy the file itself there: `cp -L`"


def _check_graph(document: Document, where: KeyPath, file: object) -> Iterator[Problem]:
    if not isinstance(file, str) or not file or is_folder(beside(document, file)):
        return
    if not file.endswith((".onnx", *GRAPHS)):
        reason = f"`model.graph`: {file[:200]!r} is no graph"
        yield where, reason, "give an .onnx file, or a folder with a .json or .pdmodel and its .pdiparams"
    else:
        yield from _check_file(document, where, file)


def check_text_model(document: Document) -> Iterator[Problem]:
    """Find errors in `model` of a given classifier: files that are not there, labels that are none."""
    yield from _check_graph(document, ("model", "graph"), document.get("model", "graph"))
    labels, where = document.get("model", "labels"), ("model", "labels")
    for key in ("vocab", "labels"):
        file = document.get("model", key)
        if isinstance(file, str) and file:
            yield from _check_file(document, ("model", key), file)
    yield from _check_vocabulary(document)
    if isinstance(labels, str) and labels and is_file(beside(document, labels)):
        try:
            labels = list(read_labels(beside(document, labels)))
        except (OSError, ValueError) as error:
            yield where, f"`model.labels`: {labels[:200]!r} cannot be read: {error}", "write one label in each line"
            return
    if isinstance(labels, list) and all(isinstance(label, str) for label in labels):
        for reason in _reasons_against(labels, tokens=document.get("task") == TOKENS):
            yield where, f"`model.labels`: {reason}", "give them in the order of the graph's outputs"


def _check_vocabulary(document: Document) -> Iterator[Problem]:
    value = document.get("model", "vocab")
    if not isinstance(value, str) or not is_file(beside(document, value)):
        return
    try:
        tokens = set(read_vocab(beside(document, value)))
    except BundleInvalidError as error:
        yield ("model", "vocab"), f"`model.vocab`: {value[:200]!r} cannot be read: {error.why}", _VOCABULARY
        return
    used = TokenizerConfig()
    lacking = [one for one in (used.pad_token, used.unk_token, used.cls_token, used.sep_token) if one not in tokens]
    if lacking:
        yield ("model", "vocab"), f"`model.vocab`: {value[:200]!r} lacks {', '.join(lacking)}", _VOCABULARY


def read_labels(file: Path) -> tuple[str, ...]:
    """The labels of a file with one in each line. Raises OSError; ValueError if it is not UTF-8."""
    text = read_regular(file).decode("utf-8-sig")
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def _reasons_against(labels: Sequence[str], *, tokens: bool) -> Iterator[str]:
    if len(labels) < 2:
        yield "a classifier has at least two"
    if not all(label.strip() for label in labels):
        yield "one of them is empty"
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        yield f"{twice[:60]!r} stands twice"
    if not tokens:
        return
    if OUTSIDE not in labels:
        yield f"tags have `{OUTSIDE}`, for tokens outside of spans"
    wrong = next((label for label in labels if label != OUTSIDE and label[:2] not in ("B-", "I-")), None)
    if wrong is not None:
        yield f"{wrong[:60]!r} is no BIO tag: `{OUTSIDE}`, `B-...` or `I-...`"


def check_gates_of_scores(document: Document) -> Iterator[Problem]:
    """Find gates that need labels or texts."""
    for path, why in (
        (("gates", "accuracy", "metric"), "an adapter has one metric, its own score"),
        (("gates", "accuracy", "per_class"), "an adapter has no classes"),
        (("gates", "accuracy", "baseline"), "scores of an earlier release are not recorded"),
        (("gates", "accuracy", "max_regression_points"), "scores of an earlier release are not recorded"),
        (("gates", "latency", "by_length"), "items of an adapter have no number of tokens"),
    ):
        if document.get(*path) is not None:
            yield path, f"`{'.'.join(path)}` is for models of texts: {why}", "remove it"
    if document.get("gates", "golden", "carry") is False:
        reason = "`gates.golden.carry: false` is for models of texts: a bundle with an adapter carries its examples"
        yield ("gates", "golden", "carry"), reason, "remove it"
