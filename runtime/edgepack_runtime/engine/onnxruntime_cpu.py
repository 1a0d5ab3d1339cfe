"""ONNX Runtime on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Tuple

import numpy as np
from numpy.typing import NDArray

from edgepack_runtime.bundle.model_config import EngineConfig
from edgepack_runtime.device.tuning import Tuning
from edgepack_runtime.engine import onnxruntime_session
from edgepack_runtime.engine.denormals import DenormalsAsZero
from edgepack_runtime.engine.graph_inputs import OUTPUTS, model_path
from edgepack_runtime.errors import StageFailedError


class OnnxRuntimeCpuEngine:
    """One inference session. See `edgepack_runtime.engine.Engine` and `open_engine`."""

    def __init__(self, config: EngineConfig, folder: Path, tuning: Tuning) -> None:
        # The first session of a process sets the mode of the thread that opens it, too, and for good.
        with DenormalsAsZero():
            self._session = onnxruntime_session.open_session(config, model_path(folder), tuning, [config.provider])
        self._inputs = onnxruntime_session.inputs(self._session)

    @property
    def providers(self) -> Tuple[str, ...]:
        return tuple(self._session.get_providers())

    @property
    def version(self) -> str:
        return onnxruntime_session.VERSION

    def run(self, input_ids: NDArray[np.int64], token_type_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        given = {"input_ids": input_ids, "token_type_ids": token_type_ids}
        try:
            with DenormalsAsZero():
                logits = self._session.run(OUTPUTS, {name: given[name] for name in self._inputs})[0]
        except Exception as error:  # ONNX Runtime's errors share no base class
            raise StageFailedError("the model could not be run", why=str(error)) from error
        result: NDArray[np.float32] = logits
        return result
