"""The ERNIE models that PaddleNLP 3.0.0b4 knows by name, with their shapes: known before anything is downloaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from edgepack.recipe.shapes import Shape, of_folder, of_scratch
from edgepack.recipe.training import FromScratch, is_local_folder

# PaddleNLP has it, but its vocabulary belongs to SentencePiece; edgepack tokenizes with WordPiece alone.
SENTENCEPIECE: Final = "ernie-tiny"

# layers, hidden, heads, feed-forward, vocabulary, positions, token types, task types
_NAMED: Final[tuple[tuple[Shape, str], ...]] = (
    (Shape(20, 1024, 16, 4096, 40000, 2048, 4, 16), "ernie-3.0-xbase-zh"),
    (
        Shape(12, 768, 12, 3072, 40000, 2048, 4, 3),
        "ernie-3.0-base-zh ernie-3.0-tiny-base-v1-zh uie-base uie-senta-base uie-base-answer-extractor "
        "uie-base-qa-filter rocketqa-base-cross-encoder rocketqa-zh-base-query-encoder rocketqa-zh-base-para-encoder",
    ),
    (
        Shape(6, 768, 12, 3072, 40000, 2048, 4, 16),
        "ernie-3.0-medium-zh ernie-3.0-tiny-medium-v1-zh uie-medium uie-senta-medium "
        "rocketqa-medium-cross-encoder rocketqa-zh-medium-query-encoder rocketqa-zh-medium-para-encoder",
    ),
    (
        Shape(6, 384, 12, 1536, 40000, 2048, 4, 16),
        "ernie-3.0-mini-zh ernie-3.0-tiny-mini-v1-zh uie-mini uie-senta-mini "
        "rocketqa-mini-cross-encoder rocketqa-zh-mini-query-encoder rocketqa-zh-mini-para-encoder",
    ),
    (
        Shape(4, 384, 12, 1536, 40000, 2048, 4, 16),
        "ernie-3.0-micro-zh ernie-3.0-tiny-micro-v1-zh uie-micro uie-senta-micro "
        "rocketqa-micro-cross-encoder rocketqa-zh-micro-query-encoder rocketqa-zh-micro-para-encoder",
    ),
    (
        Shape(4, 312, 12, 1248, 40000, 2048, 4, 16),
        "ernie-3.0-nano-zh ernie-3.0-tiny-nano-v1-zh uie-nano uie-senta-nano "
        "rocketqa-nano-cross-encoder rocketqa-zh-nano-query-encoder rocketqa-zh-nano-para-encoder",
    ),
    (Shape(12, 768, 12, 3072, 40000, 2048, 4, 0), "ernie-3.0-tiny-base-v2-zh"),
    (Shape(6, 768, 12, 3072, 40000, 2048, 4, 0), "ernie-3.0-tiny-medium-v2-zh"),
    (Shape(6, 384, 12, 1536, 40000, 2048, 4, 0), "ernie-3.0-tiny-mini-v2-zh"),
    (Shape(6, 384, 12, 1536, 50265, 514, 1, 0), "ernie-3.0-tiny-mini-v2-en"),
    (Shape(4, 384, 12, 1536, 40000, 2048, 4, 0), "ernie-3.0-tiny-micro-v2-zh"),
    (Shape(4, 312, 12, 1248, 40000, 2048, 4, 0), "ernie-3.0-tiny-nano-v2-zh"),
    (Shape(3, 128, 2, 512, 40000, 2048, 4, 0), "ernie-3.0-tiny-pico-v2-zh"),
    (Shape(12, 768, 12, 3072, 18000, 513, 4, 0), "ernie-2.0-base-zh"),
    (Shape(24, 1024, 16, 4096, 12800, 512, 4, 0), "ernie-2.0-large-zh"),
    (
        Shape(12, 768, 12, 3072, 30522, 512, 4, 0),
        "ernie-2.0-base-en ernie-2.0-base-en-finetuned-squad ernie-search-base-dual-encoder-marco-en uie-base-en "
        "rocketqa-v1-marco-query-encoder rocketqa-v1-marco-para-encoder rocketqa-v1-marco-cross-encoder "
        "rocketqav2-en-marco-query-encoder rocketqav2-en-marco-para-encoder rocketqav2-en-marco-cross-encoder",
    ),
    (
        Shape(24, 1024, 16, 4096, 30522, 512, 4, 0),
        "ernie-2.0-large-en ernie-search-large-cross-encoder-marco-en",
    ),
    (
        Shape(12, 768, 12, 3072, 18000, 513, 2, 0),
        "ernie-1.0 ernie-1.0-base-zh rocketqa-zh-dureader-query-encoder rocketqa-zh-dureader-para-encoder "
        "rocketqa-zh-dureader-cross-encoder",
    ),
    (Shape(12, 768, 12, 3072, 40000, 512, 4, 3), "ernie-1.0-base-zh-cw"),
    (Shape(24, 1024, 16, 3072, 18000, 512, 2, 0), "ernie-1.0-large-zh-cw"),
    (Shape(24, 1024, 16, 3072, 17965, 512, 2, 3), "utc-large"),
    (Shape(20, 1024, 16, 4096, 39981, 2048, 4, 16), "utc-xbase"),
    (Shape(12, 768, 12, 3072, 39981, 2048, 4, 0), "utc-base"),
    (Shape(6, 768, 12, 3072, 39981, 2048, 4, 0), "utc-medium"),
    (Shape(6, 384, 12, 1536, 39981, 2048, 4, 0), "utc-mini"),
    (Shape(4, 384, 12, 1536, 39981, 2048, 4, 0), "utc-micro"),
    (Shape(4, 312, 12, 1248, 39981, 2048, 4, 0), "utc-nano"),
    (Shape(3, 128, 2, 512, 39981, 2048, 4, 0), "utc-pico"),
)
PRESETS: Final[Mapping[str, Shape]] = {name: shape for shape, names in _NAMED for name in names.split()}


def shape_of(model: str | FromScratch, max_length: int) -> Shape | None:
    """The shape of a resolved recipe's model, from what lies on this machine alone.

    Args:
        model: `teacher.model` or `student.model` as `load_recipe` resolves it: local folders are absolute.
        max_length: of the same section; a model from scratch gets as many positions.

    Returns:
        The shape (of a model from scratch: with the largest vocabulary it may get), or None where only the hub
        knows it (`owner/name`), or a folder's config.json does not tell.
    """
    if isinstance(model, FromScratch):
        return of_scratch(model.scratch, max_length)
    return of_folder(Path(model)) if is_local_folder(model) else PRESETS.get(model)
