"""What else ran on this machine while something was timed, and how much of the time that can have cost at most.

While a neighbour runs, the work that is timed goes on at some rate from none (they share a core) to its own (they share
nothing); while no neighbour runs it goes on at its own rate. So what it loses is at most the time for which others ran.
That bound holds for any kind of neighbour that this system can see, and is all that `noise` needs.

Nothing here raises: devices differ in what they tell, and null is "not told". A neighbour beyond this system (another
guest of the same host that takes memory bandwidth, or the other thread of a core) is told by nobody. Standard library
only.
"""

from __future__ import annotations

import math
import os
import resource
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from edgepack_runtime import device
from edgepack_runtime.wording import counted

# After a neighbour ran, caches are filled again: 20 MiB of weights at 10 GB/s take 2 ms, and a turn on a core that two
# share is at least 3 ms. A neighbour on another core costs less than the time for which it runs: that leaves room.
AFTERMATH = 1.25
# The kernel tells times in ticks, rounded down: one reading against another is wrong by as much.
TICK_MS = 1e3 / os.sysconf("SC_CLK_TCK")
# Share of one core that others use of a machine which nobody would call busy: what the measuring itself wakes up, and
# the kernel's threads. With less the verdict is told without a word about others.
QUIET_CORES = 0.05
_IDLE = (3, 4)  # idle and iowait, among the numbers of a line of /proc/stat
_STOLEN = 7
_FIELDS = 8  # those behind are part of the others
# Some sandboxes have the file, and nothing in it moves. Ticks of a busy guest may be late, each number is rounded down
# by itself, so only numbers that do not move for longer than that are none.
_STANDS_STILL_MS = 2 * _FIELDS * TICK_MS


class Reading(NamedTuple):
    """Counters at one moment, in ms since they began; None where the device does not tell."""

    clock_ms: float
    own_cpu_ms: float  # of this process, and of its children that ended
    cores: Optional[int] = None
    told_ms: Optional[float] = None  # all that the cores did, idling too
    idle_ms: Optional[float] = None
    stolen_ms: Optional[float] = None
    waited_ms: Optional[float] = None  # this thread, ready to run
    pressure_ms: Optional[float] = None
    preemptions: Optional[int] = None
    quota_ms: Optional[float] = None
    stalled_ms: Optional[float] = None
    faults: Optional[int] = None


class Contention(NamedTuple):
    """What happened between two readings.

    `others_ms` is the time of all cores together that neither this process nor its children used and that was not idle;
    it may be a tick below 0, which the next reading has too much. `stolen_ms` is the part of it that other guests of
    the host took. `waited_ms` is how long this thread was ready and got no core, `pressure_ms` how long any thread of
    the system was (PSI), `preemptions` how often this process lost a core that it wanted. `quota_ms` is how long its
    control group was held up because it had used its share. `faults` are pages that it read from a disk, `stalled_ms`
    how long any thread of the system waited for memory or a disk (PSI).
    """

    wall_ms: float
    own_cpu_ms: float
    cores: Optional[int] = None
    others_ms: Optional[float] = None
    stolen_ms: Optional[float] = None
    waited_ms: Optional[float] = None
    pressure_ms: Optional[float] = None
    preemptions: Optional[int] = None
    quota_ms: Optional[float] = None
    stalled_ms: Optional[float] = None
    faults: Optional[int] = None

    @property
    def lost_ms(self) -> float:
        """The most that neighbours can have cost; infinite where it is not told what they did."""
        if self.others_ms is None:
            return math.inf
        held_ms = AFTERMATH * max(self.others_ms, self.waited_ms or 0.0, 0.0) + (self.quota_ms or 0.0)
        if self.faults:  # its pages were taken from it
            held_ms += self.wall_ms if self.stalled_ms is None else self.stalled_ms
        return min(self.wall_ms, held_ms)

    @property
    def others_cores(self) -> Optional[float]:
        """How many cores others used on average."""
        return None if self.others_ms is None else max(self.others_ms, 0.0) / max(self.wall_ms, 1e-9)

    @property
    def quiet(self) -> bool:
        """Whether nothing is worth a word."""
        return self.lost_ms <= AFTERMATH * QUIET_CORES * self.wall_ms

    def told(self) -> str:
        """In words, for the detail of a verdict."""
        if self.others_cores is None or self.cores is None:
            return "this device does not tell what else ran while it was measured"
        told = f"others used {self.others_cores:.2f} of {counted(self.cores, 'core')} while it was measured"
        if self.stolen_ms and self.stolen_ms > QUIET_CORES * self.wall_ms:
            told += f", other guests of the host {self.stolen_ms / self.wall_ms:.2f} of that"
        for ms, what in ((self.waited_ms, "waited for a core"), (self.quota_ms, "was held up by a CPU quota")):
            if ms is not None and ms > QUIET_CORES * self.wall_ms:
                told += f", and it {what} {ms / self.wall_ms:.0%} of the time"
        if self.faults:
            told += f", and it read {counted(self.faults, 'page')} from a disk again"
        return told

    def as_json(self) -> Dict[str, Any]:
        """For a receipt: the figures, and what told them."""
        row: Dict[str, Any] = {
            key: round(value, 3) if isinstance(value, float) else value for key, value in self._asdict().items()
        }
        row["others_cores"] = None if self.others_cores is None else round(self.others_cores, 4)
        sources = (
            ("/proc/stat", self.others_ms),
            ("/proc/thread-self/schedstat", self.waited_ms),
            ("/proc/pressure/cpu", self.pressure_ms),
            ("getrusage", self.preemptions),
            ("cpu.stat of the control group", self.quota_ms),
            ("/proc/pressure/memory and io", self.stalled_ms),
        )
        row["looked_at"] = [name for name, value in sources if value is not None]
        return row


def read(root: Path = device.ROOT, *, waits: bool = True) -> Reading:
    """The counters now.

    Args:
        root: where /proc lies.
        waits: whether this thread can only wait for others: False where this process has more threads than cores.
    """
    stat = (device.read(root / "proc/stat") or "").splitlines()
    total = _ticks(stat[0]) if stat else None
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    children_s = used[1].ru_utime + used[1].ru_stime
    return Reading(
        clock_ms=time.perf_counter() * 1e3,
        own_cpu_ms=(time.process_time() + children_s) * 1e3,
        cores=sum(line.startswith("cpu") for line in stat[1:]) or None,
        told_ms=None if total is None else sum(total[:_FIELDS]) * TICK_MS,
        idle_ms=None if total is None else sum(total[place] for place in _IDLE) * TICK_MS,
        stolen_ms=None if total is None else total[_STOLEN] * TICK_MS,
        waited_ms=_waited_ms(root) if waits else None,
        pressure_ms=_pressure_ms(root, "cpu"),
        preemptions=used[0].ru_nivcsw + used[1].ru_nivcsw,
        quota_ms=_quota_ms(root),
        stalled_ms=_sum((_pressure_ms(root, "memory"), _pressure_ms(root, "io"))),
        faults=used[0].ru_majflt + used[1].ru_majflt,
    )


def between(before: Reading, after: Reading) -> Contention:
    """What happened from one reading to the other."""
    wall_ms = after.clock_ms - before.clock_ms
    own_ms = after.own_cpu_ms - before.own_cpu_ms
    others_ms = _others_ms(before, after, wall_ms, own_ms)
    return Contention(
        wall_ms=wall_ms,
        own_cpu_ms=own_ms,
        cores=after.cores if others_ms is not None else None,
        others_ms=others_ms,
        stolen_ms=_grown(before.stolen_ms, after.stolen_ms) if others_ms is not None else None,
        waited_ms=_grown(before.waited_ms, after.waited_ms),
        pressure_ms=_grown(before.pressure_ms, after.pressure_ms),
        preemptions=_counted(before.preemptions, after.preemptions),
        quota_ms=_grown(before.quota_ms, after.quota_ms),
        stalled_ms=_grown(before.stalled_ms, after.stalled_ms),
        faults=_counted(before.faults, after.faults),
    )


def together(parts: Sequence[Contention]) -> Contention:
    """All of `parts`, at least one, as one; what one of them does not tell, the whole does not."""
    columns = list(zip(*parts))
    return Contention(
        wall_ms=math.fsum(columns[0]),
        own_cpu_ms=math.fsum(columns[1]),
        cores=parts[-1].cores,
        others_ms=_sum(columns[3]),
        stolen_ms=_sum(columns[4]),
        waited_ms=_sum(columns[5]),
        pressure_ms=_sum(columns[6]),
        preemptions=None if None in columns[7] else sum(columns[7]),
        quota_ms=_sum(columns[8]),
        stalled_ms=_sum(columns[9]),
        faults=None if None in columns[10] else sum(columns[10]),
    )


def _others_ms(before: Reading, after: Reading, wall_ms: float, own_ms: float) -> Optional[float]:
    """What was not idle and not ours. The kernel counts idling to the microsecond and running by sampling, so others
    are what is missing to the whole; time that the host took is part of that.
    """
    told_ms, idle_ms = _grown(before.told_ms, after.told_ms), _grown(before.idle_ms, after.idle_ms)
    if told_ms is None or idle_ms is None or after.cores is None or after.cores != before.cores:
        return None
    whole_ms = after.cores * wall_ms
    if told_ms == 0 and whole_ms > _STANDS_STILL_MS:
        return None
    return whole_ms - idle_ms - own_ms


def _grown(before: Optional[float], after: Optional[float]) -> Optional[float]:
    return None if before is None or after is None else max(after - before, 0.0)


def _counted(before: Optional[int], after: Optional[int]) -> Optional[int]:
    return None if before is None or after is None else after - before


def _sum(values: Tuple[Optional[float], ...]) -> Optional[float]:
    told = [value for value in values if value is not None]
    return math.fsum(told) if len(told) == len(values) else None


def _ticks(line: str) -> Optional[List[int]]:
    """The numbers of `cpu  1 2 3 ...`; kernels before 2.6.33 have fewer of them."""
    words = line.split()
    if len(words) <= _FIELDS or words[0] != "cpu" or not all(word.isdigit() for word in words[1:]):
        return None
    return [int(word) for word in words[1:]]


def _waited_ms(root: Path) -> Optional[float]:
    """Time on the run queue: the second of three numbers, in ns."""
    words = (device.read(root / "proc/thread-self/schedstat") or "").split()
    return int(words[1]) / 1e6 if len(words) == 3 and words[1].isdigit() else None


def _pressure_ms(root: Path, what: str) -> Optional[float]:
    """`some avg10=0.00 avg60=0.00 avg300=0.00 total=123`, in microseconds."""
    for line in (device.read(root / "proc/pressure" / what) or "").splitlines():
        total = line.rpartition("total=")[2]
        if line.startswith("some ") and total.isdigit():
            return int(total) / 1e3
    return None


def _quota_ms(root: Path) -> Optional[float]:
    """How long the control group was throttled: `throttled_usec` in version 2, `throttled_time` (ns) in version 1."""
    for line in (device.read(root / "proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "cpu" in controllers.split(",") or number == "0":
            folder = root / "sys/fs/cgroup" / ("cpu" if controllers else "") / path.lstrip("/")
            told = dict(
                line.split(None, 1) for line in (device.read(folder / "cpu.stat") or "").splitlines() if " " in line
            )
            for key, per_ms in (("throttled_usec", 1e3), ("throttled_time", 1e6)):
                if told.get(key, "").isdigit():
                    return int(told[key]) / per_ms
    return None
