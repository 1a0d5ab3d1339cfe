"""Recipes of an imported model: resolved when they are right, every finding once when they are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.runtime.imported_model import HANDLER

from edgepack.errors import RecipeInvalidError
from edgepack.recipe.loader import load_recipe
from edgepack.recipe.model import CustomRecipe, Recipe
from edgepack.recipe.validate_imported import read_handler

RECIPE = """\
edgepack: 1
name: imported
version: 1.0.0
task: custom
model:
  graph: a.onnx
  files: [words.txt]
handler: handler.py
examples: examples.jsonl
packages: lock.txt
"""
FILES = ("a.onnx", "b.onnx", "words.txt", "examples.jsonl", "lock.txt")
SEVERAL = "{detect: a.onnx, read: b.onnx}"
PREDICT = """\
class Handler:
    item: str = "file"
    def predict(self, item, graphs, *, quick=True): ...
    @staticmethod
    def score(answer, expected, scale=1): ...
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "handler.py").write_text(HANDLER.format(item="json"), encoding="utf-8")
    return tmp_path


def load(folder: Path, text: str) -> CustomRecipe:
    (folder / "recipe.yaml").write_text(text, encoding="utf-8")
    recipe = load_recipe(folder / "recipe.yaml", {"local"})
    assert isinstance(recipe, CustomRecipe)
    return recipe


def refused(folder: Path, text: str) -> list[str]:
    with pytest.raises(RecipeInvalidError) as caught:
        load(folder, text)
    return [f"{finding.line}: {finding.key}" for finding in caught.value.findings]


def test_paths_become_absolute(folder: Path) -> None:
    recipe = load(folder, RECIPE)
    assert recipe.model.graphs == {"model": str(folder / "a.onnx")}
    assert recipe.model.files == (str(folder / "words.txt"),)
    assert (recipe.handler, recipe.examples) == (str(folder / "handler.py"), str(folder / "examples.jsonl"))
    assert recipe.requirements == folder / "lock.txt"
    assert recipe.targets == ("local",)
    assert load(folder, RECIPE.replace("packages: lock.txt\n", "")).requirements is None


def test_several_graphs_have_names(folder: Path) -> None:
    (folder / "handler.py").write_text(PREDICT, encoding="utf-8")
    recipe = load(folder, RECIPE.replace("graph: a.onnx", f"graph: {SEVERAL}"))
    assert recipe.model.graphs == {"detect": str(folder / "a.onnx"), "read": str(folder / "b.onnx")}


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("graph: a.onnx", "graph: a.pt", "6: model.graph"),
        ("graph: a.onnx", "graph: c.onnx", "6: model.graph"),
        ("graph: a.onnx", "graph: {}", "6: model.graph"),
        ("[words.txt]", "[nowhere.txt]", "7: model.files[0]"),
        ("[words.txt]", "[model.json]", "7: model.files[0]"),
        ("[words.txt]", "[x/handler.py]", "7: model.files[0]"),
        ("[words.txt]", "[b.onnx]", "7: model.files[0]"),
        ("[words.txt]", "[words.txt, ./words.txt]", "7: model.files[1]"),
        ("handler.py", "nowhere.py", "8: handler"),
        ("handler.py", "words.txt", "8: handler"),
        ("examples.jsonl", "nowhere.jsonl", "9: examples"),
        ("lock.txt", "nowhere.txt", "10: packages"),
        ("lock.txt", "lock.txt\ntargets: [moon]", "11: targets[0]"),
        ("lock.txt", "lock.txt\nstudent: {model: a}", "11: student"),
        ("lock.txt", "lock.txt\ngates: {accuracy: {metric: accuracy, min: 0.5}}", "11: gates.accuracy.metric"),
        (
            "lock.txt",
            "lock.txt\ngates: {accuracy: {min: 0.5, per_class: {recall: 0.5}}}",
            "11: gates.accuracy.per_class",
        ),
        (
            "lock.txt",
            "lock.txt\ngates: {latency: {by_length: [{max_tokens: 8, p95_ms: 5}]}}",
            "11: gates.latency.by_length",
        ),
        ("lock.txt", "lock.txt\ngates: {accuracy: {max: 0.5}}", "11: gates.accuracy.max"),
        ("lock.txt", "lock.txt\ngates: {golden: {carry: false}}", "11: gates.golden.carry"),
        ("lock.txt", "lock.txt\ngates: {accuracy: {min: 90}}", "11: gates.accuracy.min"),
        ("  files", "  filez", "7: model.filez"),
    ],
)
def test_each_error_is_found_once_with_its_line(folder: Path, old: str, new: str, found: str) -> None:
    assert refused(folder, RECIPE.replace(old, new, 1)) == [found]


def test_a_misspelled_section_is_missing_as_well(folder: Path) -> None:
    assert refused(folder, RECIPE.replace("model:", "modell:", 1)) == ["1: model", "5: modell"]


@pytest.mark.parametrize("key", ["model", "handler", "examples"])
def test_required_keys_are_named(folder: Path, key: str) -> None:
    text = RECIPE.replace("model:\n  graph: a.onnx\n  files: [words.txt]\n", "model: {graph: a.onnx}\n")
    text = "".join(line + "\n" for line in text.splitlines() if not line.startswith(key))
    assert refused(folder, text) == [f"1: {key}"]


def test_keys_of_the_other_kind_say_so(folder: Path) -> None:
    (folder / "recipe.yaml").write_text(RECIPE.replace("task: custom", "task: token-classification"), encoding="utf-8")
    with pytest.raises(RecipeInvalidError) as caught:
        load_recipe(folder / "recipe.yaml", {"local"})
    fixes = {finding.reason: finding.fix for finding in caught.value.findings}
    assert fixes["unknown key `handler` in a recipe"] == "it is for recipes with `task: custom`"
    (folder / "recipe.yaml").write_text(RECIPE + "student: {model: a}\n", encoding="utf-8")
    with pytest.raises(RecipeInvalidError) as caught:
        load_recipe(folder / "recipe.yaml", {"local"})
    assert caught.value.findings[0].fix == "it is for recipes that train a model, without `model:`"


@pytest.mark.parametrize(
    ("source", "reasons"),
    [
        ("class Handler:\n  def", ["is not valid Python"]),
        ("x = 1", ["it has no class `Handler`"]),
        ("x = " + "not " * 30_000 + "1", ["it is nested too deeply"]),
        ("class Handler: pass",
         ["declares no `item", "method `score(", "method `preprocess(item)`", "method `postprocess("]),
        (PREDICT.replace('"file"', '"image"'), ["declares no `item"]),
        (PREDICT.replace("(self, item, graphs, *, quick=True)", "(self, item)"),
         ["`predict(item)` should take item, graphs"]),
        (HANDLER.format(item="text").replace("(self, item)", "(item)"), ["`preprocess()` should take item"]),
        (HANDLER.format(item="text").replace("(self, answer, expected)", "(self, a, b, c)"),
         ["`score(a, b, c)` should take answer, expected"]),
        (HANDLER.format(item="text").replace("    def postprocess", "    async def postprocess"),
         ["no method `postprocess("]),
    ],
)  # fmt: skip
def test_a_handler_is_read_without_running_it(folder: Path, source: str, reasons: list[str]) -> None:
    (folder / "handler.py").write_text("raise SystemExit(3)\n" + source, encoding="utf-8")
    with pytest.raises(RecipeInvalidError) as caught:
        load(folder, RECIPE)
    findings = caught.value.findings
    assert [(finding.line, finding.key) for finding in findings] == [(8, "handler")] * len(reasons)
    for finding, reason in zip(findings, reasons, strict=True):
        assert reason in finding.reason


def test_a_handler_is_no_link_out(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("home") / "handler.py"
    (folder / "handler.py").rename(other)
    (folder / "handler.py").symlink_to(other)
    assert refused(folder, RECIPE) == ["8: handler"]


def test_several_graphs_need_predict(folder: Path) -> None:
    assert refused(folder, RECIPE.replace("graph: a.onnx", f"graph: {SEVERAL}")) == ["8: handler"]


def test_one_graph_may_have_a_name(folder: Path) -> None:
    assert load(folder, RECIPE.replace("graph: a.onnx", "graph: {detect: a.onnx}")).model.graphs == {
        "detect": str(folder / "a.onnx")
    }


def test_names_of_graphs_are_plain(folder: Path) -> None:
    (folder / "handler.py").write_text(PREDICT, encoding="utf-8")
    for name in ("Detect", "../detect", "a b", "a" * 33):
        [finding] = refused(folder, RECIPE.replace("graph: a.onnx", f"graph: {{{name!r}: a.onnx}}"))
        assert finding.startswith("6: ")


def test_a_handler_may_be_written_in_several_ways(folder: Path) -> None:
    (folder / "handler.py").write_text(PREDICT, encoding="utf-8")
    found = read_handler(folder / "handler.py")
    assert (found.item, dict(found.methods)) == (
        "file",
        {"predict": ("item", "graphs"), "score": ("answer", "expected")},
    )


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (["O"], "is not a list of 2 to"),
        (["O", " "], "is blank, or not a text of 1 to 256"),
        (["O", "B-" + "x" * 255], "is blank, or not a text of 1 to 256"),
        (["O", "B-x", "B-x"], "holds 'B-x' twice"),
        (["B-x", "I-x"], "has no 'O'"),
        (["O", "B-"], "holds 'B-', which is not a BIO tag"),
        (["O", "S-x"], "holds 'S-x', which is not a BIO tag"),
        (["B-x", "O"], ""),
    ],
)
def test_labels_are_refused_that_no_model_of_a_bundle_has(tmp_path: Path, labels: list[str], reason: str) -> None:
    model = f"{{graph: a.onnx, vocab: vocab.txt, labels: {json.dumps(labels)}}}"
    text = f"model: {model}\ndata: {{test: test.conll}}\n"
    head = "edgepack: 1\nname: a\nversion: 1.0.0\ntask: token-classification\n"
    (tmp_path / "r.yaml").write_text(head + text, encoding="utf-8")
    with pytest.raises(RecipeInvalidError) as caught:  # the other files are not there
        load_recipe(tmp_path / "r.yaml", {"local"})
    found = [finding.reason for finding in caught.value.findings if finding.key == "model.labels"]
    assert len(found) == bool(reason)
    assert reason in "".join(found)


def test_a_recipe_that_trains_is_of_the_other_kind(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(
        "edgepack: 1\nname: a\nversion: 1.0.0\ndata: {train: builtin:reviews-zh}\n"
        "student: {model: ernie-3.0-tiny-nano-v2-zh}\n",
        encoding="utf-8",
    )
    assert isinstance(load_recipe(tmp_path / "r.yaml", {"local"}), Recipe)
