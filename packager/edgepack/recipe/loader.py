"""Loader of recipe files: a frozen, resolved `Recipe`, or all findings at once."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from edgepack.errors import RecipeInvalidError
from edgepack.recipe import overrides, search
from edgepack.recipe.findings import Finding
from edgepack.recipe.gates import Gates
from edgepack.recipe.linear_only import unused
from edgepack.recipe.messages import explain
from edgepack.recipe.model import (
    AnyRecipe,
    BaseRecipe,
    Calibration,
    Candidate,
    Columns,
    CustomRecipe,
    GivenTextRecipe,
    LinearRecipe,
    OwnInterpreter,
    Recipe,
    TaskName,
    is_builtin,
    kind_of,
)
from edgepack.recipe.overrides import Expansion
from edgepack.recipe.paths import beside, is_file, is_folder, is_local
from edgepack.recipe.pretrained_models import shape_of, spread
from edgepack.recipe.section import Section
from edgepack.recipe.training import FromTeacher, PrunedVocabulary, Qat
from edgepack.recipe.validate_given import read_labels
from edgepack.recipe.validation import cross_checks
from edgepack.recipe.yaml import Document, KeyPath, parse
from edgepack.util.text import counted
from edgepack_runtime.tasks.registry import task_of

S = TypeVar("S", bound=Section)
B = TypeVar("B", bound=BaseRecipe)
R = TypeVar("R", Recipe, LinearRecipe)
M = TypeVar("M", bound=str | Section)


def load_recipe(
    path: Path,
    known_targets: Collection[str],
    settings: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> AnyRecipe:
    """Read, check and resolve one recipe, with defaults and absolute paths.

    `settings` override values of the file, which override defaults.

    Args:
        path: the recipe file, as findings name it.
        known_targets: profiles that `targets` may name.
        settings: `KEY=VALUE` of `--set`; later ones override earlier ones.
        environment: variables for the file; of this process by default.

    Raises:
        RecipeInvalidError: `.findings` has all errors, those of the file before those of `settings`.
    """
    expansion = Expansion(path, os.environ if environment is None else environment)
    document, findings = parse(_read(path), path, expansion, overrides.keys(settings))
    findings += list(dict.fromkeys(expansion.findings))
    recipe: AnyRecipe | None = None
    if document is not None:
        document, more = overrides.apply(document, settings)
        findings += more
        kind = kind_of(document.data)
        if kind is CustomRecipe:
            recipe, more = _custom(document, known_targets)
        elif kind is GivenTextRecipe:
            recipe, more = _given_text(document, known_targets)
        elif kind is LinearRecipe:
            recipe, more = _linear(document, known_targets)
        else:
            tried, more = search.trials(document)
            findings += more
            recipe, more = _checked(document, tried, known_targets)
        # A value that could not be read is null from here on; findings about this null would be confusing.
        said = {finding.place for finding in findings}
        findings += [finding for finding in more if finding.place not in said]
    if findings or recipe is None:
        ranks = {overrides.place(text): rank for rank, text in enumerate(settings, 1)}
        findings.sort(key=lambda finding: (ranks.get(finding.setting or "", 0), finding.line or 0))
        raise _invalid(path, findings)
    return recipe


def _read(path: Path) -> bytes:
    try:
        if not is_file(path):
            kind = "a folder" if is_folder(path) else "not there"
            raise _invalid(path, [Finding("error", path, None, f"it is {kind}", "give the path of a recipe")])
        return path.read_bytes()
    except OSError as error:
        finding = Finding("error", path, None, f"it cannot be read: {error}", "check the path and its permissions")
        raise _invalid(path, [finding]) from error


def _invalid(path: Path, findings: list[Finding]) -> RecipeInvalidError:
    return RecipeInvalidError(
        f"the recipe {path} has {counted(len(findings), 'error')}",
        why="; ".join(finding.reason for finding in findings[:3]) + ("; ..." if len(findings) > 3 else ""),
        fix="correct what is named above and run the command again",
        findings=findings,
    )


def _checked(
    document: Document, tried: Sequence[search.Trial], known_targets: Collection[str]
) -> tuple[Recipe | None, list[Finding]]:
    """The recipe of the first combination with all as candidates; None and the findings if one is invalid."""
    recipes, found = [], []
    for trial in tried:
        recipe, findings = _validate(Recipe, trial.document, known_targets)
        recipes += [] if recipe is None else [_resolve(recipe, trial.document)]
        found.append((trial, findings))
    findings = search.merged(found)
    if len(recipes) < len(tried) or recipes[0].search is None:
        return (recipes[0] if len(recipes) == len(tried) else None), findings
    findings += search.twins(document, tried, [_spelt_out(recipe) for recipe in recipes])
    plain = [_changed(recipe, search=None) for recipe in recipes]
    values = [trial.values for trial in tried]
    candidates = map(Candidate, search.names(tried), plain, values)
    return recipes[0].with_candidates(tuple(candidates)), findings


def _custom(document: Document, known_targets: Collection[str]) -> tuple[CustomRecipe | None, list[Finding]]:
    """The recipe of a given model with an adapter, with absolute paths; None and the findings if it is invalid."""
    recipe, findings = _validate(CustomRecipe, document, known_targets)
    if recipe is None:
        return None, findings

    def absolute(value: str) -> str:
        return str(beside(document, value))

    graph = recipe.model.graph
    placed = absolute(graph) if isinstance(graph, str) else {name: absolute(file) for name, file in graph.items()}
    model = _changed(recipe.model, graph=placed, files=tuple(map(absolute, recipe.model.files)))
    packages = None if recipe.packages is None else absolute(recipe.packages)
    adapter, examples = absolute(recipe.adapter), absolute(recipe.examples)
    recipe = _changed(_delivered(recipe, document), model=model, adapter=adapter, examples=examples, packages=packages)
    return recipe, findings


def _given_text(document: Document, known_targets: Collection[str]) -> tuple[GivenTextRecipe | None, list[Finding]]:
    """The recipe of a given classifier, with absolute paths and labels; None and the findings if it is invalid."""
    recipe, findings = _validate(GivenTextRecipe, document, known_targets)
    if recipe is None or findings:  # the labels may be in a file that is not there
        return None, findings
    model, data = recipe.model, recipe.data
    files = {"graph": str(beside(document, model.graph)), "vocab": str(beside(document, model.vocab))}
    labels = read_labels(beside(document, model.labels)) if isinstance(model.labels, str) else model.labels
    columns = _columns(document, data.columns, recipe.task)
    recipe = _changed(recipe, gates=_judged(recipe.gates, recipe.task, columns))
    return _changed(
        _delivered(recipe, document),
        model=_changed(model, **files, labels=labels),
        data=_changed(data, test=str(beside(document, data.test)), columns=columns),
    ), findings


def _linear(document: Document, known_targets: Collection[str]) -> tuple[LinearRecipe | None, list[Finding]]:
    """The recipe of a linear model alone, without what it does not use; None and the findings if it is invalid."""
    recipe, findings = _validate(LinearRecipe, document, known_targets)
    if recipe is None:
        return None, findings
    data = _changed(recipe.data, unlabelled=None, calibration=Calibration())
    recipe = _changed(recipe, data=data, teacher=None, student=None, quantize=None, wheels={}, cuda=None)
    return _on_rows(recipe, document).without(unused(document)), findings


def _columns(document: Document, columns: Columns, task: TaskName) -> Columns:
    """The columns with those that the task implies, and their place in the recipe."""
    return _changed(columns, **columns.implied(task)).at(document.place(("data", "columns")))


def _validate(kind: type[B], document: Document, known_targets: Collection[str]) -> tuple[B | None, list[Finding]]:
    found: dict[KeyPath, Finding] = {}
    recipe = None
    try:
        # Strict, so that "3" is not a number and 1 is not a boolean; by JSON, so that a list may become a tuple.
        recipe = kind.model_validate_json(json.dumps(document.data), strict=True)
    except ValidationError as error:
        found = explain(document, error.errors(include_url=False))
    return recipe, [*found.values(), *cross_checks(document, known_targets, found)]


def _resolve(recipe: Recipe, document: Document) -> Recipe:
    def located(model: M) -> M | str:
        local = isinstance(model, str) and is_local(document, model)
        return str(beside(document, str(model))) if local else model

    recipe = _on_rows(recipe, document)
    teacher, student = recipe.teacher, recipe.student
    student = _changed(student, model=located(student.model))
    if isinstance(student.vocabulary, PrunedVocabulary):
        pruning = student.vocabulary.prune
        pruning = _changed(pruning, texts=_absolute(pruning.texts, document))
        student = _changed(student, vocabulary=_changed(student.vocabulary, prune=pruning))
    if teacher is None:
        # The default is distillation, which needs a teacher.
        student = _changed(student, distill=None)
    else:
        teacher = _changed(teacher, model=located(teacher.model))
    quantize = recipe.quantize
    if quantize.method == "qat" and quantize.qat is None:
        quantize = _changed(quantize, qat=Qat())
    return _changed(recipe, teacher=teacher, student=student, quantize=quantize)


def _on_rows(recipe: R, document: Document) -> R:
    """The recipe with absolute paths of its data, its columns, and the metric that judges them."""
    sources = {name: _absolute(getattr(recipe.data, name), document) for name in ("train", "dev", "test", "unlabelled")}
    columns = _columns(document, recipe.data.columns, recipe.task)
    data = _changed(recipe.data, **sources, columns=columns)
    return _delivered(_changed(recipe, data=data, gates=_judged(recipe.gates, recipe.task, columns)), document)


def _absolute(value: str | None, document: Document) -> str | None:
    return value if value is None or is_builtin(value) else str(beside(document, value))


def _delivered(recipe: B, document: Document) -> B:
    """The recipe with absolute paths in what every recipe has."""
    gates, own, sign = recipe.gates, recipe.interpreter, recipe.sign
    if gates.accuracy is not None and gates.accuracy.baseline is not None:
        baseline = str(beside(document, gates.accuracy.baseline))
        gates = _changed(gates, accuracy=_changed(gates.accuracy, baseline=baseline))
    if isinstance(own, OwnInterpreter):
        own = _changed(own, path=str(beside(document, own.path)))
    if sign is not None:
        sign = _changed(sign, key=str(beside(document, sign.key)))
    wheels = {target: tuple(str(beside(document, file)) for file in files) for target, files in recipe.wheels.items()}
    return _changed(recipe, gates=gates, wheels=wheels, interpreter=own, sign=sign)


def _spelt_out(recipe: Recipe) -> Recipe:
    """The recipe with the numbers of the layers that a student starts from, if they are known."""
    start, teacher = recipe.student.model, recipe.teacher
    if not isinstance(start, FromTeacher) or not isinstance(start.layers, int) or teacher is None:
        return recipe
    shape = shape_of(teacher.model, teacher.max_length)
    if shape is None or start.layers > shape.layers:
        return recipe
    start = _changed(start, layers=tuple(spread(start.layers, shape.layers)))
    return _changed(recipe, student=_changed(recipe.student, model=start))


def _judged(gates: Gates, task: TaskName, columns: Columns) -> Gates:
    """The recipe with the default metric of the task, unless it names one."""
    if gates.accuracy is None or gates.accuracy.metric is not None:
        return gates
    usual = task_of(task, multi_label=columns.labels is not None).usual_metric
    return _changed(gates, accuracy=_changed(gates.accuracy, metric=usual))


def _changed(section: S, **values: Any) -> S:
    """A copy with other values that keeps the record of fields which the recipe sets."""
    copy = section.model_copy(update=values)
    copy.model_fields_set.intersection_update(section.model_fields_set)
    return copy
