"""Open loop and sustained load, on a clock that moves when something takes time."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from installing import silent

from edgepack_runtime.device import interference, throttling
from edgepack_runtime.device.interference import Interference, Reading
from edgepack_runtime.device.throttling import Throttle
from edgepack_runtime.device.tuning import Tuning
from edgepack_runtime.gate import open_loop, runner, sustained
from edgepack_runtime.gate.limits import Limits, OpenLoop, Percentiles, Sustained, parse
from edgepack_runtime.inference.predictor import Split
from edgepack_runtime.stats.checks import GateCheck

BUSY = Interference(1000.0, 600.0, 2, 900.0)


class Machine:
    """A clock, in seconds; this process is the only one, and uses one core while it works."""

    def __init__(self) -> None:
        self.now, self.worked = 0.0, 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def read(self) -> Reading:
        return Reading(self.now * 1e3, self.worked * 1e3, 2, 2e3 * self.now, 1e3 * (2 * self.now - self.worked))


class Model:
    """A predictor that takes as long as `ms` says of the text and the time."""

    tuning = Tuning()

    def __init__(self, machine: Machine, ms: Callable[[str, float], float]) -> None:
        self.machine, self.ms = machine, ms

    def tokens(self, item: str) -> int:
        return len(item)

    def predict(self, item: str) -> None:
        self.timed_predict(item)

    def timed_predict(self, item: str) -> tuple[None, Split]:
        ms = self.ms(item, self.machine.now)
        self.machine.now += ms / 1e3
        self.machine.worked += ms / 1e3
        return None, Split(0.0, ms, 0.0)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    for module in (open_loop, sustained):
        monkeypatch.setattr(module, "time", made)
    monkeypatch.setattr(interference, "read", made.read)
    monkeypatch.setattr(throttling, "read_throttle", Throttle)
    return made


def model(machine: Machine, ms: Callable[[str, float], float] | float) -> Any:
    return Model(machine, ms if callable(ms) else lambda item, now: ms)


def verdict(run: open_loop.OpenLoopRun, p95_ms: float) -> tuple[str, str]:
    [row] = open_loop.checks(run, OpenLoop(run.rate_per_s, Percentiles(p95_ms=p95_ms)))
    assert row.gate == "latency.open_loop.p95_ms"
    return row.verdict, row.detail


def test_a_text_waits_for_those_before_it(machine: Machine) -> None:
    """One that takes a second holds up all that arrive meanwhile; one after the other would see one slow text."""
    slow = iter([True])
    run = open_loop.measure(model(machine, lambda item, now: 1000 if next(slow, False) else 1), ["a"], 20.0, 400)
    late = [one.latency_ms for one in run.answered if one.latency_ms > 100]
    assert 10 <= len(late) <= 30 and all(b < a + 1.01 for a, b in pairwise(late))
    assert run.answered[0].latency_ms == pytest.approx(1000)
    assert open_loop.summary(run)["p50_ms"] == pytest.approx(1.0, abs=0.5)


def test_arrivals_are_poisson_and_the_same_every_time(machine: Machine) -> None:
    first, second = (open_loop.measure(model(machine, 1.0), ["a", "b"], 50.0, 2000) for _ in range(2))
    assert [one.due_ms for one in first.answered] == [one.due_ms for one in second.answered]
    gaps = [b.due_ms - a.due_ms for a, b in pairwise(first.answered)]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(20, rel=0.1)
    assert sum(gap > mean for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.04)  # exp(-1)
    assert first.utilisation == pytest.approx(0.05, abs=0.005)


def test_a_rate_that_is_reached_is_judged_and_beside_others_does_not_fail(machine: Machine) -> None:
    run = open_loop.measure(model(machine, 5.0), ["a"], 20.0, 400)
    assert verdict(run, 30.0) == ("pass", "20 texts per second on average, busy 10% of the time")
    assert verdict(run, 1.0)[0] == "fail"
    found, detail = verdict(run, sorted(run.latencies_ms)[380])
    assert found == "inconclusive" and detail.endswith("the limit lies within the interval")
    assert ": 20 texts per second, each from its arrival: p50 " in open_loop.render(
        [{"folder": "a", "kept": True, **open_loop.summary(run)}]
    )
    beside = run._replace(interference=BUSY)
    found, detail = verdict(beside, 1.0)
    assert found == "inconclusive" and "other programs used 0.90 of 2 cores" in detail
    assert verdict(beside, 30.0)[0] == "pass"


def test_a_rate_that_is_not_reached_never_passes(machine: Machine) -> None:
    run = open_loop.measure(model(machine, 60.0), ["a"], 20.0, 400)
    assert run.utilisation == pytest.approx(1.2)
    found, detail = verdict(run, 1e9)
    assert found == "inconclusive" and "the rate is not reached" in detail
    assert verdict(run, 60.0)[0] == "fail"
    nearly = open_loop.measure(model(machine, 48.0), ["a"], 20.0, 400)
    assert verdict(nearly, 1e9)[0] == "inconclusive"


def test_a_run_is_as_long_as_it_is_asked_to_and_its_percentiles_need() -> None:
    assert open_loop.how_many(1.0, Percentiles(p95_ms=1), 5.0) == 130
    assert open_loop.how_many(1.0, Percentiles(p99_ms=1), 5.0) == 662
    assert open_loop.how_many(1000.0, Percentiles(p95_ms=1), 5.0) == 5000
    assert open_loop.how_many(1000.0, Percentiles(p95_ms=1), 30.0) == 30_000


def test_bench_tells_when_a_rate_is_not_reached(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = {"fast": 2.0, "slow": 60.0}
    monkeypatch.setattr(open_loop, "Predictor", lambda folder, threads: model(machine, speeds[folder.name]))
    rows = open_loop.compare([Path(name) for name in speeds], ["a"], 20.0, threads=1, progress=silent)
    assert [(row["folder"], row["kept"], row["n"]) for row in rows] == [("fast", True, 662), ("slow", False, 662)]
    fast, slow, shout = open_loop.render(rows).splitlines()
    assert fast.startswith("fast: 20 texts per second, each from its arrival: p50 2.000 ms, p95 ")
    assert slow.endswith("busy 120% of the time") and "NOT REACHED" in shout
    assert json.dumps(rows, allow_nan=False)


# --- sustained ------------------------------------------------------------------------------------------------


def sustained_run(machine: Machine, ms: Callable[[str, float], float] | float) -> sustained.SustainedRun:
    return sustained.measure(model(machine, ms), ["a", "bb", "ccc"], 30.0)


def test_a_device_that_becomes_hot_fails(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttling, "read_throttle", lambda: Throttle(events=int(machine.now > 15)))
    run = sustained_run(machine, lambda item, now: 5.0 if now < 15 else 6.5)
    row = sustained.check(run, Sustained(30.0, 15.0))
    assert row.verdict == "fail" and row.value == pytest.approx(30, abs=1) and row.unit == "percent"
    assert row.detail.endswith("against the first; 1 throttling event")
    summary = sustained.summary(run)
    assert summary["throttled_by"] == ["1 throttling event"] and summary["throttle"]["worst"]["events"] == 1
    assert json.dumps(summary, allow_nan=False)
    machine.now = 0.0  # it throttles again, but answers as fast as before
    row = sustained.check(sustained_run(machine, 5.0), Sustained(30.0, 15.0))
    assert row.verdict == "pass" and row.detail.endswith("against the first; 1 throttling event")


@pytest.mark.parametrize(("ms", "verdict"), [(5.0, "pass"), (8.0, "fail")])
def test_a_sustained_load_decides_nothing_beside_others(machine: Machine, ms: float, verdict: str) -> None:
    """In the first third a neighbour would hide a slowdown, in the last one it would look like one."""
    run = sustained_run(machine, lambda item, now: 5.0 if now < 15 else ms)
    assert sustained.check(run, Sustained(30.0, 15.0)).verdict == verdict
    assert sustained.summary(run)["throttled_by"] is None  # it does not report that
    assert 29 < sustained.summary(run)["seconds"] < 31
    row = sustained.check(run._replace(interference=BUSY), Sustained(30.0, 15.0))
    assert row.verdict == "inconclusive" and "other programs used" in row.detail
    assert "does not report throttling" in row.detail


# --- what the gate measures -----------------------------------------------------------------------------------

ALL = {
    "latency": {
        "open_loop": {"rate_per_s": 20, "p95_ms": 30, "p99_ms": 60},
        "sustained": {"seconds": 30, "max_slowdown_percent": 15},
    }
}
NAMES = ["latency.open_loop.p95_ms", "latency.open_loop.p99_ms", "latency.sustained.max_slowdown_percent"]


def load_rows(machine: Machine, limits: Limits, emulated_why: str | None = None) -> list[GateCheck]:
    found = runner._measure_loads(model(machine, 5.0), ["a", "bb"], limits, emulated_why, silent)
    return runner._load_checks(*found, limits, emulated_why)


def test_only_loads_that_are_asked_for_are_measured(machine: Machine) -> None:
    assert load_rows(machine, Limits()) == [] and machine.now == 0
    rows = load_rows(machine, parse(ALL))
    assert [(row.gate, row.verdict) for row in rows] == [(name, "pass") for name in NAMES]


def test_an_emulated_machine_measures_no_load(machine: Machine) -> None:
    rows = load_rows(machine, parse(ALL), "the kernel is other")
    assert machine.now == 0
    assert [(row.gate, row.verdict) for row in rows] == [(name, "inconclusive") for name in NAMES]
    assert "emulated" in rows[0].detail
