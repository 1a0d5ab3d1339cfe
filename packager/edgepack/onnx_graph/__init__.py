"""ONNX graphs: reading an exported ERNIE, writing float and quantized graphs, parity. Imports no Paddle."""

from typing import Final

# Of all graphs that are made here. LayerNormalization needs 17; the oldest ONNX Runtime of a bundle, 1.19.2 on Python
# 3.8, loads up to 21.
OPSET: Final = 17
