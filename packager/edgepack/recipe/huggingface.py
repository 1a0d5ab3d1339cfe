"""Checkpoints in Hugging Face's layout: what of their settings PaddleNLP's ERNIE can take over, and what it cannot.

A BERT and an ERNIE are the same network but for the task embedding that an ERNIE may have. Sizes, dropout and the
epsilon of the norms are taken over; whatever else would change what the network computes is a problem, never ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from edgepack.recipe.sources import is_file

WEIGHTS_FILES: Final = ("model.safetensors", "pytorch_model.bin")  # the first that is there counts, as in transformers
MOST_EPSILON: Final = 1e-3
KINDS: Final = ("bert", "ernie")
UNFIT: Final = "use a checkpoint of a BERT or an ERNIE as docs/10-recipe.md describes it"

_TOKENIZER_FILES: Final = ("tokenizer_config.json", "added_tokens.json")
# What a checkpoint has where its config.json is silent: the defaults of transformers' BertConfig and ErnieConfig.
_SIZES: Final[Mapping[str, int]] = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "task_type_vocab_size": 3,
}
_FRACTIONS: Final[Mapping[str, float]] = {
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
}
# What has one value that PaddleNLP's ERNIE computes; the value also stands for a key that is not there.
_FIXED: Final[Mapping[str, Any]] = {
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "pad_token_id": 0,
    "is_decoder": False,
    "add_cross_attention": False,
}
_SPECIAL_TOKENS: Final[Mapping[str, str]] = {
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "mask_token": "[MASK]",
}
_TOKENIZERS: Final = ("BertTokenizer", "BertTokenizerFast", "ErnieTokenizer", "ErnieTokenizerFast")


def weights_of(folder: Path) -> Path | None:
    """The weights of a checkpoint in `folder`; None when there are none."""
    return next((folder / name for name in WEIGHTS_FILES if is_file(folder / name)), None)


def config_problems(fields: Mapping[str, Any]) -> list[str]:
    """What stands against a conversion in a checkpoint's config.json; each names its key. Empty when all fits."""
    kind = fields.get("model_type")
    if kind not in KINDS:
        known = " and ".join(f"`{name}`" for name in KINDS)
        return [f"`model_type` is {_shown(kind)}, and only {known} can be converted"]
    problems = [
        f"`{key}` is {_shown(fields[key])}, and only {_shown(value)} can be converted"
        for key, value in _FIXED.items()
        if fields.get(key, value) != value
    ]
    sizes = {key: fields.get(key, absent) for key, absent in _SIZES.items()}
    wrong = [key for key, size in sizes.items() if type(size) is not int or size < 1]
    problems += [f"`{key}` is {_shown(sizes[key])}, which is no size" for key in wrong]
    if not wrong and sizes["hidden_size"] % sizes["num_attention_heads"]:
        problems.append(f"`hidden_size` is {sizes['hidden_size']}, which is no multiple of `num_attention_heads`")
    epsilon = fields.get("layer_norm_eps", _FRACTIONS["layer_norm_eps"])
    if type(epsilon) is float and epsilon > MOST_EPSILON:
        problems.append(f"`layer_norm_eps` is {epsilon}, and Paddle computes with at most {MOST_EPSILON}")
    shares = {key: fields.get(key, absent) for key, absent in _FRACTIONS.items()}
    shares["classifier_dropout"] = 0.0 if fields.get("classifier_dropout") is None else fields["classifier_dropout"]
    for key, share in shares.items():
        if type(share) not in (int, float) or not 0 <= share < 1 or (key == "layer_norm_eps" and share == 0):
            problems.append(f"`{key}` is {_shown(share)}, which is no fraction")
    if type(fields.get("use_task_id", False)) is not bool:
        problems.append(f"`use_task_id` is {_shown(fields['use_task_id'])}, which is neither true nor false")
    return problems


def tokenizer_problems(folder: Path) -> list[str]:
    """What keeps PaddleNLP's ErnieTokenizer from cutting texts as the checkpoint's own; each names its key."""
    try:
        told, added = (_read(folder / name) for name in _TOKENIZER_FILES)
    except (OSError, ValueError, RecursionError) as error:
        return [f"one of {' and '.join(_TOKENIZER_FILES)} is no JSON object ({error})"]
    problems = []
    if (kind := told.get("tokenizer_class", _TOKENIZERS[0])) not in _TOKENIZERS:
        problems.append(f"`tokenizer_class` is {_shown(kind)}, and only BERT's and ERNIE's can be converted")
    lower = told.get("do_lower_case", True)
    if type(lower) is not bool:
        problems.append(f"`do_lower_case` is {_shown(lower)}, which is neither true nor false")
    if told.get("strip_accents") not in (None, lower):  # PaddleNLP drops accents exactly where it lower-cases
        problems.append(f"`strip_accents` is {_shown(told['strip_accents'])}, and `do_lower_case` is {_shown(lower)}")
    if told.get("tokenize_chinese_chars", True) is not True:
        problems.append(f"`tokenize_chinese_chars` is {_shown(told['tokenize_chinese_chars'])}, and only true works")
    for key, usual in _SPECIAL_TOKENS.items():
        if (token := _content(told.get(key, usual))) != usual:
            problems.append(f"`{key}` is {_shown(token)}, and only {usual} can be converted")
    decoder = told.get("added_tokens_decoder")
    more = [*added, *(map(_content, decoder.values()) if isinstance(decoder, dict) else ())]
    if unknown := [token for token in more if token not in _SPECIAL_TOKENS.values()]:
        problems.append(f"`added_tokens` has {_shown(unknown[0])}, and only the usual five are kept whole in texts")
    return problems


def lower_case(folder: Path) -> bool:
    """Whether the checkpoint's tokenizer lower-cases; to be asked after `tokenizer_problems`. True unless it tells."""
    return bool(_read(folder / _TOKENIZER_FILES[0]).get("do_lower_case", True))


def paddlenlp_config(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The same network in the words of PaddleNLP's ErnieConfig; to be asked after `config_problems`."""
    config: dict[str, Any] = {key: fields.get(key, absent) for key, absent in {**_SIZES, **_FRACTIONS}.items()}
    config["use_task_id"] = fields["model_type"] == "ernie" and fields.get("use_task_id", False)
    config |= {"hidden_act": _FIXED["hidden_act"], "pad_token_id": _FIXED["pad_token_id"]}
    if fields.get("classifier_dropout") is not None:
        config["classifier_dropout"] = fields["classifier_dropout"]
    return config


def _read(file: Path) -> dict[str, Any]:
    """What a file that may be missing holds."""
    if not is_file(file):
        return {}
    fields = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(fields, dict):
        raise ValueError(f"{file.name} holds {_shown(fields)}")
    return fields


def _content(token: Any) -> Any:
    """A token is written down as it is, or as an object that also tells how it is looked for."""
    return token.get("content") if isinstance(token, dict) else token


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:80] if value is not None else "not given"
