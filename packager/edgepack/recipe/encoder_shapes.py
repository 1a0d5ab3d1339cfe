"""Shapes of ERNIE encoders, known before they are loaded: of presets, of models from scratch, of local folders."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from edgepack.recipe.huggingface_config import (
    FLOAT_DEFAULTS,
    HUGGINGFACE_WEIGHTS,
    config_problems,
    huggingface_weights,
    paddlenlp_config,
)
from edgepack.recipe.paths import is_file
from edgepack.recipe.tokenizer_settings import TOKENIZER_FILES
from edgepack.recipe.training import FromScratch, Scratch, is_local_folder
from edgepack.util import confined_files
from edgepack_runtime.bundle.model_config import VOCAB_NAME
from edgepack_runtime.util.fs import read_regular

CONFIG_FILE: Final = "config.json"  # of PaddleNLP's save_pretrained, and of Hugging Face's
PADDLE_WEIGHTS: Final = "model_state.pdparams"  # of PaddleNLP's save_pretrained
MOST_WEIGHT_BYTES: Final = 4 << 30  # of a file: ERNIE's largest has 1.3 GB; a sparse file of terabytes takes no space
_MOST_OF_A_WEIGHT: Final = 16  # bytes of the file for each weight of the config: twice those of float64
_MOST_OF_OTHERS: Final = 64 << 20  # bytes of further arrays, as the heads of a pre-training
_MAX_CONFIG_BYTES: Final = 2**20
# A key that edgepack adds to the config.json of a model pruned in width: attention heads that each layer kept.
KEPT_HEADS: Final = "kept_attention_heads"
# Field of `Shape` -> key of PaddleNLP's ErnieConfig, and its default.
_SIZES: Final[Mapping[str, tuple[str, int]]] = {
    "layers": ("num_hidden_layers", 12),
    "hidden": ("hidden_size", 768),
    "heads": ("num_attention_heads", 12),
    "feed_forward": ("intermediate_size", 3072),
    "vocabulary": ("vocab_size", 30522),
    "positions": ("max_position_embeddings", 512),
    "token_types": ("type_vocab_size", 16),
    "task_types": ("task_type_vocab_size", 3),
}
_OTHER_KEYS: Final = ("use_task_id", "hidden_act", "pad_token_id", "classifier_dropout")  # that decide the computation
# Values of a model from scratch.
SCRATCH_TOKEN_TYPES: Final = 2
SCRATCH_TASK_TYPES: Final = 3


@dataclass(frozen=True)
class Shape:
    """Sizes of one ERNIE encoder."""

    layers: int
    hidden: int
    heads: int
    feed_forward: int
    vocabulary: int  # rows of the word embedding; may exceed the lines of vocab.txt
    positions: int  # maximum tokens of a text with [CLS] and [SEP]
    token_types: int
    task_types: int  # 0: no task embedding
    head_size: int | None = None  # for a model that was pruned in width; None: `hidden` / `heads`

    @property
    def attention(self) -> int:
        """Total output width of the heads of a layer."""
        return self.hidden if self.head_size is None else self.heads * self.head_size


def parameters(shape: Shape, labels: int) -> int:
    """Number of weights of PaddleNLP's ErnieForSequenceClassification with `labels` classes."""
    hidden = shape.hidden
    rows = shape.vocabulary + shape.positions + shape.token_types + shape.task_types
    norm = 2 * hidden  # scale and shift
    attention = 4 * hidden * shape.attention + 3 * shape.attention + hidden  # Q, K, V and output, each with its bias
    feed_forward = 2 * hidden * shape.feed_forward + shape.feed_forward + hidden
    layer = attention + feed_forward + 2 * norm
    pooler = hidden * hidden + hidden
    return rows * hidden + norm + shape.layers * layer + pooler + hidden * labels + labels


def too_large(weights: Path, shape: Shape | None) -> str:
    """Why a file of weights is larger than any model that can be used, or than one of a shape; empty if it is not."""
    size = weights.stat().st_size
    if size > MOST_WEIGHT_BYTES:
        return f"{weights.name} has {size / 2**30:,.1f} GiB, and at most {MOST_WEIGHT_BYTES >> 30} GiB are read"
    wanted = 0 if shape is None else parameters(shape, labels=0)
    if shape is None or size <= _MOST_OF_A_WEIGHT * wanted + _MOST_OF_OTHERS:
        return ""
    return f"{weights.name} has {size / 2**20:,.0f} MiB, and config.json describes a model of {wanted:,} weights"


def parameters_at_once(shape: Shape) -> int:
    """Number of weights for which memory is taken while a model is made, without labels.

    One layer at a time has all attention heads, also of a model that was pruned in width.
    """
    return parameters(shape, labels=0) + 4 * shape.hidden * (shape.hidden - shape.attention)


def evenly_spread_layers(count: int, layers: int) -> list[int]:
    """The numbers, from 1, of `count` of `layers` layers at even distances, with the top one; `count` <= `layers`."""
    return [round((index + 1) * layers / count) for index in range(count)]


def kept_at_width(count: int, width: float) -> int:
    """Number of heads or neurons, of `count`, that a layer keeps when pruned to `width`: rounded, at least one."""
    return max(1, int(count * width + 0.5))


def pruned_shape(shape: Shape, layers: int, width: float) -> Shape:
    """The shape of a student that starts from `layers` layers of a model, pruned to `width` (above 0, at most 1)."""
    if width == 1:
        return replace(shape, layers=layers)
    heads, feed_forward = kept_at_width(shape.heads, width), kept_at_width(shape.feed_forward, width)
    head_size = shape.head_size or shape.hidden // shape.heads
    return replace(shape, layers=layers, heads=heads, feed_forward=feed_forward, head_size=head_size)


def shape_of_scratch(scratch: Scratch, max_length: int) -> Shape:
    """The shape of a model from scratch, with the maximum vocabulary."""
    return Shape(
        scratch.layers,
        scratch.hidden,
        scratch.heads,
        scratch.feed_forward or 4 * scratch.hidden,
        scratch.max_vocabulary,
        max_length,
        SCRATCH_TOKEN_TYPES,
        SCRATCH_TASK_TYPES,
    )


def shape_of_folder(folder: Path) -> Shape | None:
    """The shape of a model in a local folder; None if its config.json lacks it."""
    fields = read_config(folder)
    if fields is None:
        return None
    if not is_huggingface_folder(folder):
        return shape_of_config(fields)
    return None if config_problems(fields) else shape_of_config(paddlenlp_config(fields))


_MODEL_FILES: Final = (CONFIG_FILE, PADDLE_WEIGHTS, *HUGGINGFACE_WEIGHTS, VOCAB_NAME, *TOKENIZER_FILES)


def model_files(folder: Path) -> list[Path]:
    """The files of a model's folder that are read."""
    return [folder / name for name in _MODEL_FILES if is_file(folder / name)]


def file_problems(folder: Path) -> list[str]:
    """Why files of a model's folder are refused: they are links that lead out of it, or not files. Else empty."""
    problems = []
    for name in _MODEL_FILES:
        try:
            confined_files.below(folder, name)
        except ValueError as error:
            problems.append(str(error))
        except OSError:  # it is missing, which its reader reports if it is needed
            continue
    return problems


def is_huggingface_folder(folder: Path) -> bool:
    """Whether the model in a folder is a Hugging Face checkpoint. PaddleNLP's weights are preferred if it has both."""
    return not is_file(folder / PADDLE_WEIGHTS) and huggingface_weights(folder) is not None


def shape_of_config(fields: Mapping[str, Any]) -> Shape | None:
    """The shape in a PaddleNLP config.json; None for an older format, or without sizes."""
    if "init_args" in fields:  # PaddleNLP before 2.5 nested the sizes below it
        return None
    sizes = {name: fields.get(key, default) for name, (key, default) in _SIZES.items()}
    if any(type(size) is not int or size < 0 for size in sizes.values()):
        return None
    if not fields.get("use_task_id", False):
        sizes["task_types"] = 0
    shape = Shape(**sizes)
    if KEPT_HEADS not in fields:
        return shape
    kept = kept_heads(fields, shape.heads)
    return None if kept is None else replace(shape, heads=kept, head_size=shape.hidden // shape.heads)


def kept_heads(fields: Mapping[str, Any], heads: int) -> int | None:
    """`KEPT_HEADS` of a config.json; None if it is not a valid number of heads of a model with `heads`."""
    kept = fields[KEPT_HEADS]
    return kept if type(kept) is int and 1 <= kept <= heads else None


def known_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What a PaddleNLP config.json says of the encoder. Other keys, which may be of any size, are left out."""
    keys = (*(key for key, _ in _SIZES.values()), *FLOAT_DEFAULTS, *_OTHER_KEYS, KEPT_HEADS)
    return {key: fields[key] for key in keys if key in fields}


def read_config(folder: Path) -> dict[str, Any] | None:
    """The JSON object in the folder's config.json; None if it is missing or invalid."""
    try:
        fields = json.loads(read_regular(folder / CONFIG_FILE, _MAX_CONFIG_BYTES).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


# PaddleNLP has this model, but with a SentencePiece vocabulary, and edgepack supports WordPiece only.
SENTENCEPIECE: Final = "ernie-tiny"

# `Shape`'s fields in their order: layers, hidden, heads, feed-forward, vocabulary, positions, token types, task types.
_NAMES_OF_SHAPES: Final[tuple[tuple[Shape, str], ...]] = (
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
PRESETS: Final[Mapping[str, Shape]] = {name: shape for shape, names in _NAMES_OF_SHAPES for name in names.split()}


def shape_of_model(model: str | FromScratch, max_length: int) -> Shape | None:
    """The shape of a resolved recipe's model, from local files only.

    Args:
        model: `teacher.model` or `student.model` as `load_recipe` resolves it: local folders are absolute.
        max_length: of the same section; the positions of a model from scratch.

    Returns:
        The shape (for a model from scratch with the maximum vocabulary); None for a model of the hub (`owner/name`),
        or if a folder's config.json lacks it.
    """
    if isinstance(model, FromScratch):
        return shape_of_scratch(model.scratch, max_length)
    return shape_of_folder(Path(model)) if is_local_folder(model) else PRESETS.get(model)
