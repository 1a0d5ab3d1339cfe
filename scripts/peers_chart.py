#!/usr/bin/env python3
"""Draw the chart of a README from benchmarks/results/peers.json: docs/peers.svg, and docs/peers.zh-CN.svg in Chinese.

python scripts/peers_chart.py docs/peers.svg
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from edgepack.report.svg import Chart, linear_axis

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results" / "peers.json"
STYLE = """\
text { font: 12px system-ui, sans-serif; fill: #1c2430 }
polyline, circle { fill: none; stroke: #8a94a3; stroke-width: 3 }
circle.filled { fill: #8a94a3 }
.ours { stroke: #2563c9 } circle.ours { fill: #2563c9 }
polyline.grid { stroke: #d5dae1; stroke-width: .6 }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e8ee } polyline.grid { stroke: #353e4a }
  .ours { stroke: #6ea8fe } circle.ours { fill: #6ea8fe }
}"""


NAMES = ("ms for a text of 64 characters, p50 with quartiles", "64 个字符的延迟，ms：p50 与四分位数")


def drawing(*, chinese: bool) -> str:
    """The SVG file: a row for each backend, with its quartiles and the size of its model."""
    backends = json.loads(RESULTS.read_text(encoding="utf-8"))["backends"]
    ends = [0.0, *(one["p75_ms"] for one in backends), 8.0]
    axis = linear_axis(ends, (NAMES[chinese],) * 2, margin=0.0)
    chart = Chart(axis, [_name(one["name"], chinese=chinese) for one in backends])
    for row, one in enumerate(backends):
        look = "ours" if one["name"].startswith("edgepack") else "other"
        chart.line([(one["p25_ms"], row), (one["p75_ms"], row)], look)
        chart.dot((one["p50_ms"], row), f"{look} filled", 5)
        chart.text((one["p75_ms"] + 0.9, row), f"{one['p50_ms']:.2f} ms, {one['megabytes']:.1f} MB", below=4)
    inside = str(chart.drawing()).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return inside.replace(">", f"><style>{STYLE}</style>", 1) + "\n"


def _name(backend: str, *, chinese: bool) -> str:
    return (
        backend.replace(" float", " 浮点").replace(", ", " + ").replace("ONNX Runtime", "ORT") if chinese else backend
    )


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(drawing(chinese=".zh-CN" in target.suffixes), encoding="utf-8")
