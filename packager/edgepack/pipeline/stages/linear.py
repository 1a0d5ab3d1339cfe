"""Stage `linear`: a linear model on characters, trained in seconds, as the measure of the encoder."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Final

from edgepack import evaluation
from edgepack.artifacts import DataArtifact, LinearArtifact
from edgepack.errors import StageFailedError
from edgepack.progress import Progress
from edgepack.util.text import counted, metric_name
from edgepack_runtime.inference.linear import FILE_NAME, LinearModel

VERSION = 1
_TIMED_TEXTS: Final = 200
_ROUNDS: Final = 10


def run(data: DataArtifact, out: Path, progress: Progress) -> LinearArtifact:
    """Fit on the training rows, choose on dev, score on test. The runtime's own reader answers and is timed.

    Raises:
        StageFailedError: no n-gram occurs in two training rows.
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
    file = out / FILE_NAME
    file.write_text(json.dumps(fit.document, separators=(",", ":")), encoding="ascii")
    model, metric = LinearModel.load(file), evaluation.metric_of(data)
    test = data.read("test")
    answers = evaluation.linear_answers(model, test, data.labels, multi_label=data.multi_label)
    scores = evaluation.every_score(data, test, answers)
    latency = evaluation.linear_latency(model, [row.text for row in test[:_TIMED_TEXTS]], _ROUNDS)
    progress.line(
        f"linear: {counted(fit.ngrams, 'n-gram')}, {metric_name(metric)} {100 * scores[metric].value:.1f} % on test, "
        f"{1e3 * latency.p50_ms:.0f} us a text"
    )
    return LinearArtifact(
        out,
        ngrams=fit.ngrams,
        regularisation=fit.regularisation,
        file_bytes=file.stat().st_size,
        train_seconds=seconds,
        test_score=scores[metric],
        test_scores=scores,
        p50_ms=latency.p50_ms,
        p95_ms=latency.p95_ms,
    )
