"""Versions of the libraries a result was made with."""

from __future__ import annotations

import importlib.metadata
import platform

from packaging.utils import canonicalize_name

from edgepack import __version__

# Everything that trains, converts or measures; the light install has no Paddle.
TOOLS = (
    "paddlepaddle",
    "paddlepaddle-gpu",
    "paddlenlp",
    "paddleslim",
    "paddle2onnx",
    "onnx",
    "onnxruntime",
    "tokenizers",
    "numpy",
)


def tool_versions() -> dict[str, str]:
    """Versions of edgepack, Python, and those of `TOOLS` that are installed here."""
    installed = {str(canonicalize_name(d.name)): d.version for d in importlib.metadata.distributions()}
    own = {"edgepack": __version__, "python": platform.python_version()}
    return own | {name: installed[name] for name in TOOLS if name in installed}
