"""ONNX Runtime on an NVIDIA GPU, through its CUDA or its TensorRT provider.

CUDA replays a captured graph for each shape (see `bound_shape`). So that there are few shapes, batches are filled up to
a power of two here, and texts to a multiple of `pad_to` tokens by whoever calls. TensorRT gets the same buffers without
graphs: its provider knows one graph for a session, and not one for each shape.

ONNX Runtime keeps a captured graph for the thread that captured it. So the session is opened and run by one thread of
its own, whoever asks.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Dict, List, Mapping, Tuple

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from edgepack_runtime.engine import onnxruntime_session, tensorrt
from edgepack_runtime.engine.bound_shape import NOT_CAPTURED, BoundShape
from edgepack_runtime.engine.graph_inputs import model_path
from edgepack_runtime.engine.onnxruntime_session import Provider
from edgepack_runtime.errors import StageFailedError
from edgepack_runtime.model_config import CUDA, TENSORRT, EngineConfig
from edgepack_runtime.tuning import Tuning

# Each captured graph holds memory of the GPU until the session ends. 8 lengths (128 tokens in steps of 16) by 8 batches
# (1 to 128) fit; what else comes is run without a graph.
MOST_GRAPHS = 64
_CUDA_OPTIONS: Mapping[str, str] = {
    "device_id": "0",
    "enable_cuda_graph": "1",
    # TF32 rounds the operands of float32 products to 10 bits: not what was gated.
    "use_tf32": "0",
}


class OnnxRuntimeGpuEngine:
    """One inference session, one run at a time. See `edgepack_runtime.engine.Engine` and `open_engine`."""

    def __init__(self, config: EngineConfig, folder: Path, tuning: Tuning) -> None:
        if hasattr(onnxruntime, "preload_dlls"):  # since 1.21: CUDA and cuDNN from the wheels that travel with it
            onnxruntime.preload_dlls()
        path = model_path(folder)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gpu")
        with tensorrt.patience(config):
            self._session = self._thread.submit(
                onnxruntime_session.open_session, config, path, tuning, providers(config, folder)
            ).result()
        self._inputs = onnxruntime_session.inputs(self._session)
        self._device = "cuda"
        self._captures = config.provider == CUDA
        self._shapes: Dict[Tuple[int, int], BoundShape] = {}

    @property
    def providers(self) -> Tuple[str, ...]:
        return tuple(self._session.get_providers())

    @property
    def version(self) -> str:
        return onnxruntime_session.VERSION

    def run(self, input_ids: NDArray[np.int64], token_type_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        rows, length = input_ids.shape
        batch = 1 << (rows - 1).bit_length()
        given = {"input_ids": input_ids, "token_type_ids": token_type_ids}
        filled = {name: _filled(given[name], batch) for name in self._inputs}
        try:
            return self._thread.submit(self._run, filled, batch, length).result()[:rows]
        except Exception as error:  # ONNX Runtime's errors share no base class
            raise StageFailedError("the model could not be run", why=str(error)) from error

    def _run(self, given: Dict[str, NDArray[np.int64]], batch: int, length: int) -> NDArray[np.float32]:
        return self._bound(batch, length).run(given)

    def _bound(self, batch: int, length: int) -> BoundShape:
        """The buffers of a shape; those of the first `MOST_GRAPHS` shapes are kept."""
        shape = (batch, length)
        if shape in self._shapes:
            return self._shapes[shape]
        room = len(self._shapes) < MOST_GRAPHS
        graph_id = (len(self._shapes) + 1 if room else NOT_CAPTURED) if self._captures else None
        bound = BoundShape(self._session, self._inputs, batch, length, self._device, graph_id)
        if room:
            self._shapes[shape] = bound
        return bound


def providers(config: EngineConfig, folder: Path) -> List[Provider]:
    """What the session is asked for; the first is the one that has to be active."""
    cuda = (CUDA, _CUDA_OPTIONS)
    if config.provider == TENSORRT:
        return [(TENSORRT, tensorrt.options(folder)), cuda]  # what TensorRT cannot do is left to CUDA
    return [cuda]


def _filled(ids: NDArray[np.int64], batch: int) -> NDArray[np.int64]:
    """(B, T) -> (batch, T) with the first row again and again: of rows that are padding alone, softmax gives NaN."""
    if len(ids) == batch:
        return np.ascontiguousarray(ids)
    return np.concatenate([ids, np.repeat(ids[:1], batch - len(ids), axis=0)])
