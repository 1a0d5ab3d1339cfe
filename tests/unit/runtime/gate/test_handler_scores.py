"""The accuracy gates and the self-test of models with a handler."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.imported_model import write_imported, write_imported_release
from tests.unit.runtime.installing import silent

from edgepack_runtime.errors import BundleInvalidError, StageFailedError
from edgepack_runtime.gate import handler_scores, runner
from edgepack_runtime.gate.accuracy import AccuracyResult
from edgepack_runtime.inference import selftest
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.schema.gates import ClassLimits, Limits, ManifestAccuracy, ManifestGoldenRows


def rows(scores: Sequence[float], **more: float) -> list[dict[str, Any]]:
    """Examples with these scores: the answer to [0] * n is 2 n + 1, and the expected one differs by 1 - score."""
    return [
        {"item": [0] * n, "expected": 2 * n + 2 - score, "score": score, "float_score": 1.0, **more}
        for n, score in enumerate(scores)
    ]


def measure(folder: Path, examples: list[dict[str, Any]], **asked: Any) -> AccuracyResult:
    release, _ = write_imported_release(folder / "release", examples)
    golden = asked.pop("golden", ManifestGoldenRows())
    limits = Limits(accuracy=ManifestAccuracy(**asked), golden=golden)
    return handler_scores.measure(Predictor(release / "model"), release, limits, silent)


def test_the_mean_score_is_measured(tmp_path: Path) -> None:
    found = measure(tmp_path, rows([1.0, 0.5, 0.75, 1.0] * 5))
    assert found.checks == []
    assert found.summary.metric == "score"
    assert found.summary.value == pytest.approx(0.8125)
    assert found.summary.low is not None and found.summary.high is not None
    assert found.summary.low < 0.8125 < found.summary.high
    assert (found.summary.n, found.summary.distinct_texts, found.summary.confidence) == (20, 20, 0.95)


@pytest.mark.parametrize(
    ("scores", "limit", "verdict"),
    [([1.0] * 30, 0.7, "pass"), ([0.25] * 30, 0.7, "fail"), ([0.75, 0.5] * 5, 0.65, "inconclusive")],
)
def test_the_mean_score_has_a_limit(tmp_path: Path, scores: list[float], limit: float, verdict: str) -> None:
    [check] = measure(tmp_path, rows(scores), min=limit).checks
    assert (check.gate, check.verdict, check.n, check.unit) == ("accuracy.min", verdict, len(scores), "fraction")
    assert f"{scores.count(1.0)} of {len(scores)} examples with score 1" in check.detail


def test_a_drop_is_in_points_and_counts_examples(tmp_path: Path) -> None:
    [drop] = measure(tmp_path, rows([1.0, 0.5] * 30), max_drop_points=5.0).checks
    assert (drop.gate, drop.verdict) == ("accuracy.max_drop_points", "fail")
    assert drop.value == pytest.approx(25.0)
    assert drop.low is not None
    assert drop.high is not None
    assert drop.low < 25 < drop.high
    assert "30 lower than with the float model, 0 higher" in drop.detail


@pytest.mark.parametrize(
    "asked",
    [
        {"metric": "macro_f1"},
        {"above_majority": True},
        {"per_class": ClassLimits(recall=0.5)},
        {"golden": ManifestGoldenRows(carry=False, sha256="0" * 64)},
        {"max_regression_points": 1.0},
    ],
    ids=str,
)
def test_gates_of_labels_cannot_be_measured(tmp_path: Path, asked: dict[str, Any]) -> None:
    with pytest.raises(BundleInvalidError, match="cannot measure the gates"):
        measure(tmp_path, rows([1.0]), **asked)


def test_equal_items_are_counted_once(tmp_path: Path) -> None:
    found = measure(tmp_path, [*rows([1.0]), *rows([1.0])], min=0.5)
    assert found.summary.distinct_texts == 1
    assert "distinct texts: 1 for 2 rows" in found.checks[0].detail


def test_a_whole_gate_runs_without_rows_or_labels(tmp_path: Path) -> None:
    gates = {"accuracy": {"min": 0.5}, "latency": {"p50_ms": 1000}, "size": {"model_mib": 1}}
    release, manifest = write_imported_release(tmp_path / "release", rows([1.0] * 20), gates=gates)
    receipt = runner.run(release, manifest, bundle_bytes=None, progress=silent)
    verdicts = {check["gate"]: check["verdict"] for check in receipt["checks"]}
    assert verdicts == {"accuracy.min": "pass", "latency.p50_ms": "pass", "size.model_mib": "pass"}
    assert (receipt["verdict"], receipt["unmeasured"]) == ("pass", [])
    assert (receipt["classes"], receipt["answered"]) == (None, None)
    json.dumps(receipt)
    shown = runner.render(receipt)
    assert "score 100 % (" in shown
    assert "verdict: pass" in shown


def test_the_self_test_compares_the_mean_score(tmp_path: Path) -> None:
    release, _ = write_imported_release(tmp_path / "release", rows([1.0, 0.5, 0.5, 1.0]), tolerance=0.1)
    found = selftest.run(release)
    assert (found["verdict"], found["texts"], found["max_difference"], found["tolerance"]) == ("pass", 4, 0.0, 0.1)


def test_the_self_test_fails_if_the_model_answers_otherwise(tmp_path: Path) -> None:
    release, _ = write_imported_release(tmp_path / "release", rows([1.0] * 4), tolerance=0.25)
    write_imported(release / "model", weight=3.0)  # only the example of length 0 keeps its answer
    with pytest.raises(StageFailedError, match="the self-test failed on 4 examples") as caught:
        selftest.run(release)
    assert "their mean score is 0.2500; on the machine that built it was 1.0000" in str(caught.value)


def test_the_self_test_allows_better_scores(tmp_path: Path) -> None:
    examples = [{**row, "score": 0.0} for row in rows([1.0] * 4)]
    release, _ = write_imported_release(tmp_path / "release", examples)
    assert selftest.run(release)["max_difference"] == 1.0
