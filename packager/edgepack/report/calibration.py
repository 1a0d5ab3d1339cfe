"""What was decided about each part of a model: ranges of what its products read, magnitudes of their weights' columns.

The parts are those of `edgepack.graph.parts`, so that a range can be held against what the part costs. Calibration
knows the layers by the names that PaddleNLP gives them, the graph by their place in the encoder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from edgepack.quantization import LinearScales, Quantization

_STEPS: Final = 255  # of the grid of uint8, between the lowest and the highest value
_DIGITS: Final = 6  # significant ones: more of a float32 is noise
_IN_LAYER: Final = re.compile(r"\.layers\.(\d+)\.([\w.]+)$")
_ROLES: Final[Mapping[str, str]] = {
    "self_attn.q_proj": "query_key_value",
    "self_attn.k_proj": "query_key_value",
    "self_attn.v_proj": "query_key_value",
    "self_attn.out_proj": "output",
    "linear1": "up",
    "linear2": "down",
}


def part_of(layer: str) -> str:
    """The part of a model that PaddleNLP's `layer` belongs to; a layer of another model is a part by its own name."""
    found = _IN_LAYER.search(layer)
    if found is not None and found[2] in _ROLES:
        return f"layers.{found[1]}.{_ROLES[found[2]]}"
    if layer.endswith(".pooler.dense"):
        return "pooler"
    return "head" if layer == "classifier" else layer


def parts(ways: Sequence[Quantization], taken: str | None) -> list[dict[str, Any]]:
    """A row for each part, in the order in which calibration met them; [] where nothing was decided.

    `activation` has the range (`low`, `high`) of each of `ways` that found one before the model runs, by its name: the
    union of what the products of the part were seen to read, and zero. `step` is how far apart two values of uint8 lie
    in the range of the way that was `taken`; null where that has none. `weight` tells the least and the largest of the
    magnitudes (`least`, `most`) of its `columns`, of the way that was taken or else of the first.
    """
    by_way = {way.name: _by_part(way.linears) for way in ways}
    weights = by_way.get(taken or "") or next(iter(by_way.values()), {})
    return [_row(part, linears, _ranges(part, by_way), taken) for part, linears in weights.items()]


def _row(
    part: str, linears: Sequence[LinearScales], ranges: Mapping[str, Mapping[str, float]], taken: str | None
) -> dict[str, Any]:
    own = ranges.get(taken or "")
    return {
        "part": part,
        "layers": [linear.layer for linear in linears],
        "activation": ranges,
        "step": None if own is None else _short((own["high"] - own["low"]) / _STEPS),
        "weight": _columns(linears),
    }


def _by_part(linears: Sequence[LinearScales]) -> dict[str, list[LinearScales]]:
    found: dict[str, list[LinearScales]] = {}
    for linear in linears:
        found.setdefault(part_of(linear.layer), []).append(linear)
    return found


def _ranges(part: str, by_way: Mapping[str, Mapping[str, Sequence[LinearScales]]]) -> dict[str, dict[str, float]]:
    found = {}
    for way, known_parts in by_way.items():
        ends = [linear.activation for linear in known_parts.get(part, ())]
        known = [end for end in ends if end is not None]
        if known and len(known) == len(ends):  # a range of some of its products would be none of the part
            low, high = min(0.0, *(low for low, _ in known)), max(0.0, *(high for _, high in known))
            found[way] = {"low": _short(low), "high": _short(high)}
    return found


def _columns(linears: Sequence[LinearScales]) -> dict[str, float]:
    magnitudes = [magnitude for linear in linears for magnitude in linear.weight_abs_max]
    return {"columns": len(magnitudes), "least": _short(min(magnitudes)), "most": _short(max(magnitudes))}


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
