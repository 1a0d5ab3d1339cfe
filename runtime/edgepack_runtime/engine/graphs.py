"""Graphs of any shape that a handler calls by name, on the CPU or on an NVIDIA GPU."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from edgepack_runtime.bundle.model_config import CPU, CUDA, EngineConfig
from edgepack_runtime.device.tuning import Tuning
from edgepack_runtime.engine import model_file, tensors
from edgepack_runtime.engine.denormals import DenormalsAsZero
from edgepack_runtime.engine.ort_api import OrtError, TensorInfo
from edgepack_runtime.engine.tensors import Tensor
from edgepack_runtime.errors import BundleInvalidError, StageFailedError

_CUDA_OPTIONS = {"device_id": "0", "use_tf32": "0"}


class Graph:
    """A loaded graph. Calling it runs it.

    Attributes:
        inputs, outputs: shape and element type by name; an axis of any size is -1.
        run_ms: time of the runs since `reset`.
        began: `time.perf_counter()` at the first of them; None if there was none.
    """

    def __init__(self, config: EngineConfig, path: Path, tuning: Tuning) -> None:
        options: Optional[Mapping[str, str]] = None
        if config.provider == CUDA:
            from edgepack_runtime.engine import cuda

            cuda.preload()
            options = _CUDA_OPTIONS
        with DenormalsAsZero():
            self._session = model_file.open_session(config, path, tuning, options, bounded=True)
        self._name = path.stem
        self.inputs = self._declared("Input")
        self.outputs = self._declared("Output")
        self.reset()

    def reset(self) -> None:
        """Begin to count time again."""
        self.run_ms = 0.0
        self.began: Optional[float] = None

    @property
    def version(self) -> str:
        """The version of ONNX Runtime."""
        return self._session.api.version

    def __call__(self, inputs: Mapping[str, Any], most_bytes: Optional[int] = None) -> Dict[str, Tensor]:
        """All outputs by name.

        Args:
            inputs: by name: NumPy arrays or other buffers of the graph's element type, tensors, or nested lists.
            most_bytes: as of `Session.run_tensors`.

        Raises:
            StageFailedError: an input is missing, unknown or does not fit; or the run failed.
            UsageError: the outputs are larger than `most_bytes`.
        """
        if not isinstance(inputs, Mapping) or set(inputs) != set(self.inputs):
            keys = sorted(map(str, inputs)) if isinstance(inputs, Mapping) else type(inputs).__name__
            raise StageFailedError(
                f"the handler does not give the inputs of the graph {self._name!r}",
                why=f"it gave {keys}; the graph reads {sorted(self.inputs)}",
                fix="return a dict with an array for each input",
            )
        given = {name: tensors.as_tensor(inputs[name], info.dtype, name) for name, info in self.inputs.items()}
        begin = time.perf_counter()
        self.began = begin if self.began is None else self.began
        try:
            with DenormalsAsZero():
                return self._session.run_tensors(given, most_bytes)
        except OrtError as error:
            raise StageFailedError(f"the graph {self._name!r} could not be run", why=str(error)) from error
        finally:
            self.run_ms += (time.perf_counter() - begin) * 1e3

    def _declared(self, kind: str) -> Dict[str, TensorInfo]:
        found = {}
        for name, info in self._session.declared(kind).items():
            if info is None or info.dtype not in tensors.TYPES:
                raise BundleInvalidError(
                    f"the graph {self._name!r} cannot be called",
                    why=f"its {kind.lower()} {name!r} is {'no tensor' if info is None else 'of ' + info.dtype}",
                    fix=f"export it with tensors of numbers: {', '.join(tensors.TYPES)}",
                )
            found[name] = info
        return found


def open_graphs(config: EngineConfig, folder: Path, names: Sequence[str], tuning: Tuning) -> Dict[str, Graph]:
    """The graphs `folder/NAME.onnx` by name.

    Raises:
        EnvironmentUnfitError, StageFailedError: as `model_file.open_session`.
        BundleInvalidError: a file is missing, or has inputs or outputs that are no tensors of numbers.
    """
    return {name: Graph(config, folder / f"{name}.onnx", tuning) for name in names}


def providers_of(config: EngineConfig) -> Tuple[str, ...]:
    """Active execution providers, first choice first."""
    return (CUDA, CPU) if config.provider == CUDA else (CPU,)
