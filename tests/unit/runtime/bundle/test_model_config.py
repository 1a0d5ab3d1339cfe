from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack_runtime.bundle.model_config import (
    CONFIG_NAME,
    EngineConfig,
    HandlerConfig,
    LinearConfig,
    ModelConfig,
    dump,
    linear_alone,
    load,
    parse,
)
from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.tasks.registry import ONE_TEXT, task_by_name

ENGINE = EngineConfig(disabled_optimizers=("SkipLayerNormFusion",))
CONFIG = ModelConfig("text-classification", ("负面", "正面"), 64, "int8", engine=ENGINE)
TAGS = ["O", "B-人", "I-人"]
LINEAR = {"mode": "cascade", "encoder_weight": 1, "linear_weight": 0.5, "least_lead": 2.0}


def changed(**changes: Any) -> bytes:
    """The document of CONFIG with `changes`; a dotted key (as `tokenizer__type`) reaches into an object."""
    document = json.loads(dump(CONFIG))
    for key, value in changes.items():
        *path, last = key.split("__")
        place = document
        for part in path:
            place = place[part]
        if value is KeyError:
            del place[last]
        else:
            place[last] = value
    return json.dumps(document).encode()


def test_a_model_folder_is_loaded_with_its_config(tmp_path: Path) -> None:
    with pytest.raises(BundleInvalidError, match=CONFIG_NAME):
        load(tmp_path)
    (tmp_path / CONFIG_NAME).write_bytes(dump(CONFIG))
    assert load(tmp_path) == CONFIG


def test_the_keys_of_the_document() -> None:
    assert json.loads(dump(CONFIG)) == {
        "model_format": 1,
        "task": "text-classification",
        "labels": ["负面", "正面"],
        "max_length": 64,
        "precision": "int8",
        "tokenizer": {
            "type": "ernie-wordpiece",
            "lower_case": True,
            "unk_token": "[UNK]",
            "cls_token": "[CLS]",
            "sep_token": "[SEP]",
            "pad_token": "[PAD]",
        },
        "engine": {"provider": "CPUExecutionProvider", "disabled_optimizers": ["SkipLayerNormFusion"]},
        "multi_label": False,
        "hides_padding": True,
        "run_alone": False,
    }


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model_format": 2}, "model_format"),
        ({"model_format": True}, "model_format"),
        ({"task": "question-answering"}, "task"),
        ({"multi_label": KeyError}, "multi_label"),
        ({"multi_label": 1}, "multi_label"),
        ({"hides_padding": KeyError}, "hides_padding"),
        ({"hides_padding": 0}, "hides_padding"),
        ({"run_alone": KeyError}, "run_alone"),
        ({"run_alone": "no"}, "run_alone"),
        ({"multi_label": True, "task": "token-classification", "labels": TAGS}, "multi_label"),
        ({"task": "token-classification"}, "labels has no 'O'"),
        ({"task": "token-classification", "labels": TAGS[::-1]}, "labels begins with 'I-人'"),
        ({"task": "token-classification", "labels": ["O", "人"]}, "holds '人', which is not a BIO tag"),
        ({"task": "token-classification", "labels": ["O", "S-人"]}, "holds 'S-人', which is not a BIO tag"),
        ({"labels": ["only"]}, "labels"),
        ({"labels": ["a", "a"]}, "twice"),
        ({"labels": ["a", 1]}, "labels"),
        ({"labels": "ab"}, "labels"),
        ({"labels": ["a", "\ud83d"]}, "surrogate"),
        ({"max_length": 2}, "max_length"),
        ({"max_length": True}, "max_length"),
        ({"max_length": 64.0}, "max_length"),
        ({"precision": "int4"}, "precision"),
        ({"precision": ["int8"]}, "precision"),
        ({"precision": "fp16"}, "precision"),
        ({"tokenizer__type": "bpe"}, "tokenizer.type"),
        ({"tokenizer__lower_case": 1}, "lower_case"),
        ({"tokenizer__sep_token": "[CLS]"}, "twice"),
        ({"tokenizer__unk_token": ""}, "special tokens"),
        ({"tokenizer__extra": 1}, "tokenizer"),
        ({"tokenizer": None}, "tokenizer"),
        ({"engine__provider": "TensorrtExecutionProvider"}, "engine.provider"),
        ({"engine__pad_to": 1}, "engine"),
        ({"engine__provider": KeyError}, "engine"),
        ({"engine__disabled_optimizers": "x"}, "disabled_optimizers"),
        ({"labels": KeyError}, "labels"),
        ({"serve": True}, "serve"),
    ],
)
def test_invalid_values_are_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(BundleInvalidError, match=CONFIG_NAME) as caught:
        parse(changed(**changes))
    assert named in caught.value.why


@pytest.mark.parametrize(
    "config",
    [
        ModelConfig("text-classification", ("a", "b"), 64, "int8", multi_label=True),
        ModelConfig("text-pair-classification", ("0", "1"), 64, "int8"),
        ModelConfig("token-classification", tuple(TAGS), 64, "float32", hides_padding=False),
    ],
)
def test_every_task_round_trips(config: ModelConfig) -> None:
    assert parse(dump(config)) == config
    assert config.takes_pairs == (config.task == "text-pair-classification")


def test_dump_refuses_what_parse_would() -> None:
    with pytest.raises(BundleInvalidError):
        dump(ModelConfig("text-classification", ("a",), 64, "int8"))


any_text = st.text(st.characters(codec=None))  # half surrogate pairs too
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@given(st.binary(max_size=200) | json_values.map(lambda value: json.dumps(value).encode()))
def test_other_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(BundleInvalidError):
        parse(raw)


@given(st.sampled_from(sorted(json.loads(dump(CONFIG)))), json_values)
def test_any_value_in_any_field_gives_a_config_or_an_error(key: str, value: Any) -> None:
    try:
        config = parse(changed(**{key: value}))
    except BundleInvalidError:
        return
    assert parse(dump(config)) == config


def test_a_linear_model_is_described_only_where_there_is_one() -> None:
    assert b"linear" not in dump(CONFIG)
    linear = LinearConfig("cascade", 0.75, 0.5, 2.25)
    both = dataclasses.replace(CONFIG, linear=linear)
    assert parse(dump(both)) == both and both.needs_encoder


def test_a_linear_model_alone_has_no_keys_of_an_encoder() -> None:
    alone = linear_alone(task_by_name(ONE_TEXT, multi_label=True), CONFIG.labels)
    assert (alone.needs_encoder, alone.max_length, alone.engine) == (False, 0, EngineConfig())
    document = json.loads(dump(alone))
    assert set(document) == {"model_format", "task", "labels", "multi_label", "linear"}
    assert parse(dump(alone)) == alone
    with pytest.raises(BundleInvalidError, match="not valid"):
        parse(json.dumps({**document, "max_length": 128}).encode())
    with pytest.raises(BundleInvalidError, match="not valid"):
        parse(json.dumps({**document, "task": "token-classification"}).encode())


@pytest.mark.parametrize(
    ("linear", "why"),
    [
        ({"mode": "cascade"}, "linear should be an object with the keys"),
        ({**LINEAR, "mode": "sum"}, "linear.mode is 'sum'"),
        ({**LINEAR, "least_lead": -1}, "linear.least_lead is -1"),
        ({**LINEAR, "encoder_weight": True}, "linear.encoder_weight is True"),
        ({**LINEAR, "linear_weight": math.inf}, "linear.linear_weight is inf"),
        ([], "linear should be an object"),
    ],
)
def test_an_invalid_description_of_a_linear_model_is_refused(linear: Any, why: str) -> None:
    with pytest.raises(BundleInvalidError) as caught:
        parse(changed(linear=linear))
    assert why in caught.value.why


def test_tokens_have_no_linear_model() -> None:
    with pytest.raises(BundleInvalidError) as caught:
        parse(changed(linear=LINEAR, task="token-classification", labels=["O", "B-x", "I-x"]))
    assert "token-classification does not support a linear model" in caught.value.why


GIVEN = ModelConfig("custom", (), 0, "float32", engine=ENGINE, handler=HandlerConfig("file", ("detect", "read_2")))


def test_a_model_with_a_handler_has_few_keys() -> None:
    document = json.loads(dump(GIVEN))
    assert document == {
        "model_format": 1,
        "task": "custom",
        "precision": "float32",
        "engine": {"provider": "CPUExecutionProvider", "disabled_optimizers": ["SkipLayerNormFusion"]},
        "handler": {"item": "file", "graphs": ["detect", "read_2"]},
    }
    assert parse(dump(GIVEN)) == GIVEN
    assert (GIVEN.item, GIVEN.takes_pairs, GIVEN.classes) == ("file", False, ())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"labels": ["a", "b"]}, "the document should be"),
        ({"task": "text-classification"}, "the document should be"),
        ({"handler": None}, "handler should be an object"),
        ({"handler": {"item": "file"}}, "handler should be an object"),
        ({"handler": {"item": "texts", "graphs": ["a"]}}, "handler.item is 'texts'"),
        ({"handler": {"item": "file", "graphs": []}}, "handler.graphs"),
        ({"handler": {"item": "file", "graphs": ["a", "a"]}}, "holds 'a' twice"),
        ({"handler": {"item": "file", "graphs": ["../a"]}}, "not a name of a graph"),
        ({"handler": {"item": "file", "graphs": ["a\n"]}}, "not a name of a graph"),
        ({"handler": {"item": "file", "graphs": "abc"}}, "handler.graphs"),
        ({"precision": "int4"}, "precision is 'int4'"),
        ({"engine": {"provider": "X", "disabled_optimizers": []}}, "engine.provider"),
    ],
)
def test_a_handler_that_does_not_fit_is_refused(changes: dict[str, Any], words: str) -> None:
    document = {**json.loads(dump(GIVEN)), **changes}
    with pytest.raises(BundleInvalidError) as caught:
        parse(json.dumps(document).encode())
    assert words in str(caught.value)


def test_a_model_of_texts_has_no_handler() -> None:
    document = {**json.loads(dump(CONFIG)), "handler": None}
    with pytest.raises(BundleInvalidError, match="the document should be"):
        parse(json.dumps(document).encode())
