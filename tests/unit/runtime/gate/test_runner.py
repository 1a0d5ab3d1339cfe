from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from installing import silent
from tiny_model import write_release

from edgepack_runtime.device.tuning import Tuning
from edgepack_runtime.errors import BundleInvalidError, ExitCode
from edgepack_runtime.gate import latency, process, runner
from edgepack_runtime.gate import limits as gate_limits
from edgepack_runtime.gate.interference import Interference
from edgepack_runtime.gate.latency import Kind, Timing, TimingWindow
from edgepack_runtime.gate.limits import Floors, LatencyLimits, LengthBudget, Limits, OpenLoop, Percentiles, Sustained
from edgepack_runtime.inference import bench
from edgepack_runtime.inference.predictor import Split
from edgepack_runtime.install import locate
from edgepack_runtime.stats import intervals

GATES: dict[str, Any] = {
    "accuracy": {"metric": "accuracy", "min": 0.85, "max_drop_points": 2.0, "confidence": 0.95},
    "latency": {"p50_ms": 1000, "p95_ms": 1000, "threads": 1},
    "memory": {"peak_rss_mib": 2000},
    "size": {"model_mib": 0.1, "bundle_mib": 1},
    "cold_start": {"ms": 60000},
}
ROWS = [("很好", "good", "good")] * 190 + [("很差", "good", "bad")] * 10  # the model is wrong on the last ten


def window(ms: float, n: int = 200, spread: float = 0.02, others_ms: float | None = 0.0) -> TimingWindow:
    """`n` samples around `ms`, evenly within `spread` to either side; how long others ran meanwhile."""
    samples = [Split(0.1 * ms, ms * (0.8 + 2 * spread * (i / (n - 1) - 0.5)), 0.1 * ms) for i in range(n)]
    return TimingWindow(samples, [Kind(0, True)] * n, Interference(ms * n, ms * n, 2, others_ms))


def timing(*windows: TimingWindow, processes: int = 1) -> Timing:
    return Timing(list(windows), processes)


def limits(**asked: Any) -> Limits:
    """Of percentiles."""
    return Limits(latency=LatencyLimits(Percentiles(**asked)))


# --- the whole gate -------------------------------------------------------------------------------------------


def test_a_good_release_passes_every_gate(tmp_path: Path) -> None:
    budgets = [{"max_tokens": 4, "p95_ms": 1000}]
    gates = {**GATES, "latency": {**GATES["latency"], "by_length": budgets}, "cold_start": None}
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
    assert [told[key] for key in ("open_loop", "sustained")] == [None] * 2  # not asked for
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


# --- limits ---------------------------------------------------------------------------------------------------


def test_all_limits_are_read() -> None:
    assert gate_limits.parse(GATES) == Limits(
        0.85, 2.0, 0.95, LatencyLimits(Percentiles(1000.0, 1000.0)), 1, 2000.0, 0.1, 1.0, 60000.0, "accuracy"
    )
    assert gate_limits.parse(dict.fromkeys(GATES)) == Limits()
    assert gate_limits.parse({}) == Limits()
    assert gate_limits.parse({"accuracy": {"metric": "macro_f1", "min": 0.5}}).metric == "macro_f1"
    baseline = {"name": "hotel", "version": "1.1.0", "target": "jetpack6", "manifest_sha256": "0" * 64}
    asked = gate_limits.parse({"accuracy": {"baseline": baseline, "max_regression_points": 0.5}})
    assert (asked.baseline, asked.max_regression_points) == ("hotel 1.1.0", 0.5)
    per_class = {"recall": 0.8, "recall_of": {"a": 0.9}, "precision": None, "precision_of": {}, "f1_of": {"b": 0.5}}
    floors = gate_limits.parse({"accuracy": {"per_class": per_class}}).per_class
    assert floors == {"recall": Floors(0.8, {"a": 0.9}), "f1": Floors(None, {"b": 0.5})}
    assert [floors["recall"].of("a"), floors["recall"].of("b"), floors["f1"].of("a")] == [0.9, 0.8, None]


def test_every_limit_on_time_is_read() -> None:
    asked = {
        "p99_ms": 30,
        "by_length": [{"max_tokens": 32, "p95_ms": 3, "p50_ms": None}, {"max_tokens": 128, "p99_ms": 9}],
        "open_loop": {"rate_per_s": 20, "p95_ms": 25},
        "sustained": {"seconds": 60, "max_slowdown_percent": 15},
    }
    assert gate_limits.parse({"latency": asked}) == Limits(
        latency=LatencyLimits(
            Percentiles(p99_ms=30.0),
            (LengthBudget(0, 32, Percentiles(p95_ms=3.0)), LengthBudget(32, 128, Percentiles(p99_ms=9.0))),
            OpenLoop(20.0, Percentiles(p95_ms=25.0)),
            Sustained(60.0, 15.0),
        ),
    )


@pytest.mark.parametrize(
    "gates",
    [
        {"latency": {"p999_ms": 1}},
        {"latency": {"by_length": {"max_tokens": 8, "p95_ms": 1}}},
        {"latency": {"by_length": [8]}},
        {"latency": {"by_length": [{"max_tokens": 8}]}},
        {"latency": {"by_length": [{"max_tokens": 8.0, "p95_ms": 1}]}},
        {"latency": {"by_length": [{"max_tokens": 8, "p95_ms": 1}, {"max_tokens": 8, "p95_ms": 2}]}},
        {"latency": {"by_length": [{"max_tokens": 8, "p95_ms": 1, "max_chars": 2}]}},
        {"latency": {"open_loop": {"rate_per_s": 20}}},
        {"latency": {"open_loop": {"p95_ms": 20}}},
        {"latency": {"open_loop": 20}},
        {"latency": {"sustained": {"seconds": 1, "max_slowdown_percent": 5}}},
        {"latency": {"sustained": {"seconds": 60}}},
        {"latency": [1]},
        {"latency": {"threads": 0}},
        {"latency": {"threads": True}},
        {"latency": {"p50_ms": "5"}},
        {"latency": {"p50_ms": -1}},
        {"accuracy": {"min": 1.5}},
        {"accuracy": {"min": True}},
        {"accuracy": {"metric": "auc", "min": 0.5}},
        {"accuracy": {"metric": ["f1"], "min": 0.5}},
        {"accuracy": {"confidence": 0.9}},
        {"accuracy": {"confidence": 1.0, "min": 0.5}},
        {"accuracy": {"confidence": 0.9991, "min": 0.5}},
        {"accuracy": {"confidence": 0.5, "min": 0.5}},
        {"accuracy": {"baseline": {"name": "hotel", "version": "1.0.0"}, "min": 0.5}},
        {"accuracy": {"max_regression_points": 0.5}},
        {"accuracy": {"baseline": "hotel.edgepack", "max_regression_points": 0.5}},
        {"accuracy": {"baseline": {"name": "hotel", "version": 2}, "max_regression_points": 0.5}},
        {"accuracy": {"per_class": 0.8}},
        {"accuracy": {"per_class": {"recall": None}}},
        {"accuracy": {"per_class": {"specificity": 0.8, "recall": 0.8}}},
        {"accuracy": {"per_class": {"recall": 1.0}}},
        {"accuracy": {"per_class": {"recall_of": [[0.8]], "recall": 0.8}}},
        {"accuracy": {"per_class": {"recall_of": {"a": "0.8"}}}},
        {"latency": {"p50_ms": 5, "p95_ms": 4}},
        {"latency": {"open_loop": {"rate_per_s": 0.1, "p99_ms": 20}}},
        {"size": {}},
        {"cold_start": {"ms": float("nan")}},
    ],
)
def test_a_gate_that_cannot_be_measured_is_never_skipped(gates: dict[str, Any]) -> None:
    with pytest.raises(BundleInvalidError):
        gate_limits.parse(gates)


def test_every_problem_of_the_limits_is_found_at_its_key() -> None:
    by_length = [{"max_tokens": 64, "p95_ms": 0}, {"max_tokens": 32, "p50_ms": 3, "p99_ms": 2}]
    gates = {"accuracy": {"min": 2, "per_class": {"recall_of": {"好": 2}}}, "latency": {"by_length": by_length}, "x": 1}
    _, problems = gate_limits.read(gates)
    assert [problem.path for problem in problems] == [
        ("x",),
        ("accuracy", "min"),
        ("latency", "by_length", 0, "p95_ms"),
        ("latency", "by_length", 1, "p50_ms"),
        ("latency", "by_length", 1, "max_tokens"),
        ("accuracy", "per_class", "recall_of", "好"),
    ]
    assert "`gates.latency.by_length[1].max_tokens` is 32, and the budget before it ends at 64" in [
        problem.reason for problem in problems
    ]
    with pytest.raises(BundleInvalidError) as caught:
        gate_limits.parse(gates)
    assert caught.value.why is not None and caught.value.why.startswith("`gates.x` is not a key that this version")


# --- latency --------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(1e-6, 1e9), max_size=1500))
def test_a_distribution_is_small_finite_and_in_order(totals_ms: list[float]) -> None:
    told = latency.distribution(totals_ms)
    assert len(json.dumps(told, allow_nan=False)) < 400
    assert list(told.values()) == sorted(told.values()) and len(told) <= 11
    assert bool(told) == bool(totals_ms)


def test_a_distribution_has_the_percentiles_that_there_are_samples_for() -> None:
    told = latency.distribution([float(ms) for ms in range(1000, 0, -1)])
    assert told == {
        "min_ms": 1.0, "p1_ms": 10.0, "p5_ms": 50.0, "p10_ms": 100.0, "p25_ms": 250.0, "p50_ms": 500.0,
        "p75_ms": 750.0, "p90_ms": 900.0, "p95_ms": 950.0, "p99_ms": 990.0, "max_ms": 1000.0,
    }  # fmt: skip
    assert {"p1_ms", "p99_ms"}.isdisjoint(latency.distribution([1.0] * 661))
    assert latency.distribution([2.0]) == {"min_ms": 2.0, "max_ms": 2.0}


def verdicts(timed: Timing, limit_ms: float) -> list[str]:
    return [row.verdict for row in latency.checks(timed, limits(p50_ms=limit_ms, p95_ms=limit_ms), None)]


def test_a_stable_timing_is_judged_by_its_bounds() -> None:
    timed = timing(window(5.0), window(5.2))
    assert timed.stable
    assert verdicts(timed, 6.0) == ["pass", "pass"]
    assert verdicts(timed, 4.0) == ["fail", "fail"]
    [p50] = latency.checks(timed, limits(p50_ms=5.1), None)
    assert p50.verdict == "inconclusive" and p50.detail.endswith("the limit lies within the interval")
    assert p50.low is not None and p50.high is not None and p50.low <= 5.1 <= p50.high


def test_an_unstable_timing_passes_only_where_the_slower_window_does() -> None:
    timed = timing(window(5.0), window(6.0), processes=2)
    assert not timed.stable and timed.drift == pytest.approx(0.2, abs=0.01)
    assert verdicts(timed, 6.5) == ["pass", "pass"]
    assert verdicts(timed, 5.9) == ["inconclusive"] * 2
    assert verdicts(timed, 1.0) == ["inconclusive"] * 2  # not the model's fault
    [row] = latency.checks(timed, limits(p50_ms=5.9), None)
    assert "differ by 20%" in row.detail


def settled(first: Timing, asked: Limits, second: Timing, emulated_why: str | None = None) -> Timing:
    """What is judged in the end, where measuring again gives `second`."""
    return latency.settle(first, asked, emulated_why, lambda: second, silent)


def test_only_a_timing_that_cannot_be_judged_is_repeated() -> None:
    good = timing(window(5.0), window(5.0))
    stable = timing(window(5.0), window(5.4))
    assert settled(stable, limits(p50_ms=4.0), good) is stable  # a fail on a quiet machine
    found = settled(timing(window(5.0), window(5.6)), limits(), good)
    assert found.stable and found.processes == 2 and latency.summary(found, 3)["processes"] == 2
    beside = timing(*[window(5.0, others_ms=900.0)] * 2)
    assert settled(beside, limits(p50_ms=6.0), good) is beside  # it passes all the same
    assert settled(beside, limits(), good) is beside  # nothing is asked for
    assert settled(beside, limits(p50_ms=4.0), good).processes == 2
    assert settled(beside, limits(p50_ms=4.0), good, "the kernel is other") is beside


@pytest.mark.parametrize(
    ("others_ms", "why"),
    [
        (900.0, "others used 0.90 of 2 cores meanwhile: measure on an idle machine"),
        (None, "does not report the CPU time"),
    ],
)
def test_time_beside_other_programs_may_pass_but_not_fail(others_ms: float | None, why: str) -> None:
    beside = timing(*[window(5.0, others_ms=others_ms)] * 2)
    assert beside.stable and verdicts(beside, 6.0) == ["pass", "pass"]
    assert verdicts(beside, 4.0) == ["inconclusive"] * 2
    assert why in latency.checks(beside, limits(p50_ms=4.0), None)[0].detail
    assert json.dumps(latency.summary(beside, 1), allow_nan=False)
    assert verdicts(timing(*[window(5.0, others_ms=90.0)] * 2), 4.0) == ["fail"] * 2, "daemons of an idle system"


def test_the_second_timing_runs_in_its_own_process(tmp_path: Path) -> None:
    release, _ = write_release(tmp_path / "release", rows=ROWS[:200])
    gates = {"latency": {"by_length": [{"max_tokens": 3, "p95_ms": 1}, {"max_tokens": 9, "p95_ms": 1}]}}
    found = process.latency(release, 1, gates)
    first, second = found.windows
    assert {kind.tokens for window in found.windows for kind in window.kinds} == {4}
    assert len(first.samples) == len(first.kinds) == len(second.samples) >= 65
    assert all(isinstance(split, Split) and split.total_ms > 0 for split in first.samples + second.samples)
    assert isinstance(first.interference, Interference) and first.interference.own_cpu_ms > 0


def of_lengths(*tokens: int) -> TimingWindow:
    """A window in which a text takes 1 ms for each of its tokens."""
    wall_ms = float(sum(tokens))
    kinds = [Kind(count, True) for count in tokens]
    return TimingWindow(
        [Split(0.0, float(count), 0.0) for count in tokens], kinds, Interference(wall_ms, wall_ms, 2, 0.0)
    )


def test_each_length_has_its_own_budget() -> None:
    one = of_lengths(*[8] * 100, *[40] * 100, *[100] * 100)
    budgets = (LengthBudget(0, 8, Percentiles(p95_ms=9)), LengthBudget(8, 64, Percentiles(p50_ms=30, p95_ms=60)))
    asked = Limits(latency=LatencyLimits(by_length=(*budgets, LengthBudget(200, 300, Percentiles(p50_ms=1)))))
    rows = latency.checks(timing(one, one), asked, None)
    assert [(row.gate, row.verdict, row.value, row.n) for row in rows] == [
        ("latency.max_tokens_8.p95_ms", "pass", 8.0, 200),
        ("latency.max_tokens_64.p50_ms", "fail", 40.0, 200),
        ("latency.max_tokens_64.p95_ms", "pass", 40.0, 200),
        ("latency.max_tokens_300.p50_ms", "inconclusive", None, 0),
    ]
    assert "9 to 64 tokens" in rows[1].detail
    assert rows[3].detail == "no golden row has 201 to 300 tokens: give `data.test` such texts"


def test_texts_that_a_budget_adds_do_not_change_the_figures_of_all() -> None:
    one = of_lengths(*[8] * 100, *[100] * 100)
    one = one._replace(kinds=[kind._replace(usual=kind.tokens == 8) for kind in one.kinds])
    timed = timing(one, one)
    assert timed.medians_ms == [8.0, 8.0] and latency.summary(timed, 1)["n"] == 200
    budget = LengthBudget(8, 100, Percentiles(p50_ms=120))
    asked = Limits(latency=LatencyLimits(Percentiles(p95_ms=9), (budget,)))
    assert [row.verdict for row in latency.checks(timed, asked, None)] == ["pass", "pass"]


def test_as_many_texts_are_timed_as_the_percentiles_need() -> None:
    texts = [f"{'a' * (i % 10)}" for i in range(100)]
    tokens = [len(text) for text in texts]
    choose = latency.choose
    assert len(choose(texts, limits(p95_ms=1), 100.0, tokens)) == 130
    assert len(choose(texts, limits(p99_ms=1), 100.0, tokens)) == 662
    assert len(choose(texts, limits(), 0.01, tokens)) == 1000
    few = choose(texts * 10, limits(p95_ms=1), 100.0, [0] * 1000)
    assert Counter(len(str(text.item)) for text in few) == dict.fromkeys(range(10), 13)
    budget = LengthBudget(8, 9, Percentiles(p95_ms=1))
    chosen = choose(texts, Limits(latency=LatencyLimits(by_length=(budget,))), 100.0, tokens)
    assert sum(text.kind.usual for text in chosen) == 130
    assert sum(budget.holds(text.kind.tokens) for text in chosen) == 130  # 10 of 9 characters, again and again
    assert all(text.kind.tokens == len(str(text.item)) for text in chosen)
    none = LengthBudget(50, 60, Percentiles(p95_ms=1))
    assert len(choose(texts, Limits(latency=LatencyLimits(by_length=(none,))), 100.0, tokens)) == 130


@given(st.lists(st.integers(1, 60), min_size=1, max_size=300), st.sampled_from([0.5, 0.95, 0.99]))
def test_both_windows_have_texts_as_long_as_the_golden_rows(lengths: list[int], part: float) -> None:
    """Of each length as many as its share is, to less than one text; in each half, to less than two."""
    chosen = latency.choose(["a" * n for n in lengths], limits(p99_ms=1), 100.0, [0] * len(lengths))
    found = Counter(len(str(text.item)) for text in chosen)
    halves = [Counter(len(str(text.item)) for text in chosen[number::2]) for number in range(2)]
    for length, there_are in Counter(lengths).items():
        assert abs(found[length] - len(chosen) * there_are / len(lengths)) <= 1
        assert abs(halves[0][length] - halves[1][length]) <= 1
    truth = intervals.percentile(sorted(lengths), part)
    around = intervals.percentile_interval([float(len(str(text.item))) for text in chosen], part, 0.98)
    assert around.low <= truth <= around.high


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
    [counted] = process.cold_starts(release, ["很好", "-n", "\x00"], lines.append)
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
    assert beside.verdict == "inconclusive" and "others used 0.70 of 2 cores" in beside.detail
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
    row = process.memory_check(peaks, limit, 3, None)
    assert (row.verdict, row.value, row.low, row.high, row.n, row.confidence) == (
        verdict, 92.5, 91.2, 93.0, 7, bench.CONFIDENCE,
    )  # fmt: skip
    assert row.detail.startswith("median of 7 fresh processes: load, then 3 golden texts")
    assert ("both sides of the limit" in row.detail) is (verdict == "inconclusive")


@pytest.mark.parametrize(("peak", "verdict"), [(94.9, "pass"), (105.1, "fail")])
def test_a_peak_far_from_its_limit_is_measured_once(peak: float, verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    peaks, lines = peaks_of(peak, limit=100, monkeypatch=monkeypatch)
    assert peaks == [peak] and lines == [f"memory: {peak} MiB at most"]
    row = process.memory_check(peaks, 100, 3, None)
    assert row[1:9] == (verdict, peak, None, None, 100, "MiB", 1, None)
    assert "one run, since the limit is more than 5 % away" in row.detail and str(peak) not in row.detail
    for near in (95.0, 105.0):
        assert len(peaks_of(*[near] * 7, limit=100, monkeypatch=monkeypatch)[0]) == 7


def test_memory_of_an_emulator_may_pass_but_not_fail() -> None:
    near = [99.0, 99, 99, 99, 99, 101, 101]
    for peaks, limit, verdict in (([100.0], 200, "pass"), ([300], 200, "inconclusive"), (near, 101, "pass")):
        assert process.memory_check(peaks, limit, 3, "emulated by x").verdict == verdict
    for limit in (100, 98):
        row = process.memory_check(near, limit, 3, "by x")
        assert row.verdict == "inconclusive" and row.detail.endswith("; emulated (by x)")


def test_the_text_of_a_cold_start_can_stand_on_a_command_line() -> None:
    assert process._presentable(["--help", "", "a\x00b", "\ud800", "好", "很好", "很好很好"]) == ("很好",)
    assert process._presentable(["-x"]) == ("好",)
    assert process._presentable([("好", "-x"), ("好", "很好"), ("", "好")]) == ("好", "很好")
    assert process._presentable([("-x", "好")]) == ("好", "好")
