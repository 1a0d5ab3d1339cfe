"""Every backend that is compared, in the order of the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

# `project`: edgepack and the Paddle stack; `paddle26`: that stack with Paddle 2.6; `peers`: requirements/peers.txt.
Environment = Literal["project", "paddle26", "peers"]
ENVIRONMENTS: Final[tuple[Environment, ...]] = ("project", "paddle26", "peers")


@dataclass(frozen=True)
class Backend:
    """A row of the table. `module` is the file beside this one; backends of one module share what it prepares."""

    name: str
    module: str
    variant: str
    made_in: Environment = "peers"
    run_in: Environment = "peers"
    float_backend: str | None = None  # of an INT8 one: what it has to be as good as; float ones have none


FLOAT: Final = Backend("edgepack float", "ours", "float", "project", "project")
INT8: Final = Backend("edgepack INT8", "ours", "int8", "project", "project", FLOAT.name)
DOCUMENTED: Final = Backend("paddle2onnx float, ONNX Runtime", "paddle2onnx", "float", "project")
_OPTIMUM: Final = Backend("Optimum float, ONNX Runtime", "optimum", "float")
OPTIMUM: Final = Backend("Optimum INT8, ONNX Runtime", "optimum", "int8", float_backend=_OPTIMUM.name)
_OLIVE: Final = Backend("Olive float, ONNX Runtime", "olive", "float")
OLIVE: Final = Backend("Olive INT8, ONNX Runtime", "olive", "int8", float_backend=_OLIVE.name)
_OPENVINO: Final = Backend("OpenVINO float", "nncf", "float")
NNCF: Final = Backend("NNCF INT8, OpenVINO", "nncf", "int8", float_backend=_OPENVINO.name)

BACKENDS: Final = (
    FLOAT,
    INT8,
    DOCUMENTED,
    Backend("PaddleSlim INT8, paddle2onnx, ONNX Runtime", "paddleslim", "onnx", "paddle26", "peers", DOCUMENTED.name),
    Backend("PaddleSlim INT8, Paddle Inference", "paddleslim", "static", "paddle26", "paddle26", DOCUMENTED.name),
    Backend("Paddle Inference float, oneDNN", "paddle", "float", "project", "project"),
    _OPTIMUM,
    OPTIMUM,
    _OLIVE,
    OLIVE,
    _OPENVINO,
    NNCF,
    Backend("PyTorch eager float", "torch", "float"),
)
