"""Export of a trained classifier to a Paddle static graph and float ONNX."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import paddle

from edgepack.errors import StageFailedError
from edgepack.tasks.task import Encoded
from edgepack.training.models import paddle_graph
from edgepack.training.models.classifiers import Classifier

Float = npt.NDArray[np.float32]
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
    """Convert the static graph in `folder` to ONNX. Raises as `paddle_graph.convert`."""
    graph = _graph_file(folder)
    paddle_graph.convert(graph, graph.with_suffix(".pdiparams"), target)


_GRAPHS: Final = ("model.json", "model.pdmodel")  # of Paddle 3.3 (paddle2onnx 2.1), of Paddle 2.6 (paddle2onnx 1.3)


def _graph_file(folder: Path) -> Path:
    """The graph that `paddle.jit.save` wrote."""
    for name in _GRAPHS:
        if (file := folder / name).is_file():
            return file
    raise StageFailedError("export: paddle.jit.save wrote no graph", why=f"no {' or '.join(_GRAPHS)} in {folder}")
