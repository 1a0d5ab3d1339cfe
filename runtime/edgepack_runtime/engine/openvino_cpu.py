"""OpenVINO on the CPU."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Dict, Tuple

import numpy as np
import openvino
from numpy.typing import NDArray

from edgepack_runtime.engine import signal_stack
from edgepack_runtime.engine.graph_inputs import checked_inputs, model_path
from edgepack_runtime.errors import EnvironmentUnfitError, StageFailedError
from edgepack_runtime.model_config import EngineConfig
from edgepack_runtime.tuning import Tuning

# Each new shape is compiled and kept. Texts are padded to few lengths, but batches have any size: what is kept for a
# model of 4 layers is then about 70 MiB, where it would grow without an end.
_KEPT_KERNELS = 64
_VERSION = str(openvino.__version__).split("-")[0]  # the rest names the build


class OpenVinoEngine:
    """One compiled model. See `edgepack_runtime.engine.Engine` and `open_engine`."""

    def __init__(self, config: EngineConfig, folder: Path, tuning: Tuning) -> None:
        path = model_path(folder)
        with signal_stack.kept():
            core = openvino.Core()
            _require_available(core, config.provider)
            self._compiled = _compiled(core, config.provider, path, tuning.threads)
        # Its one stream runs one request at a time, on all the threads that there are; a second request would wait for
        # the first inside of OpenVINO instead of here.
        self._request = self._compiled.create_infer_request()
        self._turn = threading.Lock()
        self._inputs = checked_inputs(
            (item.any_name for item in self._compiled.inputs), (item.any_name for item in self._compiled.outputs)
        )
        _require_active(config.provider, self.providers)

    @property
    def providers(self) -> Tuple[str, ...]:
        return tuple(self._compiled.get_property("EXECUTION_DEVICES"))

    @property
    def version(self) -> str:
        return _VERSION

    def run(self, input_ids: NDArray[np.int64], token_type_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        given = {"input_ids": input_ids, "token_type_ids": token_type_ids}
        with self._turn:
            try:
                self._request.infer({name: np.ascontiguousarray(given[name]) for name in self._inputs})
                logits: NDArray[np.float32] = self._request.get_output_tensor(0).data.copy()  # the next run reuses it
            except RuntimeError as error:
                raise StageFailedError("the model could not be run", why=str(error)) from error
        return logits


def _require_available(core: Any, provider: str) -> None:
    available = core.available_devices
    if provider not in available:
        raise EnvironmentUnfitError(
            f"this openvino has no {provider}",
            why="version {} offers {}".format(_VERSION, ", ".join(available) or "nothing"),
            fix="build the bundle for a target that this device offers",
        )


def _require_active(provider: str, active: Tuple[str, ...]) -> None:
    if active != (provider,):
        raise EnvironmentUnfitError(
            f"{provider} is not active",
            why="the model runs on {} instead, which was not asked for".format(", ".join(active)),
            fix="build the bundle for a target that this device offers",
        )


def _compiled(core: Any, device: str, path: Path, threads: int) -> Any:
    settings: Dict[str, Any] = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        # What the file says, and not bfloat16 where the CPU has it.
        "INFERENCE_PRECISION_HINT": "f32",
        # On a shared machine a thread that is bound to one core waits for whoever else is there.
        "ENABLE_CPU_PINNING": False,
        "CPU_RUNTIME_CACHE_CAPACITY": _KEPT_KERNELS,
    }
    try:
        return core.compile_model(core.read_model(path), device, settings)
    except RuntimeError as error:
        raise StageFailedError(
            f"openvino {_VERSION} cannot load {path.name}",
            why=str(error),
            fix="verify the bundle; if it is intact, build it for the openvino of this target",
        ) from error
