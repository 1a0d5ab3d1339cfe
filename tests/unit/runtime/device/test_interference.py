from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from tests.unit.runtime.fake_device import tree

from edgepack_runtime.device import interference
from edgepack_runtime.device.interference import Interference, Reading


def reading(clock_ms: float, own_ms: float, *, idle_ms: float, stolen_ms: float = 0.0, cores: int = 2) -> Reading:
    return Reading(clock_ms, own_ms, cores, cores * clock_ms, idle_ms, stolen_ms)


def test_the_counters_of_a_system_are_read(tmp_path: Path) -> None:
    stat = "cpu  100 10 20 300 5 1 2 7 50 0\ncpu0 50 5 10 150 2 0 1 3 25 0\ncpu1 50 5 10 150 3 1 1 4 25 0\nintr 1 2\n"
    found = interference.read(tree(tmp_path, {"proc/stat": stat}))
    tick = interference.TICK_MS
    assert (found.cores, found.total_ms, found.idle_ms) == (2, 445 * tick, 305 * tick)  # guests are in the first number
    assert found.stolen_ms == 7 * tick


@pytest.mark.parametrize("stat", ["", "cpu 1 2 3\n", "cpu a b c d e f g h i\n", "intr 1\n"])
def test_a_system_without_counters_counts_as_disturbed(tmp_path: Path, stat: str) -> None:
    root = tree(tmp_path, {"proc/stat": stat})
    found = interference.between(interference.read(root), interference.read(root))
    assert (found.others_ms, found.others_cores, found.stolen_ms) == (None, None, None)
    assert found.disturbed
    assert found.describe() == "this device does not report the CPU time of other programs"
    json.dumps(found.as_json(), allow_nan=False)


def test_others_are_what_was_neither_idle_nor_ours() -> None:
    found = interference.between(reading(0, 0, idle_ms=0), reading(1000, 900, idle_ms=400, stolen_ms=120))
    assert (found.others_ms, found.others_cores, found.stolen_ms, found.cores) == (700, 0.7, 120, 2)
    assert found.disturbed
    assert (
        found.describe()
        == "other programs used 0.70 of 2 cores meanwhile, of that 0.12 by other virtual machines of the host"
    )
    single = interference.between(reading(0, 0, idle_ms=0, cores=1), reading(1000, 500, idle_ms=300, cores=1))
    assert single.describe() == "other programs used 0.20 of 1 core meanwhile"


@pytest.mark.parametrize(("others_ms", "disturbed"), [(-10.0, False), (100.0, False), (121.0, True), (900.0, True)])
def test_a_tenth_of_a_core_and_two_ticks_are_allowed(
    others_ms: float, disturbed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interference, "TICK_MS", 10.0)
    assert Interference(1000.0, 1000.0, 2, others_ms).disturbed is disturbed


def test_counters_that_stand_still_or_a_core_that_came_or_went_make_it_unknown() -> None:
    before = Reading(0, 0, 2, 0, 0, 0)
    assert interference.between(before, before._replace(clock_ms=1000, own_cpu_ms=900)).others_ms is None
    found = interference.between(reading(0, 0, idle_ms=0, cores=4), reading(1000, 900, idle_ms=900, cores=2))
    assert found.others_ms is None and found.cores is None


def test_the_whole_reports_what_all_parts_report() -> None:
    parts = [Interference(100, 90, 2, 10, 1), Interference(300, 280, 2, 20, 0)]
    assert interference.together(parts) == Interference(400, 370, 2, 30, 1)
    assert interference.together([*parts, Interference(1, 1, 2)]).others_ms is None


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="no /proc here")
def test_this_machine_reports_our_own_time() -> None:
    before, begin_s = interference.read(), time.process_time()
    while time.process_time() < begin_s + 0.05:
        sum(range(1000))
    found = interference.between(before, interference.read())
    assert found.own_cpu_ms >= 49 and found.wall_ms > 0
    assert found.cores is None or found.others_ms is not None


def test_other_programs_are_waited_for_until_they_end_or_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    busy_until_s = [3.0]

    def read() -> Reading:
        busy_ms = 1000 * min(clock[0], busy_until_s[0])
        return reading(1000 * clock[0], 0, idle_ms=2000 * clock[0] - busy_ms)

    monkeypatch.setattr(interference, "read", read)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    lines: list[str] = []
    assert interference.wait_for_quiet(60, lines.append) == pytest.approx(3.5, abs=0.51)
    assert len(lines) == 1 and "1.00 of 2 cores" in lines[0]
    clock[0], busy_until_s[0] = 0.0, 1e9
    assert interference.wait_for_quiet(30, lines.append) == pytest.approx(30, abs=0.51)
    assert "measuring beside them" in lines[-1] and len(lines) == 5  # a line at once and every ten seconds
    assert interference.wait_for_quiet(0, lines.append) == pytest.approx(0.5, abs=0.01)  # a look, and no waiting


def test_a_device_without_counters_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interference, "read", lambda: Reading(0.0, 0.0))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    assert interference.wait_for_quiet(60, lambda line: pytest.fail(line)) < 5
