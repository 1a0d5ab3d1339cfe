"""Answers of a model folder with a handler to the golden examples, from a separate process."""

from __future__ import annotations

import base64
import json
import os
import selectors
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import edgepack_runtime
from edgepack.artifacts import EXAMPLES_FILE, ExamplesArtifact, Score
from edgepack.errors import StageFailedError
from edgepack.progress import Progress
from edgepack.util.process import ended_with_block
from edgepack_runtime.bundle.model_config import HANDLER_NAME
from edgepack_runtime.engine.ort_api import library_path
from edgepack_runtime.errors import from_json
from edgepack_runtime.stats import intervals, mean_scores
from edgepack_runtime.stats.intervals import CONFIDENCE
from edgepack_runtime.stats.metrics import SCORE

ANSWER_TIMEOUT_S: Final = 120.0  # from one example to the next
_PROGRAM: Final = Path(__file__).with_name("score_program.py")
_ROUNDS: Final = 5
# Runs are recorded while these are answered: once more and untimed, because writing takes long.
RECORDED_ROWS: Final = 32
_BUDGET_MS: Final = 500.0  # of further rounds of one example
_P95_N: Final = 60  # fewer times are too few for a 95th percentile


@dataclass(frozen=True)
class Answers:
    """Scores (0 to 1), answers and times of the examples, in their order."""

    scores: tuple[float, ...]
    answers: tuple[Any, ...]
    times_ms: tuple[float, ...]

    def after(self, rows: int) -> Answers:
        """Without the first `rows` examples. The times stay."""
        return replace(self, scores=self.scores[rows:], answers=self.answers[rows:])

    @property
    def score(self) -> Score:
        """The mean score with its interval."""
        found = mean_scores.mean(self.scores, CONFIDENCE)
        return Score(found.value, found.low, found.high, len(self.scores), CONFIDENCE, SCORE)

    @property
    def mean_ms(self) -> float:
        return round(statistics.fmean(self.times_ms), 4)

    @property
    def p50_ms(self) -> float:
        return round(statistics.median(self.times_ms), 4)

    @property
    def p95_ms(self) -> float | None:
        """None with too few times."""
        enough = len(self.times_ms) >= _P95_N
        return round(intervals.percentile(sorted(self.times_ms), 0.95), 4) if enough else None


@dataclass(frozen=True)
class Run:
    """One run of a graph: its inputs and outputs by name, in the order of the graph."""

    inputs: dict[str, npt.NDArray[Any]]
    outputs: dict[str, npt.NDArray[Any]]


def read_runs(folder: Path, graph: str) -> list[Run]:
    """The runs of a graph that `answer` recorded in a folder."""
    documents = (json.loads(file.read_bytes()) for file in sorted(folder.glob(f"{graph}-*.json")))
    return [Run(_arrays(document["inputs"]), _arrays(document["outputs"])) for document in documents]


def _arrays(document: dict[str, Any]) -> dict[str, npt.NDArray[Any]]:
    return {
        name: np.frombuffer(base64.b64decode(one["data"]), one["dtype"]).reshape(one["shape"])
        for name, one in document.items()
    }


def answer(
    models: Sequence[Path],
    examples: ExamplesArtifact,
    packages: Path | None,
    label: str,
    progress: Progress,
    *,
    timeout_s: float = ANSWER_TIMEOUT_S,
    runs: Path | None = None,
    most_runs: int = 3,
    recorded_rows: int = RECORDED_ROWS,
) -> list[Answers]:
    """Answer every example with the handler of each model folder, in turns, one thread.

    Args:
        packages: folder with the packages that the handler imports; None without any.
        label: names the progress bar.
        timeout_s: longest time for one example.
        runs: folder for the first runs of each graph, for `read_runs`; None records none.
        most_runs: that many of each graph.
        recorded_rows: of the first examples alone.

    Raises:
        StageFailedError: the handler raises, gives no JSON, or takes too long; names the example.
    """
    with tempfile.TemporaryDirectory(prefix="edgepack-") as scratch:
        job = {
            "models": [str(model.resolve()) for model in models],
            "examples": str((examples.folder / EXAMPLES_FILE).resolve()),
            "folder": str(examples.folder.resolve()),
            "paths": [str(_site(Path(scratch))), *([str(packages.resolve())] if packages is not None else [])],
            "rounds": _ROUNDS,
            "budget_ms": _BUDGET_MS,
            "runs": None if runs is None else str(runs.resolve()),
            "most_runs": most_runs,
            "recorded_rows": recorded_rows,
        }
        command = [sys.executable, "-I", "-S", "-B", str(_PROGRAM), json.dumps(job)]
        found: list[dict[str, Any]] = []
        with (
            progress.task(label, examples.rows) as task,
            ended_with_block(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process,
        ):
            for line in _lines(process, timeout_s, found):
                found.append(line)
                task.advance(1)
    if len(found) < examples.rows:
        raise _failed(found, "its process ended early", f"look at {HANDLER_NAME}: it may end Python itself")
    return [
        Answers(
            tuple(line["scores"][number] for line in found),
            tuple(line["answers"][number] for line in found),
            tuple(ms for line in found for ms in line["ms"][number]),
        )
        for number in range(len(models))
    ]


def _lines(process: subprocess.Popen[bytes], timeout_s: float, found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The objects that the process prints."""
    assert process.stdout is not None
    buffered = b""
    with selectors.PollSelector() as selector:  # the sandbox has no epoll, whose watches the kernel keeps
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(timeout_s):
                why = f"there is no answer after {timeout_s:g} s"
                raise _failed(found, why, f"look at {HANDLER_NAME}: it may wait for something, or loop for ever")
            chunk = os.read(process.stdout.fileno(), 1 << 16)
            if not chunk:
                return
            *whole, buffered = (buffered + chunk).split(b"\n")
            for raw in whole:
                line = json.loads(raw)
                if "error" in line:
                    error = from_json(line["error"])
                    number = f" (example {len(found) + 1})"
                    raise StageFailedError(f"{error.what}{number}", why=error.why, fix=error.fix)
                yield line


def _failed(found: list[dict[str, Any]], why: str, fix: str) -> StageFailedError:
    return StageFailedError(f"the handler does not answer example {len(found) + 1}", why=why, fix=fix)


def _site(folder: Path) -> Path:
    """A folder for `sys.path` with the runtime and ONNX Runtime alone."""
    (folder / "edgepack_runtime").symlink_to(Path(edgepack_runtime.__path__[0]))
    (folder / "onnxruntime").symlink_to(library_path().parents[1])
    return folder
