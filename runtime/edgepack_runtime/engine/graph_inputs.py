"""The file that an engine loads, and what it must read and give."""

from __future__ import annotations

from pathlib import Path
from typing import Iterable, Tuple

from edgepack_runtime.bundle.model_config import MODEL_NAME
from edgepack_runtime.errors import BundleInvalidError

_INPUTS = ("input_ids", "token_type_ids")
OUTPUTS = ("logits",)


def model_path(folder: Path) -> Path:
    """`folder/model.onnx`.

    Raises:
        BundleInvalidError: it is not there.
    """
    path = folder / MODEL_NAME
    if not path.is_file():
        raise BundleInvalidError(
            f"there is no {MODEL_NAME} in {folder}", fix="copy the bundle again from where it was built"
        )
    return path


def checked_inputs(inputs: Iterable[str], outputs: Iterable[str]) -> Tuple[str, ...]:
    """What the model reads: the ids of tokens, and their types unless all are of one.

    Raises:
        BundleInvalidError: it reads or gives something else.
    """
    reads, gives = tuple(sorted(inputs)), tuple(outputs)
    if reads not in (_INPUTS, _INPUTS[:1]) or gives != OUTPUTS:
        raise BundleInvalidError(
            f"{MODEL_NAME} is not a text classifier",
            why=f"it reads {reads} and gives {gives}; expected are {_INPUTS} and {OUTPUTS}",
            fix="build the bundle again",
        )
    return reads
