"""Config files of Hugging Face checkpoints: can the model be converted, and what is PaddleNLP's config of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from edgepack.recipe.paths import is_file
from edgepack_runtime.util.fs import read_regular

HUGGINGFACE_WEIGHTS: Final = ("model.safetensors", "pytorch_model.bin")  # the first existing file, as in transformers
CHECKPOINT_FIX: Final = "use a BERT or ERNIE checkpoint; docs/reference/recipe-file.md lists the conditions"
MAX_EPSILON: Final = 1e-3  # of LayerNorm; Paddle computes with at most this
MAX_LAYERS: Final = 256  # a layer takes memory and time even with few weights; the deepest of `PRESETS` has 24
_MODEL_TYPES: Final = ("bert", "ernie")
# Defaults of keys that a checkpoint's config.json lacks, from transformers' BertConfig and ErnieConfig.
_INT_DEFAULTS: Final[Mapping[str, int]] = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "task_type_vocab_size": 3,
}
FLOAT_DEFAULTS: Final[Mapping[str, float]] = {
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
}
# Keys with only one value that PaddleNLP's ERNIE supports, which is also the default of a missing key.
_FIXED: Final[Mapping[str, Any]] = {
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "pad_token_id": 0,
    "is_decoder": False,
    "add_cross_attention": False,
}


def huggingface_weights(folder: Path) -> Path | None:
    """The file in `folder` with the weights of a checkpoint; None if there is none."""
    return next((folder / name for name in HUGGINGFACE_WEIGHTS if is_file(folder / name)), None)


def config_problems(fields: Mapping[str, Any]) -> list[str]:
    """Reasons why a checkpoint's config.json cannot be converted, each with its key; empty if it can."""
    model_type = fields.get("model_type")
    if model_type not in _MODEL_TYPES:
        known = " and ".join(f"`{name}`" for name in _MODEL_TYPES)
        return [f"`model_type` is {shown(model_type)}, and only {known} can be converted"]
    problems = [
        f"`{key}` is {shown(fields[key])}, and only {shown(value)} can be converted"
        for key, value in _FIXED.items()
        if fields.get(key, value) != value
    ]
    sizes = {key: fields.get(key, default) for key, default in _INT_DEFAULTS.items()}
    invalid = [key for key, size in sizes.items() if type(size) is not int or size < 1]
    problems += [f"`{key}` is {shown(sizes[key])}, which is not a size" for key in invalid]
    if not invalid and sizes["hidden_size"] % sizes["num_attention_heads"]:
        problems.append(f"`hidden_size` is {sizes['hidden_size']}, which is not a multiple of `num_attention_heads`")
    problems += _too_many_layers(fields)
    epsilon = fields.get("layer_norm_eps", FLOAT_DEFAULTS["layer_norm_eps"])
    if type(epsilon) is float and epsilon > MAX_EPSILON:
        problems.append(f"`layer_norm_eps` is {epsilon}, and Paddle computes with at most {MAX_EPSILON}")
    fractions = {key: fields.get(key, default) for key, default in FLOAT_DEFAULTS.items()}
    fractions["classifier_dropout"] = 0.0 if fields.get("classifier_dropout") is None else fields["classifier_dropout"]
    for key, value in fractions.items():
        if type(value) not in (int, float) or not 0 <= value < 1 or (key == "layer_norm_eps" and value == 0):
            problems.append(f"`{key}` is {shown(value)}, which is not a fraction")
    if type(fields.get("use_task_id", False)) is not bool:
        problems.append(f"`use_task_id` is {shown(fields['use_task_id'])}, which is neither true nor false")
    return problems


def paddle_problems(fields: Mapping[str, Any]) -> list[str]:
    """Reasons to refuse a config.json of PaddleNLP: over `MAX_LAYERS` layers, or padding with another id than 0."""
    problems = _too_many_layers(fields)
    padding = fields.get("pad_token_id", 0)
    if padding != _FIXED["pad_token_id"]:
        problems.append(f"`pad_token_id` is {shown(padding)}, and batches are padded with 0, which is [PAD]")
    return problems


def _too_many_layers(fields: Mapping[str, Any]) -> list[str]:
    layers = fields.get("num_hidden_layers")
    if type(layers) is not int or layers <= MAX_LAYERS:
        return []
    return [f"`num_hidden_layers` is {shown(layers)}, and at most {MAX_LAYERS} layers are supported"]


def paddlenlp_config(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The same network as PaddleNLP's ErnieConfig. Call `config_problems` first."""
    config: dict[str, Any] = {
        key: fields.get(key, default) for key, default in {**_INT_DEFAULTS, **FLOAT_DEFAULTS}.items()
    }
    config["use_task_id"] = fields["model_type"] == "ernie" and fields.get("use_task_id", False)
    config |= {"hidden_act": _FIXED["hidden_act"], "pad_token_id": _FIXED["pad_token_id"]}
    if fields.get("classifier_dropout") is not None:
        config["classifier_dropout"] = fields["classifier_dropout"]
    return config


def read_object(file: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if the file is missing.

    Raises:
        OSError, ValueError, RecursionError: it cannot be read, or holds something else.
    """
    if not is_file(file):
        return {}
    fields = json.loads(read_regular(file).decode("utf-8"))
    if not isinstance(fields, dict):
        raise ValueError(f"{file.name} holds {shown(fields)}")
    return fields


def shown(value: Any) -> str:
    """A value of a config file, as a message quotes it."""
    return json.dumps(value, ensure_ascii=False)[:80] if value is not None else "not given"
