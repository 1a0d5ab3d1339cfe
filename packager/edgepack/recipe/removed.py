"""Keys that recipes had once, and what to use instead."""

from __future__ import annotations

from typing import Final

REMOVED: Final[dict[str, str]] = {  # dotted key -> the fix of the finding
    "gates.energy": "remove it; the energy of a text is not measured any more",
    "gates.latency.after_idle": "remove it; gates.latency.sustained and cold_start measure a device that is not warm",
    "engine": "remove it; every model runs on ONNX Runtime",
}
