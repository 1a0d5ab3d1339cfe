"""Pydantic's errors as findings, by three templates: unknown key, wrong type, out of range."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from pydantic_core import ErrorDetails

from edgepack.messages import joined, message
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
    about = message("mistake.about", text=node["description"].rstrip(".")) if "description" in node else ""
    if error == "missing":
        return message("mistake.missing", key=name), message("mistake.add", key=path[-1], about=about)
    value, raw = document.get(*path), document.places[path].raw
    wanted, allowed, shown = keys.type_of(node), keys.range_of(node), _shown(value, raw)
    if error.endswith("_type") or error == "int_from_float":
        below = [key for section in keys.sections(kind, path) for key in section["properties"]]
        fix: str = message("mistake.write", wanted=wanted, about=about)
        if below:
            fix = message("mistake.write_below", keys=listed(dict.fromkeys(below)))
        if wanted == "text" and raw and re.search(node.get("pattern", ""), raw):
            fix = message("mistake.quote", raw=raw)
        return message("mistake.type", key=name, wanted=wanted, found=shown), fix
    instead = message("mistake.write_allowed", wanted=wanted, allowed=allowed, about=about)
    choices = [str(choice) for choice in keys.literals(node)]
    fix = did_you_mean(value, choices, instead) if isinstance(value, str) else instead
    return message("mistake.range", key=name, found=shown, allowed=allowed), fix


def _unknown(document: Document, kind: type[BaseRecipe], path: KeyPath) -> tuple[str, str]:
    key, around = str(path[-1]), path[:-1]
    written = document.get(*around)
    meant = max(keys.sections(kind, around), key=lambda section: len(section["properties"].keys() & written.keys()))
    where = f"`{dotted(around)}`" if around else message("mistake.a_recipe")
    otherwise = message("mistake.remove", where=where, keys=listed(meant["properties"]))
    fix = did_you_mean(key, meant["properties"], otherwise)
    top = keys.schema_of(kind)["properties"]
    others = [one.CALLED for one in KINDS if one not in (kind, LinearRecipe) and keys.at(one, (key,))]
    if homes := [f"`{home}`" for home in top if any(key in one["properties"] for one in keys.sections(kind, (home,)))]:
        fix = message("mistake.belongs", homes=homes)
        if path == ("model",):
            fix = joined(fix, MODEL_FIX)
    elif path == ("model", "folder"):
        fix = "keep `folder` or `graph`: a folder of a training needs no graph"
    elif not around and others:
        fix = message("mistake.is_for", kinds=others)
    elif "." in key:
        fix = message("mistake.nest", key=key.rpartition(".")[2][:60])
    return message("mistake.unknown_key", key=key[:60], where=where), fix


def _shown(value: Any, raw: str | None) -> str:
    """A value for messages, as written in the file."""
    if value is None:
        return message("mistake.nothing")
    if isinstance(value, dict | list):
        if isinstance(value, dict):
            return message("mistake.a_section" if value else "mistake.an_empty_section")
        return message("mistake.a_list" if value else "mistake.an_empty_list")
    written = str(value if raw is None else raw)
    written = written if len(written) <= 60 else written[:57] + "..."
    if isinstance(value, str):
        return message("mistake.a_text", value=repr(written))
    return message("mistake.a_truth_value" if isinstance(value, bool) else "mistake.a_number", value=f"`{written}`")
