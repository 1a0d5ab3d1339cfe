"""ONNX Runtime behind the `Engine` protocol: on the CPU, or on an NVIDIA GPU. No class tree."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol, Tuple

import numpy as np
from numpy.typing import NDArray

from edgepack_runtime.bundle.model_config import CUDA, EngineConfig
from edgepack_runtime.device.tuning import Tuning


class Engine(Protocol):
    """A loaded model. `run` may be called from several threads at once."""

    @property
    def providers(self) -> Tuple[str, ...]:
        """Active execution providers, first choice first."""

    @property
    def version(self) -> str:
        """The version of ONNX Runtime."""

    def run(self, input_ids: NDArray[np.int64], token_type_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Logits for ids with shape (B, T): shape (B, n_labels), or (B, T, n_labels) where tokens are classified."""


def open_engine(config: EngineConfig, folder: Path, tuning: Tuning) -> Engine:
    """Load `folder/model.onnx` on the provider that `config` names, as `tuning` says.

    Raises:
        EnvironmentUnfitError: the provider that `config` asks for is not active.
        BundleInvalidError: there is no model, or it is not of the expected form.
        StageFailedError: ONNX Runtime cannot load it.
    """
    # Imported here because onnxruntime takes long to load, and reads this at its first import; it reports home else.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    if config.provider == CUDA:
        from edgepack_runtime.engine.onnxruntime_gpu import OnnxRuntimeGpuEngine

        return OnnxRuntimeGpuEngine(config, folder, tuning)
    from edgepack_runtime.engine.onnxruntime_cpu import OnnxRuntimeCpuEngine

    return OnnxRuntimeCpuEngine(config, folder, tuning)
