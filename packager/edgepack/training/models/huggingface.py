"""Conversion of a Hugging Face checkpoint to PaddleNLP's ERNIE, without torch and transformers.

BERT and ERNIE without task embedding have the same encoder with different names. Torch stores the weight of a linear
layer as (out, in), Paddle as (in, out).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import paddle
from paddlenlp.transformers import ErnieConfig
from safetensors import SafetensorError, deserialize

from edgepack.errors import StageFailedError
from edgepack.recipe.encoder_shapes import Shape, parameters_at_once, read_config, shape_of_config, too_large
from edgepack.recipe.huggingface_config import (
    CHECKPOINT_FIX,
    MAX_EPSILON,
    config_problems,
    huggingface_weights,
    paddlenlp_config,
)
from edgepack.training.models import encoder_names, paddle_file, torch_file

Array = npt.NDArray[Any]
_KINDS: Final[Mapping[str, str]] = {  # of numbers, as safetensors names them
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": torch_file.BFLOAT16,
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "?",
}  # fmt: skip
_HEAD: Final = (
    "save the encoder alone, as transformers' BertModel or ErnieModel "
    "(docs/reference/recipe-file.md has the lines to type)"
)


def load(folder: Path, kind: Any, n_labels: int) -> Any:
    """The network of the checkpoint in `folder`.

    Args:
        folder: holds config.json and model.safetensors or pytorch_model.bin.
        kind: PaddleNLP's class, such as ErnieForSequenceClassification. Its head of `n_labels` is random.

    Raises:
        StageFailedError: the config cannot be converted, or weights of the encoder are missing, unknown, or of another
            shape.
    """
    fields = read_config(folder)
    weights = huggingface_weights(folder)
    if fields is None or weights is None:
        raise _refusal(folder, ["it lacks config.json or weights"], "copy the folder again")
    if problems := config_problems(fields):
        raise _refusal(folder, problems, CHECKPOINT_FIX)
    config = paddlenlp_config(fields)
    shape = shape_of_config(config)
    found = read(weights, shape)
    if shape is None or parameters_at_once(shape) > sum(weight.nbytes for weight in found.values()):
        problem = f"config.json describes another model than {weights.name} holds"  # memory would be made for that one
        raise _refusal(folder, [problem], "copy both files of the same model")
    network = kind(ErnieConfig(**config, num_labels=n_labels))
    shape_of = {name: tuple(weight.shape) for name, weight in network.ernie.state_dict().items()}
    converted, problems = encoder_names.convert(shape_of, found)
    if problems:
        raise _refusal(folder, problems, _HEAD)
    network.ernie.set_state_dict(converted)
    honour_epsilon(network)
    return network


def honour_epsilon(network: Any) -> None:
    """Set the epsilon of every LayerNorm to that of the network's config.

    PaddleNLP always sets 1e-12. ERNIE 3.0 in Hugging Face's layout has 1e-5.

    Raises:
        StageFailedError: Paddle does not support the value.
    """
    epsilon = network.config.layer_norm_eps
    if type(epsilon) is not float or not 0 < epsilon <= MAX_EPSILON:
        what = f"config.json: `layer_norm_eps` is {epsilon!r}"
        raise StageFailedError(
            what,
            why=f"Paddle computes with at most {MAX_EPSILON}",
            fix=CHECKPOINT_FIX,
        )
    for layer in network.sublayers():
        if isinstance(layer, paddle.nn.LayerNorm):
            layer._epsilon = epsilon


def read(file: Path, shape: Shape | None) -> dict[str, Array]:
    """Every weight of a file of any format by name, floats as float32; `shape` is what its config describes.

    Raises:
        StageFailedError: it cannot be read.
    """
    require_size(file, shape)
    if file.suffix == ".pdparams":
        return {name: _float32(weight) for name, weight in paddle_file.read(file).items()}
    if file.suffix != ".safetensors":
        return torch_file.read(file)
    try:
        tensors = dict(deserialize(file.read_bytes()))  # type: ignore[no-untyped-call]
        return {
            name: torch_file.widened(tensor["data"], _KINDS[tensor["dtype"]]).reshape(tensor["shape"])
            for name, tensor in tensors.items()
        }
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise StageFailedError(f"{file} cannot be read", why=str(error), fix="copy the file again") from error


def require_size(file: Path, shape: Shape | None) -> None:
    """Raise a StageFailedError if a file of weights is `too_large`."""
    if why := too_large(file, shape):
        raise StageFailedError(f"{file} cannot be read", why=why, fix="give a smaller model")


def _float32(weight: Array) -> Array:
    """A weight of Paddle, where uint16 has the bits of bfloat16."""
    if weight.dtype == np.uint16:
        return torch_file.widened(weight.tobytes(), torch_file.BFLOAT16).reshape(weight.shape)
    return weight.astype(np.float32) if weight.dtype.kind == "f" else weight


def _refusal(folder: Path, problems: Sequence[str], fix: str) -> StageFailedError:
    return StageFailedError(f"model {str(folder)!r} cannot be converted", why="; ".join(problems), fix=fix)
