"""edgepack_runtime: what travels inside every bundle and runs on the device (Python >= 3.8).

`manifest`, `verify`, `install`, `doctor`, `state` and `cli` need nothing but the standard library;
`tokenizer`, `engine`, `predictor`, `selftest`, `bench` and `gate` need numpy, onnxruntime and tokenizers,
which every bundle carries.
"""
