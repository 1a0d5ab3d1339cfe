"""Every way that is compared, in the order of the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

# `project`: edgepack and the Paddle stack; `paddle26`: the second lane of that stack; `peers`: requirements/peers.txt.
Environment = Literal["project", "paddle26", "peers"]
ENVIRONMENTS: Final[tuple[Environment, ...]] = ("project", "paddle26", "peers")


@dataclass(frozen=True)
class Way:
    """A row of the table. `module` is the file beside this one; ways of one module share what it prepares."""

    name: str
    module: str
    variant: str
    made_in: Environment = "peers"
    run_in: Environment = "peers"
    float_way: str | None = None  # of an INT8 one: what it has to be as good as; float ones have none


FLOAT: Final = Way("edgepack float", "ours", "float", "project", "project")
INT8: Final = Way("edgepack INT8", "ours", "int8", "project", "project", FLOAT.name)
DOCUMENTED: Final = Way("paddle2onnx float, ONNX Runtime", "paddle2onnx", "float", "project")
_OPTIMUM: Final = Way("Optimum float, ONNX Runtime", "optimum", "float")
OPTIMUM: Final = Way("Optimum INT8, ONNX Runtime", "optimum", "int8", float_way=_OPTIMUM.name)
_OLIVE: Final = Way("Olive float, ONNX Runtime", "olive", "float")
OLIVE: Final = Way("Olive INT8, ONNX Runtime", "olive", "int8", float_way=_OLIVE.name)
_OPENVINO: Final = Way("OpenVINO float", "nncf", "float")
NNCF: Final = Way("NNCF INT8, OpenVINO", "nncf", "int8", float_way=_OPENVINO.name)

WAYS: Final = (
    FLOAT,
    INT8,
    DOCUMENTED,
    Way("PaddleSlim INT8, paddle2onnx, ONNX Runtime", "paddleslim", "onnx", "paddle26", "peers", DOCUMENTED.name),
    Way("PaddleSlim INT8, Paddle Inference", "paddleslim", "static", "paddle26", "paddle26", DOCUMENTED.name),
    Way("Paddle Inference float, oneDNN", "paddle", "float", "project", "project"),
    _OPTIMUM,
    OPTIMUM,
    _OLIVE,
    OLIVE,
    _OPENVINO,
    NNCF,
    Way("PyTorch eager float", "torch", "float"),
)
