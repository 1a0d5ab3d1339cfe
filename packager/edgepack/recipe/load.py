"""Recipe file -> frozen, resolved `Recipe`, or every finding at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from edgepack.errors import RecipeInvalidError
from edgepack.recipe.explain import did_you_mean, dotted, explain, listed, not_yet
from edgepack.recipe.findings import Finding
from edgepack.recipe.model import BUILTIN_PREFIX, FromScratch, Recipe, is_builtin
from edgepack.recipe.parse import Document, KeyPath, parse

BUILTIN_SOURCES: Final = ("builtin:reviews-zh",)
TABLE_SUFFIXES: Final = (".tsv", ".csv", ".jsonl")
MODEL_FILES: Final = ("config.json", "model_state.pdparams", "vocab.txt")

_Problem = tuple[KeyPath, str, str]  # where, reason, fix


def load_recipe(path: Path, known_targets: Collection[str]) -> Recipe:
    """Read, check and resolve one recipe: defaults filled in, every path absolute.

    Args:
        path: the recipe file; findings name it as it is given.
        known_targets: names of the target profiles that `targets` may use.

    Raises:
        RecipeInvalidError: with everything that is wrong in `.findings`, in the order of the file.
    """
    document, findings = parse(_read(path), path)
    recipe = None
    if document is not None:
        said = {finding.line for finding in findings}
        recipe, more = _validate(document)
        more += _cross_checks(document, known_targets)
        # A value that could not be read is null from here on: what is said about that null is only confusing.
        findings += [finding for finding in more if finding.line not in said]
    if findings or document is None or recipe is None:
        findings.sort(key=lambda finding: finding.line or 0)
        raise _invalid(path, findings)
    return _resolve(recipe, document)


def _read(path: Path) -> bytes:
    try:
        if not path.is_file():
            kind = "a folder" if path.is_dir() else "not there"
            raise _invalid(path, [Finding("error", path, None, f"it is {kind}", "give the path of a recipe")])
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        finding = Finding("error", path, None, f"it cannot be read: {error}", "check the path and its permissions")
        raise _invalid(path, [finding]) from error


def _invalid(path: Path, findings: list[Finding]) -> RecipeInvalidError:
    count = f"{len(findings)} errors" if len(findings) != 1 else "1 error"
    return RecipeInvalidError(
        f"the recipe {path} has {count}",
        why="; ".join(finding.reason for finding in findings[:3]) + ("; ..." if len(findings) > 3 else ""),
        fix="correct what is named above and run the command again",
        findings=findings,
    )


def _validate(document: Document) -> tuple[Recipe | None, list[Finding]]:
    early = not_yet(document)
    try:
        # Strict, so that "3" is no number and 1 is no truth value; by JSON, where a list may become a tuple.
        recipe = Recipe.model_validate_json(json.dumps(document.data), strict=True)
    except ValidationError as error:
        return None, [*early.values(), *explain(document, error.errors(include_url=False), early)]
    return recipe, list(early.values())


def _cross_checks(document: Document, known_targets: Collection[str]) -> list[Finding]:
    """What no single field shows. Runs on the raw data, so that it speaks even when a field is wrong."""
    checks: tuple[Callable[[Document], Iterator[_Problem]], ...] = (
        _check_format,
        _check_data,
        _check_columns,
        _check_models,
        _check_distillation,
        lambda doc: _check_targets(doc, known_targets),
        _check_gates,
    )
    return [
        Finding("error", document.file, document.line(path), reason, fix)
        for check in checks
        for path, reason, fix in check(document)
    ]


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
    if Path(value).suffix.lower() not in TABLE_SUFFIXES:
        yield (
            where,
            f"`data.{name}` is not a table: {value[:200]!r}",
            f"give a file of {listed(TABLE_SUFFIXES)}",
        )
        return
    file = _beside(document, value)
    if not _is_file(file):
        names = [other.name for other in _siblings(file)]
        fix = did_you_mean(file.name, names, "give a path relative to the recipe's folder, or an absolute one")
        yield where, f"`data.{name}`: there is no file {value[:200]!r}", fix


def _check_same_file(document: Document, splits: dict[str, Any]) -> Iterator[_Problem]:
    seen: dict[Path, str] = {}
    for name, value in splits.items():
        if not isinstance(value, str) or not _is_file(_beside(document, value)):
            continue
        file = _beside(document, value).resolve()
        if file in seen:
            reason = f"`data.{name}` and `data.{seen[file]}` are the same file"
            yield ("data", name), reason, "give each split rows of its own"
        seen.setdefault(file, name)


def _check_columns(document: Document) -> Iterator[_Problem]:
    columns = document.get("data", "columns")
    if isinstance(columns, dict) and columns.get("text", "text") == columns.get("label", "label"):
        reason = "`data.columns` reads text and label from the same column"
        yield ("data", "columns"), reason, "name the column of each"


def _check_models(document: Document) -> Iterator[_Problem]:
    for role in ("teacher", "student"):
        where: KeyPath = (role, "model")
        model = document.get(*where)
        if isinstance(model, str) and not model.strip():
            yield where, f"`{role}.model` is empty", "name a PaddleNLP model or a local folder"
        elif isinstance(model, str) and _is_local(document, model):
            yield from _check_folder(document, where, model)
        hidden, heads = (document.get(*where, "scratch", key) for key in ("hidden", "heads"))
        if type(hidden) is int and type(heads) is int and heads > 0 and hidden % heads:
            reason = f"`hidden` is {hidden}, which is no multiple of `heads`, {heads}"
            fix = f"use `hidden: {(hidden // heads + 1) * heads}`, or other `heads`"
            yield (*where, "scratch", "hidden"), reason, fix


def _check_folder(document: Document, where: KeyPath, model: str) -> Iterator[_Problem]:
    folder = _beside(document, model)
    if not _is_folder(folder):
        yield (
            where,
            f"`{dotted(where)}`: there is no folder {model[:200]!r}",
            "give a folder or a PaddleNLP name",
        )
        return
    missing = [name for name in MODEL_FILES if not _is_file(folder / name)]
    if missing:
        reason = f"`{dotted(where)}`: the folder {model[:200]!r} lacks {listed(missing)}"
        yield where, reason, "give a folder as PaddleNLP's `save_pretrained` writes it"
        return
    positions = _positions(folder / "config.json")
    if positions is None:
        reason = f"`{dotted(where)}`: {model[:200]!r} holds a config.json that is no JSON object"
        yield where, reason, "copy the folder again from where the model was saved"
        return
    length = document.get(where[0], "max_length")
    if type(length) is int and 0 < positions < length:
        reason = f"`{where[0]}.max_length` is {length}, and this model has {positions} positions"
        yield (where[0], "max_length"), reason, f"use at most {positions}"


def _check_distillation(document: Document) -> Iterator[_Problem]:
    distill = document.get("student", "distill")
    if distill is not None and document.get("teacher") is None and isinstance(document.get("student"), dict):
        fix = "add a `teacher`, or write `distill: null` to train on the labels alone"
        yield ("student", "distill"), "`student.distill` is set, but there is no teacher", fix


def _check_targets(document: Document, known: Collection[str]) -> Iterator[_Problem]:
    targets = document.get("targets")
    if not isinstance(targets, list):
        return
    for index, target in enumerate(targets):
        if not isinstance(target, str):
            continue
        if target not in known:
            fix = did_you_mean(target, sorted(known), f"use {listed(sorted(known))}")
            yield ("targets", index), f"there is no target `{target[:60]}`", fix
        elif target in targets[:index]:
            yield ("targets", index), f"the target `{target}` stands twice", "remove one of the two"


def _check_gates(document: Document) -> Iterator[_Problem]:
    for name, limits in (("accuracy", ("min", "max_drop_points")), ("size", ("model_mib", "bundle_mib"))):
        gate = document.get("gates", name)
        if isinstance(gate, dict) and all(gate.get(limit) is None for limit in limits):
            fix = f"set {' or '.join(f'`{limit}`' for limit in limits)}, or remove the gate"
            yield ("gates", name), f"`gates.{name}` sets no limit, so nothing would be gated", fix
    p50, p95 = (document.get("gates", "latency", key) for key in ("p50_ms", "p95_ms"))
    if type(p50) in (int, float) and type(p95) in (int, float) and p50 > p95:
        reason = f"`p50_ms` ({p50:g}) is above `p95_ms` ({p95:g}), so it limits nothing"
        yield ("gates", "latency", "p50_ms"), reason, "swap them, or remove `p50_ms`"


def _beside(document: Document, value: str) -> Path:
    """A path of the recipe: relative ones start at the recipe's folder. Links keep their names."""
    return document.file.parent.absolute() / value


def _is_local(document: Document, model: str) -> bool:
    """Whether a model source is a folder on this machine, there or not, instead of a PaddleNLP name."""
    by_form = model.startswith(("./", "../", "/")) or model in (".", "..")
    return by_form or _is_folder(_beside(document, model))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (
        OSError,
        ValueError,
    ):  # a name that no file can have: longer than the system allows, or with a NUL
        return False


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _siblings(path: Path) -> list[Path]:
    return sorted(path.parent.iterdir()) if _is_folder(path.parent) else []


def _positions(config: Path) -> int | None:
    """`max_position_embeddings` of a model; 0 where it does not say, None when the file is no JSON object."""
    try:
        fields = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    positions = fields.get("max_position_embeddings", 0)
    return positions if type(positions) is int else 0


def _resolve(recipe: Recipe, document: Document) -> Recipe:
    def absolute(value: str | None) -> str | None:
        return value if value is None or is_builtin(value) else str(_beside(document, value))

    def located(model: str | FromScratch) -> str | FromScratch:
        local = isinstance(model, str) and _is_local(document, model)
        return str(_beside(document, str(model))) if local else model

    sources = {name: absolute(getattr(recipe.data, name)) for name in ("train", "dev", "test")}
    teacher, student = recipe.teacher, recipe.student
    student = student.model_copy(update={"model": located(student.model)})
    if teacher is None:
        # The default asks for distillation; without a teacher there is nothing to distil.
        student = student.model_copy(update={"distill": None})
    else:
        teacher = teacher.model_copy(update={"model": located(teacher.model)})
    data = recipe.data.model_copy(update=sources)
    return recipe.model_copy(update={"data": data, "teacher": teacher, "student": student})
