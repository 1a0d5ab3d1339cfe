"""Stage `linear`: a linear model on characters, trained in seconds, which the encoder has to beat or may help."""

from __future__ import annotations

import json
import time
from pathlib import Path

from edgepack import evaluation
from edgepack.artifacts import DataArtifact, LinearArtifact
from edgepack.errors import StageFailedError
from edgepack.progress import Progress
from edgepack.util.text import counted, metric_name
from edgepack_runtime.bundle.model_config import LINEAR_NAME
from edgepack_runtime.inference.linear import LinearModel

VERSION = 3


def run(data: DataArtifact, out: Path, progress: Progress) -> LinearArtifact:
    """Fit on the training rows, choose on dev, score on test. The runtime's own reader answers.

    Raises:
        StageFailedError: no n-gram occurs in two of many training rows.
    """
    from edgepack.training import linear

    progress.line("fitting a linear model on characters and pairs of characters")
    started, dev = time.monotonic(), data.read("dev")
    try:
        fit = linear.fit(
            linear.sample(data.read("train"), data.rows["train"]), dev, data.labels, multi_label=data.multi_label
        )
    except ValueError as error:
        raise StageFailedError(
            "linear: no model can be fitted", why=str(error), fix="give more rows, or set `wide: off`"
        ) from error
    seconds = round(time.monotonic() - started, 3)
    file = out / LINEAR_NAME
    file.write_text(json.dumps(fit.document, separators=(",", ":")), encoding="ascii")
    model, metric = LinearModel.load(file), evaluation.metric_of(data)
    test = data.read("test")
    answers = evaluation.linear_answers(model, test, data.labels, multi_label=data.multi_label)
    scores = evaluation.every_score(data, test, answers)
    progress.line(
        f"linear: {counted(fit.ngrams, 'n-gram')}, {metric_name(metric)} {100 * scores[metric].value:.1f} % on test"
    )
    return LinearArtifact(
        out,
        ngrams=fit.ngrams,
        regularisation=fit.regularisation,
        file_bytes=file.stat().st_size,
        train_seconds=seconds,
        test_score=scores[metric],
        test_scores=scores,
    )
