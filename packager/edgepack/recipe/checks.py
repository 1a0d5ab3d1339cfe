"""What is wrong with a recipe that no single field shows: files, models, and keys that contradict each other."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from edgepack.recipe import huggingface, shapes
from edgepack.recipe.columns import TAGGED_SUFFIXES, check_columns
from edgepack.recipe.distillation import check_distillation
from edgepack.recipe.document import Document, KeyPath
from edgepack.recipe.explain import did_you_mean, dotted, listed
from edgepack.recipe.findings import Finding
from edgepack.recipe.latency import check_latency
from edgepack.recipe.model import BUILTIN_PREFIX, is_builtin
from edgepack.recipe.presets import PRESETS, SENTENCEPIECE
from edgepack.recipe.signing import check_sign
from edgepack.recipe.sources import beside, is_file, is_folder, is_local, siblings
from edgepack.recipe.training import Training
from edgepack_runtime import metrics

BUILTIN_SOURCES: Final = ("builtin:reviews-zh",)
TABLE_SUFFIXES: Final = (".tsv", ".csv", ".jsonl")
UNLABELLED_SUFFIXES: Final = (".txt", *TABLE_SUFFIXES)
MODEL_FILES: Final = (shapes.CONFIG_FILE, shapes.WEIGHTS_FILE, "vocab.txt")
_WITHOUT_INT8: Final = ("none", "fp16")  # of `quantize.method`
_OWNED: Final = re.compile(r"[\w.-]+/[\w.-]+")  # whether the hub has it, only the hub knows
_PATH: Final = "give a path relative to the recipe's folder, or an absolute one"

_Problem = tuple[KeyPath, str, str]  # where, reason, fix


def cross_checks(
    document: Document, known_targets: Mapping[str, Collection[str]], said: Collection[KeyPath]
) -> list[Finding]:
    """Every such finding. Runs on the raw data, so that it speaks even when a field is wrong.

    Args:
        known_targets: the target profiles that `targets` may use, by name, with the engines of each.
        said: paths that have their finding already.
    """
    checks: tuple[Callable[[Document], Iterator[_Problem]], ...] = (
        _check_format,
        _check_data,
        _check_unlabelled,
        _check_vocabulary,
        check_columns,
        _check_models,
        check_distillation,
        _check_steps,
        _check_precision,
        _check_ranks,
        _check_quantize,
        _check_reduced_range,
        lambda doc: _check_targets(doc, known_targets),
        lambda doc: _check_wheels(doc, known_targets),
        lambda doc: _check_engine(doc, known_targets),
        _check_gates,
        check_latency,
        check_sign,
    )
    problems = (problem for check in checks for problem in check(document))
    return [document.error(path, reason, fix) for path, reason, fix in problems if path not in said]


def _check_format(document: Document) -> Iterator[_Problem]:
    value = document.get("edgepack")
    if value == 1 and not (isinstance(value, int) and value is not True):  # true and 1.0 equal 1
        yield ("edgepack",), "`edgepack` is the recipe format, a whole number", "write `edgepack: 1`"


def _check_data(document: Document) -> Iterator[_Problem]:
    splits = {name: document.get("data", name) for name in ("train", "dev", "test")}
    train = splits["train"]
    if isinstance(train, str) and is_builtin(train):
        if train not in BUILTIN_SOURCES:
            fix = did_you_mean(train, BUILTIN_SOURCES, f"use {listed(BUILTIN_SOURCES)}")
            yield ("data", "train"), f"there is no built-in data `{train[:60]}`", fix
        for name in ("dev", "test"):
            if splits[name] is not None:
                reason = f"`data.{name}` is set, but built-in data brings its own {name} split"
                yield ("data", name), reason, "remove the key"
        return
    for name, value in splits.items():
        if isinstance(value, str):
            yield from _check_split_file(document, name, value)
        elif value is None and name != "train" and isinstance(train, str):
            fix = f"add `{name}: {name}{Path(train).suffix or '.tsv'}`: rows that are in no other split"
            yield ("data",), f"`data` lacks `{name}`", fix
    yield from _check_same_file(document, splits)


def _check_split_file(document: Document, name: str, value: str) -> Iterator[_Problem]:
    where: KeyPath = ("data", name)
    if value.startswith(BUILTIN_PREFIX):
        yield where, f"`data.{name}` cannot be built-in alone", f"set `data.train: {BUILTIN_SOURCES[0]}` only"
        return
    tagged = TAGGED_SUFFIXES if document.get("task") == "token-classification" else ()
    suffixes = (*TABLE_SUFFIXES, *tagged)
    if (suffix := Path(value).suffix.lower()) not in suffixes:
        fix = f"give a file of {listed(suffixes)}"
        if suffix in TAGGED_SUFFIXES:
            fix += ", or set `task: token-classification`"
        yield where, f"`data.{name}` is not a table: {value[:200]!r}", fix
        return
    yield from _check_there(document, where, value)


def _check_there(document: Document, where: KeyPath, value: str) -> Iterator[_Problem]:
    file = beside(document, value)
    if is_folder(file):
        wanted = "bundle, as `NAME-VERSION-TARGET.edgepack`" if where[-1] == "baseline" else "file"
        yield (
            where,
            f"`{dotted(where)}`: {value[:200]!r} is a folder, and a file is wanted",
            f"give the path of a {wanted}",
        )
    elif not is_file(file):
        others = [other for other in siblings(file) if is_file(other)]
        # By their stems: most of them share a suffix.
        near = difflib.get_close_matches(file.stem.lower(), [other.stem for other in others])
        names = [other.name for other in others if other.stem in near]
        fix = _path_fix(value) or did_you_mean(file.name, names, _PATH)
        yield where, f"`{dotted(where)}`: there is no file {value[:200]!r}", fix


def _path_fix(value: str) -> str | None:
    """What is wrong with a path whatever lies there."""
    if value.startswith("~"):
        return "`~` is not filled in: write `${HOME}`"
    return "write `/` between folders" if "\\" in value else None


def _check_same_file(document: Document, splits: dict[str, Any]) -> Iterator[_Problem]:
    seen: dict[Path, str] = {}
    for name, value in splits.items():
        if not isinstance(value, str) or not is_file(beside(document, value)):
            continue
        file = beside(document, value).resolve()
        if file in seen:
            reason = f"`data.{name}` and `data.{seen[file]}` are the same file"
            yield ("data", name), reason, "give each split rows of its own"
        seen.setdefault(file, name)


def _check_unlabelled(document: Document) -> Iterator[_Problem]:
    where: KeyPath = ("data", "unlabelled")
    if not isinstance(document.get(*where), str):
        return
    yield from _check_texts(document, where)
    # What a sample of the training rows leaves over may be unlabelled.
    others = ("train", "dev", "test") if document.get("data", "train_rows") is None else ("dev", "test")
    splits = {name: document.get("data", name) for name in (*others, "unlabelled")}
    yield from (problem for problem in _check_same_file(document, splits) if problem[0] == where)


def _check_vocabulary(document: Document) -> Iterator[_Problem]:
    where: KeyPath = ("student", "vocabulary", "prune", "texts")
    if isinstance(document.get(*where), str):
        yield from _check_texts(document, where)


def _check_texts(document: Document, where: KeyPath) -> Iterator[_Problem]:
    value = str(document.get(*where))
    suffixes = TABLE_SUFFIXES if document.get("task") == "text-pair-classification" else UNLABELLED_SUFFIXES
    if Path(value).suffix.lower() not in suffixes:
        yield where, f"`{dotted(where)}` is no file of texts: {value[:200]!r}", f"give a file of {listed(suffixes)}"
        return
    yield from _check_there(document, where, value)


def _check_models(document: Document) -> Iterator[_Problem]:
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
            yield where, reason, _path_fix(model) or _PATH
        hidden, heads = (document.get(*where, "scratch", key) for key in ("hidden", "heads"))
        if type(hidden) is int and type(heads) is int and heads > 0 and hidden % heads:
            reason = f"`hidden` is {hidden}, which is no multiple of `heads`, {heads}"
            fix = f"use `hidden: {(hidden // heads + 1) * heads}`, or other `heads`"
            yield (*where, "scratch", "hidden"), reason, fix


def _check_preset(document: Document, where: KeyPath, model: str) -> Iterator[_Problem]:
    if model in PRESETS:
        yield from _check_length(document, where, PRESETS[model].positions)
    elif model == SENTENCEPIECE:
        reason = f"`{dotted(where)}`: `{model}` needs a SentencePiece tokenizer, which edgepack does not have"
        yield where, reason, "use `ernie-3.0-tiny-mini-v2-zh`, which is smaller and better"
    else:
        reason = f"`{dotted(where)}`: PaddleNLP has no ERNIE model {model[:200]!r}, and no folder here has this name"
        otherwise = "use a name of docs/11-recipe-reference.md, or the path of a folder, as `./models/ernie`"
        yield where, reason, did_you_mean(model, PRESETS, otherwise)


def _check_folder(document: Document, where: KeyPath, model: str) -> Iterator[_Problem]:
    folder = beside(document, model)
    if not is_folder(folder):
        reason = f"`{dotted(where)}`: there is no folder {model[:200]!r}"
        yield where, reason, _path_fix(model) or "give a folder or a PaddleNLP name"
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


def _check_length(document: Document, where: KeyPath, positions: int) -> Iterator[_Problem]:
    section = str(where[0])
    path: KeyPath = (section, "max_length")
    length = document.get(*path) if document.holds(path) else Training.model_fields["max_length"].default
    if type(length) is int and 0 < positions < length:
        reason = f"`{dotted(path)}` is {length}, and this model has {positions} positions"
        yield path, reason, f"use at most {positions}: `max_length: {positions}`"


def _check_precision(document: Document) -> Iterator[_Problem]:
    for role in ("teacher", "student"):
        precision = document.get(role, "precision")
        if precision in ("fp16", "bf16") and document.get(role, "device") == "cpu":
            reason = f"`{role}.precision: {precision}` needs a GPU, and `{role}.device` is cpu"
            yield (role, "precision"), reason, "use `auto`, or another device"


def _check_ranks(document: Document) -> Iterator[_Problem]:
    for role in ("teacher", "student"):
        device, nodes = document.get(role, "device"), document.get(role, "nodes")
        numbers = device.removeprefix("gpu:").split(",") if isinstance(device, str) else []
        if len(set(numbers)) < len(numbers):
            reason = f"`{role}.device` names a GPU twice, and each trains in one process"
            yield (role, "device"), reason, f"use `gpu:{','.join(dict.fromkeys(numbers))}`"
        if not isinstance(nodes, dict):
            continue
        if device is None or device == "auto":
            reason = f"`{role}.nodes`: each machine would choose its device for itself, and they may not agree"
            yield (role, "nodes"), reason, f"say which: `{role}.device: gpu`, `gpu:0,1` or `cpu`"
        port = str(nodes.get("master")).rpartition(":")[2]
        if port.isascii() and port.isdigit() and not 0 < int(port) < 2**16:
            reason = f"`{role}.nodes.master`: there is no port {port[:10]}"
            yield (role, "nodes", "master"), reason, "name a free one from 1 to 65535"


def _check_steps(document: Document) -> Iterator[_Problem]:
    for role in ("teacher", "student"):
        parts, rows = document.get(role, "gradient_accumulation"), document.get(role, "batch_size")
        rows = Training.model_fields["batch_size"].default if rows is None else rows
        if type(parts) is int and type(rows) is int and parts > rows:
            reason = f"`{role}.gradient_accumulation` is {parts}, and a step has {rows} rows (`batch_size`) to part"
            yield (role, "gradient_accumulation"), reason, f"use at most {rows}, or a larger `batch_size`"
        several = document.get("data", "columns", "labels") is not None
        if several and document.get(role, "class_weights") == "balanced":
            reason = f"`{role}.class_weights` is `balanced`, and texts with any number of labels have no such weights"
            yield (role, "class_weights"), reason, "remove it: each label is a loss of its own"


def _check_quantize(document: Document) -> Iterator[_Problem]:
    where: KeyPath = ("quantize", "qat")
    method, tried = document.get("quantize", "method"), document.get("search", "over", "quantize.method")
    if isinstance(tried, list) and "qat" in tried:
        return  # it is for those candidates that are trained in this way
    if document.get(*where) is not None and method != "qat":
        now = f"`quantize.method` is {method}" if isinstance(method, str) else "`quantize.method` is not `qat`"
        yield where, f"`quantize.qat` is set, and {now}: nothing would be trained", "set `method: qat`, or remove it"


def _check_reduced_range(document: Document) -> Iterator[_Problem]:
    where: KeyPath = ("quantize", "reduced_range")
    method, tried = document.get("quantize", "method"), document.get("search", "over", "quantize.method")
    if isinstance(tried, list) and not all(one in _WITHOUT_INT8 for one in tried):
        return  # it is for those candidates that become INT8
    if document.get(*where) is True and method in _WITHOUT_INT8:
        reason = f"`quantize.reduced_range` is set, and `quantize.method` is {method}: nothing would be INT8"
        yield where, reason, "remove it, or set a `method` that makes INT8, as `ptq`"


def _check_targets(document: Document, known: Collection[str]) -> Iterator[_Problem]:
    targets = document.get("targets")
    if not isinstance(targets, list):
        return
    for index, target in enumerate(targets):
        if not isinstance(target, str):
            continue
        if target not in known:
            yield ("targets", index), f"there is no target `{target[:60]}`", _known_target(target, known)
        elif target in targets[:index]:
            yield ("targets", index), f"the target `{target}` stands twice", "remove one of the two"


def _known_target(target: str, known: Collection[str]) -> str:
    """The nearest target, and all there are: names of devices are hard to guess."""
    every = f"there are {listed(sorted(known))}"
    near = did_you_mean(target, sorted(known), "")
    return f"{near} {every}" if near else every


def _check_wheels(document: Document, known: Collection[str]) -> Iterator[_Problem]:
    wheels, targets = document.get("wheels"), document.get("targets")
    for target, files in wheels.items() if isinstance(wheels, dict) else ():
        where: KeyPath = ("wheels", target)
        if target not in known:
            yield where, f"`wheels`: there is no target `{target[:60]}`", _known_target(target, known)
        elif isinstance(targets, list) and target not in targets:
            yield where, f"`wheels`: the target `{target}` is not among `targets`", "add it there, or remove the wheels"
        seen: set[Path] = set()
        for index, file in enumerate(files if isinstance(files, list) else ()):
            if not isinstance(file, str):
                continue
            place = beside(document, file)
            if not file.endswith(".whl"):
                reason = f"`wheels.{target}`: {file[:200]!r} is not called as wheels are"
                yield (*where, index), reason, "give a file NAME-VERSION-PYTHON-ABI-PLATFORM.whl"
            elif not is_file(place):
                yield from _check_there(document, (*where, index), file)
            elif place.resolve() in seen:
                yield (*where, index), f"`wheels.{target}`: {file[:200]!r} stands twice", "remove one of the two"
            else:
                seen.add(place.resolve())


def _check_engine(document: Document, known: Mapping[str, Collection[str]]) -> Iterator[_Problem]:
    engine, targets = document.get("engine"), document.get("targets")
    if engine not in ("openvino", "auto"):
        return
    for target in targets if isinstance(targets, list) else ():
        if isinstance(target, str) and target in known and "openvino" not in known[target]:
            reason = f"`engine: {engine}` needs OpenVINO, which the target `{target}` does not have"
            yield ("engine",), reason, "write `engine: onnxruntime`, or take the target out of the recipe"
            return


def _check_metric(document: Document) -> Iterator[_Problem]:
    """How many labels there are, only the data tell: what needs two of them is seen when they are read."""
    where: KeyPath = ("gates", "accuracy", "metric")
    metric, columns = document.get(*where), document.get("data", "columns")
    several = isinstance(columns, dict) and columns.get("labels") is not None
    if isinstance(metric, str) and metric in metrics.METRICS:
        tokens = document.get("task") == "token-classification"
        why = metrics.unfit(metric, 2, multi_label=several, tokens=tokens)
        if why is not None:
            yield where, f"`gates.accuracy.metric` is {metric}, which these data do not have", why


def _check_baseline(document: Document) -> Iterator[_Problem]:
    where: KeyPath = ("gates", "accuracy", "baseline")
    bundle, points = document.get(*where), document.get("gates", "accuracy", "max_regression_points")
    if isinstance(bundle, str) and bundle:
        yield from _check_there(document, where, bundle)
        if points is None:
            fix = "set `max_regression_points`: how much worse than that release the new one may be"
            yield where, "`gates.accuracy.baseline` limits nothing by itself", fix
    elif points is not None:
        limit: KeyPath = ("gates", "accuracy", "max_regression_points")
        yield limit, f"`{dotted(limit)}` is against no release", "set `baseline` to the bundle of one"


def _check_gates(document: Document) -> Iterator[_Problem]:
    for name, limits in (
        ("accuracy", ("min", "max_drop_points", "max_regression_points", "per_class")),
        ("size", ("model_mib", "bundle_mib")),
    ):
        gate = document.get("gates", name)
        if isinstance(gate, dict) and all(gate.get(limit) is None for limit in limits):
            fix = f"set {' or '.join(f'`{limit}`' for limit in limits)}, or remove the gate"
            yield ("gates", name), f"`gates.{name}` sets no limit, so nothing would be gated", fix
    per_class = document.get("gates", "accuracy", "per_class")
    if isinstance(per_class, dict) and not any(per_class.values()):
        fix = "set `recall`, `precision` or `f1`, or remove the section"
        yield ("gates", "accuracy", "per_class"), "`gates.accuracy.per_class` sets no floor", fix
    yield from _check_baseline(document)
    yield from _check_metric(document)
