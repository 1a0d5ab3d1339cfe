"""Which of several candidates goes on: by the dev rows and by what its file costs, never by the test rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.heights import METRES
from tests.stage_context import context_of

from edgepack.artifacts import Compared, DataArtifact, Row, Score, SelectArtifact, load, save
from edgepack.evaluation import Latency
from edgepack.gating.on_rows import Judge
from edgepack.progress import SILENT
from edgepack.recipe.gates import Gates
from edgepack.recipe.model import Data, Prefer, Recipe, Search
from edgepack.recipe.training import Student
from edgepack.results import Build
from edgepack.stages import select
from edgepack.stages.chain import Chain
from edgepack.stages.data import DataStage
from edgepack.stages.export import ExportStage
from edgepack.stages.quantize import QuantizeStage
from edgepack.stages.select import SelectStage
from edgepack.stages.train import StudentStage
from edgepack_runtime.stats import metrics

MIB = 2**20


def candidate(name: str, percent: float, p50_ms: float, mib: float, *missed: str) -> Compared:
    score = Score(percent / 100, 0.0, 1.0, 1000, 0.95)
    size = round(mib * MIB)
    return Compared(name, score, 1000, 4000, 1.0, "int8", size, p50_ms, 2 * p50_ms, missed)


def chosen(
    figures: Sequence[tuple[str, float, float, float]], tolerance: float | None = 0.5, prefer: Prefer = "latency"
) -> tuple[str, str]:
    one, why = select.choose([candidate(*figure) for figure in figures], tolerance, prefer)
    return one.name, why


@pytest.mark.parametrize(
    ("figures", "tolerance", "name", "why"),
    [
        ([("a", 90, 2, 9)], 0.5, "a", "the only candidate; dev accuracy 90.0 %, p50 2.00 ms, 9.0 MiB"),
        (
            [("a", 90, 2, 9), ("b", 89, 1, 9)], 0.5, "a",
            "the best dev accuracy, 90.0 %; no other is within 0.5 points of it; p50 2.00 ms, 9.0 MiB",
        ),
        (
            [("a", 90, 2, 9), ("b", 89.5, 1, 12)], 0.5, "b",
            "the fastest of 2 within 0.5 points of the best dev accuracy, 90.0 % (of a); p50 1.00 ms, 12.0 MiB",
        ),
        ([("a", 90, 2, 9), ("b", 89.499, 1, 4)], 0.5, "a", "no other"),
        ([("a", 90, 2, 9), ("b", 89, 1, 4)], 1, "b", "the fastest of 2 within 1 point of the best"),
        ([("a", 90, 2, 9), ("b", 60, 1, 4)], 100, "b", "the fastest of 2 within 100 points"),
        ([("a", 90, 1.05, 4), ("b", 90, 1, 5), ("c", 90, 1.06, 1)], 0, "a", "the smallest of the 2 fastest of 3"),
        ([("a", 90, 1, 4), ("b", 90.2, 1.04, 4.1)], 0.5, "b", "the best on dev of the 2 fastest and smallest of 2"),
        ([("a", 90, 1, 4), ("b", 90, 1, 4)], 0, "a", "(its own)"),
        ([("a", 0, 2, 9), ("b", 0, 1, 9)], 0.5, "b", "the fastest of 2"),
        (
            [("a", 90, 2, 9), ("b", 60, 1, 9)], None, "b",
            "the fastest of 2 that miss no gate; the best dev accuracy, 90.0 % (of a); "
            "dev accuracy 60.0 %, p50 1.00 ms, 9.0 MiB",
        ),
        (
            [("a", 90, 1, 9), ("b", 60, 2, 9)], None, "a",
            "the fastest of 2 that miss no gate; dev accuracy 90.0 %, p50 1.00 ms, 9.0 MiB",
        ),
    ],
)  # fmt: skip
def test_the_fastest_that_is_near_the_best_is_chosen(
    figures: list[tuple[str, float, float, float]], tolerance: float | None, name: str, why: str
) -> None:
    found, reason = chosen(figures, tolerance)
    assert found == name
    assert why in reason


@pytest.mark.parametrize(
    ("figures", "why"),
    [
        ([("a", 90, 1, 9), ("b", 90, 2, 4)], "the smallest of 2"),
        ([("a", 90, 2, 4), ("b", 90, 1, 4.19), ("c", 90, 0.5, 4.3)], "the fastest of the 2 smallest of 3"),
        ([("a", 90, 1, 4), ("b", 90.1, 1, 4)], "the best on dev of the 2 smallest and fastest"),
    ],
)
def test_the_smallest_is_chosen_where_size_is_preferred(
    figures: list[tuple[str, float, float, float]], why: str
) -> None:
    found, reason = chosen(figures, prefer="size")
    assert found == "b"
    assert why in reason


SLOW = "latency.p50_ms (6 > 5)"


def test_a_candidate_that_misses_a_gate_is_not_compared_with_those_that_miss_none() -> None:
    slow, fit, fair = candidate("a", 95, 6, 9, SLOW), candidate("b", 90, 2, 9), candidate("c", 89.9, 1, 9)
    one, why = select.choose([slow, fit], 0.5, "latency")
    assert one is fit
    assert why == "the only one of 2 that misses no gate; dev accuracy 90.0 %, p50 2.00 ms, 9.0 MiB"
    one, why = select.choose([slow, fit, fair], 0.5, "latency")
    assert one is fair  # the best of those that count is 90 %, and not 95 %
    assert why.startswith("the fastest of 2 within 0.5 points of the best dev accuracy, 90.0 % (of b)")
    assert why.endswith("; 1 other missed gates")


def test_where_all_miss_a_gate_the_best_is_chosen_and_every_miss_is_listed() -> None:
    one, why = select.choose(
        [
            candidate("a", 80, 1, 9, "accuracy.min (0.8 < 0.88)"),
            candidate("b", 95, 6, 30, SLOW, "size.model_mib (30 > 20)"),
        ],
        None,
        "latency",
    )
    assert one.name == "b"
    assert why == (
        "the best dev accuracy, 95.0 %, where all 2 miss a gate: a misses accuracy.min (0.8 < 0.88); "
        "b misses latency.p50_ms (6 > 5) and size.model_mib (30 > 20)"
    )
    _, why = select.choose([candidate("a", 80, 6, 9, SLOW)], 0.5, "latency")
    assert why == "the only candidate, though it misses latency.p50_ms (6 > 5)"


def test_of_errors_the_least_is_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(metrics.METRICS, metrics.SCORE, METRES._replace(unit=""))
    figures = (("a", 0.5, 3.0), ("b", 0.6, 2.0), ("c", 0.9, 1.0))
    several = [
        replace(candidate(name, 0, ms, 9), dev_score=Score(error, 0.0, 1.0, 1000, 0.95, metrics.SCORE))
        for name, error, ms in figures
    ]
    for hundred, name in ((1.0, "a"), (2.0, "b"), (9.0, "c")):  # b is 0.1 m, or 10, 5, 1.1 points, behind
        assert select.choose(several, 5.0, "latency", hundred)[0].name == name


ALL_GATES: dict[str, Any] = {
    "accuracy": {"metric": "accuracy", "min": 0.88, "max_drop_points": 1},
    "latency": {"p50_ms": 5, "p95_ms": 9},
    "size": {"model_mib": 10, "bundle_mib": 20},
    "memory": {"peak_rss_mib": 1},
    "cold_start": {"ms": 1},
}


def gates(**changed: Any) -> Gates:
    return Gates.model_validate({**ALL_GATES, **changed})


def test_latency_and_size_are_judged_by_the_figures_alone() -> None:
    assert select.missed(candidate("a", 90, 4.5, 10), gates()) == ()
    poor = candidate("a", 90, 5.1, 10.5)
    assert select.missed(poor, gates()) == (
        "latency.p50_ms (5.1 > 5)",
        "latency.p95_ms (10.2 > 9)",
        "size.model_mib (10.5 > 10)",
    )
    assert select.missed(poor, Gates()) == ()


@pytest.mark.parametrize(("rows", "lost", "points"), [(1000, 5, 0.5), (1200, 6, 0.5), (3000, 9, 0.3), (700, 7, 1.0)])
def test_a_drop_of_the_limit_itself_misses_no_gate(rows: int, lost: int, points: float) -> None:
    """Up to rounding."""
    data = DataArtifact(Path(), ("0", "1"), {"dev": rows}, ())
    texts = [Row(str(number), str(number % 2)) for number in range(rows)]
    right = [str(row.label) for row in texts]
    asked = gates(accuracy={"metric": "accuracy", "max_drop_points": points})
    judge = Judge.of(asked, data, texts, right, SILENT)
    wrong = [str(1 - int(label)) for label in right]
    assert judge([*wrong[:lost], *right[lost:]]).missed == ()
    assert len(judge([*wrong[: lost + 1], *right[lost + 1 :]]).missed) == 1


def test_a_gate_that_cannot_be_judged_is_listed_and_not_missed() -> None:
    slow = candidate("a", 90, 50, 10)
    two = gates(latency={"p50_ms": 5, "p95_ms": 9, "threads": 2})
    assert select.missed(slow, two) == ()
    assert select.not_judged(two, [slow]) == (
        "latency.p50_ms and latency.p95_ms (gated with 2 threads; candidates are timed with one)",
    )
    assert select.not_judged(gates(), [slow]) == ()
    few = replace(slow, p50_ms=1.0, p95_ms=None)
    assert select.missed(few, gates()) == ()
    assert select.not_judged(gates(), [few]) == ("latency.p95_ms (too few texts)",)
    assert select.not_judged(gates(latency={"p50_ms": 5}), [few]) == ()
    more = gates(latency={"p50_ms": 5, "p99_ms": 9, "by_length": [{"max_tokens": 32, "p50_ms": 4}]})
    assert select.not_judged(more, [few]) == (
        "latency.p99_ms and latency.max_tokens_32.p50_ms (candidates are timed for p50 and p95 of all texts)",
    )


@pytest.mark.parametrize(
    ("tolerance", "least", "points"), [(None, None, 0.5), (None, 0.88, None), (2, 0.88, 2), (0, None, 0)]
)
def test_the_tolerance_is_the_distance_to_the_best_unless_a_gate_sets_a_minimum(
    tolerance: float | None, least: float | None, points: float | None
) -> None:
    section = Search.model_validate({"over": {"student.epochs": [1]}, "tolerance_points": tolerance})
    assert select.tolerance_points(section, Gates.model_validate({"accuracy": {"min": least}})) == points
    assert select.tolerance_points(section, Gates()) == (0.5 if tolerance is None else tolerance)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that were asked; INT8 models answer the second dev row wrong. Every model takes 2 ms."""
    asked: list[str] = []

    def answers(predictor: Path, rows: Any, label: str, progress: Any) -> list[str]:
        asked.append(f"{label}: {predictor.name}")
        return ["正面", "正面" if predictor.name == "onnx-int8" else "负面"]

    monkeypatch.setattr("edgepack.stages.select.Predictor", lambda folder: folder)
    monkeypatch.setattr("edgepack.evaluation.answers", answers)
    monkeypatch.setattr("edgepack.evaluation.latency", lambda folders, *_, stage: [Latency(2, 2, 3)] * len(folders))
    return asked


def chain_of(recipe: Recipe, student: Student, rows: DataStage) -> Chain:
    train = StudentStage(student, rows)
    scales = QuantizeStage(recipe.quantize, recipe.data.calibration, 0, student, rows, train)
    return Chain(recipe, (train,), scales, ExportStage(recipe.quantize, recipe.targets, rows, train, scales))


def test_the_artifact_records_all_that_decided_and_no_test_score(
    tmp_path: Path, built: Build, measured: list[str]
) -> None:
    good = replace(built.student, test_score=replace(built.student.test_score, value=0.999))
    in_float = replace(built.export, shipped="float32")
    rows = DataStage(Data(train="builtin:reviews-zh"))
    recipes = {number: built.recipe.student.model_copy(update={"epochs": number}) for number in (1, 2, 3)}
    chains = {f"epochs={number}": chain_of(built.recipe, student, rows) for number, student in recipes.items()}
    models, files = (built.student, good), (built.export, in_float)
    made_of_chains = [
        pair
        for chain, model, exported in zip(chains.values(), models, files, strict=False)
        for pair in ((chain.model, model), (chain.export, exported))
    ]
    section = Search.model_validate({"over": {"student.epochs": [1, 2, 3]}})
    asked = gates(accuracy={"metric": "macro_f1", "min": 0.5, "max_drop_points": 2}, size={"model_mib": 100})
    out = tmp_path / "out"
    out.mkdir()
    made = SelectStage(section, asked, rows, chains).run(context_of({rows: built.data, **dict(made_of_chains)}), out)
    first, second = made.candidates
    assert (first.dev_score.value, second.dev_score.value) == (0.5, 1.0)
    assert first.missed == ("accuracy.min 33.33 %, limit 50 %", "accuracy.max_drop_points 66.67 points, limit 2 points")
    assert (second.precision, second.onnx_bytes, second.missed) == ("float32", 42_794_483, ())
    assert measured == [
        "epochs=1 on dev: onnx-int8",
        "epochs=1 in float on dev: onnx-float",
        "epochs=2 on dev: onnx-float",
    ]
    assert made.chosen == "epochs=2"
    assert made.tolerance_points is None
    assert made.why.endswith("; 1 candidate failed: epochs=3")
    save(made)
    assert load(SelectArtifact, out) == made
    assert "0.999" not in json.dumps(json.loads((out / "artifact.json").read_text(encoding="utf-8")))
