"""Recipes of a given model: resolved when they are right, every finding once when they are not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from given_model import ADAPTER

from edgepack.errors import RecipeInvalidError
from edgepack.recipe.loader import load_recipe
from edgepack.recipe.model import CustomRecipe, Recipe
from edgepack.recipe.validate_given import read_adapter

ROOT = Path(__file__).parents[3]
RECIPE = """\
edgepack: 1
name: given
version: 1.0.0
task: custom
model:
  graph: a.onnx
  files: [words.txt]
adapter: adapter.py
examples: examples.jsonl
packages: lock.txt
"""
FILES = ("a.onnx", "b.onnx", "words.txt", "examples.jsonl", "lock.txt")
SEVERAL = "{detect: a.onnx, read: b.onnx}"
PREDICT = """\
class Adapter:
    item: str = "file"
    def predict(self, item, graphs, *, quick=True): ...
    @staticmethod
    def score(answer, expected, scale=1): ...
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "adapter.py").write_text(ADAPTER.format(item="json"), encoding="utf-8")
    return tmp_path


def load(folder: Path, text: str) -> CustomRecipe:
    (folder / "recipe.yaml").write_text(text, encoding="utf-8")
    recipe = load_recipe(folder / "recipe.yaml", {"local"})
    assert isinstance(recipe, CustomRecipe)
    return recipe


def refused(folder: Path, text: str) -> list[str]:
    with pytest.raises(RecipeInvalidError) as caught:
        load(folder, text)
    return [f"{finding.line}: {finding.reason}" for finding in caught.value.findings]


def test_paths_become_absolute(folder: Path) -> None:
    recipe = load(folder, RECIPE)
    assert recipe.model.graphs == {"model": str(folder / "a.onnx")}
    assert recipe.model.files == (str(folder / "words.txt"),)
    assert (recipe.adapter, recipe.examples) == (str(folder / "adapter.py"), str(folder / "examples.jsonl"))
    assert recipe.requirements == folder / "lock.txt"
    assert recipe.targets == ("local",)
    assert load(folder, RECIPE.replace("packages: lock.txt\n", "")).requirements is None


def test_several_graphs_have_names(folder: Path) -> None:
    (folder / "adapter.py").write_text(PREDICT, encoding="utf-8")
    recipe = load(folder, RECIPE.replace("graph: a.onnx", f"graph: {SEVERAL}"))
    assert recipe.model.graphs == {"detect": str(folder / "a.onnx"), "read": str(folder / "b.onnx")}


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("graph: a.onnx", "graph: a.pt", "6: `model.graph`: 'a.pt' is no graph"),
        ("graph: a.onnx", "graph: c.onnx", "6: `model.graph`: there is no file 'c.onnx'"),
        ("graph: a.onnx", "graph: {}", "6: `model.graph` names no graph"),
        ("[words.txt]", "[nowhere.txt]", "7: `model.files[0]`: there is no file 'nowhere.txt'"),
        ("[words.txt]", "[model.json]", "7: `model.files`: the name model.json is taken"),
        ("[words.txt]", "[x/adapter.py]", "7: `model.files`: the name adapter.py is taken"),
        ("[words.txt]", "[b.onnx]", "7: `model.files`: the name b.onnx is taken"),
        ("[words.txt]", "[words.txt, ./words.txt]", "7: `model.files`: the name words.txt is taken"),
        ("adapter.py", "nowhere.py", "8: `adapter`: there is no file 'nowhere.py'"),
        ("adapter.py", "words.txt", "8: `adapter`: words.txt: it has no class `Adapter`"),
        ("examples.jsonl", "nowhere.jsonl", "9: `examples`: there is no file 'nowhere.jsonl'"),
        ("lock.txt", "nowhere.txt", "10: `packages`: there is no file 'nowhere.txt'"),
        ("lock.txt", "lock.txt\ntargets: [moon]", "11: there is no target `moon`"),
        ("lock.txt", "lock.txt\nstudent: {model: a}", "11: unknown key `student` in a recipe"),
        ("lock.txt", "lock.txt\ngates: {accuracy: {metric: accuracy, min: 0.5}}",
         "11: `gates.accuracy.metric` is for models of texts: an adapter has one metric, its own score"),
        ("lock.txt", "lock.txt\ngates: {accuracy: {min: 0.5, per_class: {recall: 0.5}}}",
         "11: `gates.accuracy.per_class` is for models of texts: an adapter has no classes"),
        ("lock.txt", "lock.txt\ngates: {latency: {by_length: [{max_tokens: 8, p95_ms: 5}]}}",
         "11: `gates.latency.by_length` is for models of texts: items of an adapter have no number of tokens"),
        ("lock.txt", "lock.txt\ngates: {golden: {carry: false}}",
         "11: `gates.golden.carry: false` is for models of texts: a bundle with an adapter carries its examples"),
        ("lock.txt", "lock.txt\ngates: {accuracy: {min: 90}}",
         "11: `gates.accuracy.min` takes a number less than 1, and this is the number `90`"),
        ("model:", "modell:", "5: unknown key `modell` in a recipe"),
        ("  files", "  filez", "7: unknown key `filez` in `model`"),
    ],
)  # fmt: skip
def test_each_error_is_found_once_with_its_line(folder: Path, old: str, new: str, found: str) -> None:
    findings = refused(folder, RECIPE.replace(old, new, 1))
    assert findings.count(found) == 1, findings
    lacks = [finding for finding in findings if "lacks" in finding]
    assert findings == [found] or len(lacks) == len(findings) - 1, findings


@pytest.mark.parametrize("key", ["model", "adapter", "examples"])
def test_required_keys_are_named(folder: Path, key: str) -> None:
    text = RECIPE.replace("model:\n  graph: a.onnx\n  files: [words.txt]\n", "model: {graph: a.onnx}\n")
    text = "".join(line + "\n" for line in text.splitlines() if not line.startswith(key))
    [finding] = refused(folder, text)
    assert finding.endswith(f"the recipe lacks `{key}`")


def test_keys_of_the_other_kind_say_so(folder: Path) -> None:
    (folder / "recipe.yaml").write_text(RECIPE.replace("task: custom", "task: token-classification"), encoding="utf-8")
    with pytest.raises(RecipeInvalidError) as caught:
        load_recipe(folder / "recipe.yaml", {"local"})
    fixes = {finding.reason: finding.fix for finding in caught.value.findings}
    assert fixes["unknown key `adapter` in a recipe"] == "it is for recipes with `task: custom`"
    (folder / "recipe.yaml").write_text(RECIPE + "student: {model: a}\n", encoding="utf-8")
    with pytest.raises(RecipeInvalidError) as caught:
        load_recipe(folder / "recipe.yaml", {"local"})
    assert caught.value.findings[0].fix == "it is for recipes that train a model, without `model:`"


@pytest.mark.parametrize(
    ("source", "reasons"),
    [
        ("class Adapter:\n  def", ["is no Python"]),
        ("x = 1", ["it has no class `Adapter`"]),
        ("class Adapter: pass", ["declares no `item", "method `score(", "method `prepare(item)`", "method `answer("]),
        (PREDICT.replace('"file"', '"image"'), ["declares no `item"]),
        (PREDICT.replace("(self, item, graphs, *, quick=True)", "(self, item)"),
         ["`predict(item)` should take item, graphs"]),
        (ADAPTER.format(item="text").replace("(self, item)", "(item)"), ["`prepare()` should take item"]),
        (ADAPTER.format(item="text").replace("(self, answer, expected)", "(self, a, b, c)"),
         ["`score(a, b, c)` should take answer, expected"]),
        (ADAPTER.format(item="text").replace("    def answer", "    async def answer"), ["no method `answer("]),
    ],
)  # fmt: skip
def test_an_adapter_is_read_without_running_it(folder: Path, source: str, reasons: list[str]) -> None:
    (folder / "adapter.py").write_text("raise SystemExit(3)\n" + source, encoding="utf-8")
    findings = refused(folder, RECIPE)
    assert len(findings) == len(reasons), findings
    for finding, reason in zip(findings, reasons, strict=True):
        assert finding.startswith("8: `adapter`: adapter.py")
        assert reason in finding


def test_an_adapter_is_no_link_out(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("home") / "adapter.py"
    (folder / "adapter.py").rename(other)
    (folder / "adapter.py").symlink_to(other)
    [finding] = refused(folder, RECIPE)
    assert finding.startswith("8: `adapter`: adapter.py is a link that leads out of the folder")


def test_several_graphs_need_predict(folder: Path) -> None:
    [finding] = refused(folder, RECIPE.replace("graph: a.onnx", f"graph: {SEVERAL}"))
    assert "several graphs need the method `predict(item, graphs)`" in finding


def test_one_graph_may_have_a_name(folder: Path) -> None:
    assert load(folder, RECIPE.replace("graph: a.onnx", "graph: {detect: a.onnx}")).model.graphs == {
        "detect": str(folder / "a.onnx")
    }


def test_names_of_graphs_are_plain(folder: Path) -> None:
    (folder / "adapter.py").write_text(PREDICT, encoding="utf-8")
    for name in ("Detect", "../detect", "a b", "a" * 33):
        [finding] = refused(folder, RECIPE.replace("graph: a.onnx", f"graph: {{{name!r}: a.onnx}}"))
        assert finding.startswith("6: ")


def test_an_adapter_may_be_written_in_several_ways(folder: Path) -> None:
    (folder / "adapter.py").write_text(PREDICT, encoding="utf-8")
    found = read_adapter(folder / "adapter.py")
    assert (found.item, dict(found.methods)) == (
        "file",
        {"predict": ("item", "graphs"), "score": ("answer", "expected")},
    )


def test_the_recipe_of_the_repository_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "recipes" / "file-type", tmp_path / "file-type")
    for name in ("model.onnx", "config.min.json"):
        (tmp_path / name).write_bytes(b"")
    monkeypatch.setenv("MAGIKA", str(tmp_path))
    recipe = load_recipe(tmp_path / "file-type" / "recipe.yaml", {"local"})
    assert isinstance(recipe, CustomRecipe)
    assert read_adapter(Path(recipe.adapter)).item == "file"


def test_a_recipe_that_trains_is_of_the_other_kind(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(
        "edgepack: 1\nname: a\nversion: 1.0.0\ndata: {train: builtin:reviews-zh}\n"
        "student: {model: ernie-3.0-tiny-nano-v2-zh}\n",
        encoding="utf-8",
    )
    assert isinstance(load_recipe(tmp_path / "r.yaml", {"local"}), Recipe)
