"""ONNX Runtime on an NVIDIA GPU, through its CUDA provider.

One text at a time replays a captured CUDA graph of its length (see `bound_shape`). Several texts at once run without
one: their shapes are many, and launching the kernels is a smaller part of the work.

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

from edgepack_runtime.bundle.model_config import CUDA, EngineConfig
from edgepack_runtime.device.tuning import Tuning
from edgepack_runtime.engine import onnxruntime_session
from edgepack_runtime.engine.bound_shape import NOT_CAPTURED, BoundShape, run_options
from edgepack_runtime.engine.graph_inputs import OUTPUTS, model_path
from edgepack_runtime.engine.onnxruntime_session import Provider
from edgepack_runtime.errors import StageFailedError

# Each captured graph holds memory of the GPU until the session ends. Texts of further lengths run without a graph.
MOST_GRAPHS = 128
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
        self._session = self._thread.submit(
            onnxruntime_session.open_session, config, path, tuning, providers()
        ).result()
        self._inputs = onnxruntime_session.inputs(self._session)
        self._device = "cuda"
        self._shapes: Dict[int, BoundShape] = {}  # of one text, by its length

    @property
    def providers(self) -> Tuple[str, ...]:
        return tuple(self._session.get_providers())

    @property
    def version(self) -> str:
        return onnxruntime_session.VERSION

    def run(self, input_ids: NDArray[np.int64], token_type_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        ids = {"input_ids": input_ids, "token_type_ids": token_type_ids}
        given = {name: np.ascontiguousarray(ids[name]) for name in self._inputs}
        try:
            return self._thread.submit(self._run, given, *input_ids.shape).result()
        except Exception as error:  # ONNX Runtime's errors share no base class
            raise StageFailedError("the model could not be run", why=str(error)) from error

    def _run(self, given: Dict[str, NDArray[np.int64]], batch: int, length: int) -> NDArray[np.float32]:
        if batch == 1 and length not in self._shapes and len(self._shapes) < MOST_GRAPHS:
            graph_id = len(self._shapes) + 1
            self._shapes[length] = BoundShape(self._session, self._inputs, 1, length, self._device, graph_id)
        if batch == 1 and length in self._shapes:
            return self._shapes[length].run(given)
        logits: NDArray[np.float32] = self._session.run(OUTPUTS, given, run_options(NOT_CAPTURED))[0]
        return logits


def providers() -> List[Provider]:
    """What the session is asked for."""
    return [(CUDA, _CUDA_OPTIONS)]
