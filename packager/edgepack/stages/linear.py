"""Stage `linear`: a linear model on characters, trained in seconds, which the encoder has to beat or may help."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack import evaluation
from edgepack.artifacts import DataArtifact, LinearArtifact
from edgepack.errors import StageFailedError
from edgepack.stages import keys
from edgepack.stages.stage import Context, Input, Stage
from edgepack.tasks.registry import linear_task_of_data
from edgepack.util.text import counted, metric_name
from edgepack_runtime.bundle.model_config import LINEAR_NAME
from edgepack_runtime.inference.linear import LinearModel
from edgepack_runtime.schema.figures import quantity

if TYPE_CHECKING:
    from edgepack.training.linear import Fit


@dataclass(frozen=True)
class LinearStage(Stage[LinearArtifact]):
    """Fits on the training rows, chooses on dev, scores on test. The runtime's own reader answers."""

    rows: Stage[DataArtifact]

    name = "linear"
    version = 4
    kind = LinearArtifact
    libraries = ("scikit-learn",)

    @property
    def needs(self) -> tuple[Stage[Any], ...]:
        return (self.rows,)

    def decides(self, ctx: Context) -> Any:
        return None

    def inputs(self, ctx: Context) -> list[Input]:
        return keys.labelled(ctx[self.rows])

    def run(self, ctx: Context, out: Path) -> LinearArtifact:
        data, progress = ctx.artifact(self.rows), ctx.progress
        progress.line("fitting a linear model on characters and pairs of characters")
        started = time.monotonic()
        fit = _fitted(data)
        seconds = round(time.monotonic() - started, 3)
        file = out / LINEAR_NAME
        file.write_text(json.dumps(fit.document, separators=(",", ":")), encoding="ascii")
        model, metric = LinearModel.load(file), evaluation.metric_of(data)
        test = data.read("test")
        answers = evaluation.linear_answers(model, test, data.model_labels, data.text_task)
        scores = evaluation.every_score(data, test, answers)
        score = quantity(scores[metric].value, scores[metric].unit)
        progress.line(f"linear: {counted(fit.ngrams, 'n-gram')}, {metric_name(metric)} {score} on test")
        return LinearArtifact(
            out,
            ngrams=fit.ngrams,
            regularisation=fit.regularisation,
            file_bytes=file.stat().st_size,
            train_seconds=seconds,
            test_score=scores[metric],
            test_scores=scores,
        )


def _fitted(data: DataArtifact) -> Fit:
    from edgepack.training import linear

    train, dev = linear.sample(data.read("train"), data.rows["train"]), data.read("dev")
    try:
        return linear.fit(linear_task_of_data(data), train, dev)
    except ValueError as error:  # no n-gram occurs in two of many training rows
        raise StageFailedError(
            "linear: no model can be fitted", why=str(error), fix="give more rows, or set `linear: off`"
        ) from error
