"""The keys of recipes in words, and where they are found."""

from __future__ import annotations

import pytest

from edgepack.recipe import keys
from edgepack.recipe.model import KINDS, CustomRecipe, Recipe
from edgepack.recipe.yaml import KeyPath


@pytest.mark.parametrize(
    ("path", "type_of", "range_of"),
    [
        (("student", "batch_size"), "whole number", "≥ 1, ≤ 4096"),
        (("student", "epochs"), "number or null", "> 0, ≤ 1000"),
        (("student", "model"), "text or section", ""),
        (("student", "model", "layers"), "whole number or list of whole number", "≥ 1, 1 or more"),
        (("student", "model", "layers", 0), "whole number", "≥ 1"),
        (("quantize", "method"), "text", "`ptq`, `qat`, `dynamic`, `auto`, `fp16`, `none`"),
        (("targets",), "list of text", "1 or more"),
        (("serve",), "true/false", ""),
        (("edgepack",), "whole number", "`1`"),
        (("search", "over"), "lists by key", "1 or more"),
        (("search", "over", "student.epochs"), "list of values", "1 or more"),
    ],
)
def test_type_and_range(path: KeyPath, type_of: str, range_of: str) -> None:
    (node,) = keys.at(Recipe, path)
    assert (keys.type_of(node), keys.range_of(node)) == (type_of, range_of)


def test_sections_and_keys() -> None:
    assert [set(section["properties"]) for section in keys.sections(Recipe, ("student", "model"))] == [
        {"scratch"},
        {"from", "layers", "width"},
    ]
    assert keys.sections(Recipe, ("targets",)) == keys.at(Recipe, ("nothing",)) == []
    (graph,) = keys.at(CustomRecipe, ("model", "graph", "detect"))
    assert keys.type_of(graph) == "text"
    every = keys.every()
    assert {(name,) for kind in KINDS for name in keys.schema_of(kind)["properties"]} < set(every)
    assert ("data", "calibration", "from") in every and len(every) == len(set(every))
