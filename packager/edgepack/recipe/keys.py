"""The keys of recipes as the JSON Schema of their model describes them: type, range, description, keys below."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from edgepack.messages import message
from edgepack.recipe.model import KINDS, BaseRecipe
from edgepack.recipe.yaml import KeyPath

Node = Mapping[str, Any]  # a part of a JSON Schema
_BOUNDS: Final = (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))
_TYPES: Final = {
    "integer": message("kind.whole_number"),
    "number": message("kind.number"),
    "string": message("kind.text"),
    "null": message("kind.null"),
    "boolean": message("kind.truth_value"),
}


@cache
def schema_of(kind: type[BaseRecipe]) -> Node:
    """Pydantic's schema of a kind of recipe."""
    return kind.model_json_schema()


def choices(node: Node) -> list[Node]:
    """The parts of a union, or the node itself."""
    parts = node.get("anyOf") or node.get("oneOf")
    return [node] if parts is None else [choice for part in parts for choice in choices(part)]


def at(kind: type[BaseRecipe], path: KeyPath) -> list[Node]:
    """What the schema says of the key at `path`, once for each section that may stand around it."""
    found = [schema_of(kind)]
    for key in path:
        found = [inner for node in found for part in _resolved(kind, node) for inner in _below(part, key)]
    return found


def sections(kind: type[BaseRecipe], path: KeyPath) -> list[Node]:
    """The sections that may stand at `path`."""
    return [part for node in at(kind, path) for part in _resolved(kind, node) if "properties" in part]


def every() -> list[KeyPath]:
    """The path of every key of a recipe, sections before their keys."""

    def below(kind: type[BaseRecipe], path: KeyPath) -> Iterator[KeyPath]:
        for section in sections(kind, path):
            for name in section["properties"]:
                yield (*path, name)
                yield from below(kind, (*path, name))

    return list(dict.fromkeys(path for kind in KINDS for path in below(kind, ())))


def type_of(node: Node) -> str:
    """The types of a key in words: `whole number or null`."""
    names = list(dict.fromkeys(map(_type, choices(node))))
    return message("kind.or", names=names) if len(names) > 1 else names[0]


def range_of(node: Node) -> str:
    """The values that a key may have, in words: `≥ 1, ≤ 48`."""
    said = []
    for choice in choices(node):
        said += [f"`{value}`" for value in literals(choice)]
        said += [f"{sign} {choice[bound]:g}" for bound, sign in _BOUNDS if bound in choice]
        said += [f"`{choice['pattern']}`"] if "pattern" in choice else []
        said += [f"names `{pattern}`" for pattern in choice.get("patternProperties", ())]
        said += [f"{choice[least]} or more" for least in ("minItems", "minProperties") if least in choice]
        said += ["not empty"] if "minLength" in choice else []
    return ", ".join(said)


def literals(node: Node) -> list[Any]:
    """The values among which a key chooses."""
    return [
        value for choice in choices(node) for value in choice.get("enum", [choice[c] for c in choice if c == "const"])
    ]


def _type(choice: Node) -> str:
    if "$ref" in choice:
        return message("kind.section")
    if choice.get("type") == "array":
        return message("kind.list_of", of=type_of(choice["items"]))
    if choice.get("type") == "object":
        return message("kind.text_by_name" if "patternProperties" in choice else "kind.lists_by_key")
    return _TYPES.get(choice.get("type", ""), "values")


def _resolved(kind: type[BaseRecipe], node: Node) -> list[Node]:
    definitions = schema_of(kind)["$defs"]
    return [definitions[choice["$ref"].rpartition("/")[2]] if "$ref" in choice else choice for choice in choices(node)]


def _below(part: Node, key: str | int) -> Iterator[Node]:
    """What `part` says of the value below `key`."""
    if isinstance(key, int):
        yield from [part["items"]] if "items" in part else []
    elif key in part.get("properties", ()):
        yield part["properties"][key]
    else:
        others = part.get("additionalProperties") or next(iter(part.get("patternProperties", {}).values()), None)
        yield from [others] if isinstance(others, Mapping) else []
