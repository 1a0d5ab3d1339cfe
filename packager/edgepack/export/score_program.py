"""Program that answers the examples of a model folder in a process of its own: `python -I -S score_program.py JOB`.

The process sees the runtime, ONNX Runtime and the packages of the recipe, and nothing else that is installed: an import
which a device would miss fails here. It prints one JSON object for each example, with `score`, `mean_ms` and `ms`; for
a failure one with `error`.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

MOST_RUNS = 3  # of each graph


def main(job: dict[str, Any]) -> None:
    """Answer each example, in rounds, and print its score and its times in ms."""
    sys.path[:] = [*sys.path, *job["paths"]]
    from edgepack_runtime.errors import EdgepackError, to_json
    from edgepack_runtime.inference.predictor import Predictor

    if job["runs"] is not None:
        _record(Path(job["runs"]))
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
            _report(json.dumps({"score": round(score, 6), "ms": times, "answer": prediction.answer}))
    except EdgepackError as error:
        _report(json.dumps({"error": to_json(error)}))


def _record(folder: Path) -> None:
    """Write the inputs and outputs of the first runs of each graph into a folder."""
    from edgepack_runtime.engine.ort_api import Session

    run, counts = Session.run_tensors, dict[int, int]()

    def recorded(session: Session, given: Any) -> Any:
        outputs = run(session, given)
        counts[id(session)] = counts.get(id(session), 0) + 1
        if counts[id(session)] <= MOST_RUNS:
            document = {"inputs": _plain(given), "outputs": _plain(outputs)}
            file = folder / f"{session.path.stem}-{counts[id(session)]}.json"
            file.write_text(json.dumps(document), encoding="ascii")
        return outputs

    Session.run_tensors = recorded  # type: ignore[assignment,method-assign]


def _plain(tensors: Any) -> dict[str, Any]:
    return {
        name: {"shape": one.shape, "dtype": one.dtype, "data": base64.b64encode(one.data).decode()}
        for name, one in tensors.items()
    }


def _report(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
