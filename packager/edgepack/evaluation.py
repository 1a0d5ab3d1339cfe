"""Scores and latency of exported models on this machine, measured by the runtime."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import numpy.typing as npt

from edgepack.artifacts import DataArtifact, Gain, Row, Score
from edgepack.errors import StageFailedError
from edgepack.progress import Progress
from edgepack.util.process import ended_with_block
from edgepack.util.text import counted
from edgepack_runtime.bundle import model_config
from edgepack_runtime.errors import EdgepackError
from edgepack_runtime.inference.linear import LinearModel
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.stats import metrics, scoring
from edgepack_runtime.stats.intervals import CONFIDENCE
from edgepack_runtime.stats.metrics import Answer
from edgepack_runtime.tasks import task as tasks
from edgepack_runtime.tasks.task import Part, Task, row_errors

_ONE_ERROR: Final = 0.6827  # within a standard error of the mean of a normal distribution
_ROUNDING_POINTS: Final = 1e-9  # rounding error of a difference of scores


def metric_of(data: DataArtifact) -> str:
    """The metric that compares models of a task during the build."""
    return data.text_task.usual_metric


def metrics_of(data: DataArtifact) -> list[str]:
    """Every metric of a task."""
    task = data.text_task
    return [name for name in task.metric_names if task.unfit(name, len(data.labels)) is None]


def value_name(data: DataArtifact) -> str:
    """What `value` is called."""
    metric = metric_of(data)
    return metric if metrics.metric_of(metric).more_is_better else f"gain in {metric}"


def value_unit(data: DataArtifact) -> str:
    """The unit in which `value` is shown."""
    metric = metrics.metric_of(metric_of(data))
    return metric.unit if metric.more_is_better else "fraction"


def value(task: Task, rows: Sequence[Row], answers: Sequence[Answer], classes: Sequence[str]) -> float:
    """How good answers are by the task's usual metric, 1 at most, so that 0.01 is a point.

    It is the metric itself, or of an error how much smaller it is than that of the best constant answer.
    """
    pairs = [(row.label, answer) for row, answer in zip(rows, answers, strict=True)]
    return _goodness(task, rows, task.values(pairs, classes)[task.usual_metric], classes)


def _goodness(task: Task, rows: Sequence[Row], found: float, classes: Sequence[str]) -> float:
    if metrics.metric_of(task.usual_metric).more_is_better:
        return found
    return 1 - found / tasks.hundred_points(task, task.usual_metric, [row.label for row in rows], classes)


def floor(task: Task, rows: Sequence[Row]) -> float | None:
    """The highest `value` that needs no learning; a model that is not above it has learnt nothing.

    None if all rows have the same answer: no score then shows learning.
    """
    found = tasks.unlearned_score(task, [row.item for row in rows], [row.label for row in rows])
    return None if found is None else _goodness(task, rows, found, ())


def hundred_points(data: DataArtifact, rows: Sequence[Row]) -> float:
    """The difference in the usual metric on these rows that counts as 100 points."""
    return tasks.hundred_points(data.text_task, metric_of(data), [row.label for row in rows], data.labels)


def exceeds(lost_points: float, limit_points: float) -> bool:
    """Whether the loss exceeds the limit, up to rounding errors of scores."""
    return lost_points > limit_points + _ROUNDING_POINTS


def score(task: Task, metric: str, rows: Sequence[Row], answers: Sequence[Answer], classes: Sequence[str]) -> Score:
    """`metric` with its interval at `CONFIDENCE`."""
    truths = [row.label for row in rows]
    found = task.interval(metric, truths, answers, CONFIDENCE, classes)
    return Score(found.value, found.low, found.high, len(rows), CONFIDENCE, metric)


def every_score(data: DataArtifact, rows: Sequence[Row], answers: Sequence[Answer]) -> dict[str, Score]:
    """The score in every metric of the task, so that another metric in the gates needs no new training."""
    found: dict[str, Score] = {}
    for metric in metrics_of(data):
        if metric == metrics.ENTITY_F1 and metrics.MICRO_F1 in found:  # the micro average over spans
            found[metric] = replace(found[metrics.MICRO_F1], metric=metric)
        else:
            found[metric] = score(data.text_task, metric, rows, answers, data.labels)
    return found


def rule_scores(data: DataArtifact) -> dict[str, Score]:
    """What the rule of the task scores on the test rows, in every metric; empty if it has none."""
    task = data.text_task
    if task.rule_answer(("", "")) is None:
        return {}
    rows = data.read("test")
    return every_score(data, rows, [task.rule_answer(row.item) for row in rows])


def gains(
    data: DataArtifact, rows: Sequence[Row], before: Sequence[Answer], after: Sequence[Answer]
) -> dict[str, Gain]:
    """How much better the answers `after` are than those `before`, paired, in every metric of the task."""
    truths = [row.label for row in rows]
    found = {}
    for metric in metrics_of(data):
        drop = data.text_task.drop(metric, truths, after, before, CONFIDENCE, data.labels)
        points = 100 / tasks.hundred_points(data.text_task, metric, truths, data.labels)
        found[metric] = Gain(points * drop.value, points * drop.low, points * drop.high, CONFIDENCE)
    return found


def noise_points(task: Task, rows: Sequence[Row], before: Sequence[Answer], after: Sequence[Answer]) -> float:
    """One standard error of the difference in the usual metric between two models on the same rows, in points.

    Where answers are right or wrong it is that of accuracy in McNemar's test, the root of the number of rows that only
    one of the two has right. For F1 that is a measure of the same size.
    """
    truths = [row.label for row in rows]
    if not task.exact:
        metric = task.usual_metric
        found = task.drop(metric, truths, before, after, _ONE_ERROR, ())
        return 100 * (found.high - found.low) / 2 / tasks.hundred_points(task, metric, truths, ())
    counts = scoring.count(row_errors(task, truths, before), row_errors(task, truths, after))
    return 100 * math.sqrt(counts.lost + counts.won) / counts.n


def every_metric(data: DataArtifact, rows: Sequence[Row], answers: Sequence[Answer]) -> dict[str, float]:
    """Every metric of the task."""
    pairs = [(row.label, answer) for row, answer in zip(rows, answers, strict=True)]
    return {name: round(number, 6) for name, number in data.text_task.values(pairs, data.labels).items()}


Float = npt.NDArray[np.float32]
_BATCH = 32


@dataclass(frozen=True)
class Latency:
    """Latency of one model from text to label, batch 1, one thread. All models of a call are timed interleaved."""

    mean_ms: float
    p50_ms: float
    p95_ms: float | None  # None: too few texts


def opened(folder: Path, threads: int | None = None) -> Predictor:
    """A model folder, loaded on the CPU of this machine even if it is for a GPU."""
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
    """The scores of a model folder on the test rows, in every metric of the task."""
    rows = data.read("test")
    return every_score(data, rows, answers(opened(folder), rows, f"score of {folder.name}", progress))


def answers(predictor: Predictor, rows: Sequence[Row], label: str, progress: Progress) -> list[Answer]:
    """The model's answer to each row. `label` names the progress bar.

    Raises:
        StageFailedError: the model cannot be run, or a logit is not a number.
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


def linear_answers(model: LinearModel, rows: Sequence[Row], labels: Sequence[str], task: Task) -> list[Answer]:
    """The linear model's answer to each row."""
    return decided(task, labels, (model.logits(row.item) for row in rows))


def decided(task: Task, labels: Sequence[str], logits: Iterable[Sequence[float]]) -> list[Answer]:
    """The answers of logits for whole texts, by the code of the device."""
    return [task.predict(labels, [Part(row, 1)], "").answer for row in logits]


def batch_logits(predictor: Predictor, rows: Sequence[Row], label: str, progress: Progress) -> npt.NDArray[np.float64]:
    """The logits of the rows, shape (rows, C). `label` names the progress bar."""
    found: list[list[float]] = []
    with progress.task(label, len(rows)) as task:
        for start in range(0, len(rows), _BATCH):
            part = [row.item for row in rows[start : start + _BATCH]]
            found += predictor.logits(part)
            task.advance(len(part))
    return np.array(found, np.float64)


def logits(predictor: Predictor, rows: Sequence[Row]) -> list[Float]:
    """The logits of each row, run alone: (1, C), or (1, T, C) if tokens are classified."""
    return [np.asarray(predictor.logits([row.item]), np.float32) for row in rows]


def latency(
    folders: Sequence[Path], texts: Path, progress: Progress, *, stage: str = "export", rounds: int = 10
) -> list[Latency]:
    """Time all folders, interleaved, on the lines of `texts`, in a new process without the threads of a training.

    Args:
        stage: the calling stage, for messages.
        rounds: over all texts.

    Raises:
        StageFailedError: the process failed.
    """
    progress.line(f"timing {counted(len(folders), 'model')}, interleaved, one thread")
    command = [sys.executable, "-I", "-m", "edgepack_runtime", "bench", *map(str, folders)]
    said: list[str] = []
    with (
        progress.task("rounds", rounds) as task,
        ended_with_block(
            [*command, "--texts", str(texts), "--threads", "1", "--runs", str(rounds), "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process,
    ):
        assert process.stdout is not None and process.stderr is not None
        for raw in process.stderr:  # a line each round; the result comes at the end, so stdout cannot fill up
            line = raw.decode("utf-8", "replace")
            said.append(line)
            task.advance(int(line.startswith("round ")))
        output = process.stdout.read()
        process.wait()
    if process.returncode != 0:
        why = "".join(said).strip()
        raise StageFailedError(f"{stage}: the runtime could not time the exported files", why=why)
    result = json.loads(output)
    return [Latency(model["mean_ms"], model["p50_ms"], model["p95_ms"]) for model in result["models"]]
