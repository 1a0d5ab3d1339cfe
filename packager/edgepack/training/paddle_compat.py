"""What differs between the two lanes of the Paddle stack that this project runs on, and nothing else.

3.3    paddlepaddle 3.3.1, paddlenlp 3.0.0b4, paddle2onnx 2.1.0
2.6    paddlepaddle 2.6.2, paddlenlp 2.8.1, paddle2onnx 1.3.1
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Final

from edgepack.errors import StageFailedError

_GRAPHS: Final = ("model.json", "model.pdmodel")  # as `paddle.jit.save` names them: in lane 3.3, in lane 2.6


def graph_file(folder: Path) -> Path:
    """The graph that `paddle.jit.save` wrote.

    Raises:
        StageFailedError: when there is none.
    """
    for name in _GRAPHS:
        if (file := folder / name).is_file():
            return file
    raise StageFailedError("export: paddle.jit.save wrote no graph", why=f"no {' or '.join(_GRAPHS)} in {folder}")


def to_onnx_options() -> dict[str, Any]:
    """What `paddle2onnx.export` has to be told beyond what both lanes know.

    In lane 3.3 its folding runs polygraphy, which pip-installs packages while it works; lane 2.6 has no such thing.
    """
    import paddle2onnx

    known = inspect.signature(paddle2onnx.export).parameters
    return {"optimize_tool": "none"} if "optimize_tool" in known else {}
