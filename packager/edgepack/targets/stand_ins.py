"""Texts that stand in for those of rows that stay at home: as long as they are, and about nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from edgepack.artifacts import Row
from edgepack_runtime import model_config
from edgepack_runtime.tokenizer import ErnieTokenizer, read_vocab

_SEED: Final = 20261122  # the same texts in every build
_WHOLE: Final = 2**53  # tokens: no text is cut
_SPECIAL: Final = 2  # [CLS] and [SEP]


def stand_ins(rows: Sequence[Row], model: Path) -> list[Row]:
    """For each row one without an answer whose text, or two texts, have as many tokens for the model in that folder.

    Each token is a Chinese character that its vocabulary has, drawn at random. What a text costs is decided by how many
    tokens it has.

    Raises:
        BundleInvalidError: the folder holds no model.
    """
    config = model_config.load(model)
    vocab = model / model_config.VOCAB_NAME
    tokenizer = ErnieTokenizer(vocab, config.tokenizer)
    known = sorted({entry for entry in read_vocab(vocab) if len(entry) == 1 and "一" <= entry <= "鿿"})
    drawn = random.Random(_SEED)

    def like(texts: Sequence[str]) -> list[str]:
        lengths = [len(ids) - _SPECIAL for ids in tokenizer.encode(texts, _WHOLE)]
        return ["".join(drawn.choices(known or "好", k=length)) for length in lengths]

    firsts = like([row.text for row in rows])
    seconds = like([row.text_pair for row in rows if row.text_pair is not None])
    if not seconds:
        return [Row(text, ()) for text in firsts]
    return [Row(text, (), other) for text, other in zip(firsts, seconds, strict=True)]
