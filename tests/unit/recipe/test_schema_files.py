"""What is published of the recipe's model, its JSON Schema and its reference page, says what the model says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ValidationError

from edgepack.recipe import schema_files
from edgepack.recipe.model import CustomRecipe, ImportedModel, Recipe
from edgepack.recipe.training import FromScratch
from edgepack.recipe.yaml import parse

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "unit" / "golden" / "recipes"
EXAMPLES = sorted([*(ROOT / "recipes").glob("*.yaml"), *(ROOT / "recipes").glob("*/recipe.yaml")])
SCHEMA = schema_files.schema()
VALIDATOR = Draft202012Validator(SCHEMA)
PLAIN = {"edgepack": 1, "name": "a", "version": "1.0.0", "data": {"train": "a.tsv"}, "student": {"model": "ernie-1.0"}}
GIVEN = {
    "edgepack": 1, "name": "a", "version": "1.0.0", "task": "custom", "model": {"graph": "a.onnx"},
    "handler": "handler.py", "examples": "e.jsonl",
}  # fmt: skip


def sections(section: type[BaseModel] = Recipe) -> Iterator[type[BaseModel]]:
    """Every section of the model, each once."""
    found = {section: None}
    for field in section.model_fields.values():
        for part in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(part, type) and issubclass(part, BaseModel):
                found.update(dict.fromkeys(sections(part)))
    yield from found


def test_the_schema_has_what_editors_want() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert SCHEMA["title"]
    for section in (SCHEMA, *SCHEMA["$defs"].values()):
        if "properties" in section:
            assert section["additionalProperties"] is False
            assert section["description"]
            assert all(key["description"] for key in section["properties"].values())
    assert SCHEMA["$defs"]["Student"]["properties"]["warmup"]["default"] == 0.1
    assert {"type": "null"} in SCHEMA["$defs"]["Recipe"]["properties"]["teacher"]["anyOf"]


def test_every_key_is_described_and_stands_in_the_reference() -> None:
    found = list(dict.fromkeys([*sections(), *sections(CustomRecipe)]))
    assert {FromScratch, ImportedModel} < set(found)
    page = schema_files.page()
    for section in found:
        assert section.__doc__, section
        for name, field in section.model_fields.items():
            assert field.description, f"{section.__name__}.{name}"
            assert field.description.endswith("."), f"{section.__name__}.{name}"
            assert f"| `{field.alias or name}` |" in page
    for line in page.splitlines():
        if line.startswith("|"):
            assert line.endswith("|")
            assert line.replace(schema_files.BAR, "").count("|") in (6, 10)


def test_the_module_writes_both_and_the_published_schema_is_that_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import runpy
    import warnings

    schema, page = tmp_path / "schema.json", tmp_path / "page.md"
    monkeypatch.setattr("sys.argv", [schema_files.__name__, str(schema), str(page)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the module has been imported already
        runpy.run_module(schema_files.__name__, run_name="__main__")
    assert page.read_text(encoding="utf-8") == schema_files.page()
    published = (ROOT / "recipes/recipe.schema.json").read_text(encoding="utf-8")
    assert schema.read_text(encoding="utf-8") == published, "run `make docs`"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_schema_accepts_every_example(example: Path) -> None:
    raw = example.read_bytes()
    above = "../" * (len(example.relative_to(ROOT / "recipes").parts) - 1)
    assert raw.startswith(f"# yaml-language-server: $schema={above}recipe.schema.json\n".encode())
    document, findings = parse(raw, example)  # as an editor sees it, variables and all
    assert findings == []
    assert document is not None
    assert VALIDATOR.is_valid(document.data)


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"teacher": None},
        {"teacher": "${TEACHER:-null}"},
        {"teacher": {"model": {"scratch": {"layers": 2, "hidden": 8, "heads": 2, "feed_forward": None}}}},
        {"student": {"model": "./ernie", "epochs": 1, "learning_rate": 0.5, "distill": None}},
        {"student": {"model": "ernie-1.0", "epochs": "${EPOCHS}", "device": "${DEVICE:-cpu}", "seed": "${SEED}"}},
        {"student": {"model": "ernie-1.0", "device": "gpu:1"}},
        {"student": {"model": "ernie-1.0", "device": "gpu:0,1"}},
        {"targets": ["a", "${TARGET}"]},
        {"gates": {}},
        {"gates": {"accuracy": {"min": None, "max_drop_points": "${DROP}"}, "latency": None}},
        {"version": "${RELEASE}", "name": "a-${BRANCH}"},
        {"data": {"train": "a.tsv", "calibration": {"from": "train", "rows": 8}, "columns": {"text": "酒店"}}},
        {"gates": {"latency": {"by_length": [{"max_tokens": 32, "p95_ms": 3}]}}},
        {"gates": {"latency": {"sustained": {"seconds": 60, "max_slowdown_percent": "${MOST}"}}}},
        {"search": None},
        {"search": {"over": {"student.model": ["./a", {"from": "teacher", "layers": 2}, None]}, "tolerance_points": 1}},
    ],
    ids=str,
)
def test_the_schema_accepts_what_the_loader_accepts(extra: dict[str, Any]) -> None:
    assert VALIDATOR.is_valid({**PLAIN, **extra})
    if "${" not in str(extra):
        Recipe.model_validate_json(json.dumps({**PLAIN, **extra}), strict=True)


@pytest.mark.parametrize(
    "extra",
    [
        {"edgepack": 2},
        {"edgepack": None},
        {"name": "Hotel"},
        {"version": "1.2"},
        {"version": "1.2.1000"},
        {"report": True},
        {"teacher": {}},
        {"teacher": "ernie-1.0"},
        {"student": "${STUDENT}"},
        {"student": {"model": "ernie-1.0", "epochs": 0}},
        {"student": {"model": "ernie-1.0", "epochs": "three"}},
        {"student": {"model": "ernie-1.0", "seed": 1.5}},
        {"student": {"model": "ernie-1.0", "device": "gpu:"}},
        {"student": {"model": "ernie-1.0", "device": "gpu:one"}},
        {"student": {"model": "ernie-1.0", "device": "cuda:0"}},
        {"student": {"model": ["ernie-1.0"]}},
        {"student": {"model": {"scratch": {"layers": 2, "hidden": 8}}}},
        {"targets": []},
        {"targets": "a"},
        {"gates": {"accuracy": {"min": 1}}},
        {"gates": {"latency": {"threads": 0}}},
        {"gates": {"latency": {"by_length": [{"p95_ms": 3}]}}},
        {"gates": {"latency": {"by_length": {"max_tokens": 32}}}},
        {"gates": {"latency": {"p75_ms": 5}}},
        {"gates": {"cost": {}}},
        {"quantize": {"method": "qat", "qat": {"quanter": "pact"}}},
        {"search": {}},
        {"search": {"over": {}}},
        {"search": {"over": {"student.model": []}}},
        {"search": {"over": {"student.model": "./a"}}},
        {"search": {"over": {"student.model": ["./a"]}, "max_candidates": 0}},
    ],
    ids=str,
)
def test_the_schema_refuses_what_the_model_refuses(extra: dict[str, Any]) -> None:
    assert not VALIDATOR.is_valid({**PLAIN, **extra})


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"model": {"graph": {"detect": "d.onnx", "read_2": "r.onnx"}, "files": ["vocab.txt"]}},
        {"packages": "requirements.txt", "gates": {"accuracy": {"min": 0.5}}, "serve": True},
        {"packages": None, "targets": ["a", "${TARGET}"]},
        {"model": {"graph": "${FOLDER}/a.onnx"}},
    ],
    ids=str,
)
def test_the_schema_accepts_an_imported_model(extra: dict[str, Any]) -> None:
    assert VALIDATOR.is_valid({**GIVEN, **extra})
    CustomRecipe.model_validate_json(json.dumps({**GIVEN, **extra}), strict=True)


@pytest.mark.parametrize(
    "extra",
    [
        {"task": "text-classification"},
        {"student": {"model": "ernie-1.0"}},
        {"data": {"train": "a.tsv"}},
        {"search": None},
        {"model": "a.onnx"},
        {"model": {"graph": {"Detect": "d.onnx"}}},
        {"model": {"graph": {"../detect": "d.onnx"}}},
        {"model": {"graph": {"a" * 33: "d.onnx"}}},
        {"model": {"graph": "a.onnx", "folder": "x"}},
        {"handler": None},
        {"examples": ["e.jsonl"]},
    ],
    ids=str,
)
def test_the_schema_refuses_an_imported_model_as_the_model_does(extra: dict[str, Any]) -> None:
    assert not VALIDATOR.is_valid({**GIVEN, **extra})
    with pytest.raises(ValidationError):
        CustomRecipe.model_validate_json(json.dumps({**GIVEN, **extra}), strict=True)
