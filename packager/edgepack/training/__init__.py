"""The only place that imports paddle, paddlenlp, paddleslim and paddle2onnx.

Call `environment.start` before importing any other module of this package: Paddle reads its thread settings once,
when it is imported.
"""

import sys

# Paddle imports OpenCV, if it is there, for data sets that nobody uses here. OpenCV's wheel makes the loader look for
# libraries in the working folder, for this process and for all that it starts: a file there would run as code.
sys.modules.setdefault("cv2", None)  # type: ignore[arg-type]  # an import ends in ImportError, which Paddle expects
