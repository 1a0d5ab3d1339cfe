"""Engines: what runs `model.onnx`. One module each behind the `Engine` protocol; no class tree."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Protocol, Tuple

import numpy as np
from numpy.typing import NDArray

from edgepack_runtime.model_config import CUDA, OPENVINO, TENSORRT, EngineConfig
from edgepack_runtime.tuning import Tuning


class Engine(Protocol):
    """A loaded model. `run` may be called from several threads at once."""

    @property
    def providers(self) -> Tuple[str, ...]:
        """Execution providers that are really active, first choice first."""

    @property
    def version(self) -> str:
        """The version of the library that runs it."""

    def run(self, input_ids: NDArray[np.int64], token_type_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Logits for ids with shape (B, T): shape (B, n_labels), or (B, T, n_labels) where tokens are classified."""


def open_engine(config: EngineConfig, folder: Path, tuning: Tuning) -> Engine:
    """Load `folder/model.onnx` with the engine that `config` names, as `tuning` says.

    Raises:
        EnvironmentUnfitError: the provider that `config` asks for is not active.
        BundleInvalidError: there is no model, or it is not of the expected form.
        StageFailedError: the engine cannot load it.
    """
    # Imported here because the library behind each takes long to load, and only one of them travels in a bundle.
    if config.name == OPENVINO:
        # Read when the library is loaded. It keeps compiled kernels too, 1,024 of them unless told otherwise.
        os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16")
        # Its package for telemetry does not travel; where one is installed all the same, it cannot be imported.
        sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
        from edgepack_runtime.engine.openvino_cpu import OpenVinoEngine

        return OpenVinoEngine(config, folder, tuning)
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read at onnxruntime's first import; it reports home else
    if config.provider in (CUDA, TENSORRT):
        from edgepack_runtime.engine.onnxruntime_gpu import OnnxRuntimeGpuEngine

        return OnnxRuntimeGpuEngine(config, folder, tuning)
    from edgepack_runtime.engine.onnxruntime_cpu import OnnxRuntimeCpuEngine

    return OnnxRuntimeCpuEngine(config, folder, tuning)
