"""The JSON Schema of recipes, for editors: `python -m edgepack.recipe.schema FILE` writes it.

It says of a recipe's text what `model.py` says of its values, with two differences. Where the model wants a number, a
choice or null, the text may also be a scalar with `${NAME}` in it, which becomes one when the recipe is loaded. And the
keys that `search.over` may give need not stand in their section: whether one has them is left to `edgepack check`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from edgepack.recipe.model import Recipe
from edgepack.recipe.training import Student

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_VARIABLE: Final = {
    "description": "A value from the environment: `${NAME}`, or `${NAME:-default}`.",
    "type": "string",
    "pattern": r"\$\{",
}
_TO_VARIABLE: Final = {"$ref": "#/$defs/Variable"}
_ANNOTATIONS: Final[tuple[str, ...]] = ("description", "default")  # of a key, whatever its value is


def schema() -> dict[str, Any]:
    """The schema, as draft 2020-12 has it."""
    made = Recipe.model_json_schema()
    sections: dict[str, Any] = {name: _section(section) for name, section in made.pop("$defs").items()}
    del sections[Student.__name__]["required"]
    return {
        "$schema": DIALECT,
        **_section(made),
        "title": "edgepack recipe",
        "$defs": {**sections, "Variable": _VARIABLE},
    }


def dumps() -> str:
    """The schema as the file that is published."""
    return json.dumps(schema(), ensure_ascii=False, indent=2) + "\n"


def _section(section: Mapping[str, Any]) -> dict[str, Any]:
    return {**section, "properties": {key: _key(value) for key, value in section["properties"].items()}}


def _key(value: Mapping[str, Any]) -> dict[str, Any]:
    value = {word: said for word, said in value.items() if word != "title"}  # pydantic's is the key once more
    choices: list[Mapping[str, Any]] = value.get("anyOf", [value])
    if not any(_is_scalar(choice) for choice in choices) or any(_is_free_text(choice) for choice in choices):
        return value
    annotations = {word: value.pop(word) for word in _ANNOTATIONS if word in value}
    return {**annotations, "anyOf": [*value.get("anyOf", [value]), _TO_VARIABLE]}


def _is_scalar(choice: Mapping[str, Any]) -> bool:
    return choice.get("type") in ("integer", "number", "string", "boolean", "null")


def _is_free_text(choice: Mapping[str, Any]) -> bool:
    return choice.get("type") == "string" and not {"pattern", "enum", "const"} & choice.keys()


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(dumps(), encoding="utf-8")
