from __future__ import annotations

import json
import math
import time
from pathlib import Path

import pytest

from edgepack_runtime import contention
from edgepack_runtime.contention import Contention, Reading


def system(root: Path, stat: str, schedstat: str = "", pressure: str = "", **more: str) -> Path:
    """`more` are files of /proc and /sys; `__` in a name stands for a slash."""
    files = {"proc/stat": stat, "proc/thread-self/schedstat": schedstat, "proc/pressure/cpu": pressure}
    for name, text in {**files, **{name.replace("__", "/"): text for name, text in more.items()}}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def reading(clock_ms: float, own_ms: float, *, idle_ms: float, stolen_ms: float = 0.0, cores: int = 2) -> Reading:
    return Reading(clock_ms, own_ms, cores, cores * clock_ms, idle_ms, stolen_ms, 0.0, 0.0, 0)


def test_the_counters_of_a_system_are_read(tmp_path: Path) -> None:
    stat = "cpu  100 10 20 300 5 1 2 7 50 0\ncpu0 50 5 10 150 2 0 1 3 25 0\ncpu1 50 5 10 150 3 1 1 4 25 0\nintr 1 2\n"
    pressure = "some avg10=1.00 avg60=0.00 avg300=0.00 total=2500\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n"
    found = contention.read(system(tmp_path, stat, "1000000 3500000 12\n", pressure))
    tick = contention.TICK_MS
    assert (found.cores, found.told_ms, found.idle_ms) == (2, 445 * tick, 305 * tick)  # guests are in the first number
    assert (found.stolen_ms, found.waited_ms, found.pressure_ms) == (7 * tick, 3.5, 2.5)
    assert contention.read(tmp_path, waits=False).waited_ms is None


@pytest.mark.parametrize("stat", ["", "cpu 1 2 3\n", "cpu a b c d e f g h i\n", "intr 1\n"])
def test_a_system_that_tells_nothing_is_no_error_and_not_quiet(tmp_path: Path, stat: str) -> None:
    root = system(tmp_path, stat, "gone", "none")
    found = contention.between(contention.read(root), contention.read(root))
    assert (found.others_ms, found.others_cores, found.waited_ms, found.pressure_ms) == (None, None, None, None)
    assert math.isinf(found.lost_ms) and not found.quiet
    assert found.told() == "this device does not tell what else ran while it was measured"
    assert found.as_json()["looked_at"] == ["getrusage"]
    json.dumps(found.as_json(), allow_nan=False)


def test_others_are_what_was_neither_idle_nor_ours() -> None:
    found = contention.between(reading(0, 0, idle_ms=0), reading(1000, 900, idle_ms=400, stolen_ms=60))
    assert (found.others_ms, found.others_cores, found.stolen_ms, found.cores) == (700, 0.7, 60, 2)
    assert found.lost_ms == 875 and not found.quiet
    assert found.told().startswith("others used 0.70 of 2 cores while it was measured, other guests of the host 0.06")
    single = contention.between(reading(0, 0, idle_ms=0, cores=1), reading(1000, 500, idle_ms=300, cores=1))
    assert single.told() == "others used 0.20 of 1 core while it was measured"
    alone = contention.between(reading(0, 0, idle_ms=0), reading(1000, 990, idle_ms=1000))
    assert alone.quiet and alone.others_ms == 10


def test_no_more_than_the_whole_time_can_be_lost() -> None:
    found = contention.between(reading(0, 0, idle_ms=0), reading(1000, 200, idle_ms=0))
    assert found.others_ms == 1800 and found.lost_ms == 1000


def test_counters_that_stand_still_tell_nothing() -> None:
    """Some sandboxes have the file, and nothing in it moves: that is not a machine whose cores never idle."""
    before = Reading(0, 0, 2, 0, 0, 0, None, None, 0)
    assert contention.between(before, before._replace(clock_ms=1000, own_cpu_ms=900)).others_ms is None


def test_ticks_that_come_late_are_no_reason_to_know_nothing() -> None:
    """A busy guest counted 30 ms of a spell of 200: idling is counted to the microsecond, and that is enough."""
    before = Reading(0, 0, 2, 0, 0, 0, None, None, 0)
    late = before._replace(clock_ms=100, own_cpu_ms=60, told_ms=30, idle_ms=0)
    assert contention.between(before, late).others_ms == 140


def test_a_core_that_came_or_went_makes_it_unknown() -> None:
    found = contention.between(reading(0, 0, idle_ms=0, cores=4), reading(1000, 900, idle_ms=900, cores=2))
    assert found.others_ms is None and found.cores is None


def test_waiting_for_a_core_counts_where_others_cannot_be_seen() -> None:
    """A container may see its own processes only, and still be kept waiting by those of others."""
    found = Contention(1000, 600, 2, others_ms=0.0, stolen_ms=0.0, waited_ms=400.0)
    assert found.lost_ms == 500 and not found.quiet
    assert "waited for a core 40% of the time" in found.told()


@pytest.mark.parametrize(
    ("cgroup", "stat", "told"),
    [
        ("0::/\n", {"sys__fs__cgroup__cpu.stat": "usage_usec 9\nthrottled_usec 2500\n"}, 2.5),
        ("0::/a/b\n", {"sys__fs__cgroup__a__b__cpu.stat": "throttled_usec 3000\n"}, 3.0),
        ("4:memory:/x\n1:cpu:/a\n", {"sys__fs__cgroup__cpu__a__cpu.stat": "throttled_time 4000000\n"}, 4.0),
        ("1:cpu,cpuacct:/\n0::/\n", {"sys__fs__cgroup__cpu__cpu.stat": "throttled_time 5000000\n"}, 5.0),
        ("0::/\n", {"sys__fs__cgroup__cpu.stat": "usage_usec 9\nbroken\n"}, None),
    ],
)
def test_a_quota_of_the_control_group_is_read(
    tmp_path: Path, cgroup: str, stat: dict[str, str], told: float | None
) -> None:
    assert contention.read(system(tmp_path, "", proc__self__cgroup=cgroup, **stat)).quota_ms == told


def test_a_quota_and_pages_that_were_taken_count_as_lost() -> None:
    quota = Contention(1000, 500, 2, 0.0, quota_ms=400.0)
    assert quota.lost_ms == 400 and "was held up by a CPU quota 40% of the time" in quota.told()
    calm = Contention(1000, 900, 2, 0.0, stalled_ms=700.0, faults=0)
    assert calm.lost_ms == 0 and calm.quiet  # others waited for a disk, and this process did not
    assert calm._replace(faults=3).lost_ms == 700
    assert "read 3 pages from a disk again" in calm._replace(faults=3).told()
    assert calm._replace(faults=3, stalled_ms=None).lost_ms == 1000


def test_the_whole_tells_what_all_parts_tell() -> None:
    parts = [Contention(100, 90, 2, 10, 1, 2, 3, 4), Contention(300, 280, 2, 20, 0, 1, 0, 1)]
    assert contention.together(parts) == Contention(400, 370, 2, 30, 1, 3, 3, 5)
    assert contention.together([*parts, Contention(1, 1, 2)]).others_ms is None


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="no /proc here")
def test_this_machine_tells_that_we_ran() -> None:
    before, begin_s = contention.read(), time.process_time()
    while time.process_time() < begin_s + 0.05:  # not held against `own_cpu_ms`, which has ended children in it too
        sum(range(1000))
    found = contention.between(before, contention.read())
    assert found.own_cpu_ms >= 49 and found.wall_ms > 0
    assert found.cores is None or found.others_ms is not None
