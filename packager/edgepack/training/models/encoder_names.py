"""Weight names and layouts of BERT and ERNIE in transformers and in PaddleNLP. Imports no Paddle."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
# PaddleNLP's -> that of a checkpoint, in the order in which they are applied.
_RENAMED: Final = (
    ("embeddings.layer_norm.", "embeddings.LayerNorm."),
    ("encoder.layers.", "encoder.layer."),
    (".self_attn.q_proj.", ".attention.self.query."),
    (".self_attn.k_proj.", ".attention.self.key."),
    (".self_attn.v_proj.", ".attention.self.value."),
    (".self_attn.out_proj.", ".attention.output.dense."),
    (".norm1.", ".attention.output.LayerNorm."),
    (".linear1.", ".intermediate.dense."),
    (".linear2.", ".output.dense."),
    (".norm2.", ".output.LayerNorm."),
)
_PREFIX: Final = re.compile(r"^(bert|ernie)\.")  # of a model with a head; without one there is none
_GAMMA, _BETA = re.compile(r"\.gamma$"), re.compile(r"\.beta$")  # of a norm, as TensorFlow's BERT named them
# Heads of the pre-training, and numbers that are computed wherever they are needed: 0, 1, 2, ...
_LEFT_OUT: Final = re.compile(r"cls\..+|embeddings\.(position_ids|token_type_ids)")
_SHOWN: Final = 20


def in_checkpoint(name: str) -> str:
    """The name in a checkpoint of the weight `name` of PaddleNLP's ErnieModel."""
    for ours, theirs in _RENAMED:
        name = name.replace(ours, theirs)
    return name


def convert(
    shapes: Mapping[str, tuple[int, ...]], weights: Mapping[str, Array], *, of_torch: bool = True
) -> tuple[dict[str, Array], list[str]]:
    """Convert the weights of a checkpoint to PaddleNLP's ErnieModel.

    Args:
        shapes: shape of every weight of the ErnieModel, by name; and of a head `classifier`.
        weights: weights of the checkpoint, by name.
        of_torch: whether names and layouts are those of transformers; else they are PaddleNLP's.

    Returns:
        The weights of the right shape by PaddleNLP's names, linear ones transposed from (out, in) to (in, out); and
        messages about weights that are missing, unknown, duplicate, or of another shape.
    """
    found, twice = _by_plain_name(weights)
    wanted = {in_checkpoint(name) if of_torch else name: name for name in shapes}
    converted: dict[str, Array] = {}
    wrong = []
    for name in wanted.keys() & found.keys():
        weight, ours = found[name], wanted[name]
        transposed = of_torch and is_linear(ours)
        shape = shapes[ours][::-1] if transposed else shapes[ours]
        if weight.shape != shape or weight.dtype != np.float32:
            wrong.append(f"{name} ({weight.dtype} {list(weight.shape)} instead of float32 {list(shape)})")
        else:  # a copy of no more than the network has: many names may be views of the same numbers
            converted[ours] = np.ascontiguousarray(weight.T if transposed else weight)
    problems = {
        "missing": wanted.keys() - found.keys(),
        "unexpected": found.keys() - wanted.keys(),
        "there under two names": twice,
        "of another kind or shape": wrong,
    }
    return converted, [f"{what}: {_some(names)}" for what, names in problems.items() if names]


def _by_plain_name(weights: Mapping[str, Array]) -> tuple[dict[str, Array], list[str]]:
    """The weights of the encoder by present names without prefix, and the names that occur twice."""
    found: dict[str, Array] = {}
    twice = []
    for name, weight in weights.items():
        plain = _BETA.sub(".bias", _GAMMA.sub(".weight", _PREFIX.sub("", name)))
        if plain in found:
            twice.append(plain)
        if not _LEFT_OUT.fullmatch(plain):
            found[plain] = weight
    return found, twice


def is_linear(name: str) -> bool:
    """Whether PaddleNLP's weight `name` belongs to a linear layer, whose layout is transposed."""
    return name.endswith(".weight") and not name.startswith("embeddings.") and ".norm" not in name


def _some(names: Collection[str]) -> str:
    first = sorted(names)[:_SHOWN]
    more = len(names) - len(first)
    return ", ".join(first) + (f" and {more} more" if more else "")
