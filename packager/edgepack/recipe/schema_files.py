"""Writer of the JSON Schema and the reference page of recipes: `python -m edgepack.recipe.schema_files FILE...`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from textwrap import fill
from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema

from edgepack.recipe import keys
from edgepack.recipe.encoder_shapes import PRESETS, parameters
from edgepack.recipe.keys import choices, range_of, type_of
from edgepack.recipe.messages import listed
from edgepack.recipe.model import (
    KINDS,
    BaseRecipe,
    Calibration,
    Columns,
    CustomRecipe,
    FolderRecipe,
    ImportedTextRecipe,
    LinearRecipe,
    Quantize,
    Recipe,
)
from edgepack.recipe.training import Qat, Student

_HEAD: Final = """\
# Recipe reference

Every key of recipe format 1. This page is made from the model that checks recipes (`make docs`); what the keys are
for, and how they work together, is in [Recipe file](recipe-file.md).

## Which value counts

1. the **default** of the table below;
2. the **recipe file** wins over it, with `${NAME}` and `${NAME:-default}` in its scalars filled in from the
   environment (`$$` is a dollar sign). A plain scalar is typed after that, a quoted one stays text;
3. **`--set KEY=VALUE`** wins over the file, the later over the earlier. The value is YAML; nothing is filled in.
   Variables in a value that it replaces need not be set.

"""
_LINEAR: Final = f"""\
## A linear model alone: `linear: only`

Trains no encoder: the stages are data, linear, bundle and gate. A build names the keys that are set and not used:
{listed(LinearRecipe.UNUSED)}.
Refused, because they compare with an encoder or count its tokens:
{listed(LinearRecipe.REFUSED)}.

"""
_IMPORTED_HEAD: Final = """\
## An imported model

A recipe with the section `model` packages a model that you have, and trains nothing. Besides the keys of the tables
here it has of those above: {shared}.

### A folder that a Trainer wrote: `model.folder`

The model goes the way of a student after its training.

{folder}### A graph of a classifier of texts

With the tasks of texts the graph reads tokens of a BERT-type vocabulary.

"""
_CUSTOM_HEAD: Final = f"""\
### Any other model: `task: custom`

A handler does what comes before and after the graphs. These are for models of texts alone:
{fill(listed(CustomRecipe.REFUSED), 120)}.

"""
_PRESETS_HEAD: Final = """\
## Models by name

What PaddleNLP 3.0.0b4 knows by name, with the weights of a classifier of two labels. `max_length` may not exceed a
model's positions. Any other ERNIE is given as a local folder, or as `owner/name` for one of the hub's community.

| name | layers | hidden | heads | feed-forward | vocabulary | positions | M weights | float MiB |
|---|---|---|---|---|---|---|---|---|
"""
BAR: Final = r"\|"  # escaped bar of a table
_FLOAT_BYTES: Final = 4
_LABELS: Final = 2


def page() -> str:
    """The text of the page."""
    made = _properties_of(Recipe)
    sections = "".join(_sections(made, made["$defs"]))
    return "".join((_HEAD, sections, _LINEAR, *_imported_models(), _PRESETS_HEAD, *_presets()))


def _properties_of(kind: type[BaseRecipe]) -> dict[str, Any]:
    """Pydantic's schema of a kind of recipe: the keys before `targets`, those of this kind, and the other shared ones.

    Pydantic lists the keys of the base class first.
    """
    made = keys.schema_of(kind)
    shared = list(BaseRecipe.model_fields)
    at = shared.index("targets")
    own = [key for key in made["properties"] if key not in shared]
    properties = made["properties"]
    return {**made, "properties": {key: properties[key] for key in (*shared[:at], *own, *shared[at:])}}


def _imported_models() -> Iterator[str]:
    """The part about recipes of imported models: their own keys, and the sections that only they have."""
    described = {one.__name__ for one in (Columns, Quantize, Qat, Calibration)}  # as in a recipe that trains
    shared = ", ".join(f"`{key}`" for key in BaseRecipe.model_fields)
    yield _IMPORTED_HEAD.format(shared=shared, folder="".join(_own_keys(FolderRecipe, described)))
    yield from _own_keys(ImportedTextRecipe, described)
    yield _CUSTOM_HEAD
    yield from _own_keys(CustomRecipe, described)


def _own_keys(kind: type[BaseRecipe], described: set[str]) -> Iterator[str]:
    """The keys that only this kind of recipe has, and the sections below them, unless they are described."""
    made = _properties_of(kind)
    own = {key: value for key, value in made["properties"].items() if key not in BaseRecipe.model_fields}
    yield _table({**made, "properties": own})
    for name, paths in _paths({"properties": own}, made["$defs"], "").items():
        if name not in described:
            described.add(name)
            yield _section(made["$defs"][name], ", ".join(f"`{path}`" for path in paths), level=4)


def _sections(made: Mapping[str, Any], definitions: Mapping[str, Any]) -> Iterator[str]:
    """Each section once, in the order of the recipe, with all its paths."""
    yield _section(made, "The recipe")
    for definition, paths in _paths(made, definitions, "").items():
        yield _section(definitions[definition], ", ".join(f"`{path}`" for path in paths))


def _paths(section: Mapping[str, Any], definitions: Mapping[str, Any], path: str) -> dict[str, list[str]]:
    """The paths of each definition that `section` uses."""
    found: dict[str, list[str]] = {}
    for key, value in section["properties"].items():
        where = f"{path}.{key}".lstrip(".")
        for below in _sections_of(value):
            found.setdefault(below, []).append(where)
            for name, paths in _paths(definitions[below], definitions, where).items():
                found.setdefault(name, []).extend(paths)
    return found


def _section(section: Mapping[str, Any], heading: str, *, level: int = 2) -> str:
    about = " ".join(section["description"].split())
    return f"{'#' * level} {heading}\n\n{about}\n\n{_table(section)}"


def _table(section: Mapping[str, Any]) -> str:
    required = section.get("required", ())
    cells = (
        (f"`{key}`", type_of(value), _default(value, key in required), range_of(value), value["description"])
        for key, value in section["properties"].items()
    )
    rows = [f"| {' | '.join(cell.replace('|', BAR) for cell in row)} |" for row in cells]
    return "\n".join(("| key | type | default | range | what it does |", "|---|---|---|---|---|", *rows)) + "\n\n"


def _sections_of(value: Mapping[str, Any]) -> list[str]:
    parts = (choice.get("items", choice) for choice in choices(value))
    return [part["$ref"].rpartition("/")[2] for part in parts if "$ref" in part]


def _default(value: Mapping[str, Any], is_required: bool) -> str:
    if is_required:
        return "required"
    default = value["default"]
    if isinstance(default, dict) and default:
        return "as below"
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def _presets() -> Iterator[str]:
    for shape, named in groupby(PRESETS, PRESETS.__getitem__):
        weights = parameters(shape, _LABELS)
        names = ", ".join(f"`{name}`" for name in named)
        yield (
            f"| {names} | {shape.layers} | {shape.hidden} | {shape.heads} | {shape.feed_forward} | {shape.vocabulary} "
            f"| {shape.positions} | {weights / 1e6:.1f} | {weights * _FLOAT_BYTES / 2**20:.0f} |\n"
        )


_VARIABLE: Final = {
    "description": "A value from the environment: `${NAME}`, or `${NAME:-default}`.",
    "type": "string",
    "pattern": r"\$\{",
}
_SCALARS: Final = ("integer", "number", "string", "boolean", "null")
_LIMITED: Final = {"pattern", "enum", "const"}


def schema() -> dict[str, Any]:
    """The schema, in draft 2020-12: a recipe is of one of five kinds; `task`, `model` and `linear` decide which."""
    sections: dict[str, Any] = {}
    for kind in KINDS:
        made = _properties_of(kind)
        sections |= {key: _schema_section(section) for key, section in made.pop("$defs").items()}
        sections[kind.__name__] = _schema_section(made)
    del sections[Student.__name__]["required"]
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        "title": "edgepack recipe",
        "description": "One recipe: everything that decides the contents of a bundle.",
        "anyOf": [{"$ref": f"#/$defs/{kind.__name__}"} for kind in KINDS],
        "$defs": {**sections, "Variable": _VARIABLE},
    }


def dumps() -> str:
    """The text of the schema file."""
    return json.dumps(schema(), ensure_ascii=False, indent=2) + "\n"


def _schema_section(section: Mapping[str, Any]) -> dict[str, Any]:
    return {**section, "properties": {key: _key(value) for key, value in section["properties"].items()}}


def _key(value: Mapping[str, Any]) -> dict[str, Any]:
    """A key of a section, which may be a variable unless it is free text already."""
    value = {word: said for word, said in value.items() if word != "title"}  # pydantic's title repeats the key
    scalars = [choice for choice in choices(value) if choice.get("type") in _SCALARS]
    if not scalars or any(choice["type"] == "string" and not _LIMITED & choice.keys() for choice in scalars):
        return value
    annotations: dict[str, Any] = {word: value.pop(word) for word in ("description", "default") if word in value}
    return {**annotations, "anyOf": [*choices(value), {"$ref": "#/$defs/Variable"}]}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        Path(name).write_text(dumps() if name.endswith(".json") else page(), encoding="utf-8")
