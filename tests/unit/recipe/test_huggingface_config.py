"""Settings of checkpoints in Hugging Face's layout: what is taken over, and what a recipe is told about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgepack.errors import RecipeInvalidError
from edgepack.recipe.encoder_shapes import Shape, shape_of_folder
from edgepack.recipe.huggingface_config import (
    checked_vocabulary,
    config_problems,
    huggingface_weights,
    kept_tokens,
    lower_case,
    paddlenlp_config,
    tokenizer_problems,
)
from edgepack.recipe.loader import load_recipe

# bert-base-chinese's own config.json, but for the sizes.
BERT: dict[str, Any] = {
    "architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1, "directionality": "bidi",
    "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 8, "initializer_range": 0.02,
    "intermediate_size": 24, "layer_norm_eps": 1e-12, "max_position_embeddings": 64, "model_type": "bert",
    "num_attention_heads": 2, "num_hidden_layers": 2, "pad_token_id": 0, "pooler_fc_size": 768,
    "pooler_num_attention_heads": 12, "pooler_num_fc_layers": 3, "pooler_size_per_head": 128,
    "pooler_type": "first_token_transform", "type_vocab_size": 2, "vocab_size": 40,
}  # fmt: skip
ERNIE = {**BERT, "model_type": "ernie", "use_task_id": True, "task_type_vocab_size": 16, "layer_norm_eps": 1e-5}
RECIPE = """\
edgepack: 1
name: hotel
version: 1.2.0
data: {train: builtin:reviews-zh}
student: {model: ./checkpoint, max_length: 32}
"""


def write(
    folder: Path, config: object = BERT, tokenizer: object = None, weights: str = "model.safetensors", **files: str
) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / weights).write_bytes(b"")
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n", encoding="utf-8")
    if tokenizer is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    for name, content in files.items():
        (folder / f"{name}.json").write_text(content, encoding="utf-8")
    return folder


def found(folder: Path, recipe: str = RECIPE) -> list[str]:
    (folder / "recipe.yaml").write_text(recipe, encoding="utf-8")
    try:
        load_recipe(folder / "recipe.yaml", {"local"})
    except RecipeInvalidError as error:
        return [finding.reason.partition(" cannot be converted: ")[2] or finding.key for finding in error.findings]
    return []


@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize("config", [BERT, ERNIE], ids=["bert", "ernie"])
def test_a_checkpoint_can_be_named(tmp_path: Path, config: dict[str, Any], weights: str) -> None:
    folder = write(tmp_path / "checkpoint", config, weights=weights)
    assert found(tmp_path) == []
    assert shape_of_folder(folder) == Shape(2, 8, 2, 24, 40, 64, 2, 0 if config is BERT else 16)
    (folder / "vocab.txt").unlink()
    assert found(tmp_path) == ["student.model"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("[PAD] [UNK] [CLS]", "vocab.txt lacks [SEP]"),
        ("[UNK] [PAD] [CLS] [SEP]", "vocab.txt has '[UNK]' in its first line"),
        (" ".join(["[PAD] [UNK] [CLS] [SEP]", *map(str, range(37))]), "vocab.txt has 41 lines, and `vocab_size` is 40"),
    ],
)
def test_a_vocabulary_that_does_not_fit_is_found_before_a_build(tmp_path: Path, words: str, problem: str) -> None:
    folder = write(tmp_path / "checkpoint")
    (folder / "vocab.txt").write_text(words.replace(" ", "\n"), encoding="utf-8")
    [one] = found(tmp_path)
    assert one.startswith(problem)


def test_safetensors_come_first_and_paddlenlp_s_own_before_them(tmp_path: Path) -> None:
    folder = write(tmp_path, {**BERT, "model_type": "albert"}, weights="pytorch_model.bin")
    (folder / "model.safetensors").write_bytes(b"")
    assert huggingface_weights(folder) == folder / "model.safetensors"
    assert shape_of_folder(folder) is None
    (folder / "model_state.pdparams").write_bytes(b"")
    assert shape_of_folder(folder) is not None


def test_what_config_json_leaves_out_is_what_transformers_takes(tmp_path: Path) -> None:
    folder = write(tmp_path, {"model_type": "bert"})
    assert shape_of_folder(folder) == Shape(12, 768, 12, 3072, 30522, 512, 2, 0)  # PaddleNLP would take 16 token types
    config = paddlenlp_config({"model_type": "ernie"})
    assert (config["layer_norm_eps"], config["use_task_id"], config["hidden_dropout_prob"]) == (1e-12, False, 0.1)
    assert "classifier_dropout" not in config


def test_everything_that_counts_is_taken_over() -> None:
    fields = {**ERNIE, "hidden_dropout_prob": 0.2, "classifier_dropout": 0.3, "initializer_range": 0.05}
    config = paddlenlp_config(fields)
    assert {key: config[key] for key in config if key in fields} == {key: fields[key] for key in config}
    assert paddlenlp_config({**BERT, "use_task_id": True})["use_task_id"] is False  # no BERT has one


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_type", "roberta"), ("model_type", None), ("model_type", ["bert"]), ("hidden_act", "relu"),
        ("hidden_act", "gelu_new"), ("position_embedding_type", "relative_key"), ("pad_token_id", 1),
        ("is_decoder", True), ("add_cross_attention", True), ("hidden_size", 9), ("hidden_size", "8"),
        ("vocab_size", 0), ("num_hidden_layers", True), ("layer_norm_eps", 0), ("layer_norm_eps", "1e-12"),
        ("layer_norm_eps", None), ("layer_norm_eps", 0.002), ("layer_norm_eps", float("nan")),
        ("hidden_dropout_prob", 1.0), ("attention_probs_dropout_prob", -0.1), ("classifier_dropout", "no"),
        ("use_task_id", 1),
        ("num_hidden_layers", 257), ("initializer_range", []), ("task_type_vocab_size", -1), ("type_vocab_size", 1.0),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_taken_over_names_its_key(tmp_path: Path, key: str, value: object) -> None:
    folder = write(tmp_path / "checkpoint", {**ERNIE, key: value})
    [problem] = config_problems({**ERNIE, key: value})
    assert f"`{key}`" in problem
    assert found(tmp_path) == [problem]
    assert shape_of_folder(folder) is None


@pytest.mark.parametrize(("layers", "keys"), [(256, []), (257, ["student.model"])])
def test_the_layers_of_a_folder_of_paddlenlp_are_limited_too(tmp_path: Path, layers: int, keys: list[str]) -> None:
    write(tmp_path / "checkpoint", {"num_hidden_layers": layers}, weights="model_state.pdparams")
    assert found(tmp_path) == keys


def test_every_problem_is_found_at_once(tmp_path: Path) -> None:
    config = {**BERT, "hidden_act": "relu", "pad_token_id": 1, "vocab_size": 0}
    write(tmp_path / "checkpoint", config, {"strip_accents": False})
    assert len(found(tmp_path)) == 4


@pytest.mark.parametrize(
    ("tokenizer", "wanted"),
    [(None, True), ({}, True), ({"do_lower_case": False}, False), ({"do_lower_case": True}, True)],
    ids=str,
)
def test_case_is_kept_where_the_checkpoint_keeps_it(tmp_path: Path, tokenizer: object, wanted: bool) -> None:
    folder = write(tmp_path, tokenizer=tokenizer)
    assert tokenizer_problems(folder) == []
    assert lower_case(folder) is wanted


def test_what_transformers_writes_is_understood(tmp_path: Path) -> None:
    told = {
        "added_tokens_decoder": {"0": {"content": "[PAD]", "special": True}, "4": {"content": "[MASK]"}},
        "backend": "tokenizers", "cls_token": {"content": "[CLS]", "lstrip": False}, "do_lower_case": True,
        "strip_accents": None, "tokenize_chinese_chars": True, "tokenizer_class": "BertTokenizer",
        "model_max_length": 512,
    }  # fmt: skip
    assert tokenizer_problems(write(tmp_path, tokenizer=told, added_tokens="{}")) == []
    assert kept_tokens(tmp_path) == []


def test_added_tokens_are_entries_of_the_vocabulary_that_are_kept_whole(tmp_path: Path) -> None:
    told = {"additional_special_tokens": ["[品牌]", {"content": "[C]"}], "never_split": ["酒店", "[CLS]"]}
    folder = write(tmp_path, tokenizer=told, added_tokens='{"[品牌]": 7, "酒店": 6, "[MASK]": 4}')
    (folder / "special_tokens_map.json").write_text("{}", encoding="utf-8")
    (folder / "vocab.txt").write_text("[PAD]\n[CLS]\n[SEP]\n[UNK]\n[MASK]\n[C]", encoding="utf-8")
    assert tokenizer_problems(folder) == []
    assert kept_tokens(folder) == ["[C]", "[品牌]", "酒店"]
    raw, problems = checked_vocabulary(folder, 8)
    assert (raw.decode().split(), problems) == (
        ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", "[C]", "酒店", "[品牌]"],
        [],
    )
    assert checked_vocabulary(folder, 7)[1] == ["vocab.txt has 8 lines, and `vocab_size` is 7"]


@pytest.mark.parametrize(
    ("added", "words"),
    [
        ('{"[X]": 4000000}', "do not follow"), ('{"[X]": 2}', "has the id 2"), ('{"[C]": 6}', "has the id 6"),
        ('{"[X]": 6, "[Y]": 6}', "do not follow"), ('{"[X]": -1}', "has no id"), ('{"a\\nb": 6}', "line end"),
    ],
)  # fmt: skip
def test_ids_of_added_tokens_that_cannot_be_are_named(tmp_path: Path, added: str, words: str) -> None:
    folder = write(tmp_path, added_tokens=added)
    (folder / "vocab.txt").write_text("[PAD]\n[CLS]\n[SEP]\n[UNK]\n[MASK]\n[C]", encoding="utf-8")
    assert words in checked_vocabulary(folder, 8)[1][0]


@pytest.mark.parametrize(
    ("tokenizer", "key"),
    [
        ({"tokenizer_class": "XLMRobertaTokenizer"}, "tokenizer_class"),
        ({"tokenizer_class": ["x"]}, "tokenizer_class"),
        ({"do_lower_case": "no"}, "do_lower_case"), ({"do_lower_case": False, "strip_accents": True}, "strip_accents"),
        ({"strip_accents": False}, "strip_accents"), ({"tokenize_chinese_chars": False}, "tokenize_chinese_chars"),
        ({"sep_token": "</s>"}, "sep_token"), ({"cls_token": {"content": "<s>"}}, "cls_token"),
        ({"pad_token": None}, "pad_token"),
        ({"added_tokens_decoder": {"40": {"content": "<1>", "lstrip": True}}}, "lstrip"),
        ({"added_tokens_decoder": {"40": {"content": ["<e1>"]}}}, "content"),
        ({"never_split": ["<e1>"]}, "never_split"),
    ],
    ids=str,
)  # fmt: skip
def test_another_tokenizer_is_a_finding(tmp_path: Path, tokenizer: dict[str, Any], key: str) -> None:
    folder = write(tmp_path / "checkpoint", tokenizer=tokenizer)
    [problem] = tokenizer_problems(folder)
    assert f"`{key}`" in problem
    assert found(tmp_path) == [problem]


@pytest.mark.parametrize("content", ["[]", "{", "7", "\udcff", '{"a": ' * 100_000])
def test_a_damaged_file_of_the_tokenizer(tmp_path: Path, content: str) -> None:
    folder = write(tmp_path)
    (folder / "added_tokens.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    [problem] = tokenizer_problems(folder)
    assert "not a JSON object" in problem


def test_ids_of_added_tokens_behind_a_hole_are_not_those_of_the_file(tmp_path: Path) -> None:
    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
    for hole in (0, 1):
        vocab = {word: number + hole * (number == 4) for number, word in enumerate(words)}
        fast = {"model": {"type": "WordPiece", "vocab": vocab}, "added_tokens": [{"id": 5 + hole, "content": "[X]"}]}
        (tmp_path / "tokenizer.json").write_text(json.dumps(fast), encoding="utf-8")
        problems = checked_vocabulary(tmp_path, 9)[1]
        assert ["an id without a word" in problem for problem in problems] == [True] * hole
