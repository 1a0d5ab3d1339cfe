"""Verdicts on time: stable and unstable timings, neighbours, budgets by length, and the texts that are timed."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.runtime.installing import silent
from tests.unit.runtime.tiny_model import write_release

from edgepack_runtime.bundle import golden
from edgepack_runtime.device.interference import Interference
from edgepack_runtime.gate import latency, process
from edgepack_runtime.gate.latency import Kind, Timing, TimingWindow
from edgepack_runtime.inference import bench
from edgepack_runtime.inference.predictor import Predictor, Split
from edgepack_runtime.schema.fields import to_json
from edgepack_runtime.schema.gates import LatencyLimits, LengthLimits
from edgepack_runtime.stats import intervals
from edgepack_runtime.util import progress

ROWS = [("很好", "good", "good")] * 190 + [("很差", "good", "bad")] * 10  # the model is wrong on the last ten


def window(ms: float, n: int = 200, spread: float = 0.02, others_ms: float | None = 0.0) -> TimingWindow:
    """`n` samples around `ms`, evenly within `spread` to either side; how long others ran meanwhile."""
    samples = [Split(0.1 * ms, ms * (0.8 + 2 * spread * (i / (n - 1) - 0.5)), 0.1 * ms) for i in range(n)]
    return TimingWindow(samples, [Kind(0, True)] * n, Interference(ms * n, ms * n, 2, others_ms))


def timing(*windows: TimingWindow, processes: int = 1) -> Timing:
    return Timing(list(windows), processes)


def limits(**asked: Any) -> LatencyLimits:
    """Of percentiles."""
    return LatencyLimits(**asked)


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


def settled(first: Timing, asked: LatencyLimits, *later: Timing, emulated_why: str | None = None) -> Timing:
    """What is judged in the end, where measuring again gives `later` in turn."""
    again = iter(later)
    return latency.settle(first, asked, emulated_why, lambda: next(again), silent)


def test_only_a_timing_that_cannot_be_judged_is_repeated() -> None:
    good = timing(window(5.0), window(5.0))
    stable = timing(window(5.0), window(5.4))
    assert settled(stable, limits(p50_ms=4.0), good) is stable  # a fail on a quiet machine
    found = settled(timing(window(5.0), window(5.6)), limits(), good)
    assert found.stable and found.processes == 2 and latency.summary(found, 3).processes == 2
    beside = timing(*[window(5.0, others_ms=900.0)] * 2)
    assert settled(beside, limits(p50_ms=6.0), good) is beside  # it passes all the same
    assert settled(beside, limits(), good) is beside  # nothing is asked for
    assert settled(beside, limits(p50_ms=4.0), good).processes == 2
    assert settled(beside, limits(p50_ms=4.0), emulated_why="the kernel is other") is beside


def test_the_first_timing_that_decides_is_judged_of_three_at_most() -> None:
    beside, quiet = timing(*[window(5.0, others_ms=900.0)] * 2), timing(window(3.0), window(3.0))
    found = settled(beside, limits(p50_ms=4.0), beside, quiet)
    assert (found.processes, verdicts(found, 4.0)) == (3, ["pass"] * 2)
    found = settled(beside, limits(p50_ms=4.0), beside, beside, quiet)
    assert (found.processes, verdicts(found, 4.0)) == (3, ["inconclusive"] * 2)
    found = settled(beside, limits(p50_ms=2.0), quiet, beside)
    assert (found.processes, verdicts(found, 2.0)) == (2, ["fail"] * 2)


@pytest.mark.parametrize(
    ("others_ms", "why"),
    [
        (900.0, "other programs used 0.90 of 2 cores meanwhile: measure on an idle machine"),
        (None, "does not report the CPU time"),
    ],
)
def test_time_beside_other_programs_may_pass_but_not_fail(others_ms: float | None, why: str) -> None:
    beside = timing(*[window(5.0, others_ms=others_ms)] * 2)
    assert beside.stable and verdicts(beside, 6.0) == ["pass", "pass"]
    assert verdicts(beside, 4.0) == ["inconclusive"] * 2
    assert why in latency.checks(beside, limits(p50_ms=4.0), None)[0].detail
    assert json.dumps(to_json(latency.summary(beside, 1)), allow_nan=False)
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


def test_a_slow_window_reports_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release, _ = write_release(tmp_path / "release", rows=ROWS[:200])
    monkeypatch.setattr(progress, "LOG_S", 0.0)
    monkeypatch.setattr(latency, "_MOST_TEXTS", 10)
    lines: list[str] = []
    predictor = Predictor(release / golden.MODEL_FOLDER, threads=1)
    latency.measure(predictor, ["很好", "很差"], limits(p50_ms=1), lines.append)
    count = (len(lines) - 3) // 2
    assert lines[1] == f"latency: window 1 of 2, 1 of {count}"
    assert lines[-2] == f"latency: window 2 of 2, {count} of {count}"


def of_lengths(*tokens: int) -> TimingWindow:
    """A window in which a text takes 1 ms for each of its tokens."""
    wall_ms = float(sum(tokens))
    kinds = [Kind(count, True) for count in tokens]
    return TimingWindow(
        [Split(0.0, float(count), 0.0) for count in tokens], kinds, Interference(wall_ms, wall_ms, 2, 0.0)
    )


def test_each_length_has_its_own_budget() -> None:
    one = of_lengths(*[8] * 100, *[40] * 100, *[400] * 100)
    budgets = (LengthLimits(8, p95_ms=9), LengthLimits(64, p50_ms=30, p95_ms=60))
    asked = limits(by_length=(*budgets, LengthLimits(300, p50_ms=1)))
    rows = latency.checks(timing(one, one), asked, None)
    assert [(row.gate, row.verdict, row.value, row.n) for row in rows] == [
        ("latency.max_tokens_8.p95_ms", "pass", 8.0, 200),
        ("latency.max_tokens_64.p50_ms", "fail", 40.0, 200),
        ("latency.max_tokens_64.p95_ms", "pass", 40.0, 200),
        ("latency.max_tokens_300.p50_ms", "inconclusive", None, 0),
    ]
    assert "9 to 64 tokens" in rows[1].detail
    assert rows[3].detail == "no golden row has 65 to 300 tokens: give `data.test` such texts"


def test_texts_that_a_budget_adds_do_not_change_the_figures_of_all() -> None:
    one = of_lengths(*[8] * 100, *[100] * 100)
    one = one._replace(kinds=[kind._replace(usual=kind.tokens == 8) for kind in one.kinds])
    timed = timing(one, one)
    assert timed.medians_ms == [8.0, 8.0] and latency.summary(timed, 1).n == 200
    asked = limits(p95_ms=9, by_length=(LengthLimits(100, p50_ms=120),))
    assert [row.verdict for row in latency.checks(timed, asked, None)] == ["pass", "pass"]


def test_texts_repeat_where_there_are_too_few_and_lengths_with_a_limit_get_more() -> None:
    texts = [f"{'a' * (i % 10)}" for i in range(100)]
    tokens, encoder = [len(text) for text in texts], [True] * len(texts)
    few = latency.choose(texts * 10, limits(p95_ms=1), 130, [0] * 1000, [True] * 1000)
    assert Counter(len(str(text.item)) for text in few) == dict.fromkeys(range(10), 13)
    budgets = (LengthLimits(8, p50_ms=1), LengthLimits(9, p95_ms=1))
    chosen = latency.choose(texts, limits(by_length=budgets), 130, tokens, encoder)
    assert sum(text.kind.usual for text in chosen) == 130
    assert sum(text.kind.tokens == 9 for text in chosen) == 130  # 10 of 9 characters, again and again
    assert all(text.kind.tokens == len(str(text.item)) for text in chosen)
    none = limits(by_length=(LengthLimits(60, p95_ms=1),))
    assert len(latency.choose(texts, none, 130, [100] * len(texts), encoder)) == 130


@pytest.mark.parametrize(("asked", "least"), [({"p95_ms": 1}, 130), ({"p99_ms": 1}, 662)])
def test_as_many_texts_are_timed_as_the_percentiles_need(
    asked: dict[str, float], least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latency, "_BUDGET_MS", 1e-9)
    release, _ = write_release(tmp_path / "release", rows=ROWS)
    predictor = Predictor(release / golden.MODEL_FOLDER, threads=1)
    found = latency.measure(predictor, [row[0] for row in ROWS], limits(**asked), silent)
    assert len(found.samples) == least


def test_the_reference_has_the_number_of_texts_for_p99() -> None:
    for section in (LatencyLimits, LengthLimits):
        about = next(one.metadata["description"] for one in dataclasses.fields(section) if one.name == "p99_ms")
        assert f"needs {intervals.n_for_percentile(0.99, bench.CONFIDENCE)} texts" in about


@given(st.lists(st.integers(1, 60), min_size=1, max_size=300), st.sampled_from([0.5, 0.95, 0.99]))
def test_both_windows_have_texts_as_long_as_the_golden_rows(lengths: list[int], part: float) -> None:
    """Of each length as many as its share is, to less than one text; in each half, to less than two."""
    texts = ["a" * n for n in lengths]
    chosen = latency.choose(texts, limits(p99_ms=1), 662, [0] * len(lengths), [True] * len(lengths))
    found = Counter(len(str(text.item)) for text in chosen)
    halves = [Counter(len(str(text.item)) for text in chosen[number::2]) for number in range(2)]
    for length, there_are in Counter(lengths).items():
        assert abs(found[length] - len(chosen) * there_are / len(lengths)) <= 1
        assert abs(halves[0][length] - halves[1][length]) <= 1
    truth = intervals.percentile(sorted(lengths), part)
    around = intervals.percentile_interval([float(len(str(text.item))) for text in chosen], part, 0.98)
    assert around.low <= truth <= around.high
