"""Names and layouts of a checkpoint's weights; whether the networks then agree is seen in tests/integration."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgepack.training.models.encoder_names import convert

Array = npt.NDArray[Any]
LAYER = "encoder.layers.1."
# PaddleNLP's name -> its shape there, and the checkpoint's name.
WEIGHTS = {
    "embeddings.word_embeddings.weight": ((7, 2), "embeddings.word_embeddings.weight"),
    "embeddings.task_type_embeddings.weight": ((3, 2), "embeddings.task_type_embeddings.weight"),
    "embeddings.layer_norm.weight": ((2,), "embeddings.LayerNorm.weight"),
    "embeddings.layer_norm.bias": ((2,), "embeddings.LayerNorm.bias"),
    f"{LAYER}self_attn.q_proj.weight": ((2, 2), "encoder.layer.1.attention.self.query.weight"),
    f"{LAYER}self_attn.k_proj.bias": ((2,), "encoder.layer.1.attention.self.key.bias"),
    f"{LAYER}self_attn.v_proj.weight": ((2, 2), "encoder.layer.1.attention.self.value.weight"),
    f"{LAYER}self_attn.out_proj.weight": ((2, 2), "encoder.layer.1.attention.output.dense.weight"),
    f"{LAYER}norm1.weight": ((2,), "encoder.layer.1.attention.output.LayerNorm.weight"),
    f"{LAYER}linear1.weight": ((2, 5), "encoder.layer.1.intermediate.dense.weight"),
    f"{LAYER}linear2.weight": ((5, 2), "encoder.layer.1.output.dense.weight"),
    f"{LAYER}norm2.bias": ((2,), "encoder.layer.1.output.LayerNorm.bias"),
    "pooler.dense.weight": ((2, 2), "pooler.dense.weight"),
}
SHAPES = {name: shape for name, (shape, _) in WEIGHTS.items()}
TURNED = ("q_proj.weight", "v_proj.weight", "out_proj.weight", "linear1.weight", "linear2.weight", "dense.weight")


def checkpoint(prefix: str = "") -> dict[str, Array]:
    made: dict[str, Array] = {}
    for number, (name, (shape, theirs)) in enumerate(WEIGHTS.items()):
        laid_out = shape[::-1] if name.endswith(TURNED) else shape
        made[prefix + theirs] = np.arange(np.prod(shape), dtype=np.float32).reshape(laid_out) + 100 * number
    return made


@pytest.mark.parametrize("prefix", ["", "bert.", "ernie."])
def test_each_weight_has_its_place(prefix: str) -> None:
    weights = checkpoint(prefix)
    converted, problems = convert(SHAPES, weights)
    assert problems == []
    assert {name: weight.shape for name, weight in converted.items()} == SHAPES
    for name, weight in converted.items():
        theirs = weights[prefix + WEIGHTS[name][1]]
        assert np.array_equal(weight, theirs.T if name.endswith(TURNED) else theirs), name


def test_norms_of_old_have_other_names() -> None:
    def old(name: str) -> str:
        return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")

    weights = checkpoint("bert.")
    converted, problems = convert(SHAPES, {old(name): weight for name, weight in weights.items()})
    assert problems == []
    wanted, _ = convert(SHAPES, weights)
    assert all(np.array_equal(converted[name], wanted[name]) for name in SHAPES)


def test_heads_of_the_pre_training_are_left_out() -> None:
    more = ("cls.predictions.bias", "cls.predictions.transform.LayerNorm.gamma", "cls.seq_relationship.weight")
    counted = ("embeddings.position_ids", "bert.embeddings.token_type_ids")
    left_out = {name: np.zeros((1, 2), np.int64) for name in (*more, *counted)}
    assert convert(SHAPES, checkpoint() | left_out)[1] == []


@pytest.mark.parametrize(
    "name",
    ["classifier.weight", "bert.encoder.layer.2.output.dense.bias", "clsx.bias", "x", "roberta.pooler.dense.bias"],
)
def test_an_unknown_weight_is_named(name: str) -> None:
    _, problems = convert(SHAPES, checkpoint() | {name: np.zeros(2, np.float32)})
    assert problems == [f"unexpected: {name.removeprefix('bert.')}"]


def test_missing_weights_are_named() -> None:
    weights = checkpoint("bert.")
    del weights["bert.pooler.dense.weight"], weights["bert.encoder.layer.1.output.LayerNorm.bias"]
    assert convert(SHAPES, weights)[1] == ["missing: encoder.layer.1.output.LayerNorm.bias, pooler.dense.weight"]


@pytest.mark.parametrize(
    ("name", "weight", "said"),
    [
        (
            "encoder.layer.1.intermediate.dense.weight",
            np.zeros((2, 5), np.float32),
            "float32 [2, 5] instead of float32 [5, 2]",
        ),
        ("embeddings.word_embeddings.weight", np.zeros((8, 2), np.float32), "float32 [8, 2] instead of float32 [7, 2]"),
        ("embeddings.LayerNorm.bias", np.zeros(2, np.int64), "int64 [2] instead of float32 [2]"),
        ("pooler.dense.weight", np.zeros((), np.float32), "float32 [] instead of float32 [2, 2]"),
    ],
)
def test_a_weight_of_another_shape_or_type_is_named(name: str, weight: Array, said: str) -> None:
    _, problems = convert(SHAPES, checkpoint() | {name: weight})
    assert problems == [f"of another kind or shape: {name} ({said})"]


def test_a_weight_of_another_shape_is_not_copied() -> None:
    large = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (2**24, 2**24), (0, 0))  # a copy has 1 PiB
    converted, _ = convert(SHAPES, dict.fromkeys(checkpoint(), large))
    assert converted == {}


@pytest.mark.parametrize("again", ["bert.embeddings.LayerNorm.weight", "embeddings.LayerNorm.gamma"])
def test_one_weight_under_two_names(again: str) -> None:
    _, problems = convert(SHAPES, checkpoint() | {again: np.zeros(2, np.float32)})
    assert problems == ["there under two names: embeddings.LayerNorm.weight"]


def test_a_wholly_other_network_does_not_fill_the_screen() -> None:
    _, problems = convert(SHAPES, {f"model.layer.{index:03}": np.zeros(1, np.float32) for index in range(120)})
    assert len(problems) == 2
    assert "model.layer.019 and 100 more" in problems[1]
