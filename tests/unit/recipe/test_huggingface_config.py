"""Settings of checkpoints in Hugging Face's layout: what is taken over, and what a recipe is told about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.recipe.checkpoints import BERT, ERNIE, found, write

from edgepack.recipe.encoder_shapes import Shape, shape_of_folder
from edgepack.recipe.huggingface_config import config_problems, huggingface_weights, paddlenlp_config


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
