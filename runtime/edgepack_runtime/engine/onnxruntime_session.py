"""What ONNX Runtime's sessions have in common, on every provider: options, errors, and that the asked one is active."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Mapping, Sequence, Tuple, Union

import onnxruntime

from edgepack_runtime.bundle.model_config import EngineConfig
from edgepack_runtime.device.tuning import Tuning
from edgepack_runtime.engine.graph_inputs import checked_inputs
from edgepack_runtime.errors import EnvironmentUnfitError, StageFailedError

VERSION = str(onnxruntime.__version__)
_ERRORS_ONLY = 3  # ONNX Runtime's severity: below it come warnings about graph parts that fusing removed
Provider = Union[str, Tuple[str, Mapping[str, str]]]  # its name, with its options where it has some


def open_session(config: EngineConfig, path: Path, tuning: Tuning, providers: Sequence[Provider]) -> Any:
    """The session of the model `path`; `config.provider`, the first of `providers`, is active in it.

    Raises:
        EnvironmentUnfitError: this onnxruntime has no such provider, or it is not active.
        StageFailedError: the model cannot be loaded.
    """
    _require_available(config.provider)
    session = _session(config, path, tuning, providers)
    active = session.get_providers()
    if active[:1] != [config.provider]:
        raise EnvironmentUnfitError(
            f"{config.provider} is not active",
            why="the session runs on {} instead, which was not asked for".format(", ".join(active)),
            fix="look at what onnxruntime printed above; or build the bundle for a target that this device offers",
        )
    return session


def inputs(session: Any) -> Tuple[str, ...]:
    """What the model of a session reads. Raises as `graph_inputs.checked_inputs`."""
    return checked_inputs((one.name for one in session.get_inputs()), (one.name for one in session.get_outputs()))


def _require_available(provider: str) -> None:
    available = onnxruntime.get_available_providers()
    if provider not in available:
        raise EnvironmentUnfitError(
            f"this onnxruntime has no {provider}",
            why="version {} offers {}".format(VERSION, ", ".join(available)),
            fix="build the bundle for a target that this device offers",
        )


def _session(config: EngineConfig, path: Path, tuning: Tuning, providers: Sequence[Provider]) -> Any:
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
            str(path), options, providers=_as_asked(providers), disabled_optimizers=list(disabled)
        )
    except Exception as error:  # ONNX Runtime's errors share no base class
        raise StageFailedError(
            f"onnxruntime {VERSION} cannot load {path.name}",
            why=str(error),
            fix="verify the bundle; if it is intact, build it for the onnxruntime of this target",
        ) from error


def _as_asked(providers: Sequence[Provider]) -> List[Any]:
    return [one if isinstance(one, str) else (one[0], dict(one[1])) for one in providers]
