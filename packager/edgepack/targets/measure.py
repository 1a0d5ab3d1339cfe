"""Scores and latency of model folders on this machine, by the runtime package on the files that ship."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt

from edgepack import scores
from edgepack.artifacts import Answer, DataArtifact, Row, Score
from edgepack.errors import StageFailedError
from edgepack.progress import Progress
from edgepack.wording import counted
from edgepack_runtime import model_config
from edgepack_runtime.errors import EdgepackError
from edgepack_runtime.predictor import Predictor

Float = npt.NDArray[np.float32]
_BATCH = 32
_ROUNDS = 10  # each of all texts


@dataclass(frozen=True)
class Latency:
    """Text in to label out, batch 1, one thread, of one model; all models of a call were timed interleaved."""

    p50_ms: float
    p95_ms: float | None  # None where the texts are too few for it


def opened(folder: Path, threads: int | None = None) -> Predictor:
    """A model folder as this machine can run it: one for a GPU on the CPU, where it computes the same and is slower."""
    config = model_config.load(folder)
    if config.engine.provider == model_config.CPU:
        return Predictor(folder, threads=threads)
    on_cpu = replace(config, engine=replace(config.engine, provider=model_config.CPU))
    with TemporaryDirectory(prefix="edgepack-") as scratch:
        here = Path(scratch)
        for file in folder.iterdir():
            (here / file.name).symlink_to(file.resolve())
        (here / model_config.CONFIG_NAME).unlink()
        (here / model_config.CONFIG_NAME).write_bytes(model_config.dump(on_cpu))
        return Predictor(here, threads=threads)


def test_scores(folder: Path, data: DataArtifact, progress: Progress) -> dict[str, Score]:
    """The model folder on the test rows, text in, answer out, in every metric that a gate may judge by."""
    rows = data.read("test")
    return scores.every_score(data, rows, answers(opened(folder), rows, f"score of {folder.name}", progress))


def answers(predictor: Predictor, rows: Sequence[Row], label: str, progress: Progress) -> list[Answer]:
    """What the model answers to each row; `label` names the bar.

    Raises:
        StageFailedError: it cannot be run, or gives something that is no number.
    """
    given: list[Answer] = []
    with progress.task(label, len(rows)) as task:
        for start in range(0, len(rows), _BATCH):
            part = [row.item for row in rows[start : start + _BATCH]]
            try:
                given += [prediction.answer for prediction in predictor.predict_batch(part)]
            except EdgepackError as error:
                raise StageFailedError(f"{label}: {error.what}", why=error.why, fix=error.fix) from error
            task.advance(len(part))
    return given


def logits(predictor: Predictor, rows: Sequence[Row]) -> list[Float]:
    """Those of each row by itself, (1, C), or (1, T, C) where tokens are classified."""
    return [predictor.logits([row.item]) for row in rows]


def latency(folders: Sequence[Path], texts: Path, progress: Progress, *, stage: str = "export") -> list[Latency]:
    """Time all folders side by side on the lines of `texts`, in one fresh process: no trainer's threads share it.

    `stage` is the one that asks.

    Raises:
        StageFailedError: when the process fails.
    """
    progress.line(f"timing {counted(len(folders), 'model')}, interleaved, one thread")
    command = [sys.executable, "-m", "edgepack_runtime", "bench", *map(str, folders)]
    done = subprocess.run(
        [*command, "--texts", str(texts), "--threads", "1", "--runs", str(_ROUNDS), "--json"],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode != 0:
        raise StageFailedError(f"{stage}: the runtime could not time the exported files", why=done.stderr.strip())
    result = json.loads(done.stdout)
    return [Latency(model["p50_ms"], model["p95_ms"]) for model in result["models"]]
