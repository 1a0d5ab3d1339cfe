"""Checks of a recipe across its keys: files, models, targets, signing key, contradictions."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

from edgepack.recipe.findings import Finding
from edgepack.recipe.linear_only import check_refused
from edgepack.recipe.messages import did_you_mean, dotted, listed
from edgepack.recipe.model import BaseRecipe, CustomRecipe, GivenTextRecipe, LinearRecipe, Recipe, kind_of
from edgepack.recipe.paths import beside, check_there, is_file, is_folder
from edgepack.recipe.training import Student, Training
from edgepack.recipe.validate_data import check_columns, check_data, check_test, check_unlabelled, check_vocabulary
from edgepack.recipe.validate_given import check_adapter, check_gates_of_scores, check_model, check_text_model
from edgepack.recipe.validate_training import check_distillation, check_models
from edgepack.recipe.yaml import Document, KeyPath, Problem
from edgepack_runtime.bundle import sshsig
from edgepack_runtime.schema import gates as declared
from edgepack_runtime.schema.fields import read
from edgepack_runtime.stats import metrics
from edgepack_runtime.tasks.registry import ONE_TEXT, TEXT_TASKS, TOKENS, task_of

_Checks = tuple[Callable[[Document], Iterator[Problem]], ...]
_LENGTHS: Final[KeyPath] = ("gates", "latency", "by_length")
_NO_FIX: Final = "correct the value; docs/reference/recipe.md lists what it may be"
_WHERE: Final[KeyPath] = ("sign", "key")
_KIND: Final = "give a private SSH key, or the .pub file of one that an agent or a piece of hardware holds"


def check_sign(document: Document) -> Iterator[Problem]:
    """Path, reason and fix of every error."""
    value = document.get(*_WHERE)
    if not isinstance(value, str) or not value:
        return
    file = beside(document, value)
    if not is_file(file):
        there = "is a folder" if is_folder(file) else "is not there"
        fix = "`~` is not filled in: write `${HOME}`" if value.startswith("~") else _KIND
        yield _WHERE, f"`sign.key`: {value[:200]!r} {there}", fix
        return
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno())
            raw = opened.read(sshsig.MAX_SIGNERS_BYTES + 1)
    except OSError as error:
        yield _WHERE, f"`sign.key`: {value[:200]!r} cannot be read: {error.strerror}", "run as a user who may read it"
        return
    if b"PRIVATE KEY-----" in raw:
        # What ssh-keygen itself refuses, and only when it comes to sign.
        if mode.st_uid == os.geteuid() and mode.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            reason = f"`sign.key`: {value[:200]!r} is a private key that others may read or write"
            yield _WHERE, reason, f"chmod 600 {value[:200]}; if others were there, use a new key"
        return
    try:
        keys = sshsig.parse_signers(raw)
    except ValueError as error:
        yield _WHERE, f"`sign.key`: {value[:200]!r} is not an SSH key: {error}", _KIND
        return
    if len(keys) != 1:
        yield _WHERE, f"`sign.key`: {value[:200]!r} holds {len(keys)} keys, and one signs", _KIND


def check_targets(document: Document, known: Collection[str]) -> Iterator[Problem]:
    """Find errors in `targets`: unknown or repeated names."""
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


def check_wheels(document: Document, known: Collection[str]) -> Iterator[Problem]:
    """Find errors in `wheels`."""
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
                reason = f"`wheels.{target}`: {file[:200]!r} is not a valid wheel file name"
                yield (*where, index), reason, "give a file NAME-VERSION-PYTHON-ABI-PLATFORM.whl"
            elif not is_file(place):
                yield from check_there(document, (*where, index), file)
            elif place.resolve() in seen:
                yield (*where, index), f"`wheels.{target}`: {file[:200]!r} stands twice", "remove one of the two"
            else:
                seen.add(place.resolve())


def _known_target(target: str, known: Collection[str]) -> str:
    """The nearest target and all known targets, since their names are hard to guess."""
    every = f"there are {listed(sorted(known))}"
    near = did_you_mean(target, sorted(known), "")
    return f"{near} {every}" if near else every


_WITHOUT_INT8: Final = ("none", "fp16")  # of `quantize.method`


def cross_checks(document: Document, known_targets: Collection[str], reported: Collection[KeyPath]) -> list[Finding]:
    """All findings across keys. The checks run on raw data, so that they work if other fields are invalid.

    Args:
        known_targets: profiles that `targets` may name.
        reported: paths that have a finding already.
    """
    model, gates = _CHECKS[kind_of(document.data)]
    checks: _Checks = (
        _check_format,
        *model,
        lambda doc: check_targets(doc, known_targets),
        lambda doc: check_wheels(doc, known_targets),
        check_interpreter,
        check_gates,
        *gates,
        check_sign,
    )
    problems = (problem for check in checks for problem in check(document))
    return [document.error(path, reason, fix) for path, reason, fix in problems if path not in reported]


def _check_format(document: Document) -> Iterator[Problem]:
    value = document.get("edgepack")
    if value == 1 and not (isinstance(value, int) and value is not True):  # true and 1.0 equal 1
        yield ("edgepack",), "`edgepack` is the recipe format, a whole number", "write `edgepack: 1`"


def _check_precision(document: Document) -> Iterator[Problem]:
    for role in ("teacher", "student"):
        precision = document.get(role, "precision")
        if precision in ("fp16", "bf16") and document.get(role, "device") == "cpu":
            reason = f"`{role}.precision: {precision}` needs a GPU, and `{role}.device` is cpu"
            yield (role, "precision"), reason, "use `auto`, or another device"


def _check_ranks(document: Document) -> Iterator[Problem]:
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


def _check_steps(document: Document) -> Iterator[Problem]:
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


def _check_quantize(document: Document) -> Iterator[Problem]:
    where: KeyPath = ("quantize", "qat")
    method, tried = document.get("quantize", "method"), document.get("search", "over", "quantize.method")
    if isinstance(tried, list) and "qat" in tried:
        return  # it is for those candidates that are trained in this way
    if document.get(*where) is not None and method != "qat":
        now = f"`quantize.method` is {method}" if isinstance(method, str) else "`quantize.method` is not `qat`"
        yield where, f"`quantize.qat` is set, and {now}: nothing would be trained", "set `method: qat`, or remove it"


def _check_reduced_range(document: Document) -> Iterator[Problem]:
    where: KeyPath = ("quantize", "reduced_range")
    method, tried = document.get("quantize", "method"), document.get("search", "over", "quantize.method")
    if isinstance(tried, list) and not all(one in _WITHOUT_INT8 for one in tried):
        return  # it is for those candidates that become INT8
    if document.get(*where) is True and method in _WITHOUT_INT8:
        reason = f"`quantize.reduced_range` is set, and `quantize.method` is {method}: nothing would be INT8"
        yield where, reason, "remove it, or set a `method` that makes INT8, as `ptq`"


def _check_wide(document: Document) -> Iterator[Problem]:
    mode, task = document.get("wide"), document.get("task") or ONE_TEXT
    if mode in ("ensemble", "cascade", "only") and task in TEXT_TASKS and not task_of(task).linear:
        reason = f"`wide: {mode}` needs a linear model, and `task` is {task}: it has none"
        yield ("wide",), reason, f"remove it, or use `task: {ONE_TEXT}`"


def check_interpreter(document: Document) -> Iterator[Problem]:
    """Find errors in `interpreter.path`."""
    path = document.get("interpreter", "path")
    if isinstance(path, str) and path:
        yield from check_there(document, ("interpreter", "path"), path)


def check_gates(document: Document) -> Iterator[Problem]:
    """Path, reason and fix of every error."""
    gates = document.get("gates")
    if not isinstance(gates, dict):
        return
    accuracy = gates.get("accuracy")
    if isinstance(accuracy, dict) and isinstance(baseline := accuracy.get("baseline"), str) and baseline:
        yield from check_there(document, ("gates", "accuracy", "baseline"), baseline)
    _, problems = read(declared.Gates, gates)
    for problem in problems:
        yield ("gates", *problem.path), problem.reason("gates"), problem.fix or _NO_FIX


def _check_metric(document: Document) -> Iterator[Problem]:
    """Find errors in the metric. Those that depend on the number of labels are found when the data are read."""
    where: KeyPath = ("gates", "accuracy", "metric")
    metric, columns = document.get(*where), document.get("data", "columns")
    several = isinstance(columns, dict) and columns.get("labels") is not None
    task = document.get("task") or ONE_TEXT
    if isinstance(metric, str) and metric in metrics.METRICS and task in TEXT_TASKS:
        why = task_of(task, multi_label=several and task != TOKENS).unfit(metric, 2)
        if why is not None:
            yield where, f"`gates.accuracy.metric` is {metric}, which these data do not have", why


def _check_lengths(document: Document) -> Iterator[Problem]:
    """Find errors in latency budgets for texts that are longer than the model's maximum input."""
    section = "model" if document.get("model") is not None else "student"
    budgets, length = document.get(*_LENGTHS), document.get(section, "max_length")
    length = length if type(length) is int else int(Student.model_fields["max_length"].default)
    before = 0
    for index, budget in enumerate(budgets if isinstance(budgets, list) else ()):
        most = budget.get("max_tokens") if isinstance(budget, dict) else None
        if type(most) is not int or most <= before:
            continue
        here: KeyPath = (*_LENGTHS, index)
        if before >= length:
            reason = (
                f"`{dotted(here)}` is for texts of more than {before} tokens, and `{section}.max_length` is {length}"
            )
            yield (*here, "max_tokens"), reason, "remove it: longer texts are cut, and count as those of that length"
        elif most > length:
            reason = f"`{dotted((*here, 'max_tokens'))}` is {most}, and `{section}.max_length` is {length}"
            yield (*here, "max_tokens"), reason, f"write `max_tokens: {length}`: longer texts are cut to that"
        before = most


_TRAINED: Final = (
    check_data,
    check_unlabelled,
    check_vocabulary,
    check_columns,
    check_models,
    check_distillation,
    _check_steps,
    _check_precision,
    _check_ranks,
    _check_quantize,
    _check_reduced_range,
    _check_wide,
)
_GATES_OF_TEXTS: Final = (_check_metric, _check_lengths)
# Kind of recipe -> the checks of its model and data, and of its gates.
_CHECKS: Final[Mapping[type[BaseRecipe], tuple[_Checks, _Checks]]] = {
    Recipe: (_TRAINED, _GATES_OF_TEXTS),
    LinearRecipe: ((check_data, check_columns, _check_wide), (_check_metric, check_refused)),
    CustomRecipe: ((check_model, check_adapter), (check_gates_of_scores,)),
    GivenTextRecipe: ((check_text_model, check_test, check_columns), _GATES_OF_TEXTS),
}
