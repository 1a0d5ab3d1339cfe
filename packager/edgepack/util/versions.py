"""Versions of edgepack, Python and libraries."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterable

from edgepack import __version__

# Distributions that train, convert or measure; the light install has no Paddle.
TOOLS = (
    "paddlepaddle",
    "paddlepaddle-gpu",
    "paddlenlp",
    "paddleslim",
    "paddle2onnx",
    "onnx",
    "onnxruntime",
    "numpy",
)


def tool_versions() -> dict[str, str]:
    """Versions of edgepack, Python, and the installed ones of `TOOLS`."""
    return {"edgepack": __version__, "python": platform.python_version()} | installed_versions(TOOLS)


def installed_versions(distributions: Iterable[str]) -> dict[str, str]:
    """The versions of the installed ones of `distributions`."""
    found = {}
    for name in distributions:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def minor_version(version: str) -> str:
    """The first two numbers of a version: `3.11` of `3.11.2`."""
    return ".".join(version.split(".")[:2])
