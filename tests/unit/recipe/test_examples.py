"""Every recipe of recipes/ passes `edgepack check`, once its reader has the data and the models it names."""

from __future__ import annotations

import json
import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.model_folders import write_model

from edgepack.cli import main
from edgepack.recipe.model import is_builtin
from edgepack.recipe.overrides import Expansion
from edgepack.recipe.yaml import Document, parse

ROOT = Path(__file__).parents[3]
RECIPES = ROOT / "recipes"
EXAMPLES = sorted(RECIPES.glob("*.yaml"))
IMPORTED = sorted(RECIPES.glob("*/recipe.yaml"))
ROWS = {
    "train": [("房间很大，床也舒服", "好"), ("隔音太差，一夜没睡", "差"), ("早餐丰富", "好"), ("前台态度冷淡", "差")],
    "dev": [("位置方便", "好"), ("毛巾有味道", "差")],
    "test": [("下次还会来", "好"), ("和图片完全不一样", "差")],
}


def read(example: Path) -> Document:
    """The recipe as it stands, with no variable set."""
    document, findings = parse(example.read_bytes(), example, Expansion(example, {}))
    assert findings == []
    assert document is not None
    return document


def write_split(file: Path, rows: list[tuple[str, str]], columns: dict[str, str]) -> None:
    """A table of the kind that the file's name says, with what the columns are for."""
    made = [
        {"text": text, "text_pair": text[::-1], "label": label, "spans": [{"start": 0, "end": 2, "label": label}]}
        | {"value": len(text), "intent": label, "slots": {}, "answers": [text[:2][::-1]]}
        for text, label in rows
    ]
    named = {
        "text": "text",
        **({} if {"spans", "value", "intent", "answers"} & columns.keys() else {"label": "label"}),
        **columns,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix in (".jsonl", ".json"):
        lines = [json.dumps({name: row[key] for key, name in named.items()}, ensure_ascii=False) for row in made]
    else:
        separator = "\t" if file.suffix == ".tsv" else ","
        lines = [separator.join(named.values())]
        lines += [separator.join(str(row[key]) for key in named) for row in made]
    file.write_text("\n".join(lines).replace("，", "、") + "\n", encoding="utf-8")


def furnish(folder: Path, document: Document) -> None:
    """Make what the recipe names, in tiny."""
    data: dict[str, Any] = document.data["data"]
    for split, rows in ROWS.items():
        if not is_builtin(data["train"]):
            write_split(folder / data[split], rows, data.get("columns", {}))
    models = [document.get(role, "model") for role in ("teacher", "student")]
    for model in [*models, *(document.get("search", "over", "student.model") or [])]:
        if isinstance(model, str) and model.startswith("./"):
            write_model(folder / model)


def copy_files(folder: Path) -> None:
    """The examples of `file-type`: what its program copies out of the repository."""
    for name in ("docs", "packager", "runtime", "scripts", *(file.name for file in ROOT.iterdir() if file.is_file())):
        (folder.parents[1] / name).symlink_to(ROOT / name)
    for name in ("quickstart.yaml", "recipe.schema.json"):
        shutil.copy(RECIPES / name, folder.parent)
    runpy.run_path(str(folder / "copy_examples.py"))


def copy_sentences(folder: Path) -> None:
    shutil.copy(RECIPES / folder.name / "examples.jsonl", folder)


def draw_images(folder: Path) -> None:
    """Stand-ins for the images of `ocr`, whose program needs a font."""
    (folder / "characters.txt").write_text("好\n", encoding="utf-8")
    (folder / "1.png").write_bytes(b"")
    (folder / "examples.jsonl").write_text('{"file": "1.png", "expected": ["好"]}\n' * 2, encoding="utf-8")


EXAMPLES_OF = {"file-type": copy_files, "word-segmentation": copy_sentences, "ocr": draw_images}


def test_the_examples_were_found() -> None:
    found = {example.stem for example in EXAMPLES}
    assert {"quickstart", "hotel-sentiment", "student-only", "air-gapped", "question-pairs", "entities"} <= found
    assert "several-students" in found


@pytest.fixture
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for example in EXAMPLES:
        for name in re.findall(r"\$\{(\w+)", example.read_text(encoding="utf-8")):
            monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("nothing_set")
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_passes_check(example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(example, tmp_path)
    furnish(tmp_path, read(example))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["check", example.name])
    assert result.exit_code == 0, result.output
    assert "valid (" in result.output


@pytest.mark.parametrize("example", IMPORTED, ids=lambda path: path.parent.name)
def test_the_example_of_an_imported_model_passes_check(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "recipes" / example.parent.name
    shutil.copytree(example.parent, folder, ignore=shutil.ignore_patterns("examples*", "files"))
    for name, file in re.findall(r"\$\{(\w+)\}/([\w.-]+)", example.read_text(encoding="utf-8")):
        monkeypatch.setenv(name, str(tmp_path))
        (tmp_path / file).write_bytes(b"")
    EXAMPLES_OF[folder.name](folder)
    result = CliRunner().invoke(main, ["check", str(folder / example.name)])
    assert result.exit_code == 0, result.output


@pytest.mark.usefixtures("nothing_set")
def test_check_names_the_files_that_an_example_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(RECIPES / "air-gapped.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["check", "air-gapped.yaml"])
    assert result.exit_code == 3
    assert "air-gapped.yaml:14:3: error: `data.train`: there is no file" in result.output
    assert "`teacher.model`: there is no folder" in result.output


def test_an_example_follows_the_environment_and_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = read(RECIPES / "air-gapped.yaml")
    furnish(tmp_path / "made", document)
    shutil.copy(RECIPES / "air-gapped.yaml", tmp_path)
    monkeypatch.setenv("DATA", str(tmp_path / "made" / "data" / "comments"))
    monkeypatch.setenv("WEIGHTS", str(tmp_path / "made" / "weights"))
    arguments = ["check", str(tmp_path / "air-gapped.yaml"), "--set", "teacher.epochs=1", "--set", "student.max_length"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 3
    assert "--set student.max_length: error: a setting takes a key and a value" in result.output
    assert CliRunner().invoke(main, [*arguments[:-1], "student.max_length=64"]).exit_code == 0


@pytest.mark.parametrize("page", ["reference/recipe-file.md", "how-to/recipe.md"])
def test_the_recipes_of_the_docs_pass_check(tmp_path: Path, page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    written = re.search(r"```yaml\n(edgepack: 1\b.*?)```", text, re.DOTALL)
    assert written is not None
    example = tmp_path / "recipe.yaml"
    example.write_text(written[1], encoding="utf-8")
    furnish(tmp_path, read(example))
    result = CliRunner().invoke(main, ["check", str(example)])
    assert result.exit_code == 0, result.output
