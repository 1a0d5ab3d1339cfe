"""Keys that recipes had once, and what to use instead."""

from __future__ import annotations

from typing import Final

REMOVED: Final[dict[str, str]] = {  # dotted key -> the fix of the finding
    "engine": "remove it; every model runs on ONNX Runtime",
}
