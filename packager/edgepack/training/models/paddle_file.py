"""A look into `model_state.pdparams` before PaddleNLP unpickles it, which would run code that the file names."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from edgepack.errors import StageFailedError
from edgepack.training.models.unpickling import Known, WeightsUnpickler, ordered


class _Array:
    """Takes the place of an array or of its data type: the state is not looked at."""

    def __setstate__(self, state: Any) -> None:
        pass


def _array(*arguments: Any) -> _Array:
    return _Array()


# What paddle.save writes: a dict of NumPy arrays. NumPy 2 and other protocols of pickle have other names for the same.
_KNOWN: Final[Known] = {
    ("collections", "OrderedDict"): ordered,
    ("numpy", "ndarray"): _array,
    ("numpy", "dtype"): _array,
    ("numpy.core.multiarray", "_reconstruct"): _array,
    ("numpy._core.multiarray", "_reconstruct"): _array,
    ("numpy.core.numeric", "_frombuffer"): _array,
    ("numpy._core.numeric", "_frombuffer"): _array,
    ("_codecs", "encode"): _array,
}


def require_weights(file: Path) -> None:
    """Check that `file` holds weights and nothing else.

    Raises:
        StageFailedError: it asks for code, is damaged, or holds something else.
    """
    try:
        with file.open("rb") as stream:
            held = WeightsUnpickler(stream, _KNOWN).load()
        if not isinstance(held, dict):
            raise ValueError("it holds no dict of weights")
    except Exception as error:  # a damaged pickle fails in many ways
        raise StageFailedError(
            f"{file} cannot be used",
            why=str(error) or type(error).__name__,
            fix="copy the model again from where it was made, and do not use one of an origin that you do not know",
        ) from error
