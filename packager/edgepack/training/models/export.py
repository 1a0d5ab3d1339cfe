"""Export of a trained classifier to a Paddle static graph and float ONNX."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt
import paddle

from edgepack.errors import StageFailedError
from edgepack.training.models.batches import Encoded
from edgepack.training.models.classifiers import Classifier

Float = npt.NDArray[np.float32]
OPSET = 17  # the oldest ONNX Runtime we target, 1.19.2 on Python 3.8, loads 21; LayerNormalization needs 17
INPUTS = ("input_ids", "token_type_ids")


def static_graph(classifier: Classifier, folder: Path) -> None:
    """Write the graph and `model.pdiparams` for Paddle Inference. Inputs are int64 (B, T)."""
    classifier.network.eval()
    classifier.name_weights()
    spec = [paddle.static.InputSpec([None, None], "int64", name=name) for name in INPUTS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = paddle.jit.to_static(classifier.network, input_spec=spec, full_graph=True)
        paddle.jit.save(traced, str(folder / "model"))


def run_dygraph(classifier: Classifier, row: Encoded) -> Float:
    """Logits (1, C) of the trained model for one row; (1, T, C) if tokens are classified."""
    return _run(classifier.network, row)


class StaticGraph:
    """A saved static graph, loaded by `paddle.jit.load`."""

    def __init__(self, folder: Path) -> None:
        self._layer = paddle.jit.load(str(folder / "model"))
        self._layer.eval()

    def run(self, row: Encoded) -> Float:
        """Logits of one row, as `run_dygraph`."""
        return _run(self._layer, row)


def _run(network: Any, row: Encoded) -> Float:
    ids, types = paddle.to_tensor([list(row.ids)]), paddle.to_tensor([list(row.types)])  # (1, T)
    with paddle.no_grad():
        return np.asarray(network(ids, types).numpy(), dtype=np.float32)


def float_onnx(folder: Path, target: Path) -> None:
    """Convert the static graph in `folder` to ONNX at `OPSET`.

    paddle2onnx may report success after a failure: the caller must load and run the file.

    Raises:
        StageFailedError: no file was written.
    """
    import paddle2onnx

    graph = _graph_file(folder)
    with tempfile.TemporaryFile() as said:
        try:
            with _output_into(said):
                paddle2onnx.export(
                    str(graph),
                    str(graph.with_suffix(".pdiparams")),
                    str(target),
                    opset_version=OPSET,
                    enable_onnx_checker=True,
                    **_onnx_options(),
                )
        except Exception as error:
            raise StageFailedError("export: paddle2onnx failed", why=f"{error}\n{_text(said)}".strip()) from error
        if not target.is_file() or target.stat().st_size == 0:
            raise StageFailedError("export: paddle2onnx wrote no file", why=_text(said))


@contextlib.contextmanager
def _output_into(file: IO[bytes]) -> Iterator[None]:
    """Redirect the descriptors of standard output and error to `file`, because paddle2onnx prints from C++."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    try:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, target in zip(kept, (1, 2), strict=True):
            os.dup2(descriptor, target)
            os.close(descriptor)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace").strip()


_GRAPHS: Final = ("model.json", "model.pdmodel")  # of Paddle 3.3 (paddle2onnx 2.1), of Paddle 2.6 (paddle2onnx 1.3)


def _graph_file(folder: Path) -> Path:
    """The graph that `paddle.jit.save` wrote.

    Raises:
        StageFailedError: it wrote none.
    """
    for name in _GRAPHS:
        if (file := folder / name).is_file():
            return file
    raise StageFailedError("export: paddle.jit.save wrote no graph", why=f"no {' or '.join(_GRAPHS)} in {folder}")


def _onnx_options() -> dict[str, Any]:
    """Options of `paddle2onnx.export` that lane 3.3 needs and lane 2.6 does not know.

    By default lane 3.3 folds constants with polygraphy, which pip-installs packages at run time.
    """
    import paddle2onnx

    known = inspect.signature(paddle2onnx.export).parameters
    return {"optimize_tool": "none"} if "optimize_tool" in known else {}
