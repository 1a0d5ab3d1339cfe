"""Conversion of pydantic's errors to findings, by a table of messages."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from edgepack.recipe.findings import Finding
from edgepack.recipe.model import KINDS, BaseRecipe, CustomRecipe, GivenTextRecipe, kind_of
from edgepack.recipe.yaml import Document, KeyPath
from edgepack_runtime.bundle.model_config import CUSTOM

# Names of union branches in the paths of pydantic's errors, with the type of value of each.
_BRANCHES: Final = ("str", "FromScratch", "FromTeacher", "PrunedVocabulary", "OwnInterpreter")
# Descriptions of fields with a choice or a pattern.
_PARTS: Final = re.compile(r"literal\[.*\]|constrained-(str|int)|tuple\[.*\]")
_MASTER: Final = "write an address and a port, as in `master: 10.0.0.1:8379`; IPv6 cannot be used"
_SECTION: Final = "a section with keys of its own"
# Type of pydantic's error -> the expected value; names in braces are from the error's context.
_WANTED: Final[Mapping[str, str]] = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "tuple_type": "a list",
    "bool_type": "`true` or `false`",
    "model_type": _SECTION,
    "dict_type": _SECTION,
    "literal_error": "{expected}",
    "string_pattern_mismatch": "text of another form",
    "greater_than": "a number greater than {gt:g}",
    "greater_than_equal": "a number that is at least {ge:g}",
    "less_than": "a number less than {lt:g}",
    "less_than_equal": "a number that is at most {le:g}",
    "too_short": "at least one item",
    "string_too_short": "text that is not empty",
}
_FORMS: Final[Mapping[KeyPath, str]] = {
    ("name",): "use small letters a-z, digits, `.`, `_` and `-`, 64 at most, a letter or digit first",
    ("version",): "write three numbers, as in `version: 1.2.0`",
    ("interpreter", "sha256"): "write what `sha256sum FILE` prints: 64 small hexadecimal digits",
    ("teacher", "nodes", "master"): _MASTER,
    ("student", "nodes", "master"): _MASTER,
}
# What a recipe of a kind is called, for keys that only this kind has.
_CALLED: Final[Mapping[type[BaseRecipe], str]] = {
    CustomRecipe: f"recipes with `task: {CUSTOM}`",
    GivenTextRecipe: "recipes of a given model (`model:`)",
}
_TRAINING: Final = "recipes that train a model, without `model:`"


class _Keys:
    """The keys of recipes of some kinds."""

    def __init__(self, kinds: Sequence[type[BaseRecipe]]) -> None:
        self.kinds = kinds

    def sections(self, path: KeyPath) -> list[type[BaseModel]]:
        """The models of the section at `path`: several for a union, none if it is not a section.

        A list of sections, and its items, have the model of its items.
        """
        while path and isinstance(path[-1], int):
            path = path[:-1]
        return [kind for kind in self.annotated(path) if issubclass(kind, BaseModel)] if path else list(self.kinds)

    def section(self, path: KeyPath) -> type[BaseModel] | None:
        """The first of `sections`."""
        return next(iter(self.sections(path)), None)

    def meant(self, document: Document, path: KeyPath) -> list[type[BaseModel]]:
        """The models of `sections` that match the value at `path`."""
        sections = self.sections(path)
        return [one for one in sections if len(sections) == 1 or _takes(document.get(*path), one.__name__)]

    def field(self, path: KeyPath) -> FieldInfo | None:
        """The field of the model at `path`; None if the key is unknown."""
        found = (_fields(section).get(str(path[-1])) for section in self.sections(path[:-1]))
        return next((field for field in found if field is not None), None)

    def annotated(self, path: KeyPath) -> list[type]:
        """The types of the field at `path`, those of a union one by one."""
        field = self.field(path)
        kinds = (get_args(field.annotation) or (field.annotation,)) if field is not None else ()
        return [kind for kind in kinds if isinstance(kind, type)]

    def described(self, path: KeyPath, fix: str) -> str:
        """`fix` with the description of the field at `path`."""
        field = self.field(path) if path else None
        return f"{fix} ({field.description.rstrip('.')})" if field is not None and field.description else fix

    def of(self, name: str) -> list[str]:
        """The keys of the recipe's section `name`; none for a single value."""
        section = self.section((name,))
        return list(_fields(section)) if section is not None else []


def explain(document: Document, details: Iterable[ErrorDetails]) -> dict[KeyPath, Finding]:
    """One finding for each path with an error."""
    keys = _Keys([kind_of(document.data)])
    findings: dict[KeyPath, Finding] = {}
    no_numbers: set[KeyPath] = set()
    for error in details:
        path = _path(keys, document, error["loc"])
        if path is None:
            continue
        if error["type"] == "too_short" and document.get(*path):  # pydantic counts the items that are right
            continue
        if path in findings and error["type"] != "too_short":  # that says more than that a list is not a number
            continue
        reason, fix = _words(keys, document, path, error)
        findings[path] = document.error(path, reason, fix)
        if error["type"] == "int_type" and isinstance(document.get(*path), list):
            no_numbers.add(path)
    # Where a list may stand as well as a number, one of its items is what is wrong.
    items = {path[:-1] for path in findings if isinstance(path[-1], int)}
    return {path: found for path, found in findings.items() if path not in no_numbers & items}


def did_you_mean(word: str, choices: Iterable[str], otherwise: str) -> str:
    """The fix for a word that is not one of `choices`: the nearest one, else `otherwise`."""
    near = difflib.get_close_matches(word.lower(), list(choices), n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else otherwise


def listed(words: Iterable[str]) -> str:
    """`a`, `b`, `c`."""
    return ", ".join(f"`{word}`" for word in words)


def dotted(path: KeyPath) -> str:
    """`targets[0]`, `teacher.model`."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".")


def recipe_keys() -> list[KeyPath]:
    """The path of every key of a recipe, sections before their keys."""

    def below(path: KeyPath, sections: Iterable[type[BaseModel]]) -> Iterator[KeyPath]:
        for section in sections:
            for name in _fields(section):
                yield (*path, name)
                yield from below((*path, name), keys.sections((*path, name)))

    keys = _Keys(KINDS)
    return list(dict.fromkeys(below((), KINDS)))


def _path(keys: _Keys, document: Document, location: Sequence[int | str]) -> KeyPath | None:
    """The path of an error in the recipe; None if it is about a union branch of another type."""
    path: KeyPath = ()
    for key in location:
        if _PARTS.fullmatch(str(key)) and not document.holds((*path, key)):
            if isinstance(document.get(*path), dict) and keys.sections(path):  # none of the choices was meant
                return None
            continue
        below: KeyPath = (*path, key)
        if key not in _BRANCHES or document.holds(below):
            path = below
        elif not _takes(document.get(*path), str(key)):
            return None
    return path


def _takes(value: Any, branch: str) -> bool:
    """Whether a value has the type of a union branch. A value of no branch counts for the first."""
    if isinstance(value, dict):
        return branch not in ("str", "FromScratch" if "from" in value else "FromTeacher")
    return branch == "str"


def _words(keys: _Keys, document: Document, path: KeyPath, error: ErrorDetails) -> tuple[str, str]:
    """Reason and fix of an error at `path`."""
    kind = error["type"]
    if kind == "extra_forbidden":
        return _unknown(keys, document, path)
    if kind == "missing":
        return _missing(keys, path)
    if kind not in _WANTED:
        return f"`{dotted(path)}`: {error['msg']}", keys.described(path, "see recipes/quickstart.yaml")
    wanted = _WANTED[kind].format(**error.get("ctx", {})).replace("'", "`")
    reason = f"`{dotted(path)}` takes {wanted}, and this is {_shown(document, path)}"
    return reason, _fix(keys, document, path, error, wanted)


def _fix(keys: _Keys, document: Document, path: KeyPath, error: ErrorDetails, wanted: str) -> str:
    value, raw, section = error["input"], document.raw.get(path, ""), keys.section(path)
    if path == ("version",) or (path in _FORMS and error["type"] == "string_pattern_mismatch"):
        return _FORMS[path]
    if error["type"] == "literal_error":
        choices = re.findall(r"`([^`]*)`", wanted)
        return did_you_mean(value, choices, f"write {wanted}") if isinstance(value, str) else f"write {wanted}"
    if error["type"] == "less_than" and error["ctx"]["lt"] == 1 and 10 <= value < 100:  # percent
        return keys.described(path, f"did you mean `{value / 100:g}`?")
    if wanted == "text" and raw and value is not None:
        return f'put it in quotes: `"{raw}"`'
    if wanted == "a list":
        values = f"[{raw or '...'}]"
        return (
            f"write `--set '{dotted(path)}={values}'`" if path in document.settings else f"write `{path[-1]}: {values}`"
        )
    if section is not None and wanted not in ("text", "at least one item"):
        field = keys.field(path)
        optional = "" if field is not None and field.is_required() else ", or remove it"
        otherwise = ", or write `null`" if type(None) in keys.annotated(path) else optional
        return f"write {listed(_fields(section))} below it, indented{otherwise}"
    return keys.described(path, f"write {wanted}")


def _unknown(keys: _Keys, document: Document, path: KeyPath) -> tuple[str, str]:
    key = str(path[-1])
    takes = [name for section in keys.meant(document, path[:-1]) for name in _fields(section)]
    where = f"`{dotted(path[:-1])}`" if len(path) > 1 else "a recipe"
    fix = did_you_mean(key, takes, f"remove it; {where} takes {listed(takes)}")
    kind: type[BaseRecipe] = kind_of(document.data)
    others = [one for one in KINDS if one is not kind and key in _fields(one)]
    if homes := [name for name in _fields(kind) if key in keys.of(name)]:
        fix = f"it belongs below {' or '.join(f'`{home}`' for home in homes)}: indent it there"
    elif len(path) == 1 and others:
        fix = f"it is for {' and '.join(dict.fromkeys(_CALLED.get(one, _TRAINING) for one in others))}"
    elif "." in key:
        fix = f"write `{key.rpartition('.')[2][:60]}:` below the section it belongs to, indented"
    return f"unknown key `{key[:60]}` in {where}", fix


def _missing(keys: _Keys, path: KeyPath) -> tuple[str, str]:
    where = f"`{dotted(path[:-1])}`" if len(path) > 1 else "the recipe"
    section = keys.section(path)
    fix = f"add `{path[-1]}:`"
    if section is not None and str not in keys.annotated(path):
        fix += f" with {listed(_required(section))} below it"
    return f"{where} lacks `{path[-1]}`", keys.described(path, f"{fix}; {_FORMS[path]}" if path in _FORMS else fix)


def _fields(section: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in section.model_fields.items()}


def _required(section: type[BaseModel]) -> list[str]:
    fields = _fields(section)
    return [name for name, field in fields.items() if field.is_required()] or list(fields)


def _shown(document: Document, path: KeyPath) -> str:
    """The value at `path` for messages, as written in the file."""
    value: Any = document.get(*path)
    if value is None or value == []:
        return "empty"
    if isinstance(value, dict):
        return "a section"
    if isinstance(value, list):
        return "a list"
    raw = document.raw.get(path, str(value))
    raw = raw if len(raw) <= 60 else raw[:57] + "..."
    return f"the text {raw!r}" if isinstance(value, str) else f"the {_kind(value)} `{raw}`"


def _kind(value: bool | int | float) -> str:
    return "truth value" if isinstance(value, bool) else "number"
