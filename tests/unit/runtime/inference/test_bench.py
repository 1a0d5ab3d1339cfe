from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.installing import silent
from tests.unit.runtime.tiny_model import write_model_folder

from edgepack_runtime.errors import UsageError
from edgepack_runtime.inference import bench
from edgepack_runtime.inference.predictor import Predictor, Split


class Recorder:
    """A predictor that takes as long as it is told, and tells when it was asked."""

    def __init__(self, name: str, calls: list[tuple[str, str]], ms: float = 1.0) -> None:
        self.name, self.calls, self.ms = name, calls, ms

    def predict(self, text: str) -> None:
        self.calls.append((self.name, "warm"))

    def timed_predict(self, text: str) -> tuple[None, Split]:
        self.calls.append((self.name, text))
        return None, Split(0.0, self.ms, 0.0)


def test_models_take_turns_on_every_text_and_take_the_lead_in_turn() -> None:
    calls: list[tuple[str, str]] = []
    models: list[Any] = [Recorder("a", calls), Recorder("b", calls)]
    result = bench.take_turns(models, ["1", "2"], 2, silent)
    asked = [call for call in calls if call[1] != "warm"]
    assert asked == [
        ("a", "1"), ("b", "1"), ("b", "2"), ("a", "2"),
        ("b", "1"), ("a", "1"), ("a", "2"), ("b", "2"),
    ]  # fmt: skip
    assert calls[:4] == [("a", "warm")] * 2 + [("b", "warm")] * 2
    assert [[len(one) for one in model] for model in result] == [[2, 2], [2, 2]]


def test_a_summary_has_the_percentiles_that_its_samples_allow() -> None:
    samples = [Split(0.25 * i, 0.5 * i, 0.25 * i) for i in range(1, 130)]
    row = bench.summarize(samples)
    assert row == {
        "n": 129, "mean_ms": 65.0, "p50_ms": 65.0, "p95_ms": None, "p99_ms": None,
        "tokenize_p50_ms": 16.25, "run_p50_ms": 32.5, "post_p50_ms": 16.25,
    }  # fmt: skip
    assert bench.summarize([*samples, Split(0, 130, 0)])["p95_ms"] == 124.0


def test_a_ratio_is_taken_round_by_round() -> None:
    def timed(name: str, *medians: float) -> bench.Timed:
        rounds = [[Split(0, ms, 0)] * 3 for ms in medians]
        return bench.Timed(Path(name), "int8", 100, "onnxruntime 1.31.1", (), 1, rounds)

    # The machine was half as fast in the second round: over all samples the medians would give 2 / 4.
    ratio = bench._ratio(timed("ours", 1, 2, 1), timed("theirs", 4, 8, 2))
    assert ratio["p50_ratio"] == 0.25
    assert (ratio["low"], ratio["high"], ratio["bytes_ratio"]) == (None, None, 1.0)
    many = bench._ratio(timed("ours", *range(1, 21)), timed("theirs", *[10] * 20))
    assert (many["low"], many["p50_ratio"], many["high"]) == (0.1, 1.05, 1.9)


def test_compare_measures_real_models(tmp_path: Path) -> None:
    folders = [write_model_folder(tmp_path / name / "model") for name in ("one", "two")]
    lines: list[str] = []
    result = bench.compare(folders, ["店很好", "差"], threads=1, runs=3, progress=lines.append)
    assert [model["n"] for model in result["models"]] == [6, 6]
    assert [model["folder"] for model in result["models"]] == [str(folder) for folder in folders]
    assert result["models"][0]["onnx_bytes"] == (folders[0] / "model.onnx").stat().st_size
    assert result["models"][0]["p50_ms"] > 0
    assert [ratio["against"] for ratio in result["ratios"]] == [str(folders[0])]
    assert [model["threads"] for model in result["models"]] == [1, 1]
    assert result["conditions"]["providers"] == ["CPUExecutionProvider"]
    assert [line.partition(":")[0] for line in lines] == ["round 3 of 3"]  # one line in ten seconds, and the last
    table = bench.render(result)
    assert str(folders[0]) in table and str(folders[1]) in table  # both are called `model`
    assert " x the time of " in table


def test_bench_marks_an_emulated_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgepack_runtime.device.info.emulation", lambda machine, root: "the kernel is other")
    result = bench.compare([write_model_folder(tmp_path / "m")], ["差"], threads=1, runs=1, progress=silent)
    assert "EMULATED (the kernel is other)" in bench.render(result)


@pytest.mark.parametrize(("folders", "texts", "runs"), [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_bench_refuses_to_measure_nothing(tmp_path: Path, folders: int, texts: int, runs: int) -> None:
    with pytest.raises(UsageError):
        bench.measure([tmp_path] * folders, ["好"] * texts, threads=1, runs=runs, progress=silent)


def test_bench_times_the_parts_of_a_real_prediction(tmp_path: Path) -> None:
    predictor = Predictor(write_model_folder(tmp_path / "m"))
    [[[split]]] = bench.take_turns([predictor], ["好"], 1, silent)
    assert min(split) > 0
    assert split.total_ms == sum(split)
