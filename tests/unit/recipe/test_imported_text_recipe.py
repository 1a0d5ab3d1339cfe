"""Recipes of an imported classifier of texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgepack.errors import RecipeInvalidError
from edgepack.recipe.loader import load_recipe
from edgepack.recipe.model import ImportedTextRecipe
from edgepack_runtime.schema.gates import Limits
from edgepack_runtime.schema.maxima import MAX_TOKENS

RECIPE = """\
edgepack: 1
name: imported
version: 1.0.0
task: {task}
model: {{graph: a.onnx, vocab: vocab.txt, labels: {labels}}}
data: {{test: test.tsv}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.onnx", "test.tsv"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n", encoding="utf-8")
    (tmp_path / "labels.txt").write_text("\ufeffyes\r\n\nno\n", encoding="utf-8")
    return tmp_path


def load(folder: Path, labels: str, task: str = "text-classification", more: str = "") -> ImportedTextRecipe:
    (folder / "recipe.yaml").write_text(RECIPE.format(labels=labels, task=task) + more, encoding="utf-8")
    recipe = load_recipe(folder / "recipe.yaml", {"local"})
    assert isinstance(recipe, ImportedTextRecipe)
    return recipe


def refused(folder: Path, labels: str, task: str = "text-classification", more: str = "") -> list[str]:
    with pytest.raises(RecipeInvalidError) as caught:
        load(folder, labels, task, more)
    return [f"{finding.line}: {finding.key}" for finding in caught.value.findings]


def test_paths_and_labels_are_resolved(folder: Path) -> None:
    recipe = load(folder, "labels.txt")
    assert recipe.model.labels == ("yes", "no")
    assert recipe.model.graph == str(folder / "a.onnx")
    assert (recipe.data.test, recipe.data.columns.label) == (str(folder / "test.tsv"), "label")
    assert recipe.gates.metric is None
    tags = load(folder, "[B-x, I-x, O]", "token-classification", "gates: {accuracy: {min: 0.5}}\n")
    assert (tags.data.columns.spans, tags.gates.metric) == ("spans", "entity_f1")


@pytest.mark.parametrize(
    ("labels", "task"),
    [
        ("[yes]", "text-classification"),
        ("[yes, yes]", "text-classification"),
        ("missing.txt", "text-classification"),
        ("[B-x, I-x]", "token-classification"),
        ("[O, S-x]", "token-classification"),
    ],
)
def test_labels_that_no_model_can_have(folder: Path, labels: str, task: str) -> None:
    assert refused(folder, labels, task) == ["5: model.labels"]


def test_a_vocabulary_without_special_tokens_is_none(folder: Path) -> None:
    (folder / "vocab.txt").write_text("<pad>\n[UNK]\n[CLS]\n", encoding="utf-8")
    assert refused(folder, "[a, b]") == ["5: model.vocab"]


@pytest.mark.parametrize("name", ["labels.txt", "vocab.txt", "a.onnx"])
def test_a_link_leads_to_no_file_of_the_user(folder: Path, tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    secret = tmp_path_factory.mktemp("home") / "secret"
    (folder / name).rename(secret)
    (folder / name).symlink_to(secret)
    key = {"labels.txt": "labels", "vocab.txt": "vocab", "a.onnx": "graph"}[name]
    assert refused(folder, "labels.txt") == [f"5: model.{key}"]
    (folder / name).unlink()
    secret.rename(folder / "other")
    (folder / name).symlink_to("other")
    load(folder, "labels.txt")


def test_keys_of_a_training_are_refused_with_the_reason(folder: Path) -> None:
    (folder / "recipe.yaml").write_text(
        RECIPE.format(labels="[a, b]", task="text-classification") + "student: {model: x}\n", encoding="utf-8"
    )
    with pytest.raises(RecipeInvalidError) as caught:
        load_recipe(folder / "recipe.yaml", {"local"})
    [finding] = caught.value.findings
    assert (finding.reason, finding.fix) == (
        "unknown key `student` in a recipe",
        "it is for recipes that train a model, without `model:`",
    )


def test_missing_files_and_gates_beyond_the_length_are_found(folder: Path) -> None:
    (folder / "vocab.txt").unlink()
    gates = "gates: {latency: {by_length: [{max_tokens: 256, p95_ms: 5}]}}\n"
    found = refused(folder, "[a, b]", more=gates)
    assert found == ["5: model.vocab", "7: gates.latency.by_length[0].max_tokens"]


def test_a_budget_may_be_as_long_as_the_model_reads(folder: Path) -> None:
    """Also where it is the length that a finding about a longer one advises."""
    vocabulary = "vocab: vocab.txt, max_length: 4096"
    gates = "gates: {{latency: {{by_length: [{{max_tokens: {}, p95_ms: 5}}]}}}}\n"

    def written(most: int) -> None:
        text = RECIPE.format(labels="[a, b]", task="text-classification").replace("vocab: vocab.txt", vocabulary)
        (folder / "recipe.yaml").write_text(text + gates.format(most), encoding="utf-8")

    written(MAX_TOKENS)
    with pytest.raises(RecipeInvalidError) as caught:
        load_recipe(folder / "recipe.yaml", {"local"})
    assert [finding.fix for finding in caught.value.findings] == [
        "write `max_tokens: 4096`: longer texts are cut to that"
    ]
    written(4096)
    recipe = load_recipe(folder / "recipe.yaml", {"local"})
    assert recipe.gates.latency is not None and recipe.gates.latency.by_length[0].max_tokens == 4096
    limits = {"latency": {"by_length": [{"max_tokens": 4096, "p95_ms": 5}]}}
    assert Limits.parse(limits).latency.by_length[0].max_tokens == 4096  # on the device


def beside(folder: Path, **files: Any) -> None:
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")


def test_settings_beside_the_graph_count_where_the_recipe_has_none(folder: Path) -> None:
    beside(folder, tokenizer_config={"do_lower_case": False, "tokenizer_class": "ErnieTokenizer"})
    beside(folder, config={"id2label": {"0": "LABEL_0", "1": "LABEL_1"}})
    recipe = load(folder, "[yes, no]")
    assert (recipe.model.lower_case, recipe.model.tokenizer) == (False, "ernie")
    assert recipe.notes[0] == "`model.lower_case` is false: tokenizer_config.json beside the graph says so"
    beside(folder, tokenizer_config={"do_lower_case": True}, config={"id2label": {"0": "positive", "1": "negative"}})
    recipe = load(folder, "[yes, no]")  # translated labels contradict nothing
    assert (recipe.model.lower_case, recipe.model.tokenizer, recipe.notes) == (True, "bert", ())


def test_a_recipe_that_contradicts_what_is_beside_the_graph_names_both(folder: Path) -> None:
    settings = {"do_lower_case": False, "tokenizer_class": "ErnieTokenizer", "never_split": ["x"]}
    beside(folder, tokenizer_config={**settings, "never_split": []}, config={"id2label": {"0": "no", "1": "yes"}})
    text = RECIPE.format(labels="labels.txt, lower_case: true, tokenizer: bert", task="text-classification")
    (folder / "recipe.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(RecipeInvalidError) as caught:
        load_recipe(folder / "recipe.yaml", {"local"})
    said = [finding.reason.partition(": ")[2] for finding in caught.value.findings]
    assert said == [
        "it is true, and `do_lower_case` beside the graph is false",
        "it is bert, and `tokenizer_class` beside the graph is ErnieTokenizer",
        "it is `yes`, `no`, and `id2label` of config.json beside the graph is `no`, `yes`",
    ]
    beside(folder, tokenizer_config=settings, config={"id2label": {"0": "a", "1": "b", "2": "c"}})
    assert refused(folder, "[yes, no]") == ["5: model.vocab", "5: model.labels"]
