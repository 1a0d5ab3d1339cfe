"""edgepack_runtime: what travels inside every bundle and runs on the device (Python >= 3.8).

For applications:

    from edgepack_runtime import Predictor

    predictor = Predictor("/opt/hotel-sentiment")  # or a bundle file
    predictor.predict("房间很大，服务也很好")

Importing the package itself loads nothing: its names are imported when they are first used.
`engine/` loads the library of ONNX Runtime, which travels in every bundle, and `serve/` needs a web server; the rest
needs the standard library alone.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, List

if TYPE_CHECKING:
    from edgepack_runtime.errors import EdgepackError
    from edgepack_runtime.inference.loaded_model import JsonPrediction
    from edgepack_runtime.inference.predictor import Predictor
    from edgepack_runtime.tasks.task import Prediction

__version__ = "0.1.0"

# ONNX Runtime reads it when its library is loaded: else, since 1.29, it writes a device id below HOME and reports home.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

_MODULES = {
    "Predictor": "inference.predictor",
    "Prediction": "tasks.task",
    "JsonPrediction": "inference.loaded_model",
    "EdgepackError": "errors",
}

__all__ = [
    "EdgepackError",
    "JsonPrediction",
    "Prediction",
    "Predictor",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> List[str]:
    return sorted({*globals(), *__all__})
