"""Program that answers the examples of model folders in a separate process: `python -I -S score_program.py JOB`.

The process sees the runtime, ONNX Runtime and the packages of the recipe, and nothing else that is installed: an import
which a device would miss fails here. It prints one JSON object for each example, with `scores`, `answers` and times
(`ms`), each a list with an entry for each model; for a failure one with `error`. What the handler prints is discarded.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO


def main(job: dict[str, Any], results: TextIO) -> None:
    """Answer each example, in rounds, and print its score and its times in ms."""
    sys.path[:] = [*sys.path, *job["paths"]]
    from edgepack_runtime.errors import EdgepackError, StageFailedError, to_json
    from edgepack_runtime.inference.predictor import Predictor

    try:
        predictors = [Predictor(model, threads=1) for model in job["models"]]
        with Path(job["examples"]).open(encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        counts = {graph.stem: 0 for graph in Path(job["models"][0]).glob("*.onnx")}
        for number, row in enumerate(rows):
            item = _item(job, row)
            if job["runs"] is not None and number < job["recorded_rows"] and min(counts.values()) < job["most_runs"]:
                with _recording(Path(job["runs"]), job["most_runs"], counts):
                    predictors[0].predict(item)
            found = [predictor.timed_batch([item]) for predictor in predictors]
            times = [[split.total_ms] for _, split in found]
            while len(times[0]) < job["rounds"] and sum(map(sum, times)) < job["budget_ms"]:
                for predictor, mine in zip(predictors, times, strict=True):  # in turns
                    mine.append(predictor.timed_predict(item)[1].total_ms)
            answers = [predictions[0].answer for predictions, _ in found]
            scores = [one.score(answer, row["expected"]) for one, answer in zip(predictors, answers, strict=True)]
            _report(results, {"scores": [round(score, 6) for score in scores], "ms": times, "answers": answers})
    except EdgepackError as error:
        _report(results, {"error": to_json(error)})
    except Exception as error:  # noqa: BLE001 - what the handler does to this process, for the message
        failed = StageFailedError("the handler's answer cannot be scored", why=f"{type(error).__name__}: {error}")
        _report(results, {"error": to_json(failed)})


def _item(job: dict[str, Any], row: dict[str, Any]) -> Any:
    return (Path(job["folder"]) / row["file"]).read_bytes() if "file" in row else row["item"]


@contextlib.contextmanager
def _recording(folder: Path, most: int, counts: dict[str, int]) -> Iterator[None]:
    """Write the inputs and outputs of the first runs of each graph into a folder; `counts` has those of each graph."""
    from edgepack_runtime.engine.ort_api import Session

    run = Session.run_tensors

    def recorded(session: Session, given: Any, most_bytes: int | None = None) -> Any:
        outputs, name = run(session, given, most_bytes), session.path.stem
        counts[name] += 1
        if counts[name] <= most:
            document = {"inputs": _plain(given), "outputs": _plain(outputs)}
            (folder / f"{name}-{counts[name]}.json").write_text(json.dumps(document), encoding="ascii")
        return outputs

    Session.run_tensors = recorded  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        Session.run_tensors = run  # type: ignore[method-assign]


def _plain(tensors: Any) -> dict[str, Any]:
    return {
        name: {"shape": one.shape, "dtype": one.dtype, "data": base64.b64encode(one.data).decode()}
        for name, one in tensors.items()
    }


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
