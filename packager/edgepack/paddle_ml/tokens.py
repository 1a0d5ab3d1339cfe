"""Rows -> tokens, by the tokenizer that ships: one component for training and for the device."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from edgepack.artifacts import Row
from edgepack.errors import StageFailedError
from edgepack.paddle_ml.batches import Encoded
from edgepack_runtime.model_config import VOCAB_NAME, TokenizerConfig
from edgepack_runtime.tokenizer import ErnieTokenizer

_CONFIG_NAME: Final = "tokenizer_config.json"  # as PaddleNLP writes it
SETTINGS_FILES: Final = (_CONFIG_NAME, "special_tokens_map.json")  # beside the vocabulary


def config_of(folder: Path) -> TokenizerConfig:
    """How the tokenizer of a PaddleNLP folder cuts texts.

    Raises:
        StageFailedError: when the folder does not tell.
    """
    try:
        told = json.loads((folder / _CONFIG_NAME).read_text(encoding="utf-8"))
        special = {key: told[key] for key in ("unk_token", "cls_token", "sep_token", "pad_token")}
        return TokenizerConfig(lower_case=bool(told["do_lower_case"]), **special)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StageFailedError(
            f"{folder / _CONFIG_NAME} does not describe a tokenizer", why=str(error), fix="copy the model again"
        ) from error


def open_tokenizer(folder: Path) -> ErnieTokenizer:
    """The tokenizer of a PaddleNLP folder. Raises as `config_of`."""
    return ErnieTokenizer(folder / VOCAB_NAME, config_of(folder))


def encode(
    tokenizer: ErnieTokenizer, rows: Sequence[Row], max_length: int, *, with_offsets: bool = False
) -> list[Encoded]:
    """Token ids and types of each row, special tokens included, cut to `max_length`; with offsets if asked for."""
    texts = [row.text for row in rows]
    if with_offsets:
        found = zip(*tokenizer.encode_with_offsets(texts, max_length), strict=True)
        return [Encoded(row_ids, [0] * len(row_ids), tuple(places)) for row_ids, places in found]
    pairs = [row.text_pair for row in rows if row.text_pair is not None]
    if not pairs:
        return [Encoded(row_ids, [0] * len(row_ids)) for row_ids in tokenizer.encode(texts, max_length)]
    encoded, firsts = tokenizer.encode_pairs(texts, pairs, max_length)
    return [
        Encoded(row_ids, [0] * first + [1] * (len(row_ids) - first))
        for row_ids, first in zip(encoded, firsts, strict=True)
    ]
