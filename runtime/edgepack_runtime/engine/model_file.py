"""Opening the session of a model folder: the file, the provider, and what the model must read and give."""

from __future__ import annotations

from pathlib import Path
from typing import Mapping, Optional

from edgepack_runtime.bundle.model_config import MODEL_NAME, EngineConfig
from edgepack_runtime.device.tuning import Tuning
from edgepack_runtime.engine import ort_api
from edgepack_runtime.engine.ort_api import OrtError, Session
from edgepack_runtime.errors import BundleInvalidError, EnvironmentUnfitError, StageFailedError

_INPUTS = ("input_ids", "token_type_ids")
_OUTPUTS = ("logits",)


def open_session(
    config: EngineConfig,
    path: Path,
    tuning: Tuning,
    cuda: Optional[Mapping[str, str]] = None,
    *,
    bounded: bool = False,
) -> Session:
    """The session of a graph.

    Args:
        path: an ONNX file.
        cuda: options of the CUDA provider; None to run on the CPU.
        bounded: as of `Session`.

    Raises:
        EnvironmentUnfitError: there is no ONNX Runtime, or it lacks the provider that `config` names.
        BundleInvalidError: there is no such file.
        StageFailedError: the model cannot be loaded.
    """
    if not path.is_file():
        raise BundleInvalidError(
            f"there is no {path.name} in {path.parent}", fix="copy the bundle again from where you got it"
        )
    api = ort_api.api()
    available = api.available_providers()
    if config.provider not in available:
        raise EnvironmentUnfitError(
            f"this onnxruntime has no {config.provider}",
            why="version {} offers {}".format(api.version, ", ".join(available)),
            fix="build the bundle for a target that this device offers",
        )
    disabled = config.disabled_optimizers if tuning.disabled_optimizers is None else tuning.disabled_optimizers
    try:
        # Spinning workers burn a core between requests: on a device that is heat and battery, shared cores and later
        # throttling, for what is often microseconds. Where it is more, `tune` finds out.
        return Session(
            api,
            path,
            threads=tuning.threads,
            spinning=tuning.spinning,
            bounded=bounded,
            disabled_optimizers=disabled,
            cuda=cuda,
        )
    except OrtError as error:
        raise StageFailedError(
            f"onnxruntime {api.version} cannot load {path.name}",
            why=str(error),
            fix="verify the bundle; if it is intact, build it for the onnxruntime of this target",
        ) from error


def open_classifier(
    config: EngineConfig, folder: Path, tuning: Tuning, cuda: Optional[Mapping[str, str]] = None
) -> Session:
    """The session of `folder/model.onnx`, a text classifier. Arguments and errors as of `open_session`.

    Raises:
        BundleInvalidError: the graph reads or gives something else than a text classifier.
    """
    session = open_session(config, folder / MODEL_NAME, tuning, cuda)
    if tuple(sorted(session.inputs)) not in (_INPUTS, _INPUTS[:1]) or session.outputs != _OUTPUTS:
        raise BundleInvalidError(
            f"{MODEL_NAME} is not a text classifier",
            why=f"it reads {session.inputs} and gives {session.outputs}; expected are {_INPUTS} and {_OUTPUTS}",
            fix="build the bundle again",
        )
    return session
