from __future__ import annotations

import dataclasses
import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_model import write_release

from edgepack_runtime import (
    after_idle,
    bench,
    contention,
    energy,
    gate,
    gate_latency,
    gate_limits,
    gate_load,
    gate_process,
    stats,
    timed_texts,
)
from edgepack_runtime.accuracy_limits import Floors
from edgepack_runtime.closed_loop import Spell, Window
from edgepack_runtime.contention import Contention
from edgepack_runtime.errors import BundleInvalidError, ExitCode
from edgepack_runtime.gate_limits import Limits
from edgepack_runtime.latency_limits import AfterIdle, LatencyLimits, LengthBudget, OpenLoop, Percentiles, Sustained
from edgepack_runtime.predictor import Split
from edgepack_runtime.timed_texts import Kind
from edgepack_runtime.timing import Asked, Timing

GATES: dict[str, Any] = {
    "accuracy": {"metric": "accuracy", "min": 0.85, "max_drop_points": 2.0, "confidence": 0.95},
    "latency": {"p50_ms": 1000, "p95_ms": 1000, "threads": 1},
    "memory": {"peak_rss_mib": 2000},
    "size": {"model_mib": 0.1, "bundle_mib": 1},
    "cold_start": {"ms": 60000},
}
ROWS = [("很好", "good", "good")] * 190 + [("很差", "good", "bad")] * 10  # the model is wrong on the last ten


def quiet(line: str) -> None:
    """Nobody listens."""


def window(ms: float, n: int = 200, spread: float = 0.02, others_ms: float | None = 0.0) -> Window:
    """`n` samples around `ms`, evenly within `spread` to either side; how long others ran meanwhile."""
    samples = [Split(0.1 * ms, ms * (0.8 + 2 * spread * (i / (n - 1) - 0.5)), 0.1 * ms) for i in range(n)]
    return Window(samples, [Spell(n, Contention(ms * n, ms * n, 2, others_ms))])


def timing(*windows: Window, processes: int = 1) -> Timing:
    """Of usual texts, each another one, and all that there are."""
    count = len(windows[0].samples)
    return Timing(list(windows), [[Kind(0, True, row) for row in range(count)]] * 2, [(0, count)], processes)


def limits(**asked: Any) -> Limits:
    """Of percentiles."""
    return Limits(latency=LatencyLimits(Percentiles(**asked)))


# --- the whole gate -------------------------------------------------------------------------------------------


def test_a_good_release_passes_every_gate(tmp_path: Path) -> None:
    gates = {**GATES, "cold_start": None}
    release, manifest = write_release(tmp_path / "release", rows=ROWS, gates=gates)
    lines: list[str] = []
    receipt = gate.run(release, manifest, bundle_bytes=500_000, progress=lines.append)
    assert {row["gate"]: row["verdict"] for row in receipt["checks"]} == {
        "accuracy.min": "pass",
        "accuracy.max_drop_points": "pass",
        "latency.p50_ms": "pass",
        "latency.p95_ms": "pass",
        "memory.peak_rss_mib": "pass",
        "size.model_mib": "pass",
        "size.bundle_mib": "pass",
    }
    assert (receipt["receipt"], receipt["verb"], receipt["verdict"]) == (1, "gate", "pass")
    assert gate.exit_code(receipt) == ExitCode.OK
    digest = hashlib.sha256((release / "manifest.json").read_bytes()).hexdigest()
    assert receipt["bundle"] == {
        "name": "tiny",
        "version": "1.0.0",
        "target": "test",
        "release_id": f"1.0.0-{digest[:12]}",
        "sequence": 1,
        "manifest_sha256": digest,
    }
    assert receipt["accuracy"]["value"] == 0.95 and receipt["accuracy"]["n"] == 200
    assert receipt["accuracy"]["metric"] == "accuracy"
    assert re.search(r"\naccuracy 95 % \([\d.]+ to [\d.]+ %, n = 200\)", gate.render(receipt))
    assert receipt["classes"]["confusion"] == {"good": {"bad": 10, "good": 190}}
    assert receipt["latency"]["n"] >= 130 and 0 < receipt["latency"]["p50_ms"] <= receipt["latency"]["p95_ms"]
    told = receipt["latency"]
    assert [told[key] for key in ("open_loop", "after_idle", "sustained")] == [None] * 3  # not asked for
    assert told["distribution"]["p50_ms"] == told["p50_ms"] and "p95_ms" in told["distribution"]
    assert told["contention"]["own_cpu_ms"] > 0 and "getrusage" in told["contention"]["looked_at"]
    assert ("energy_mj_per_text" in told and told["p99_ms"] is None) or told["n"] >= 662
    assert {"load_average", "clock_mhz", "temperature_c", "throttle"} == set(receipt["conditions"]["after"])
    assert json.loads(json.dumps(receipt, allow_nan=False)) == receipt
    assert any(line.startswith("accuracy: 200 of 200 rows, 190 right") for line in lines)


def test_what_is_missed_is_named_with_its_figures(tmp_path: Path) -> None:
    gates = {"accuracy": {"min": 0.99}, "size": {"model_mib": 0.0001, "bundle_mib": 1}}
    release, manifest = write_release(tmp_path / "release", rows=ROWS, gates=gates)
    receipt = gate.run(release, manifest, bundle_bytes=None, progress=quiet)
    checks = {row["gate"]: row for row in receipt["checks"]}
    assert checks["accuracy.min"]["verdict"] == "fail"
    assert checks["size.model_mib"]["verdict"] == "fail"
    assert checks["size.bundle_mib"]["verdict"] == "inconclusive"  # not known is not passed
    assert receipt["verdict"] == "fail" and gate.exit_code(receipt) == ExitCode.GATE_FAILED
    table = gate.render(receipt)
    assert "accuracy.min: 190 of 200 rows right" in table and "limit is" not in table
    assert re.search(r"accuracy\.min +95 +[\d.]+ to [\d.]+ +>= 99 % ", table)
    assert table.endswith("verdict: fail")


def test_what_cannot_be_decided_is_inconclusive(tmp_path: Path) -> None:
    release, manifest = write_release(tmp_path / "release", rows=ROWS, gates={"accuracy": {"min": 0.94}})
    receipt = gate.run(release, manifest, bundle_bytes=None, progress=quiet)
    assert receipt["verdict"] == "inconclusive" and gate.exit_code(receipt) == ExitCode.GATE_INCONCLUSIVE
    assert "about 2181 rows would decide" in receipt["checks"][0]["detail"]


def test_every_gate_on_time_has_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = after_idle.Firsts(5.0, [1.0] * 7, Contention(1000.0, 10.0, 2, 0.0))
    monkeypatch.setattr(gate_load, "measure", lambda *given: gate_load.Loads(after_idle=pauses))
    meter, looks = energy.Meter("a meter", [], []), iter(range(100_000))
    monkeypatch.setattr(energy, "find", lambda: meter)
    monkeypatch.setattr(timed_texts, "_ENERGY_MS", 4000.0)  # sixteen spells
    monkeypatch.setattr(gate_latency, "settle", lambda first, *rest: first)  # a fresh process would have no such meter
    monkeypatch.setattr(energy, "look", lambda meter, clock_ms: energy.Look(clock_ms, milliwatts=float(next(looks))))
    budgets = [{"max_tokens": 4, "p95_ms": 1000}, {"max_tokens": 16, "p95_ms": 1000}]
    gates = {
        "latency": {"by_length": budgets, "after_idle": {"idle_s": 5, "ms": 20}},
        "energy": {"mj_per_text": 1000},
    }
    release, manifest = write_release(tmp_path / "release", rows=ROWS[:20], gates=gates)
    receipt = gate.run(release, manifest, bundle_bytes=None, progress=quiet)
    assert [(row["gate"], row["verdict"], row["unit"]) for row in receipt["checks"]] == [
        ("latency.max_tokens_4.p95_ms", "pass", "ms"),
        ("latency.max_tokens_16.p95_ms", "inconclusive", "ms"),
        ("latency.after_idle.ms", "pass", "ms"),
        ("energy.mj_per_text", "pass", "mJ"),
    ]
    assert receipt["latency"]["after_idle"]["times_ms"] == [1.0] * 7
    assert receipt["latency"]["energy_mj_per_text"] > 0
    assert "latency.max_tokens_16.p95_ms: no golden row has 5 to 16 tokens" in gate.render(receipt)
    assert json.dumps(receipt, allow_nan=False)


@pytest.mark.parametrize(("without_gates", "verdict"), [(False, "inconclusive"), (True, "pass")])
def test_without_gates_the_figures_are_measured_and_nothing_is_judged(
    tmp_path: Path, without_gates: bool, verdict: str
) -> None:
    release, manifest = write_release(tmp_path / "release", rows=ROWS[:20], gates={"latency": {"threads": 1}})
    receipt = gate.run(release, manifest, bundle_bytes=None, progress=quiet, without_gates=without_gates)
    assert (receipt["verdict"], receipt["checks"]) == (verdict, [])
    assert receipt["unmeasured"] == [{"gate": "gates", "why": "the recipe sets no gates", "waived": without_gates}]
    assert gate.render(receipt).startswith("gates: not measured: the recipe sets no gates\n")
    assert receipt["accuracy"]["n"] == 20
    assert receipt["latency"]["n"] >= 130  # twenty texts, gone through again


def test_time_on_an_emulated_machine_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgepack_runtime.device.emulation", lambda machine, root: "the kernel is other")
    gates = {"accuracy": {"min": 0.85}, "latency": {"p50_ms": 1000}}
    release, manifest = write_release(tmp_path / "release", rows=ROWS, gates=gates)
    receipt = gate.run(release, manifest, bundle_bytes=None, progress=quiet)
    assert [row["verdict"] for row in receipt["checks"]] == ["pass", "inconclusive"]
    assert "emulated" in receipt["checks"][1]["detail"]
    assert receipt["conditions"]["emulated"] is True


def test_a_foreign_manifest_is_refused(tmp_path: Path) -> None:
    release, manifest = write_release(tmp_path / "release", rows=ROWS[:1])
    with pytest.raises(BundleInvalidError, match="does not belong"):
        gate.run(release, dataclasses.replace(manifest, sequence=2), bundle_bytes=None, progress=quiet)


# --- limits ---------------------------------------------------------------------------------------------------


def test_all_limits_are_read() -> None:
    assert gate_limits.parse(GATES) == Limits(
        0.85, 2.0, 0.95, LatencyLimits(Percentiles(1000.0, 1000.0)), 1, 2000.0, 0.1, 1.0, 60000.0, "accuracy"
    )
    assert gate_limits.parse(dict.fromkeys(GATES)) == Limits()
    assert gate_limits.parse({}) == Limits()
    assert gate_limits.parse({"accuracy": {"metric": "macro_f1"}}).metric == "macro_f1"
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
        "after_idle": {"idle_s": 5, "ms": 20},
        "sustained": {"seconds": 60, "max_slowdown_percent": 15},
    }
    assert gate_limits.parse({"latency": asked, "energy": {"mj_per_text": 2}}) == Limits(
        latency=LatencyLimits(
            Percentiles(p99_ms=30.0),
            (LengthBudget(0, 32, Percentiles(p95_ms=3.0)), LengthBudget(32, 128, Percentiles(p99_ms=9.0))),
            OpenLoop(20.0, Percentiles(p95_ms=25.0)),
            AfterIdle(5.0, 20.0),
            Sustained(60.0, 15.0),
        ),
        energy_mj_per_text=2.0,
    )


@pytest.mark.parametrize(
    "gates",
    [
        {"energy": {"joule": 1}},
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
        {"latency": {"after_idle": {"idle_s": 5}}},
        {"latency": {"after_idle": {"idle_s": 500, "ms": 5}}},
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
        {"accuracy": {"metric": None}},
        {"accuracy": {"metric": ["f1"]}},
        {"accuracy": {"confidence": 1.0}},
        {"accuracy": {"confidence": 0.9991}},
        {"accuracy": {"confidence": 0.5}},
        {"accuracy": {"baseline": "hotel.edgepack"}},
        {"accuracy": {"baseline": {"name": "hotel", "version": 2}}},
        {"accuracy": {"per_class": 0.8}},
        {"accuracy": {"per_class": {"specificity": 0.8}}},
        {"accuracy": {"per_class": {"recall": 1.0}}},
        {"accuracy": {"per_class": {"recall_of": [0.8]}}},
        {"accuracy": {"per_class": {"recall_of": {"a": "0.8"}}}},
        {"cold_start": {"ms": float("nan")}},
    ],
)
def test_a_gate_that_cannot_be_measured_is_never_skipped(gates: dict[str, Any]) -> None:
    with pytest.raises(BundleInvalidError):
        gate_limits.parse(gates)


# --- latency --------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(1e-6, 1e9), max_size=1500))
def test_a_distribution_is_small_finite_and_in_order(totals_ms: list[float]) -> None:
    told = gate_latency.distribution(totals_ms)
    assert len(json.dumps(told, allow_nan=False)) < 400
    assert list(told.values()) == sorted(told.values()) and len(told) <= 11
    assert bool(told) == bool(totals_ms)


def test_a_distribution_has_the_percentiles_that_there_are_samples_for() -> None:
    told = gate_latency.distribution([float(ms) for ms in range(1000, 0, -1)])
    assert told == {
        "min_ms": 1.0, "p1_ms": 10.0, "p5_ms": 50.0, "p10_ms": 100.0, "p25_ms": 250.0, "p50_ms": 500.0,
        "p75_ms": 750.0, "p90_ms": 900.0, "p95_ms": 950.0, "p99_ms": 990.0, "max_ms": 1000.0,
    }  # fmt: skip
    assert {"p1_ms", "p99_ms"}.isdisjoint(gate_latency.distribution([1.0] * 661))
    assert gate_latency.distribution([2.0]) == {"min_ms": 2.0, "max_ms": 2.0}


def verdicts(timed: Timing, limit_ms: float) -> list[str]:
    return [row.verdict for row in gate_latency.checks(timed, limits(p50_ms=limit_ms, p95_ms=limit_ms), None)]


def test_a_stable_timing_is_judged_by_its_bounds() -> None:
    timed = timing(window(5.0), window(5.2))
    assert timed.stable
    assert verdicts(timed, 6.0) == ["pass", "pass"]
    assert verdicts(timed, 4.0) == ["fail", "fail"]
    [p50] = gate_latency.checks(timed, limits(p50_ms=5.1), None)
    assert p50.verdict == "inconclusive" and "would decide" in p50.detail
    assert p50.low is not None and p50.high is not None and p50.low <= 5.1 <= p50.high


def test_an_unstable_timing_passes_only_where_the_worst_of_it_would() -> None:
    timed = timing(window(5.0), window(6.0), processes=2)
    assert not timed.stable and timed.drift == pytest.approx(0.2, abs=0.01)
    assert verdicts(timed, 6.5) == ["inconclusive"] * 2  # each window keeps to it, but the trend might go on
    assert verdicts(timed, 7.5) == ["pass", "pass"]
    assert verdicts(timed, 1.0) == ["inconclusive"] * 2  # not the model's fault
    [row] = gate_latency.checks(timed, limits(p50_ms=7.5), None)
    assert "differ by 20%" in row.detail


def settled(first: Timing, asked: Limits, second: Timing, emulated_why: str | None = None) -> Timing:
    """What is judged in the end, where measuring again gives `second`."""
    return gate_latency.settle(first, asked, emulated_why, lambda: second, quiet)


def test_only_what_cannot_be_judged_is_done_again() -> None:
    good = timing(window(5.0), window(5.0))
    stable = timing(window(5.0), window(5.4))
    assert settled(stable, limits(p50_ms=4.0), good) is stable  # a fail on a quiet machine
    found = settled(timing(window(5.0), window(5.6)), limits(), good)
    assert found.stable and found.processes == 2 and gate_latency.summary(found, 3)["processes"] == 2
    beside = timing(*[window(5.0, others_ms=900.0)] * 2)
    assert settled(beside, limits(p50_ms=6.0), good) is beside  # it passes all the same
    assert settled(beside, limits(), good) is beside  # nothing is asked for
    assert settled(beside, limits(p50_ms=4.0), good).processes == 2
    assert settled(beside, limits(p50_ms=4.0), good, "the kernel is other") is beside


def test_beside_a_neighbour_nothing_fails_that_might_pass_without_it() -> None:
    beside = timing(*[window(5.0, others_ms=900.0)] * 2)
    assert beside.stable and verdicts(beside, 6.0) == ["pass", "pass"]
    assert verdicts(beside, 4.0) == ["inconclusive"] * 2
    [row] = gate_latency.checks(beside, limits(p50_ms=4.0), None)
    assert row.low is not None and row.low < 4.0 < 5.0 == pytest.approx(row.value, abs=0.1)
    assert "others used 0.90 of 2 cores while it was measured: measure on an idle machine" in row.detail


def test_what_others_did_not_cost_fails_beside_them_too() -> None:
    """They ran for 10 ms of 1000: that does not make 5 ms of 2, but it may make 5.05 of 5."""
    beside = timing(*[window(5.0, others_ms=10.0)] * 2)
    assert verdicts(beside, 2.0) == ["fail", "fail"]
    [row] = gate_latency.checks(beside, limits(p50_ms=4.96), None)
    assert row.verdict == "inconclusive" and "others used 0.01 of 2 cores" in row.detail


def phased(*slow: Collection[int], factor: float = 3.0, least_ms: float = 4.0, most_ms: float = 6.0) -> Timing:
    """Two windows over 500 texts, each in an order of its own; those at places that are `slow` take longer."""
    source = random.Random(3)
    alone_ms = [source.uniform(least_ms, most_ms) for _ in range(500)]
    orders = [source.sample(range(500), 500) for _ in slow]
    windows = [
        Window(
            [Split(0.0, alone_ms[row] * (factor if place in places else 1), 0.0) for place, row in enumerate(order)],
            [Spell(500, Contention(2500.0, 2500.0, 2, 0.0))],
        )
        for order, places in zip(orders, slow, strict=True)
    ]
    return Timing(windows, [[Kind(0, True, row) for row in order] for order in orders], [(0, 500)])


def test_a_machine_that_was_slow_for_a_moment_fails_nothing_that_might_pass_otherwise() -> None:
    """Of 1,000 samples 80 in a row are slow: p95 is theirs, and no counter and no median tells of them."""
    found = phased(range(200, 280), range(0))
    assert found.stable and found.contention.quiet
    [row] = gate_latency.checks(found, limits(p95_ms=8.0), None)
    assert row.value is not None and row.value > 8.0 and row.verdict == "inconclusive"
    assert "the machine goes through phases: " in row.detail
    assert row.low is not None and row.low < 8.0
    good = timing(window(5.0), window(5.0))
    assert settled(found, limits(p95_ms=8.0), good).processes == 2
    [slow] = gate_latency.checks(found, limits(p95_ms=5.5), None)
    assert slow.verdict == "fail", "it would have been too slow in its fastest phase, of texts of 4 to 6 ms"
    scattered = phased(*[range(0, 500, 12)] * 2)
    assert gate_latency.checks(scattered, limits(p95_ms=8.0), None)[0].verdict == "fail", "these texts are slow"


def test_a_machine_that_was_slow_for_a_moment_passes_nothing_that_it_might_miss_in_the_long_run() -> None:
    """Of 1,000 samples 25 in a row are slow: p95 is that of the others, but nobody knows how often there are such."""
    found = phased(range(200, 225), range(0))
    [row] = gate_latency.checks(found, limits(p95_ms=8.0), None)
    assert row.value is not None and row.value < 6.0 and row.high is None, "it is not known how far it reaches"
    assert row.verdict == "inconclusive" and "the machine goes through phases: " in row.detail
    assert settled(found, limits(p95_ms=8.0), timing(window(5.0), window(5.0))).processes == 2
    assert gate_latency.checks(found, limits(p95_ms=20.0), None)[0].verdict == "pass", "in its slowest phase too"


def test_a_machine_that_was_slow_for_most_of_the_time_fails_nothing_that_might_pass_otherwise() -> None:
    """Most texts were slow in both windows, so that beside each other neither of their times looks slow."""
    found = phased(*[range(420)] * 2, factor=1.3, least_ms=2.9, most_ms=3.1)
    [row] = gate_latency.checks(found, limits(p50_ms=3.2), None)
    assert row.value == pytest.approx(3.9, abs=0.05) and row.low == pytest.approx(3.0, abs=0.1)
    assert row.verdict == "inconclusive" and "the machine goes through phases: " in row.detail
    assert gate_latency.checks(found, limits(p50_ms=2.8), None)[0].verdict == "fail", "in its fastest phase too"


def test_where_phases_are_many_their_share_is_known() -> None:
    """Slow for 8 texts of every 64, and always other ones: p50 passes, which in the slow phases is 15 ms."""
    often = [{place for place in range(500) if (place // 8 + 4 * number) % 8 == 0} for number in (0, 1)]
    found = phased(*often)
    assert found.course() is not None
    assert gate_latency.checks(found, limits(p50_ms=5.6), None)[0].verdict == "pass"
    assert gate_latency.checks(found, limits(p50_ms=5.2), None)[0].verdict == "inconclusive"


def test_where_it_is_not_told_what_else_ran_nothing_fails() -> None:
    dark = timing(*[window(5.0, others_ms=None)] * 2)
    assert verdicts(dark, 1.0) == ["inconclusive"] * 2 and verdicts(dark, 6.0) == ["pass"] * 2
    assert "does not tell what else ran" in gate_latency.checks(dark, limits(p50_ms=1.0), None)[0].detail
    assert json.dumps(gate_latency.summary(dark, 1), allow_nan=False)


def test_the_second_try_is_a_process_of_its_own(tmp_path: Path) -> None:
    release, _ = write_release(tmp_path / "release", rows=ROWS[:200])
    gates = {"latency": {"by_length": [{"max_tokens": 3, "p95_ms": 1}, {"max_tokens": 9, "p95_ms": 1}]}}
    found = gate_process.latency(release, 1, gates)
    first, second = found.windows
    assert [len(kinds) for kinds in found.kinds] == [len(first.samples)] * 2
    assert {kind.tokens for kinds in found.kinds for kind in kinds} == {4}
    assert found.kinds[0] != found.kinds[1] and sorted(found.kinds[0]) == sorted(found.kinds[1])
    assert len(first.samples) == len(second.samples) >= 65
    assert all(isinstance(split, Split) and split.total_ms > 0 for split in first.samples + second.samples)
    assert sum(spell.texts for spell in first.spells) == len(first.samples)
    assert isinstance(first.contention, Contention) and first.contention.own_cpu_ms > 0


def of_lengths(*tokens: int) -> tuple[Window, list[Kind]]:
    """A window in which a text takes 1 ms for each of its tokens."""
    samples = [Split(0.0, float(count), 0.0) for count in tokens]
    wall_ms = float(sum(tokens))
    return Window(samples, [Spell(len(tokens), Contention(wall_ms, wall_ms, 2, 0.0))]), [
        Kind(n, True, row) for row, n in enumerate(tokens)
    ]


def test_each_length_has_its_own_budget() -> None:
    one, kinds = of_lengths(*[8] * 100, *[40] * 100, *[100] * 100)
    budgets = (LengthBudget(0, 8, Percentiles(p95_ms=9)), LengthBudget(8, 64, Percentiles(p50_ms=30, p95_ms=60)))
    asked = Limits(latency=LatencyLimits(by_length=(*budgets, LengthBudget(200, 300, Percentiles(p50_ms=1)))))
    rows = gate_latency.checks(Timing([one, one], [kinds] * 2, []), asked, None)
    assert [(row.gate, row.verdict, row.value, row.n) for row in rows] == [
        ("latency.max_tokens_8.p95_ms", "pass", 8.0, 200),
        ("latency.max_tokens_64.p50_ms", "fail", 40.0, 200),
        ("latency.max_tokens_64.p95_ms", "pass", 40.0, 200),
        ("latency.max_tokens_300.p50_ms", "inconclusive", None, 0),
    ]
    assert "9 to 64 tokens" in rows[1].detail
    assert rows[3].detail == "no golden row has 201 to 300 tokens: give `data.test` such texts"


def test_texts_that_a_budget_adds_do_not_change_the_figures_of_all() -> None:
    one, kinds = of_lengths(*[8] * 100, *[100] * 100)
    timed = Timing([one, one], [[kind._replace(usual=kind.tokens == 8) for kind in kinds]] * 2, [])
    assert timed.medians_ms == [8.0, 8.0] and gate_latency.summary(timed, 1)["n"] == 200
    budget = LengthBudget(8, 100, Percentiles(p50_ms=120))
    asked = Limits(latency=LatencyLimits(Percentiles(p95_ms=9), (budget,)))
    assert [row.verdict for row in gate_latency.checks(timed, asked, None)] == ["pass", "pass"]


def test_as_many_texts_are_timed_as_the_percentiles_need() -> None:
    texts = [f"{'a' * (i % 10)}" for i in range(100)]
    tokens = [len(text) for text in texts]
    every = timed_texts.choose(texts, limits(p95_ms=1), 100.0, tokens)
    assert sorted(text.kind.row for text in every) == list(range(100)), "all, where fewer than 130 are there"
    assert len(timed_texts.choose(texts, limits(p99_ms=1), 100.0, tokens)) == 331
    assert len(timed_texts.choose(texts, limits(), 0.01, tokens)) == 500
    many = texts * 10
    few = timed_texts.choose(many, limits(p95_ms=1), 100.0, [0] * 1000)
    assert len({text.kind.row for text in few}) == len(few) == 130
    assert Counter(len(str(text.item)) for text in few) == dict.fromkeys(range(10), 13)
    budget = LengthBudget(8, 9, Percentiles(p95_ms=1))
    by_length = Limits(latency=LatencyLimits(by_length=(budget,)))
    chosen = timed_texts.choose(texts, by_length, 100.0, tokens)
    assert sum(text.kind.usual for text in chosen) == 100
    assert sum(budget.holds(text.kind.tokens) for text in chosen) == 65  # 10 of 9 characters, again and again
    assert all(text.kind.tokens == len(str(text.item)) for text in chosen)
    more = timed_texts.choose(many, by_length, 100.0, tokens * 10)
    assert sum(text.kind.usual for text in more) == 130
    rows = [text.kind.row for text in more if budget.holds(text.kind.tokens)]
    assert len(rows) == len(set(rows)) == 100, "all of that length"
    rare = LengthBudget(8, 9, Percentiles(p50_ms=1, p99_ms=1))
    again = timed_texts.choose(many, Limits(latency=LatencyLimits(by_length=(rare,))), 4.0, tokens * 10)
    often = Counter(text.kind.row for text in again if rare.holds(text.kind.tokens))
    assert len(often) == 100
    assert max(often.values()) - min(often.values()) <= 1, "whether usual or not, each about as often"
    none = LengthBudget(50, 60, Percentiles(p95_ms=1))
    assert len(timed_texts.choose(texts, Limits(latency=LatencyLimits(by_length=(none,))), 100.0, tokens)) == 100


@given(st.lists(st.integers(1, 60), min_size=1, max_size=300), st.sampled_from([0.5, 0.95, 0.99]))
def test_the_texts_that_are_timed_are_as_long_as_the_golden_rows(lengths: list[int], part: float) -> None:
    """Of each length as many as its share is, to less than one text."""
    chosen = timed_texts.choose(["a" * n for n in lengths], limits(p99_ms=1), 100.0, [0] * len(lengths))
    found = Counter(len(str(text.item)) for text in chosen)
    for length, there_are in Counter(lengths).items():
        assert abs(found[length] - len(chosen) * there_are / len(lengths)) <= 1
    truth = stats.percentile(sorted(lengths), part)
    around = stats.percentile_interval([float(len(str(text.item))) for text in chosen], part, 0.98)
    assert around.low <= truth <= around.high


def test_a_text_that_is_timed_twice_is_one_sample_of_how_long_texts_take() -> None:
    one = window(20.0, n=130)
    asked, kinds = limits(p95_ms=20.25), [Kind(0, True, row) for row in range(130)]
    [all_there_are] = gate_latency.checks(Timing([one, one], [kinds] * 2, [(0, 130)]), asked, None)
    [some] = gate_latency.checks(Timing([one, one], [kinds] * 2, [(0, 5000)]), asked, None)
    assert all_there_are.n == some.n == 260
    assert some.high == pytest.approx(stats.percentile_interval([s.total_ms for s in one.samples], 0.95, 0.98).high)
    assert all_there_are.high < some.high
    assert "texts of 130 rows" in some.detail
    again = [kind._replace(row=kind.row % 65) for kind in kinds]
    [few] = gate_latency.checks(Timing([one, one], [again] * 2, [(0, 5000)]), asked, None)
    assert few.high is None, "65 texts do not bound p95, however often they are timed"
    uneven = Timing([one, one], [[kind._replace(row=max(kind.row - 65, 0)) for kind in kinds]] * 2, [(0, 65)])
    limit = Asked("latency.p95_ms", 0.95, 1.0)
    assert uneven.design_effect(limit) > 10, "one row is half of all timings"
    assert Timing([one, one], [again] * 2, [(0, 65)]).design_effect(limit) == 1.0


# --- processes ------------------------------------------------------------------------------------------------


def test_peak_memory_is_the_childs_and_not_ours(tmp_path: Path) -> None:
    """Linux hands ru_maxrss down to children: a large parent must not make the model look large."""
    release, _ = write_release(tmp_path / "release", rows=ROWS[:1])
    ballast = bytearray(300 * 1024 * 1024)
    ballast[::4096] = b"x" * len(ballast[::4096])  # every page is really there
    assert 20 < gate_process.peak_rss_mib(release, 1) < 200
    assert ballast[0]


def test_a_cold_start_is_a_whole_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_process, "RUNS", 1)
    release, _ = write_release(tmp_path / "release", rows=ROWS[:1])
    lines: list[str] = []
    [counted] = gate_process.cold_starts(release, ["很好", "-n", "\x00"], lines.append)
    assert counted.wall_ms > 20 and counted.own_cpu_ms > 10  # that of the child
    assert lines[0].startswith("cold start: ")


def test_cold_starts_are_judged_by_the_fastest_and_the_slowest() -> None:
    def runs(others_ms: float) -> list[Contention]:
        return [Contention(ms, ms, 2, others_ms) for ms in (400.0, 410, 420, 430, 440, 450, 460)]

    seen = [gate_process.cold_start_check(runs(0), limit, None) for limit in (380, 400, 459, 460)]
    assert [row.verdict for row in seen] == ["fail", "inconclusive", "inconclusive", "pass"]
    assert (seen[0].value, seen[0].high, seen[0].n) == (430, 460, 7)
    assert seen[0].low == pytest.approx(400 - contention.TICK_MS, abs=1e-3)
    assert gate_process.cold_start_check(runs(0), 1000, "emulated").verdict == "inconclusive"
    beside = gate_process.cold_start_check(runs(300), 380, None)
    assert beside.verdict == "inconclusive" and "others used 0.70 of 2 cores" in beside.detail
    assert gate_process.cold_start_check(runs(300), 500, None).verdict == "pass"


def peaks_of(*scripted: float, limit: float, monkeypatch: pytest.MonkeyPatch) -> tuple[list[float], list[str]]:
    """What is measured with processes that have these peaks in MiB, and what was told meanwhile."""
    left, lines = iter(scripted), list[str]()
    monkeypatch.setattr(gate_process, "peak_rss_mib", lambda release, threads: next(left))
    return gate_process.peaks_mib(Path("release"), 1, limit, lines.append), lines


@pytest.mark.parametrize(
    ("scripted", "limit", "verdict"),
    [
        ((92.0, 91.2, 93.0, 92.9, 92.5, 92.1, 92.9), 93.1, "pass"),
        ((92.0, 91.2, 93.0, 92.9, 92.5, 92.1, 92.9), 93.0, "pass"),
        ((92.0, 91.2, 93.0, 92.9, 92.5, 92.1, 92.9), 92.95, "inconclusive"),
        ((93.0, 91.2, 92.0, 92.9, 92.5, 92.1, 92.9), 92.0, "inconclusive"),
        ((92.0, 91.2, 93.0, 92.9, 92.5, 92.1, 92.9), 91.2, "inconclusive"),
        ((92.0, 91.2, 93.0, 92.9, 92.5, 92.1, 92.9), 91.1, "fail"),
    ],
)
def test_a_peak_near_its_limit_is_measured_as_often_as_a_cold_start(
    scripted: tuple[float, ...], limit: float, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    peaks, lines = peaks_of(*scripted, limit=limit, monkeypatch=monkeypatch)
    assert peaks == [*scripted] and len(peaks) == gate_process.RUNS
    assert "within 5 % of the limit" in lines[1] and lines[-1] == "memory: 92.9 MiB at most, run 7 of 7"
    row = gate_process.memory_check(peaks, limit, 3, None)
    assert (row.verdict, row.value, row.low, row.high, row.n, row.confidence) == (
        verdict, 92.5, 91.2, 93.0, 7, bench.CONFIDENCE,
    )  # fmt: skip
    assert row.detail.startswith("median of 7 fresh processes: load, then 3 golden texts")
    assert ("both sides of the limit" in row.detail) is (verdict == "inconclusive")


@pytest.mark.parametrize(("peak", "verdict"), [(94.9, "pass"), (105.1, "fail")])
def test_a_peak_far_from_its_limit_is_measured_once(peak: float, verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    peaks, lines = peaks_of(peak, limit=100, monkeypatch=monkeypatch)
    assert peaks == [peak] and lines == [f"memory: {peak} MiB at most"]
    row = gate_process.memory_check(peaks, 100, 3, None)
    assert row[1:9] == (verdict, peak, None, None, 100, "MiB", 1, None)
    assert "one run" in row.detail and "nearer ones are measured 7 times" in row.detail and str(peak) not in row.detail


@pytest.mark.parametrize("peak", [95.0, 105.0])
def test_five_percent_away_is_near(peak: float, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(peaks_of(*[peak] * 7, limit=100, monkeypatch=monkeypatch)[0]) == 7


def test_memory_of_an_emulator_may_pass_but_not_fail() -> None:
    near = [99.0, 99, 99, 99, 99, 101, 101]
    for peaks, limit, verdict in (([100.0], 200, "pass"), ([300], 200, "inconclusive"), (near, 101, "pass")):
        assert gate_process.memory_check(peaks, limit, 3, "emulated by x").verdict == verdict
    for limit in (100, 98):
        row = gate_process.memory_check(near, limit, 3, "by x")
        assert row.verdict == "inconclusive" and row.detail.endswith("; emulated (by x)")


def test_the_text_of_a_cold_start_can_stand_on_a_command_line() -> None:
    assert gate_process._presentable(["--help", "", "a\x00b", "\ud800", "好", "很好", "很好很好"]) == ("很好",)
    assert gate_process._presentable(["-x"]) == ("好",)
    assert gate_process._presentable([("好", "-x"), ("好", "很好"), ("", "好")]) == ("好", "很好")
    assert gate_process._presentable([("-x", "好")]) == ("好", "好")
