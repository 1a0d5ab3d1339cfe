"""Models asked by the build, and how good they are in the metrics that gates may name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import MakeModel
from tests.heights import METRES, Height

from edgepack import evaluation
from edgepack.artifacts import DataArtifact, Row
from edgepack.errors import StageFailedError
from edgepack.evaluation import every_score, floor, value
from edgepack.progress import SILENT
from edgepack_runtime.bundle.model_config import CPU, CUDA, EngineConfig
from edgepack_runtime.stats import metrics, scoring
from edgepack_runtime.stats.intervals import CONFIDENCE
from edgepack_runtime.stats.metrics import Answer
from edgepack_runtime.tasks.one_label import one_label
from edgepack_runtime.tasks.registry import ONE_TEXT, TOKENS, TaskName, task_by_name
from edgepack_runtime.tasks.task import Task
from edgepack_runtime.util.spans import Span


class Broken:
    """As a float16 model whose values went beyond the end."""

    def predict_batch(self, texts: Any) -> Any:
        return [one_label(("0", "1"), [float("nan"), 1.0]) for _ in texts]


def test_answers_that_are_no_numbers_fail_the_stage() -> None:
    model: Any = Broken()
    with pytest.raises(StageFailedError, match="float16 on dev: ") as caught:
        evaluation.answers(model, [Row("好", "0")], "float16 on dev", SILENT)
    assert "nan" in caught.value.why.lower()


def test_a_model_for_a_gpu_is_opened_on_the_cpu_and_stays_as_it_is(tmp_path: Path, make_model: MakeModel) -> None:
    folder = make_model(tmp_path / "gpu", engine=EngineConfig(provider=CUDA))
    before = sorted((path.name, path.read_bytes()) for path in folder.iterdir())
    plain = evaluation.opened(make_model(tmp_path / "cpu"))
    model = evaluation.opened(folder)
    assert model.providers == (CPU,)
    assert np.allclose(model.logits(["房间很大"]), plain.logits(["房间很大"]))
    assert sorted((path.name, path.read_bytes()) for path in folder.iterdir()) == before


def data(*labels: str, task: TaskName = "text-classification", multi_label: bool = False) -> DataArtifact:
    return DataArtifact(Path(), labels, {}, (), task=task, multi_label=multi_label)


SPAN = (Span(0, 1, "PER"),)


@pytest.mark.parametrize(
    ("of", "truths", "answers", "named"),
    [
        (data("a", "b"), "aaab" * 5, "aabb" * 5, {"accuracy", "macro_f1", "micro_f1", "f1"}),
        (data("a", "b", "c"), "aabc" * 5, "aabb" * 5, {"accuracy", "macro_f1", "micro_f1"}),
        (
            data("a", "b", multi_label=True), [("a",), ("a", "b"), ("b",)] * 5, [("a",)] * 15,
            {"accuracy", "macro_f1", "micro_f1"},
        ),
        (
            data("PER", task="token-classification"), [SPAN, SPAN] * 5, [SPAN, ()] * 5,
            {"accuracy", "macro_f1", "micro_f1", "entity_f1"},
        ),
    ],
    ids=["two labels", "three", "several of a text", "spans"],
)  # fmt: skip
def test_every_metric_has_the_score_and_the_interval_of_the_gate(
    of: DataArtifact, truths: list[Answer], answers: list[Answer], named: set[str]
) -> None:
    found = every_score(of, [Row("", truth) for truth in truths], list(answers))
    assert set(found) == named
    for metric, score in found.items():
        positive = metrics.positive_label(of.labels, truths) if metric == "f1" else None
        gated = scoring.interval(metric, truths, answers, CONFIDENCE, positive, of.labels)
        assert (score.metric, score.n) == (metric, len(truths))
        assert (score.value, score.low, score.high) == gated
    assert found["accuracy"].value != found["macro_f1"].value


@pytest.mark.parametrize(
    ("task", "truths", "expected"),
    [
        (task_by_name(ONE_TEXT), ["a", "a", "a", "b"], 0.75),
        (task_by_name(ONE_TEXT, multi_label=True), [("a",), ("a",), ("b",), ()], 4 / 7),
        (task_by_name(ONE_TEXT, multi_label=True), [("a",), ("a", "b"), ("a", "b"), ("b",)], 12 / 14),  # both labels
        (task_by_name(TOKENS), [(), (), SPAN], 2 / 4),
        (task_by_name(ONE_TEXT), ["a", "a"], None),
        (task_by_name(TOKENS), [(), ()], None),
    ],
)
def test_the_floor_is_the_best_score_of_one_answer_to_every_row(
    task: Task, truths: list[Answer], expected: float | None
) -> None:
    rows = [Row("", truth) for truth in truths]
    assert floor(task, rows) == expected
    if expected is not None:
        constant = [truths[0], ("a",), ("b",), ("a", "b"), SPAN]
        assert max(value(task, rows, [answer] * len(rows), "ab") for answer in constant) == pytest.approx(expected)


def test_an_error_is_measured_against_that_of_the_best_constant_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(metrics.METRICS, "metres", METRES)
    task: Any = Height()
    rows = [Row("", float(height)) for height in (1, 2, 3, 4, 5)]  # type: ignore[arg-type]  # answers of another task
    assert floor(task, rows) == pytest.approx(1 - 1.2)  # the mean error of the median, in points of the median error
    assert value(task, rows, [row.label for row in rows], ()) == 1
    assert value(task, rows, [1.5, 2.5, 3.5, 4.5, 5.5], ()) == pytest.approx(1 - 0.5)
