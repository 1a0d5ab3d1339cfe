"""Loader of recipe files: a frozen, resolved `Recipe`, or all findings at once."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from edgepack.errors import RecipeInvalidError
from edgepack.messages import joined, message
from edgepack.recipe import overrides, search, validate_folder, validate_imported
from edgepack.recipe.encoder_shapes import evenly_spread_layers, shape_of_model
from edgepack.recipe.findings import Finding
from edgepack.recipe.model import (
    AnyRecipe,
    Candidate,
    CustomRecipe,
    FolderRecipe,
    ImportedTextRecipe,
    LinearRecipe,
    Recipe,
    TextKinds,
    kind_of,
)
from edgepack.recipe.overrides import Expansion
from edgepack.recipe.paths import is_file, is_folder
from edgepack.recipe.pydantic_errors import explain
from edgepack.recipe.section import right_part
from edgepack.recipe.trained_folder import read_labels
from edgepack.recipe.training import FromTeacher, Qat
from edgepack.recipe.validation import cross_checks
from edgepack.recipe.yaml import Document, KeyPath, parse
from edgepack_runtime.tasks.registry import task_by_name


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
        trials, more = search.trials(document) if kind is Recipe else ([search.Trial((), document)], [])
        findings += more
        recipe, more = _checked(kind, document, trials, known_targets)
        # A value that could not be read is null from here on; findings about this null would be confusing.
        said = {(finding.line, finding.setting) for finding in findings}
        findings += [finding for finding in more if (finding.line, finding.setting) not in said]
    if findings or recipe is None:
        ranks = {overrides.shown(text): rank for rank, text in enumerate(settings, 1)}
        findings.sort(key=lambda finding: (ranks.get(finding.setting or "", 0), finding.line or 0))
        raise _invalid(path, findings)
    return recipe


def _read(path: Path) -> bytes:
    try:
        if not is_file(path):
            reason = message("mistake.is_a_folder" if is_folder(path) else "mistake.not_there")
            raise _invalid(path, [Finding("error", path, None, reason, message("mistake.give_recipe"))])
        return path.read_bytes()
    except OSError as error:
        reason, fix = message("mistake.unreadable", why=str(error)), message("mistake.check_path")
        finding = Finding("error", path, None, reason, fix)
        raise _invalid(path, [finding]) from error


def _invalid(path: Path, findings: list[Finding]) -> RecipeInvalidError:
    return RecipeInvalidError(
        message("mistake.recipe", path=str(path), n=len(findings)),
        why=joined(*(finding.reason for finding in findings[:3]), "..." if len(findings) > 3 else ""),
        fix=message("mistake.correct"),
        findings=findings,
    )


def _checked(
    kind: type[AnyRecipe], document: Document, trials: Sequence[search.Trial], known_targets: Collection[str]
) -> tuple[AnyRecipe | None, list[Finding]]:
    """The recipe of the first combination of a search, with all as candidates; None and the findings if invalid."""
    checked = [(trial, *_validate(kind, trial.document, known_targets)) for trial in trials]
    findings = search.merged([(trial, found) for trial, _, found in checked])
    if findings:
        return None, findings
    recipes = [_resolve(recipe, trial.document) for trial, recipe, _ in checked]
    first, trainings = recipes[0], [recipe for recipe in recipes if isinstance(recipe, Recipe)]
    if not isinstance(first, Recipe) or first.search is None:
        return first, findings
    findings = search.twins(document, trials, [_spelt_out(recipe) for recipe in trainings])
    plain = [recipe.changed(search=None) for recipe in trainings]
    candidates = map(Candidate, search.names(trials), plain, [trial.values for trial in trials])
    return first.with_candidates(tuple(candidates)), findings


def _validate(
    kind: type[AnyRecipe], document: Document, known_targets: Collection[str]
) -> tuple[AnyRecipe, list[Finding]]:
    """The model, without the values that are wrong, and the findings."""
    found: dict[KeyPath, Finding] = {}
    context = {"folder": document.file.parent.absolute()}
    try:
        # Strict, so that "3" is not a number and 1 is not a boolean; by JSON, so that a list may become a tuple.
        recipe: AnyRecipe = kind.model_validate_json(json.dumps(document.data), strict=True, context=context)
    except ValidationError as error:
        found = explain(document, kind, error.errors(include_url=False))
        recipe = right_part(kind, document.data, context)
    if isinstance(recipe, FolderRecipe):
        recipe = validate_folder.with_settings(recipe)
    elif isinstance(recipe, ImportedTextRecipe):
        recipe = validate_imported.with_settings(recipe)
    return recipe, [*found.values(), *cross_checks(document, recipe, known_targets, found)]


def _resolve(recipe: AnyRecipe, document: Document) -> AnyRecipe:
    """A valid recipe with the defaults that depend on other keys, and without what is not used."""
    if isinstance(recipe, CustomRecipe):
        return recipe
    recipe = recipe.changed(**_of_task(recipe, document))
    if isinstance(recipe, LinearRecipe):
        return recipe.resolved()
    if isinstance(recipe, FolderRecipe):
        return recipe
    if isinstance(recipe, ImportedTextRecipe):
        labels = recipe.model.labels
        labels = read_labels(Path(labels)) if isinstance(labels, str) else labels
        labels = task_by_name(recipe.task).model_labels(()) if labels is None else labels
        return recipe.changed(model=recipe.model.changed(labels=labels))
    if recipe.teacher is None:  # the default is distillation, which needs a teacher
        recipe = recipe.changed(student=recipe.student.changed(distill=None))
    if recipe.quantize.method == "qat" and recipe.quantize.qat is None:
        recipe = recipe.changed(quantize=recipe.quantize.changed(qat=Qat()))
    return recipe


def _of_task(recipe: TextKinds, document: Document) -> dict[str, Any]:
    """The data with the columns that its task implies, and the gates with the metric that judges them."""
    data, gates = recipe.data, recipe.gates
    columns = data.columns.changed(**data.columns.implied(recipe.task)).at(document.place(("data", "columns")))
    if gates.accuracy is not None and gates.accuracy.metric is None:
        usual = columns.text_task.usual_metric
        gates = gates.changed(accuracy=gates.accuracy.changed(metric=usual))
    return {"data": data.changed(columns=columns), "gates": gates}


def _spelt_out(recipe: Recipe) -> Recipe:
    """The recipe with the numbers of the layers that a student starts from, if they are known."""
    start, teacher = recipe.student.model, recipe.teacher
    if not isinstance(start, FromTeacher) or not isinstance(start.layers, int) or teacher is None:
        return recipe
    shape = shape_of_model(teacher.model, teacher.max_length)
    if shape is None or start.layers > shape.layers:
        return recipe
    start = start.changed(layers=tuple(evenly_spread_layers(start.layers, shape.layers)))
    return recipe.changed(student=recipe.student.changed(model=start))
