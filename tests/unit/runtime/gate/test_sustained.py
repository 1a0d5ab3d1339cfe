"""Sustained load, on a clock that moves when something takes time."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.runtime.installing import silent

from edgepack_runtime.device import interference, throttling
from edgepack_runtime.device.interference import Interference, Reading
from edgepack_runtime.device.throttling import Throttle
from edgepack_runtime.device.tuning import Tuning
from edgepack_runtime.gate import runner, sustained
from edgepack_runtime.inference.predictor import Split
from edgepack_runtime.schema.gates import Limits, SustainedLimits
from edgepack_runtime.schema.receipt import GateCheck

BUSY = Interference(1000.0, 600.0, 2, 900.0)


class Machine:
    """A clock, in seconds; this process is the only one, and uses one core while it works."""

    def __init__(self) -> None:
        self.now, self.worked = 0.0, 0.0

    def perf_counter(self) -> float:
        return self.now

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
    monkeypatch.setattr(sustained, "time", made)
    monkeypatch.setattr(interference, "read", made.read)
    monkeypatch.setattr(throttling, "read_throttle", Throttle)
    return made


def model(machine: Machine, ms: Callable[[str, float], float] | float) -> Any:
    return Model(machine, ms if callable(ms) else lambda item, now: ms)


def sustained_run(machine: Machine, ms: Callable[[str, float], float] | float) -> sustained.SustainedRun:
    return sustained.measure(model(machine, ms), ["a", "bb", "ccc"], 30.0)


def test_a_device_that_becomes_hot_fails(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttling, "read_throttle", lambda: Throttle(events=int(machine.now > 15)))
    run = sustained_run(machine, lambda item, now: 5.0 if now < 15 else 6.5)
    row = sustained.check(run, SustainedLimits(30.0, 15.0))
    assert row.verdict == "fail" and row.value == pytest.approx(30, abs=1) and row.unit == "percent"
    assert row.detail.endswith("against the first; 1 throttling event")
    summary = sustained.summary(run)
    assert summary["throttled_by"] == ["1 throttling event"] and summary["throttle"]["worst"]["events"] == 1
    assert json.dumps(summary, allow_nan=False)
    machine.now = 0.0  # it throttles again, but answers as fast as before
    row = sustained.check(sustained_run(machine, 5.0), SustainedLimits(30.0, 15.0))
    assert row.verdict == "pass" and row.detail.endswith("against the first; 1 throttling event")


@pytest.mark.parametrize(("ms", "verdict"), [(5.0, "pass"), (8.0, "fail")])
def test_a_sustained_load_decides_nothing_beside_others(machine: Machine, ms: float, verdict: str) -> None:
    """In the first third a neighbour would hide a slowdown, in the last one it would look like one."""
    run = sustained_run(machine, lambda item, now: 5.0 if now < 15 else ms)
    assert sustained.check(run, SustainedLimits(30.0, 15.0)).verdict == verdict
    assert sustained.summary(run)["throttled_by"] is None  # it does not report that
    assert 29 < sustained.summary(run)["seconds"] < 31
    row = sustained.check(run._replace(interference=BUSY), SustainedLimits(30.0, 15.0))
    assert row.verdict == "inconclusive" and "other programs used" in row.detail
    assert "does not report throttling" in row.detail


ALL = {"latency": {"sustained": {"seconds": 30, "max_slowdown_percent": 15}}}


def load_rows(machine: Machine, limits: Limits, emulated_why: str | None = None) -> list[GateCheck]:
    found = runner._measure_sustained(model(machine, 5.0), ["a", "bb"], limits, emulated_why, silent)
    return runner._sustained_checks(found, limits, emulated_why)


def test_only_a_load_that_is_asked_for_is_measured(machine: Machine) -> None:
    assert load_rows(machine, Limits()) == [] and machine.now == 0
    rows = load_rows(machine, Limits.parse(ALL))
    assert [(row.gate, row.verdict) for row in rows] == [(sustained.GATE.gate, "pass")]


def test_an_emulated_machine_measures_no_load(machine: Machine) -> None:
    rows = load_rows(machine, Limits.parse(ALL), "the kernel is other")
    assert machine.now == 0
    assert [(row.gate, row.verdict) for row in rows] == [(sustained.GATE.gate, "inconclusive")]
    assert "emulated" in rows[0].detail
