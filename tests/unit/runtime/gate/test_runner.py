"""The whole gate of a release, and what it measures in processes of their own."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.installing import silent
from tests.unit.runtime.tiny_model import write_release

from edgepack_runtime.device.interference import Interference
from edgepack_runtime.device.tuning import Tuning
from edgepack_runtime.errors import BundleInvalidError, ExitCode
from edgepack_runtime.gate import process, runner
from edgepack_runtime.inference import bench
from edgepack_runtime.install import locate

GATES: dict[str, Any] = {
    "accuracy": {"metric": "accuracy", "min": 0.85, "max_drop_points": 2.0, "confidence": 0.95},
    "latency": {"p50_ms": 1000, "p95_ms": 1000, "threads": 1},
    "memory": {"peak_rss_mib": 2000},
    "size": {"model_mib": 0.1, "bundle_mib": 1},
}
ROWS = [("很好", "good", "good")] * 190 + [("很差", "good", "bad")] * 10  # the model is wrong on the last ten


def test_a_good_release_passes_every_gate(tmp_path: Path) -> None:
    budgets = [{"max_tokens": 4, "p95_ms": 1000}]
    gates = {**GATES, "latency": {**GATES["latency"], "by_length": budgets}}
    release, manifest = write_release(tmp_path / "release", rows=ROWS, gates=gates)
    lines: list[str] = []
    receipt = runner.run(release, manifest, bundle_bytes=500_000, progress=lines.append)
    assert {row["gate"]: row["verdict"] for row in receipt["checks"]} == {
        "accuracy.min": "pass",
        "accuracy.max_drop_points": "pass",
        "latency.p50_ms": "pass",
        "latency.p95_ms": "pass",
        "latency.max_tokens_4.p95_ms": "pass",
        "memory.peak_rss_mib": "pass",
        "size.model_mib": "pass",
        "size.bundle_mib": "pass",
    }
    assert (receipt["receipt"], receipt["verb"], receipt["verdict"]) == (1, "gate", "pass")
    assert runner.exit_code(receipt) == ExitCode.OK
    digest = hashlib.sha256((release / "manifest.json").read_bytes()).hexdigest()
    assert receipt["bundle"] == {
        "name": "tiny", "version": "1.0.0", "target": "test", "sequence": 1,
        "release_id": f"1.0.0-{digest[:12]}", "manifest_sha256": digest,
    }  # fmt: skip
    assert receipt["accuracy"]["value"] == 0.95 and receipt["accuracy"]["n"] == 200
    assert receipt["accuracy"]["metric"] == "accuracy"
    assert re.search(r"\naccuracy 95 % \([\d.]+ to [\d.]+ %, n = 200\)", runner.render(receipt))
    assert receipt["classes"]["confusion"] == {"good": {"bad": 10, "good": 190}}
    assert receipt["latency"]["n"] >= 130 and 0 < receipt["latency"]["p50_ms"] <= receipt["latency"]["p95_ms"]
    told = receipt["latency"]
    assert told["sustained"] is None  # not asked for
    assert told["distribution"]["p50_ms"] == told["p50_ms"] and "p95_ms" in told["distribution"]
    assert told["contention"]["own_cpu_ms"] > 0
    assert told["p99_ms"] is None or told["n"] >= 662
    assert {"load_average", "clock_mhz", "temperature_c", "throttle"} == set(receipt["conditions"]["after"])
    assert json.loads(json.dumps(receipt, allow_nan=False)) == receipt
    assert any(line.startswith("accuracy: 200 of 200 rows, 190 right") for line in lines)


def test_the_receipt_names_a_missed_gate_with_its_figures(tmp_path: Path) -> None:
    gates = {"accuracy": {"min": 0.99}, "size": {"model_mib": 0.0001, "bundle_mib": 1}}
    release, manifest = write_release(tmp_path / "release", rows=ROWS, gates=gates)
    receipt = runner.run(release, manifest, bundle_bytes=None, progress=silent)
    checks = {row["gate"]: row for row in receipt["checks"]}
    assert checks["accuracy.min"]["verdict"] == "fail"
    assert checks["size.model_mib"]["verdict"] == "fail"
    assert checks["size.bundle_mib"]["verdict"] == "inconclusive"  # not known is not passed
    assert receipt["verdict"] == "fail" and runner.exit_code(receipt) == ExitCode.GATE_FAILED
    table = runner.render(receipt)
    assert "accuracy.min: 190 of 200 rows right" in table and "limit is" not in table
    assert re.search(r"accuracy\.min +95 +[\d.]+ to [\d.]+ +>= 99 % ", table)
    assert table.endswith("verdict: fail")


def test_memory_is_measured_with_the_threads_that_latency_is_timed_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates = {"latency": {"p50_ms": 1000, "threads": 2}, "memory": {"peak_rss_mib": 2000}}
    release, manifest = write_release(tmp_path / "release", rows=ROWS[:20], gates=gates)
    monkeypatch.setattr(locate.Located, "tuning", lambda self: Tuning(threads=1))  # `tune` found one to be fastest
    asked: list[int] = []

    def peaks_mib(release: Path, threads: int, limit_mib: float, progress: Any) -> list[float]:
        asked.append(threads)
        return [100.0]

    monkeypatch.setattr(process, "peaks_mib", peaks_mib)
    receipt = runner.run(release, manifest, bundle_bytes=None, progress=silent)
    assert asked == [1] == [receipt["latency"]["threads"]]


@pytest.mark.parametrize(("without_gates", "verdict"), [(False, "inconclusive"), (True, "pass")])
def test_without_gates_the_figures_are_measured_and_nothing_is_judged(
    tmp_path: Path, without_gates: bool, verdict: str
) -> None:
    release, manifest = write_release(tmp_path / "release", rows=ROWS[:20], gates={"latency": {"threads": 1}})
    receipt = runner.run(release, manifest, bundle_bytes=None, progress=silent, without_gates=without_gates)
    assert (receipt["verdict"], receipt["checks"]) == (verdict, [])
    assert receipt["unmeasured"] == [{"gate": "gates", "why": "the recipe sets no gates", "waived": without_gates}]
    assert runner.render(receipt).startswith("gates: not measured: the recipe sets no gates\n")
    assert receipt["accuracy"]["n"] == 20
    assert receipt["latency"]["n"] >= 130  # twenty texts, gone through again


def test_without_gates_only_a_useless_model_is_judged(tmp_path: Path) -> None:
    gates = {"accuracy": {"above_majority": True}}
    good = [("很好", "good", "good"), ("很差", "bad", "bad")] * 20
    release, manifest = write_release(tmp_path / "good", rows=good, gates=gates)
    receipt = runner.run(release, manifest, bundle_bytes=None, progress=silent, without_gates=True)
    assert (receipt["verdict"], receipt["checks"]) == ("pass", [])
    release, manifest = write_release(tmp_path / "useless", rows=ROWS, gates=gates)
    receipt = runner.run(release, manifest, bundle_bytes=None, progress=silent, without_gates=True)
    assert (receipt["verdict"], [check["gate"] for check in receipt["checks"]]) == (
        "inconclusive", ["accuracy.above_majority"],
    )  # fmt: skip
    assert "accuracy is not gated: the recipe sets no limit for it" in runner.render(receipt)


def test_an_emulated_machine_does_not_judge_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgepack_runtime.device.info.emulation", lambda machine, root: "the kernel is other")
    gates = {"accuracy": {"min": 0.94}, "latency": {"p50_ms": 1000}}
    release, manifest = write_release(tmp_path / "release", rows=ROWS, gates=gates)
    receipt = runner.run(release, manifest, bundle_bytes=None, progress=silent)
    assert receipt["verdict"] == "inconclusive" and runner.exit_code(receipt) == ExitCode.GATE_INCONCLUSIVE
    accuracy, time = receipt["checks"]
    assert accuracy["verdict"] == time["verdict"] == "inconclusive"
    assert "about 2181 rows would decide" in accuracy["detail"] and "emulated" in time["detail"]
    assert receipt["conditions"]["emulated"] is True


def test_the_gate_refuses_a_foreign_manifest(tmp_path: Path) -> None:
    release, manifest = write_release(tmp_path / "release", rows=ROWS[:1])
    with pytest.raises(BundleInvalidError, match="does not belong"):
        runner.run(release, dataclasses.replace(manifest, sequence=2), bundle_bytes=None, progress=silent)


# --- processes ------------------------------------------------------------------------------------------------


def test_peak_memory_is_that_of_the_child(tmp_path: Path) -> None:
    """Linux hands ru_maxrss down to children: a large parent must not make the model look large."""
    release, _ = write_release(tmp_path / "release", rows=ROWS[:1])
    ballast = bytearray(300 * 1024 * 1024)
    ballast[::4096] = b"x" * len(ballast[::4096])  # every page is really there
    assert 20 < process.peak_rss_mib(release, 1) < 200
    assert ballast[0]


def test_a_cold_start_is_a_whole_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "RUNS", 1)
    release, _ = write_release(tmp_path / "release", rows=ROWS[:1])
    lines: list[str] = []
    [counted] = process.cold_starts(release, ["很好"], lines.append)
    assert counted.wall_ms > 20 and counted.own_cpu_ms > 10  # that of the child
    assert lines[0].startswith("cold start: ")


def test_cold_starts_are_judged_by_the_fastest_and_the_slowest() -> None:
    def runs(others_ms: float) -> list[Interference]:
        return [Interference(ms, ms, 2, others_ms) for ms in (400.0, 410, 420, 430, 440, 450, 460)]

    seen = [process.cold_start_check(runs(0), limit, None) for limit in (380, 400, 459, 460)]
    assert [row.verdict for row in seen] == ["fail", "inconclusive", "inconclusive", "pass"]
    assert (seen[0].value, seen[0].low, seen[0].high, seen[0].n) == (430, 400, 460, 7)
    assert process.cold_start_check(runs(0), 1000, "emulated").verdict == "inconclusive"
    beside = process.cold_start_check(runs(300), 380, None)
    assert beside.verdict == "inconclusive" and "other programs used 0.70 of 2 cores" in beside.detail
    assert process.cold_start_check(runs(300), 500, None).verdict == "pass"


def peaks_of(*scripted: float, limit: float, monkeypatch: pytest.MonkeyPatch) -> tuple[list[float], list[str]]:
    """What is measured with processes that have these peaks in MiB, and what was told meanwhile."""
    left, lines = iter(scripted), list[str]()
    monkeypatch.setattr(process, "peak_rss_mib", lambda release, threads: next(left))
    return process.peaks_mib(Path("release"), 1, limit, lines.append), lines


@pytest.mark.parametrize(
    ("limit", "verdict"),
    [(93.1, "pass"), (93.0, "pass"), (92.95, "inconclusive"), (91.2, "inconclusive"), (91.1, "fail")],
)
def test_a_peak_near_its_limit_is_measured_as_often_as_a_cold_start(
    limit: float, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted = [92.0, 91.2, 93.0, 92.9, 92.5, 92.1, 92.9]
    peaks, lines = peaks_of(*scripted, limit=limit, monkeypatch=monkeypatch)
    assert peaks == scripted and len(peaks) == process.RUNS
    assert "within 5 % of the limit" in lines[1] and lines[-1] == "memory: 92.9 MiB at most, run 7 of 7"
    row = process.memory_check(peaks, limit, "3 golden texts", None)
    assert (row.verdict, row.value, row.low, row.high, row.n, row.confidence) == (
        verdict, 92.5, 91.2, 93.0, 7, bench.CONFIDENCE,
    )  # fmt: skip
    assert row.detail.startswith("median of 7 fresh processes: load, then 3 golden texts")
    assert ("both sides of the limit" in row.detail) is (verdict == "inconclusive")


@pytest.mark.parametrize(("peak", "verdict"), [(94.9, "pass"), (105.1, "fail")])
def test_a_peak_far_from_its_limit_is_measured_once(peak: float, verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    peaks, lines = peaks_of(peak, limit=100, monkeypatch=monkeypatch)
    assert peaks == [peak] and lines == [f"memory: {peak} MiB at most"]
    row = process.memory_check(peaks, 100, "3 golden texts", None)
    assert dataclasses.astuple(row)[1:9] == (verdict, peak, None, None, 100, "MiB", 1, None)
    assert "one run, since the limit is more than 5 % away" in row.detail and str(peak) not in row.detail
    for near in (95.0, 105.0):
        assert len(peaks_of(*[near] * 7, limit=100, monkeypatch=monkeypatch)[0]) == 7


def test_memory_of_an_emulator_may_pass_but_not_fail() -> None:
    near = [99.0, 99, 99, 99, 99, 101, 101]
    for peaks, limit, verdict in (([100.0], 200, "pass"), ([300], 200, "inconclusive"), (near, 101, "pass")):
        assert process.memory_check(peaks, limit, "3 golden texts", "emulated by x").verdict == verdict
    for limit in (100, 98):
        row = process.memory_check(near, limit, "3 golden texts", "by x")
        assert row.verdict == "inconclusive" and row.detail.endswith("; emulated (by x)")


def test_the_text_of_a_cold_start_can_stand_on_a_command_line() -> None:
    assert process.presentable(["--help", "", "a\x00b", "\ud800", "好", "很好", "很好很好"]) == ("很好",)
    assert process.presentable(["-x"]) == ("好",)
    assert process.presentable([("好", "-x"), ("好", "很好"), ("", "好")]) == ("好", "很好")
    assert process.presentable([("-x", "好")]) == ("好", "好")
