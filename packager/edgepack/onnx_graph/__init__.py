"""ONNX graph work: folding, the quantized-graph writer, parity. Imports onnx, never Paddle."""
