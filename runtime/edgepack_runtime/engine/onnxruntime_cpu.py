"""ONNX Runtime on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Tuple

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from edgepack_runtime.engine.denormals import DenormalsAsZero
from edgepack_runtime.engine.graph_inputs import OUTPUTS, checked_inputs, model_path
from edgepack_runtime.errors import EnvironmentUnfitError, StepFailedError
from edgepack_runtime.model_config import EngineConfig
from edgepack_runtime.tuning import Tuning

_ERRORS_ONLY = 3  # ONNX Runtime's severity: below it come warnings about graph parts that fusing removed


class OnnxRuntimeEngine:
    """One inference session. See `edgepack_runtime.engine.Engine` and `open_engine`."""

    def __init__(self, config: EngineConfig, folder: Path, tuning: Tuning) -> None:
        _require_available(config.provider)
        path = model_path(folder)
        # The first session of a process sets the mode of the thread that opens it, too, and for good.
        with DenormalsAsZero():
            self._session = _session(config, path, tuning)
        if self.providers[:1] != (config.provider,):
            raise EnvironmentUnfitError(
                f"{config.provider} is not active",
                why="the session runs on {} instead, which was not asked for".format(", ".join(self.providers)),
                fix="build the bundle for a target that this device offers",
            )
        self._inputs = checked_inputs(
            (item.name for item in self._session.get_inputs()), (item.name for item in self._session.get_outputs())
        )

    @property
    def providers(self) -> Tuple[str, ...]:
        return tuple(self._session.get_providers())

    @property
    def version(self) -> str:
        return str(onnxruntime.__version__)

    def run(self, input_ids: NDArray[np.int64], token_type_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        given = {"input_ids": input_ids, "token_type_ids": token_type_ids}
        try:
            with DenormalsAsZero():
                logits = self._session.run(OUTPUTS, {name: given[name] for name in self._inputs})[0]
        except Exception as error:  # ONNX Runtime's errors share no base class
            raise StepFailedError("the model could not be run", why=str(error)) from error
        result: NDArray[np.float32] = logits
        return result


def _require_available(provider: str) -> None:
    available = onnxruntime.get_available_providers()
    if provider not in available:
        raise EnvironmentUnfitError(
            f"this onnxruntime has no {provider}",
            why="version {} offers {}".format(onnxruntime.__version__, ", ".join(available)),
            fix="build the bundle for a target that this device offers",
        )


def _session(config: EngineConfig, path: Path, tuning: Tuning) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = tuning.threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = _ERRORS_ONLY
    # Spinning workers burn a core between requests: on a device that is heat and battery, shared cores and later
    # throttling, for what is often microseconds. Where it is more, `tune` finds out.
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(tuning.spinning)))
    options.add_session_config_entry("session.set_denormal_as_zero", "1")  # in threads of its own
    disabled = config.disabled_optimizers if tuning.disabled_optimizers is None else tuning.disabled_optimizers
    try:
        return onnxruntime.InferenceSession(
            str(path), options, providers=[config.provider], disabled_optimizers=list(disabled)
        )
    except Exception as error:  # ONNX Runtime's errors share no base class
        raise StepFailedError(
            f"onnxruntime {onnxruntime.__version__} cannot load {path.name}",
            why=str(error),
            fix="verify the bundle; if it is intact, build it for the onnxruntime of this target",
        ) from error
