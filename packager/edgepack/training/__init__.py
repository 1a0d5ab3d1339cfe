"""The only place that imports paddle, paddlenlp, paddleslim and paddle2onnx.

Call `environment.start` before importing any other module of this package: Paddle reads its thread settings once,
when it is imported.
"""
