"""Program that answers the examples of a model folder in a process of its own: `python -I -S score_program.py JOB`.

The process sees the runtime, ONNX Runtime and the packages of the recipe, and nothing else that is installed: an import
which a device would miss fails here. It prints one JSON object for each example, with `score`, `ms` and `answer`; for a
failure one with `error`. What the adapter prints is discarded.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO


def main(job: dict[str, Any], results: TextIO) -> None:
    """Answer each example, in rounds, and print its score and its times in ms."""
    sys.path[:] = [*sys.path, *job["paths"]]
    from edgepack_runtime.errors import EdgepackError, to_json
    from edgepack_runtime.inference.predictor import Predictor

    try:
        predictor = Predictor(job["model"], threads=1)
        with Path(job["examples"]).open(encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        for row in rows:
            item = (Path(job["folder"]) / row["file"]).read_bytes() if "file" in row else row["item"]
            [prediction], first = predictor.timed_batch([item])
            times = [first.total_ms]
            while len(times) < job["rounds"] and sum(times) < job["budget_ms"]:
                times.append(predictor.timed_predict(item)[1].total_ms)
            score = predictor.score(prediction.answer, row["expected"])
            _report(results, {"score": round(score, 6), "ms": times, "answer": prediction.answer})
    except EdgepackError as error:
        _report(results, {"error": to_json(error)})


def _report(results: TextIO, line: dict[str, Any]) -> None:
    results.write(json.dumps(line) + "\n")
    results.flush()


def _own_stdout() -> TextIO:
    """Standard output for this program alone; from now on whatever else is printed goes to /dev/null."""
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    return own


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), _own_stdout())
