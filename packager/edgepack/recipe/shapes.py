"""The shape of an ERNIE: the numbers that decide how large it is and how long a text may be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from edgepack.recipe import huggingface
from edgepack.recipe.sources import is_file
from edgepack.recipe.training import Scratch

CONFIG_FILE: Final = "config.json"  # as PaddleNLP's save_pretrained names what it writes
WEIGHTS_FILE: Final = "model_state.pdparams"
# Key of config.json, ours: attention heads of each layer of a model that was pruned in width.
KEPT_HEADS: Final = "kept_attention_heads"
# What PaddleNLP's ErnieConfig takes for a number that config.json does not hold.
_ABSENT: Final[Mapping[str, int]] = {
    "num_hidden_layers": 12,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "vocab_size": 30522,
    "max_position_embeddings": 512,
    "type_vocab_size": 16,
    "task_type_vocab_size": 3,
}
# What a model from scratch gets.
SCRATCH_TOKEN_TYPES: Final = 2
SCRATCH_TASK_TYPES: Final = 3


@dataclass(frozen=True)
class Shape:
    """Sizes of one ERNIE encoder, in PaddleNLP's order of configuration."""

    layers: int
    hidden: int
    heads: int
    feed_forward: int
    vocabulary: int  # rows of the word embedding; may exceed the lines of vocab.txt
    positions: int  # most tokens of a text, [CLS] and [SEP] included
    token_types: int
    task_types: int  # 0 where the model has no task embedding
    head_size: int | None = None  # of a model that was pruned in width; None is `hidden` / `heads`

    @property
    def attention(self) -> int:
        """Width of what the heads of a layer put out together."""
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


def spread(count: int, layers: int) -> list[int]:
    """`count` of `layers` layers, from 1, evenly spread, the top one among them. `count` is at most `layers`."""
    return [round((index + 1) * layers / count) for index in range(count)]


def part_of(count: int, width: float) -> int:
    """How many of `count` heads or neurons a layer keeps that is pruned to `width`: rounded, and at least one."""
    return max(1, int(count * width + 0.5))


def cut(shape: Shape, layers: int, width: float) -> Shape:
    """The shape of a student that starts as `layers` layers of a model, pruned to `width` (above 0, at most 1)."""
    if width == 1:
        return replace(shape, layers=layers)
    heads, feed_forward = part_of(shape.heads, width), part_of(shape.feed_forward, width)
    size = shape.head_size or shape.hidden // shape.heads
    return replace(shape, layers=layers, heads=heads, feed_forward=feed_forward, head_size=size)


def of_scratch(scratch: Scratch, max_length: int) -> Shape:
    """The shape of a model from random weights, with the largest vocabulary that it may get from its texts."""
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


def of_folder(folder: Path) -> Shape | None:
    """The shape of a model in a local folder; None when its config.json does not tell."""
    fields = read_config(folder)
    if fields is None:
        return None
    if checkpoint_weights(folder) is None:
        return of_config(fields)
    return of_config(huggingface.paddlenlp_config(fields)) if not huggingface.config_problems(fields) else None


def checkpoint_weights(folder: Path) -> Path | None:
    """The weights of a Hugging Face checkpoint; None in a folder with PaddleNLP's own, which count first."""
    return None if is_file(folder / WEIGHTS_FILE) else huggingface.weights_of(folder)


def of_config(fields: Mapping[str, Any]) -> Shape | None:
    """The shape that a PaddleNLP config.json describes; None when it is of an older kind or holds no sizes."""
    if "init_args" in fields:  # PaddleNLP before 2.5 nested the sizes below it
        return None
    sizes = [fields.get(name, absent) for name, absent in _ABSENT.items()]
    if any(type(size) is not int or size < 0 for size in sizes):
        return None
    if not fields.get("use_task_id", False):
        sizes[-1] = 0
    shape = Shape(*sizes)
    if KEPT_HEADS not in fields:
        return shape
    kept = kept_heads(fields, shape.heads)
    return None if kept is None else replace(shape, heads=kept, head_size=shape.hidden // shape.heads)


def kept_heads(fields: Mapping[str, Any], heads: int) -> int | None:
    """`KEPT_HEADS` of a config.json; None where it is no number of heads of a model that had `heads`."""
    kept = fields[KEPT_HEADS]
    return kept if type(kept) is int and 1 <= kept <= heads else None


def read_config(folder: Path) -> dict[str, Any] | None:
    """What the folder's config.json holds; None when that is no JSON object."""
    try:
        fields = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None
