"""ONNX Runtime behind the `Engine` protocol: on the CPU, or on an NVIDIA GPU. No class tree."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Protocol, Tuple

from edgepack_runtime.bundle.model_config import CUDA, EngineConfig
from edgepack_runtime.device.tuning import Tuning
from edgepack_runtime.engine.batch import InputBatch


class Engine(Protocol):
    """A loaded model. `run` may be called from several threads at once."""

    @property
    def providers(self) -> Tuple[str, ...]:
        """Active execution providers, first choice first."""

    @property
    def version(self) -> str:
        """The version of ONNX Runtime."""

    def run(self, batch: InputBatch) -> List[Any]:
        """Logits as nested lists: (rows, n_labels), or (rows, length, n_labels) where tokens are classified.

        Raises:
            StageFailedError: the model cannot be run.
        """


def open_engine(config: EngineConfig, folder: Path, tuning: Tuning) -> Engine:
    """Load `folder/model.onnx` on the provider that `config` names, as `tuning` says.

    Raises:
        EnvironmentUnfitError: there is no ONNX Runtime, or it lacks the provider that `config` asks for.
        BundleInvalidError: there is no model, or it is not of the expected form.
        StageFailedError: ONNX Runtime cannot load it.
    """
    if config.provider == CUDA:
        from edgepack_runtime.engine.cuda import CudaEngine

        return CudaEngine(config, folder, tuning)
    from edgepack_runtime.engine.cpu import CpuEngine

    return CpuEngine(config, folder, tuning)
