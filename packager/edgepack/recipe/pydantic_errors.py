"""Pydantic's errors as findings, by three templates: unknown key, wrong type, out of range."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from pydantic_core import ErrorDetails

from edgepack.recipe import keys
from edgepack.recipe.findings import Finding
from edgepack.recipe.messages import did_you_mean, listed
from edgepack.recipe.model import KINDS, BaseRecipe, ImportedTextRecipe, LinearRecipe
from edgepack.recipe.yaml import Document, KeyPath, dotted

MODEL_FIX: Final = (
    "to package a model that is trained already, write `model: {folder: FOLDER}` with the folder that its Trainer "
    "wrote, or `model: {graph: FILE, vocab: FILE, labels: [...]}` with an exported graph"
)


def explain(document: Document, kind: type[BaseRecipe], details: Iterable[ErrorDetails]) -> dict[KeyPath, Finding]:
    """One finding for each path with an error."""
    findings: dict[KeyPath, Finding] = {}
    model = document.get("model")
    if kind is ImportedTextRecipe and isinstance(model, dict) and "graph" not in model:
        findings["model",] = document.error(("model",), "`model`: it names neither `folder` nor `graph`", MODEL_FIX)
        details = [error for error in details if error["loc"][0] != "model"]
    for error in details:
        path = _path(document, error["loc"], missing=error["type"] == "missing")
        if path not in findings and not (error["type"] == "too_short" and document.get(*path)):
            # Pydantic counts the items of a list that are right.
            findings[path] = document.error(path, *_words(document, kind, path, error["type"]))
    return findings


def _path(document: Document, location: Sequence[int | str], *, missing: bool) -> KeyPath:
    """The path of an error in the recipe: its location without the names of the branches of unions."""
    path: KeyPath = ()
    for key in location[:-1] if missing else location:
        path = (*path, key) if (*path, key) in document.places else path
    return (*path, location[-1]) if missing else path


def _words(document: Document, kind: type[BaseRecipe], path: KeyPath, error: str) -> tuple[str, str]:
    """Reason and fix of an error of pydantic's type `error` at `path`."""
    if error == "extra_forbidden":
        return _unknown(document, kind, path)
    name = dotted(path)
    node = next(iter(keys.at(kind, path)))
    about = f" ({node['description'].rstrip('.')})" if "description" in node else ""
    if error == "missing":
        return f"`{name}`: it is missing", f"add `{path[-1]}:`{about}"
    value, raw = document.get(*path), document.places[path].raw
    wanted, allowed, shown = keys.type_of(node), keys.range_of(node), _shown(value, raw)
    if error.endswith("_type") or error == "int_from_float":
        below = [key for section in keys.sections(kind, path) for key in section["properties"]]
        fix = f"write keys below it, indented: {listed(dict.fromkeys(below))}" if below else f"write {wanted}{about}"
        if wanted == "text" and raw and re.search(node.get("pattern", ""), raw):
            fix = f'put it in quotes: `"{raw}"`'
        return f"`{name}`: expected {wanted}, found {shown}", fix
    fix = f"write {wanted}: {allowed}{about}"
    choices = [str(choice) for choice in keys.literals(node)]
    fix = did_you_mean(value, choices, fix) if isinstance(value, str) else fix
    return f"`{name}`: {shown} is out of range; allowed: {allowed}", fix


def _unknown(document: Document, kind: type[BaseRecipe], path: KeyPath) -> tuple[str, str]:
    key, around = str(path[-1]), path[:-1]
    written = document.get(*around)
    meant = max(keys.sections(kind, around), key=lambda section: len(section["properties"].keys() & written.keys()))
    where = f"`{dotted(around)}`" if around else "a recipe"
    fix = did_you_mean(key, meant["properties"], f"remove it; {where} takes {listed(meant['properties'])}")
    top = keys.schema_of(kind)["properties"]
    others = [one.CALLED for one in KINDS if one not in (kind, LinearRecipe) and keys.at(one, (key,))]
    if homes := [f"`{home}`" for home in top if any(key in one["properties"] for one in keys.sections(kind, (home,)))]:
        fix = f"it belongs below {' or '.join(homes)}: indent it there"
        if path == ("model",):
            fix = f"{fix}; {MODEL_FIX}"
    elif path == ("model", "folder"):
        fix = "keep `folder` or `graph`: a folder of a training needs no graph"
    elif not around and others:
        fix = f"it is for {' and '.join(others)}"
    elif "." in key:
        fix = f"write `{key.rpartition('.')[2][:60]}:` below the section it belongs to, indented"
    return f"unknown key `{key[:60]}` in {where}", fix


def _shown(value: Any, raw: str | None) -> str:
    """A value for messages, as written in the file."""
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        kind = "section" if isinstance(value, dict) else "list"
        return f"a {kind}" if value else f"an empty {kind}"
    written = str(value if raw is None else raw)
    written = written if len(written) <= 60 else written[:57] + "..."
    kind = "truth value" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"
    return f"the {kind} {written!r}" if isinstance(value, str) else f"the {kind} `{written}`"
