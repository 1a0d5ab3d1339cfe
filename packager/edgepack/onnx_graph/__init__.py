"""ONNX graphs: reading an exported ERNIE, writing float and quantized graphs, parity. Imports no Paddle."""
