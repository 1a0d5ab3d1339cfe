"""Folders that a Trainer wrote: what their settings say, and what a recipe is told about them. No weights are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from edgepack.data.suitability import LabelledRows, check_suited
from edgepack.errors import RecipeInvalidError
from edgepack.recipe import tokenizer_settings, trained_folder
from edgepack.recipe.loader import load_recipe
from edgepack.recipe.model import FolderRecipe
from edgepack_runtime.bundle.model_config import BERT, ERNIE

CONFIG: dict[str, Any] = {
    "architectures": ["ErnieForSequenceClassification"], "model_type": "ernie", "hidden_size": 8,
    "intermediate_size": 24, "max_position_embeddings": 64, "num_attention_heads": 2, "num_hidden_layers": 2,
    "type_vocab_size": 2, "vocab_size": 40, "pad_token_id": 0, "id2label": {"0": "b", "1": "a"},
}  # fmt: skip
TAGS = {"0": "O", "1": "I-x", "2": "B-x"}
TOKENS = {**CONFIG, "architectures": ["BertForTokenClassification"], "model_type": "bert", "id2label": TAGS}
RECIPE = """\
edgepack: 1
name: given
version: 1.0.0
model: {folder: trained}
data: {test: test.tsv}
"""
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "好"]


def write(
    place: Path, config: object = CONFIG, tokenizer: object = None, weights: str = "model_state.pdparams", **files: str
) -> Path:
    folder = place / "trained"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / weights).write_bytes(b"")
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY), encoding="utf-8")
    if tokenizer is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    for name, content in files.items():
        (folder / name.replace("_txt", ".txt").replace("_json", ".json")).write_text(content, encoding="utf-8")
    (place / "test.tsv").write_text("text\tlabel\n", encoding="utf-8")
    return folder


def load(place: Path, recipe: str = RECIPE, more: str = "") -> FolderRecipe:
    (place / "recipe.yaml").write_text(recipe + more, encoding="utf-8")
    loaded = load_recipe(place / "recipe.yaml", {"local"})
    assert isinstance(loaded, FolderRecipe)
    return loaded


def refused(place: Path, recipe: str = RECIPE, more: str = "") -> str:
    """The findings, each as `key: reason; fix`."""
    with pytest.raises(RecipeInvalidError) as caught:
        load(place, recipe, more)
    return "\n".join(f"{one.key}: {one.reason}; {one.fix}" for one in caught.value.findings)


def test_five_lines_take_labels_task_and_length_from_the_folder(tmp_path: Path) -> None:
    write(tmp_path, tokenizer={"model_max_length": 48})
    recipe = load(tmp_path)
    assert (recipe.task, recipe.labels, recipe.max_length) == ("text-classification", ("b", "a"), 48)
    assert not recipe.has_linear
    write(tmp_path, TOKENS, {"model_max_length": 10**30}, "pytorch_model.bin")
    (tmp_path / "trained" / "model_state.pdparams").unlink()
    recipe = load(tmp_path)
    assert (recipe.task, recipe.labels, recipe.max_length) == ("token-classification", ("O", "I-x", "B-x"), 64)
    several = write(tmp_path, {**CONFIG, "problem_type": "multi_label_classification"})
    recipe = load(tmp_path)
    assert recipe.data.columns.wanted == {"text": "text", "labels": "labels"}
    assert trained_folder.read(several).multi_label


def test_the_recipe_names_labels_that_the_folder_does_not_and_a_length(tmp_path: Path) -> None:
    write(tmp_path, {**CONFIG, "id2label": {"0": "LABEL_0", "1": "LABEL_1"}}, label_txt="x\ny\n")
    (tmp_path / "mine.txt").write_text("a\nb\n", encoding="utf-8")
    for labels in ("[a, b]", "mine.txt"):
        recipe = load(tmp_path, RECIPE.replace("trained}", f"trained, labels: {labels}, max_length: 32}}"))
        assert (recipe.labels, recipe.max_length) == (("a", "b"), 32)


@pytest.mark.parametrize(("labels", "how"), [("[a, b]", "in another order"), ("[b, c]", "with other names")])
def test_labels_that_contradict_the_folder_are_an_error_with_both(tmp_path: Path, labels: str, how: str) -> None:
    write(tmp_path)
    found = refused(tmp_path, RECIPE.replace("trained}", f"trained, labels: {labels}}}"))
    names = ", ".join(f"`{name}`" for name in labels.strip("[]").split(", "))
    assert f"model.labels: `model.labels`: it is {names}, and `id2label` of config.json is `b`, `a`, {how};" in found
    assert "correct `id2label` in config.json" in found
    assert load(tmp_path, RECIPE.replace("trained}", "trained, labels: [b, a]}")).labels == ("b", "a")


@pytest.mark.parametrize(("length", "warned"), [(49, True), (48, False), (32, False)])
def test_a_length_above_that_of_the_training_is_a_warning_with_both(tmp_path: Path, length: int, warned: bool) -> None:
    write(tmp_path, tokenizer={"model_max_length": 48})
    recipe = load(tmp_path, RECIPE.replace("trained}", f"trained, max_length: {length}}}"))
    found = [one.reason for one in check_suited(recipe, LabelledRows(("b", "a"), {}, 0, lambda split: ()))]
    said = "`model.max_length` is 49, and `model_max_length` of tokenizer_config.json is 48"
    assert any(reason.startswith(said) for reason in found) is warned


@pytest.mark.parametrize(
    ("files", "labels"),
    [
        ({"label_list_txt": "x\ny\n"}, ("x", "y")),
        ({"label_txt": "\ufeffx\n\ny\n"}, ("x", "y")),
        ({"label_dict_json": '{"y": 1, "x": 0}'}, ("x", "y")),
        ({"label_dict_json": '{"1": "y", "0": "x"}'}, ("x", "y")),
    ],
)
def test_labels_of_a_training_script_count_where_config_has_placeholders(
    tmp_path: Path, files: dict[str, str], labels: tuple[str, ...]
) -> None:
    folder = write(tmp_path, {**CONFIG, "id2label": {"0": "LABEL_0", "1": "LABEL_1"}}, **files)
    assert trained_folder.read(folder).labels == labels
    write(tmp_path)
    assert trained_folder.read(folder).labels == ("b", "a")


def test_labels_of_a_file_beside_the_folder(tmp_path: Path) -> None:
    folder = write(tmp_path, {key: value for key, value in CONFIG.items() if key != "id2label"})
    assert "config.json does not name the labels" in refused(tmp_path)
    (tmp_path / "label.txt").write_text("x\ny\nz\n", encoding="utf-8")
    found = trained_folder.read(folder)
    assert (found.labels, found.labels_from, found.outputs) == (("x", "y", "z"), "label.txt", 3)


def test_the_config_of_an_older_paddlenlp(tmp_path: Path) -> None:
    folder = write(tmp_path, label_txt="x\ny\nz\n")
    (folder / "config.json").unlink()
    encoder = {key: value for key, value in CONFIG.items() if key not in ("architectures", "id2label")}
    old = {"init_args": [{"init_args": [{**encoder, "init_class": "ErnieModel"}]}], "num_classes": 3}
    old["init_class"] = "ErnieForSequenceClassification"
    (folder / "model_config.json").write_text(json.dumps(old), encoding="utf-8")
    found = trained_folder.read(folder)
    assert (found.problems, found.labels, found.positions, found.per_token) == ((), ("x", "y", "z"), 64, False)


@pytest.mark.parametrize(("name", "is_paddle"), [("encoder.layers.0.norm1", True), ("encoder.layer.0.output", False)])
def test_safetensors_are_of_either_layout(tmp_path: Path, name: str, is_paddle: bool) -> None:
    folder = write(tmp_path, weights="model.safetensors")
    (folder / "model_state.pdparams").unlink(missing_ok=True)
    save_file({f"ernie.{name}.weight": np.zeros(2, np.float32)}, folder / "model.safetensors")
    found = trained_folder.read(folder)
    assert (found.is_paddle, found.tokenizer) == (is_paddle, ERNIE if is_paddle else BERT)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("inference.pdiparams", "holds a frozen graph (inference.pdiparams)"),
        ("tf_model.h5", "holds weights of TensorFlow or Flax (tf_model.h5)"),
        ("model.safetensors.index.json", "has weights in parts"),
        ("adapter_config.json", "holds a LoRA adapter (adapter_config.json)"),
        ("readme.txt", "has none of `model_state.pdparams`"),
    ],
)
def test_a_folder_of_another_kind_is_named(tmp_path: Path, file: str, said: str) -> None:
    folder = write(tmp_path)
    (folder / "model_state.pdparams").unlink()
    (folder / file).write_bytes(b"")
    assert f": the folder 'trained' {said}" in refused(tmp_path)


@pytest.mark.parametrize("config", [{"problem_type": "regression"}, {"id2label": {"0": "LABEL_0"}}])
def test_a_folder_with_one_output_answers_with_a_number(tmp_path: Path, config: dict[str, Any]) -> None:
    found = trained_folder.read(write(tmp_path, {**CONFIG, **config}))
    assert (found.is_number, found.labels, found.outputs, found.problems) == (True, ("value",), 1, ())
    assert "it is text-classification, and config.json says that the model gives one number" in refused(
        tmp_path, more="task: text-classification\n"
    )


def test_a_folder_of_checkpoints_names_the_last(tmp_path: Path) -> None:
    folder = write(tmp_path)
    for step in (500, 1000):
        (folder / f"checkpoint-{step}").mkdir()
        (folder / f"checkpoint-{step}" / "model_state.pdparams").write_bytes(b"")
    (folder / "model_state.pdparams").unlink()
    assert "name one of them, such as `trained/checkpoint-1000`" in refused(tmp_path)
    assert "is not there" in refused(tmp_path, RECIPE.replace("trained", "other"))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {"architectures": ["ErnieModel"]},
            "it is an encoder without a head for labels: `architectures` is ErnieModel",
        ),
        ({"architectures": ["RobertaForSequenceClassification"]}, "is RobertaForSequenceClassification"),
        ({"pad_token_id": 1}, "`pad_token_id` is 1, and batches are padded with 0"),
        ({"num_labels": 3}, "config.json has 2 labels, `b`, `a`, and the model has 3"),
        ({"id2label": {"0": "a", "1": "a"}}, "the list of its labels holds 'a' twice"),
    ],
)
def test_a_model_that_cannot_be_packaged_is_named(tmp_path: Path, config: dict[str, Any], said: str) -> None:
    write(tmp_path, {**CONFIG, **config})
    assert said in refused(tmp_path)


@pytest.mark.parametrize(
    ("tokenizer", "said"),
    [
        ({"additional_special_tokens": ["[X]"]}, 'the added token "[X]" has no id'),
        ({"added_tokens_decoder": {"40": {"content": "EOS"}}}, 'the added token "EOS" has letters'),
        ({"do_not_split": ["EOS"]}, '`do_not_split` has "EOS"'),
        ({"never_split": ["<t>"]}, "remove the setting from the tokenizer's files if no text needs it"),
        ({"truncation_side": "left"}, '`truncation_side` is "left"'),
        ({"do_basic_tokenize": False}, "`do_basic_tokenize` is false"),
        ({"tokenizer_class": "RobertaTokenizer"}, '`tokenizer_class` is "RobertaTokenizer"'),
    ],
)
def test_what_the_tokenizer_cannot_do_is_named(tmp_path: Path, tokenizer: dict[str, Any], said: str) -> None:
    write(tmp_path, tokenizer=tokenizer)
    assert said in refused(tmp_path)


def test_a_contradiction_names_both_values(tmp_path: Path) -> None:
    write(tmp_path)
    found = refused(tmp_path, more="task: token-classification\n")
    assert "task: `task`: it is token-classification, and `architectures` of config.json is ErnieForSequence" in found
    found = refused(tmp_path, RECIPE.replace("trained}", "trained, max_length: 65}"))
    assert "it is 65, and `max_position_embeddings` of config.json is 64" in found
    found = refused(tmp_path, RECIPE.replace("trained}", "trained, labels: [a, b, c]}"))
    assert "the recipe has 3 labels, `a`, `b`, `c`, and the model has 2: `b`, `a` (config.json)" in found
    write(tmp_path, {**CONFIG, "problem_type": "single_label_classification"})
    found = refused(tmp_path, RECIPE.replace("test.tsv}", "test.tsv, columns: {labels: tags}}"))
    assert "the rows have several labels (`columns.labels`), and `problem_type` of config.json is single_label" in found
    write(tmp_path, {**TOKENS, "id2label": {"0": "O", "1": "B-x"}})
    assert "the model has no tag `I-x`" in refused(tmp_path)


@pytest.mark.parametrize(
    ("files", "config"),
    [
        ({"config_json": "[1]"}, CONFIG),
        ({"config_json": "[" * 100_000}, CONFIG),
        ({"tokenizer_config_json": "3"}, CONFIG),
        ({"tokenizer_json": '{"model": 3, "normalizer": [], "added_tokens": 1}'}, CONFIG),
        ({}, {**CONFIG, "id2label": None, "label2id": {"a": [1], "b": {}}}),
        ({}, {**CONFIG, "id2label": [1, 2], "architectures": 3, "hidden_size": "x"}),
        ({"tokenizer_config_json": '{"additional_special_tokens": 7, "tokenizer_class": {}}'}, CONFIG),
    ],
)
def test_settings_of_any_form_are_findings(tmp_path: Path, files: dict[str, str], config: dict[str, Any]) -> None:
    write(tmp_path, config, **files)
    assert refused(tmp_path)


def test_a_recipe_overrules_a_label_file_that_is_about_something_else(tmp_path: Path) -> None:
    write(tmp_path, {**CONFIG, "id2label": {"0": "LABEL_0", "1": "LABEL_1"}}, label_txt="x\ny\nz\n")
    assert "label.txt has 3 labels, `x`, `y`, `z`, and the model has 2" in refused(tmp_path)
    assert load(tmp_path, RECIPE.replace("trained}", "trained, labels: [a, b]}")).labels == ("a", "b")


def test_a_folder_beside_a_graph_is_one_too_many(tmp_path: Path) -> None:
    write(tmp_path)
    assert "keep `folder` or `graph`" in refused(tmp_path, RECIPE.replace("trained}", "trained, graph: a.onnx}"))


def test_what_needs_a_training_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    assert "nothing is trained here" in refused(tmp_path, more="quantize: {method: qat}\n")
    assert "there are no training rows to fit a linear model" in refused(tmp_path, more="linear: ensemble\n")
    assert "unknown key `teacher`" in refused(tmp_path, more="teacher: {model: ernie-3.0-base-zh}\n")


@pytest.mark.parametrize("model", ["model: {name: trained}", "model: {}", "model: trained", "model:"])
def test_a_model_that_names_neither_folder_nor_graph_is_explained(tmp_path: Path, model: str) -> None:
    write(tmp_path)
    found = refused(tmp_path, RECIPE.replace("model: {folder: trained}", model))
    assert "write `model: {folder: FOLDER}` with the folder that its Trainer wrote" in found
    assert "model.vocab" not in found


def test_a_graph_that_is_a_trained_folder_is_found_by_check(tmp_path: Path) -> None:
    folder = write(tmp_path)
    imported = RECIPE.replace("folder: trained", "graph: trained, vocab: trained/vocab.txt, labels: [b, a]")
    assert "holds a trained model, not a graph; use model.folder: `model: {folder: trained}`" in refused(
        tmp_path, imported
    )
    weights = imported.replace("graph: trained,", "graph: trained/model_state.pdparams,")
    assert "model_state.pdparams holds the weights of a trained model" in refused(tmp_path, weights)
    (folder / "config.json").unlink()
    assert "holds no graph of Paddle with its .pdiparams" in refused(tmp_path, imported)


def fast(ids: dict[str, int], lower: bool = True) -> dict[str, Any]:
    """The content of a tokenizer.json."""
    return {
        "model": {"type": "WordPiece", "vocab": ids},
        "normalizer": {"type": "BertNormalizer", "lowercase": lower},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
    }


@pytest.mark.parametrize(
    ("lower", "problem"),
    [(True, ""), (False, ""), (False, '"model": {"type": "BPE"}'), (True, '"added_tokens": ["[X]"]')],
)
def test_a_tokenizer_json_alone_has_vocabulary_and_case(tmp_path: Path, lower: bool, problem: str) -> None:
    folder = write(tmp_path)
    (folder / "vocab.txt").unlink()
    ids = {token: number for number, token in reversed(list(enumerate(VOCABULARY)))}
    (folder / "tokenizer.json").write_text(
        json.dumps(fast(ids, lower) | json.loads(f"{{{problem}}}")), encoding="utf-8"
    )
    problems = tokenizer_settings.tokenizer_problems(folder)
    if problem:
        assert len(problems) == 1
        return
    assert (problems, tokenizer_settings.lower_case(folder)) == ([], lower)
    assert tokenizer_settings.vocabulary(folder).decode().split() == VOCABULARY
    assert load(tmp_path).labels == ("b", "a")


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ({"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "$": 5}, "[PAD] [UNK] [CLS] [SEP] [unused-4] $"),
        ({"[PAD]": 0, "[UNK]": 0}, None),
        ({"[PAD]": 0, "[UNK]": 10**9}, None),
        ({"[PAD]": 0, "[UNK]": -1}, None),
        ({"[PAD]": 0, "a\nb": 1, "[UNK]": 2}, None),
        ({"[PAD]": 0, "a\rb": 1, "[UNK]": 2}, None),
        ({"[PAD]": 0, "a\u2028b": 1, "[UNK]": 2}, "[PAD] a b [UNK]"),
        ({}, None),
    ],
)
def test_a_word_that_vocab_txt_had_twice_leaves_a_hole_in_tokenizer_json(
    tmp_path: Path, ids: dict[str, int], words: str | None
) -> None:
    folder = write(tmp_path)
    (folder / "vocab.txt").unlink()
    (folder / "tokenizer.json").write_text(json.dumps(fast(ids)), encoding="utf-8")
    if words is not None:
        assert tokenizer_settings.vocabulary(folder).decode().split() == words.split()
        return
    with pytest.raises(ValueError, match="has no vocabulary with the ids"):
        tokenizer_settings.vocabulary(folder)
    assert "vocab.txt cannot be read" in refused(tmp_path)
