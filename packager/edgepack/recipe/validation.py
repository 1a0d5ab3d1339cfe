"""Checks of a recipe across its keys: files, models, targets, signing key, contradictions."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from edgepack.messages import message
from edgepack.recipe import validate_data, validate_folder, validate_imported, validate_training
from edgepack.recipe.findings import Finding
from edgepack.recipe.messages import did_you_mean, listed
from edgepack.recipe.model import (
    BaseRecipe,
    CustomRecipe,
    FolderRecipe,
    ImportedTextRecipe,
    LinearRecipe,
    OwnInterpreter,
    Recipe,
    TextKinds,
)
from edgepack.recipe.paths import check_there, is_file, is_folder, path_fix
from edgepack.recipe.section import AbsentError, or_none
from edgepack.recipe.training import Training
from edgepack.recipe.yaml import Document, KeyPath, Problem, dotted
from edgepack_runtime.bundle import sshsig
from edgepack_runtime.schema import gates as declared
from edgepack_runtime.schema.fields import read
from edgepack_runtime.tasks.registry import ONE_TEXT, task_by_name, tasks_named

_KIND: Final = "give a private SSH key, or the .pub file of one that an agent or a piece of hardware holds"
_NO_FIX: Final = "correct the value; docs/reference/recipe-file.md says what it may be"


def cross_checks(
    document: Document, recipe: BaseRecipe, known_targets: Collection[str], reported: Collection[KeyPath]
) -> list[Finding]:
    """All findings across keys.

    Args:
        recipe: `document` as a model, without the values that are wrong.
        known_targets: profiles that `targets` may name.
        reported: paths that have a finding already.
    """
    problems = list(_check_gates(document.get("gates")))
    named: list[_Check] = [partial(check, known=known_targets) for check in (check_targets, check_wheels)]
    for check in (*_CHECKS[type(recipe)], *_OF_ALL, *named):
        with suppress(AbsentError):  # what is read is wrong, and has a finding
            problems.extend(check(recipe))
    return [
        document.error(path, message("mistake.at_key", key=dotted(path), reason=reason), fix)
        for path, reason, fix in problems
        if path not in reported
    ]


def check_sign(recipe: BaseRecipe) -> Iterator[Problem]:
    """Problems of the signing key."""
    if recipe.sign is None:
        return
    where, file = ("sign", "key"), Path(recipe.sign.key)
    shown = repr(str(file)[:200])
    if not is_file(file):
        there = "is a folder" if is_folder(file) else "is not there"
        yield where, f"{shown} {there}", path_fix(str(file)) or _KIND
        return
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno())
            raw = opened.read(sshsig.MAX_SIGNERS_BYTES + 1)
    except OSError as error:
        yield where, f"{shown} cannot be read: {error.strerror}", "run as a user who may read it"
        return
    if b"PRIVATE KEY-----" in raw:
        # What ssh-keygen itself refuses, and only when it comes to sign.
        if mode.st_uid == os.geteuid() and mode.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            fix = f"chmod 600 {str(file)[:200]}; if others were there, use a new key"
            yield where, f"{shown} is a private key that others may read or write", fix
        return
    try:
        keys = sshsig.parse_signers(raw)
    except ValueError as error:
        yield where, f"{shown} is not an SSH key: {error}", _KIND
        return
    if len(keys) != 1:
        yield where, f"{shown} holds {len(keys)} keys, and one signs", _KIND


def check_targets(recipe: BaseRecipe, known: Collection[str]) -> Iterator[Problem]:
    """Problems of `targets`: unknown or repeated names."""
    for index, target in enumerate(recipe.targets):
        where: KeyPath = ("targets", index)
        if target is not None and target not in known:
            yield where, message("mistake.no_target", target=target[:60]), _known_target(target, known)
        elif target in recipe.targets[:index]:
            yield where, f"duplicate target `{target}`", "remove one of the two"


def check_wheels(recipe: BaseRecipe, known: Collection[str]) -> Iterator[Problem]:
    """Problems of `wheels`: targets and files."""
    for target, files in recipe.wheels.items():
        where: KeyPath = ("wheels", target)
        if target not in known:
            yield where, message("mistake.no_target", target=target[:60]), _known_target(target, known)
        elif target not in (or_none(recipe, "targets") or (target,)):
            yield where, f"`{target}` is not among `targets`", "add it there, or remove the wheels"
        seen: set[Path] = set()
        for index, file in enumerate(files):
            if file is not None and not file.endswith(".whl"):
                fix = "give a file NAME-VERSION-PYTHON-ABI-PLATFORM.whl"
                yield (*where, index), f"{file[:200]!r} is not a valid wheel file name", fix
            elif file is not None:
                yield from check_there((*where, index), file)
                if is_file(Path(file)) and Path(file).resolve() in seen:
                    yield (*where, index), f"duplicate wheel {file[:200]!r}", "remove one of the two"
                seen.add(Path(file).resolve() if is_file(Path(file)) else Path(file))


def _known_target(target: str, known: Collection[str]) -> str:
    """The nearest target and all known targets, since their names are hard to guess."""
    every = message("mistake.targets", names=listed(sorted(known)))
    near = did_you_mean(target, sorted(known), "")
    return message("mistake.near_of", near=near, every=every) if near else every


def check_interpreter(recipe: BaseRecipe) -> Iterator[Problem]:
    """Problems of `interpreter.path`."""
    if isinstance(recipe.interpreter, OwnInterpreter):
        yield from check_there(("interpreter", "path"), recipe.interpreter.path)


def check_baseline(recipe: BaseRecipe) -> Iterator[Problem]:
    """Problems of `gates.accuracy.baseline`: it is not there."""
    if recipe.gates.baseline is not None:
        where: KeyPath = ("gates", "accuracy", "baseline")
        yield from check_there(where, str(recipe.gates.baseline), "bundle, as `NAME-VERSION-TARGET.edgepack`")


def _check_gates(written: Any) -> Iterator[Problem]:
    """What a device would refuse in the gates. They are read as they are written: a section whose only
    limit is wrong is not one without a limit."""
    if not isinstance(written, dict):
        return
    for problem in read(declared.Gates, written)[1]:
        path: KeyPath = ("gates", *problem.path)
        yield path, problem.reason("gates").removeprefix(f"`{dotted(path)}` "), problem.fix or _NO_FIX


def check_quantize(recipe: Recipe) -> Iterator[Problem]:
    """Keys of `quantize` that do nothing with its method."""
    quantize = recipe.quantize
    searched = recipe.search.over.get("quantize.method", ()) if recipe.search is not None else ()
    methods = set(map(str, searched)) or {quantize.method}
    now = f"`quantize.method` is {quantize.method}"
    if quantize.qat is not None and "qat" not in methods:
        reason = f"{now}: nothing would be trained"
        yield ("quantize", "qat"), reason, "set `method: qat`, or remove it"
    if quantize.reduced_range and methods <= quantize.WITHOUT_INT8:
        reason = f"{now}: nothing would be INT8"
        yield ("quantize", "reduced_range"), reason, "remove it, or set a `method` that makes INT8, as `ptq`"


def check_linear(recipe: Recipe | LinearRecipe | FolderRecipe) -> Iterator[Problem]:
    """A linear model is asked for, and the task has none; or a cascade, and answers have no lead."""
    task = task_by_name(recipe.task)
    if recipe.linear == "cascade" and task.linear and not task.exact:
        reason = f"a linear model is never sure of a number, and `task` is {recipe.task}"
        yield ("linear",), reason, "write `ensemble`, or remove it"
    if recipe.linear in ("ensemble", "cascade", "only") and not task_by_name(recipe.task).linear:
        reason = f"`{recipe.linear}` needs a linear model, and `task` is {recipe.task}: it has none"
        yield ("linear",), reason, f"remove it, or use `task: {ONE_TEXT}`"


def check_refused(recipe: BaseRecipe) -> Iterator[Problem]:
    """Keys that say nothing in a recipe of this kind."""
    for key, (why, fix) in recipe.REFUSED.items():
        with suppress(AbsentError):
            if recipe.differs(key):
                yield tuple(key.split(".")), f"it does not apply to {recipe.CALLED}: {why}", fix


def check_metric(recipe: TextKinds) -> Iterator[Problem]:
    """Problems of the metric. Those that depend on the number of labels are found when the data are read."""
    metric = recipe.gates.metric
    several = recipe.data.columns.labels is not None and any(one.multi_label for one in tasks_named(recipe.task))
    task = task_by_name(recipe.task, multi_label=several)
    why = None if metric is None else task.unfit(metric, 2)
    if why is not None:
        yield ("gates", "accuracy", "metric"), f"it is {metric}, which these data do not have", why
    for name in () if recipe.gates.accuracy is None else recipe.gates.accuracy.min_of:
        if (reason := task.unfit(name, 2)) is not None:
            yield ("gates", "accuracy", "min_of"), f"it names {name}, which these data do not have", reason
    if metric is None and recipe.gates.accuracy is not None:
        for problem in recipe.gates.accuracy.wrong_side(task.usual_metric):
            yield ("gates", "accuracy", *problem.path), f"it {problem.what}", problem.fix
    if not task.labelled and recipe.gates.accuracy is not None and recipe.gates.accuracy.per_class is not None:
        yield ("gates", "accuracy", "per_class"), f"rows of {recipe.task} have no labels", "remove it"


def check_lengths(recipe: Recipe | ImportedTextRecipe | FolderRecipe) -> Iterator[Problem]:
    """Latency budgets for texts that are longer than the model's maximum input."""
    section = "student" if isinstance(recipe, Recipe) else "model"
    model, latency = or_none(recipe, section), recipe.gates.latency
    length = None if model is None else model.max_length
    length = length or Training.model_fields["max_length"].default
    before = 0
    for index, budget in enumerate(latency.by_length if latency is not None else ()):
        most = None if budget is None else or_none(budget, "max_tokens")
        if most is None or most <= before:
            continue
        where: KeyPath = ("gates", "latency", "by_length", index, "max_tokens")
        if before >= length:
            reason = f"it is for texts of more than {before} tokens, and `{section}.max_length` is {length}"
            yield where, reason, "remove it: longer texts are cut, and count as those of that length"
        elif most > length:
            reason = f"it is {most}, and `{section}.max_length` is {length}"
            yield where, reason, f"write `max_tokens: {length}`: longer texts are cut to that"
        before = most


_Check = Callable[..., Iterator[Problem]]
_OF_ROLE: Final[tuple[_Check, ...]] = (
    validate_training.check_model,
    validate_training.check_steps,
    validate_training.check_class_weights,
    validate_training.check_device,
    validate_training.check_nodes,
)
_CHECKS: Final[Mapping[type[BaseRecipe], tuple[_Check, ...]]] = {
    Recipe: (
        validate_data.check_data,
        validate_data.check_unlabelled,
        validate_data.check_vocabulary,
        validate_data.check_columns,
        *(partial(check, role=role) for role in ("teacher", "student") for check in _OF_ROLE),
        validate_training.check_use_of_teacher,
        validate_training.check_student,
        check_quantize,
        check_linear,
        check_metric,
        check_lengths,
    ),
    LinearRecipe: (validate_data.check_data, validate_data.check_columns, check_linear, check_metric),
    CustomRecipe: (
        validate_imported.check_model,
        validate_imported.check_handler,
        validate_imported.check_files,
    ),
    FolderRecipe: (
        validate_folder.check_folder,
        validate_folder.check_labels,
        validate_folder.check_use,
        validate_data.check_test,
        validate_data.check_columns,
        check_linear,
        check_metric,
        check_lengths,
    ),
    ImportedTextRecipe: (
        validate_imported.check_settings,
        validate_imported.check_text_model,
        validate_imported.check_vocabulary,
        validate_imported.check_labels,
        validate_data.check_test,
        validate_data.check_columns,
        check_metric,
        check_lengths,
    ),
}
_OF_ALL: Final[tuple[_Check, ...]] = (check_interpreter, check_baseline, check_sign, check_refused)
