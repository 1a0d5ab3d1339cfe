"""Shapes of models, known without a download; the table itself is compared with PaddleNLP in tests/integration."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack.recipe.encoder_shapes import (
    KEPT_HEADS,
    PRESETS,
    SENTENCEPIECE,
    Shape,
    evenly_spread_layers,
    file_problems,
    parameters,
    pruned_shape,
    read_config,
    shape_of_config,
    shape_of_folder,
    shape_of_model,
    too_large,
)
from edgepack.recipe.training import FromScratch, Scratch

NANO = Shape(4, 312, 12, 1248, 40000, 2048, 4, 0)


def test_presets_have_the_names_people_use_and_shapes_that_can_be_built() -> None:
    sizes = ("base", "medium", "mini", "micro", "nano")
    names = [f"ernie-3.0-{size}-zh" for size in ("xbase", *sizes)]
    names += [f"ernie-3.0-tiny-{size}-v{version}-zh" for size in sizes for version in (1, 2)]
    names += ["ernie-3.0-tiny-pico-v2-zh", "ernie-2.0-base-zh", "ernie-2.0-large-en", "ernie-1.0", "ernie-1.0-base-zh"]
    assert [name for name in names if name not in PRESETS] == []
    assert SENTENCEPIECE not in PRESETS
    assert PRESETS["ernie-3.0-tiny-nano-v2-zh"] == NANO
    for shape in PRESETS.values():
        assert shape.hidden % shape.heads == 0
        assert 3e6 < parameters(shape, 2) < 4e8


def test_parameters_counted_by_hand() -> None:
    tiny = Shape(layers=1, hidden=2, heads=1, feed_forward=3, vocabulary=5, positions=4, token_types=2, task_types=1)
    embeddings = (5 + 4 + 2 + 1) * 2 + 4
    layer = 4 * (4 + 2) + (6 + 3) + (6 + 2) + 4 + 4
    assert parameters(tiny, 3) == embeddings + layer + (4 + 2) + (6 + 3)


def test_the_shape_of_a_student_that_starts_from_its_teacher() -> None:
    chosen = [evenly_spread_layers(count, layers) for count, layers in ((3, 6), (4, 6), (1, 4))]
    assert chosen == [[2, 4, 6], [2, 3, 4, 6], [4]]  # up to the top
    shape = Shape(4, 12, 3, 8, 50, 16, 2, 3)
    assert pruned_shape(shape, 2, 1.0) == Shape(2, 12, 3, 8, 50, 16, 2, 3)
    narrow = pruned_shape(shape, 1, 0.6)
    assert narrow == Shape(1, 12, 2, 5, 50, 16, 2, 3, head_size=4)
    layer = 3 * (12 * 8 + 8) + (8 * 12 + 12) + (12 * 5 + 5) + (5 * 12 + 12) + 4 * 12
    assert parameters(narrow, 2) - parameters(pruned_shape(narrow, 0, 1.0), 2) == layer
    assert pruned_shape(narrow, 1, 0.5) == Shape(1, 12, 1, 3, 50, 16, 2, 3, head_size=4)  # pruned again


def test_the_shape_of_a_folder_with_a_pruned_model() -> None:
    fields = {"num_hidden_layers": 4, "hidden_size": 312, "num_attention_heads": 12, "intermediate_size": 624}
    shape = shape_of_config({**fields, KEPT_HEADS: 6})
    assert shape is not None
    assert (shape.heads, shape.head_size, shape.attention, shape.feed_forward) == (6, 26, 156, 624)
    for kept in (0, 13, "6", True, None):
        assert shape_of_config({**fields, KEPT_HEADS: kept}) is None


def test_the_shape_of_each_kind_of_source(tmp_path: Path) -> None:
    config = {"num_hidden_layers": 4, "hidden_size": 312, "intermediate_size": 1248, "vocab_size": 40000}
    config |= {"max_position_embeddings": 2048, "type_vocab_size": 4, "use_task_id": False}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert shape_of_model("ernie-3.0-tiny-nano-v2-zh", 64) == NANO
    assert shape_of_model(str(tmp_path), 64) == NANO
    assert shape_of_model("someone/ernie", 64) is None
    scratch = FromScratch(scratch=Scratch(layers=2, hidden=64, heads=4, max_vocabulary=900))
    assert shape_of_model(scratch, 24) == Shape(2, 64, 4, 256, 900, 24, 2, 3)


def test_what_config_json_leaves_out_is_what_paddlenlp_takes() -> None:
    assert shape_of_config({}) == Shape(12, 768, 12, 3072, 30522, 512, 16, 0)
    with_tasks = shape_of_config({"use_task_id": True, "task_type_vocab_size": 16})
    assert with_tasks is not None
    assert with_tasks.task_types == 16


@pytest.mark.parametrize(
    "fields", [{"init_args": []}, {"hidden_size": "768"}, {"vocab_size": True}, {"vocab_size": -1}]
)
def test_a_config_that_tells_no_shape(fields: dict[str, Any]) -> None:
    assert shape_of_config(fields) is None


@pytest.mark.parametrize("content", ["", "[]", "{", '{"a": ' * 100_000, "\udcff"])
def test_a_folder_that_tells_no_shape(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    assert shape_of_folder(tmp_path) is None
    assert shape_of_folder(tmp_path / "absent") is None


@given(st.integers(1, 48).flatmap(lambda layers: st.tuples(st.integers(1, layers), st.just(layers))))
def test_no_layer_is_taken_twice(sizes: tuple[int, int]) -> None:
    count, layers = sizes
    chosen = evenly_spread_layers(count, layers)
    assert len(set(chosen)) == count
    assert chosen == sorted(chosen)
    assert chosen[-1] == layers
    assert chosen[0] >= 1


def test_a_folder_of_somebody_else_cannot_hold_a_reader_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    assert read_config(tmp_path) is None
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").symlink_to("/dev/zero")
    assert read_config(tmp_path) is None


def test_files_of_a_model_lie_in_its_folder(tmp_path: Path) -> None:
    """A vocabulary goes into bundles as it is."""
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_text("[PAD]", encoding="ascii")
    for name in ("config.json", "vocab.txt", "model_state.pdparams"):
        (folder / name).write_text("{}", encoding="ascii")
    assert file_problems(folder) == []
    for name in ("vocab.txt", "config.json", "tokenizer_config.json", "model.safetensors"):
        file = folder / name
        file.unlink(missing_ok=True)
        file.symlink_to("../secret")
        assert file_problems(folder) == [f"{name} is a link that leads out of the folder model; copy the file there"]
        file.unlink()
        os.mkfifo(file)
        assert file_problems(folder) == [f"{name} is not a regular file"]
        file.unlink()
        (folder / "other").write_text("{}", encoding="ascii")
        file.symlink_to("other")
        assert file_problems(folder) == []


def test_a_file_far_larger_than_its_config_says_is_not_read(tmp_path: Path) -> None:
    """A sparse file of numbers takes no space, and several times its length as memory."""
    shape = shape_of_config({"hidden_size": 8, "num_hidden_layers": 1, "intermediate_size": 16, "vocab_size": 100})
    assert shape is not None
    weights = tmp_path / "model.safetensors"
    for size, known, said in (
        (4 * parameters(shape, 0), shape, ""),
        (60 << 20, shape, ""),  # the heads of a pre-training may be there
        (70 << 20, shape, "model.safetensors has 70 MiB, and config.json describes a model of"),
        (70 << 20, None, ""),
        (5 << 30, None, "model.safetensors has 5.0 GiB, and at most 4 GiB are read"),
    ):
        with weights.open("wb") as file:
            file.truncate(size)
        assert too_large(weights, known).startswith(said) and bool(said) == bool(too_large(weights, known))
