"""CPU time of other programs, before and during a measurement, from /proc/stat.

Other programs only add latency: a limit met despite them is met, but a limit missed might be met on an idle machine.
So a disturbed timing may pass, but not fail. Memory bandwidth or hyper-threads used by other guests of the same host
are not visible.
"""

from __future__ import annotations

import math
import os
import resource
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from edgepack_runtime.device import info
from edgepack_runtime.messages import message
from edgepack_runtime.util.progress import Log, Pace
from edgepack_runtime.util.texts import counted

# Mean number of cores used by others above which a timing is disturbed. Kernel threads and daemons of an idle system
# take a few percent of one core.
DISTURBED_CORES = 0.1
TICK_MS = 1e3 / os.sysconf("SC_CLK_TCK")  # resolution of /proc/stat, which rounds down
_IDLE = (3, 4)  # columns idle and iowait of /proc/stat
_STOLEN = 7
_FIELDS = 8  # later columns are included in the earlier ones
_LOOK_S = 0.5  # of the processor's load, before a measurement
_FROZEN_MS = 2 * _FIELDS * TICK_MS  # in some sandboxes the counters never move


class Reading(NamedTuple):
    """Counters at one moment, in ms; None if the device does not report them."""

    clock_ms: float
    own_cpu_ms: float  # of this process, and of its children that ended
    cores: Optional[int] = None
    total_ms: Optional[float] = None  # of all cores, idle time included
    idle_ms: Optional[float] = None
    stolen_ms: Optional[float] = None


class Interference(NamedTuple):
    """CPU use of others between two readings.

    `others_ms` is the CPU time of all cores that was neither idle nor used by this process and its children; rounding
    may leave it some ticks below 0. `stolen_ms` is the part that other guests of the host used. Both are None if the
    device does not report them.
    """

    wall_ms: float
    own_cpu_ms: float
    cores: Optional[int] = None
    others_ms: Optional[float] = None
    stolen_ms: Optional[float] = None

    @property
    def others_cores(self) -> Optional[float]:
        """Mean number of cores used by others."""
        return None if self.others_ms is None else max(self.others_ms, 0.0) / max(self.wall_ms, 1e-9)

    @property
    def disturbed(self) -> bool:
        """Whether others used more than DISTURBED_CORES, allowing for rounding to ticks; true if unknown."""
        return self.others_ms is None or self.others_ms - 2 * TICK_MS > DISTURBED_CORES * self.wall_ms

    def describe(self) -> str:
        """Sentence for the detail of a check."""
        if self.others_cores is None or self.cores is None:
            return message("beside.unknown")
        found = message("beside.others", used=round(self.others_cores, 4), cores=self.cores)
        if self.stolen_ms and self.stolen_ms > DISTURBED_CORES * self.wall_ms:
            found = message("beside.guests", others=found, stolen=round(self.stolen_ms / self.wall_ms, 4))
        return found

    def as_json(self) -> Dict[str, Any]:
        """JSON object for a receipt."""
        row: Dict[str, Any] = {
            key: round(value, 3) if isinstance(value, float) else value for key, value in self._asdict().items()
        }
        row["others_cores"] = None if self.others_cores is None else round(self.others_cores, 4)
        row["disturbed"] = self.disturbed
        return row


def read(root: Path = info.ROOT) -> Reading:
    """Read the counters; `root` is the folder that contains `proc`."""
    stat = (info.read(root / "proc/stat") or "").splitlines()
    total = _ticks(stat[0]) if stat else None
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    children_s = used[1].ru_utime + used[1].ru_stime
    return Reading(
        clock_ms=time.perf_counter() * 1e3,
        own_cpu_ms=(time.process_time() + children_s) * 1e3,
        cores=sum(line.startswith("cpu") for line in stat[1:]) or None,
        total_ms=None if total is None else sum(total[:_FIELDS]) * TICK_MS,
        idle_ms=None if total is None else sum(total[place] for place in _IDLE) * TICK_MS,
        stolen_ms=None if total is None else total[_STOLEN] * TICK_MS,
    )


def between(before: Reading, after: Reading) -> Interference:
    """CPU use of others between two readings.

    The kernel counts idle time exactly and busy time by sampling, so `others_ms` is the wall time of all cores less
    idle and own time.
    """
    wall_ms, own_ms = after.clock_ms - before.clock_ms, after.own_cpu_ms - before.own_cpu_ms
    total_ms, idle_ms = _grown(before.total_ms, after.total_ms), _grown(before.idle_ms, after.idle_ms)
    if total_ms is None or idle_ms is None or after.cores is None or after.cores != before.cores:
        return Interference(wall_ms, own_ms)
    whole_ms = after.cores * wall_ms
    if total_ms == 0 and whole_ms > _FROZEN_MS:
        return Interference(wall_ms, own_ms)
    stolen_ms = _grown(before.stolen_ms, after.stolen_ms)
    return Interference(wall_ms, own_ms, after.cores, whole_ms - idle_ms - own_ms, stolen_ms)


def together(parts: Sequence[Interference]) -> Interference:
    """Sum of `parts` (at least one); a value that is None in one of them is None in the sum."""
    return Interference(
        wall_ms=math.fsum(part.wall_ms for part in parts),
        own_cpu_ms=math.fsum(part.own_cpu_ms for part in parts),
        cores=parts[-1].cores,
        others_ms=_sum([part.others_ms for part in parts]),
        stolen_ms=_sum([part.stolen_ms for part in parts]),
    )


def wait_for_quiet(most_s: float, log: Log) -> float:
    """Wait until other programs leave the processor alone, for `most_s` seconds at most; return the seconds.

    A device that does not report the time of other programs is not waited for.
    """
    begin, pace = time.monotonic(), Pace()
    while True:
        before = read()
        time.sleep(_LOOK_S)
        beside, waited_s = between(before, read()), time.monotonic() - begin
        if beside.others_cores is None or not beside.disturbed:
            return waited_s
        found = f"other programs use {beside.others_cores:.2f} of {counted(beside.cores or 1, 'core')}"
        if waited_s >= most_s:
            log(f"  note  {found}: measuring beside them, after {waited_s:.0f} s")
            return waited_s
        if waited_s < 2 * _LOOK_S or pace.is_due():
            log(f"        {found}: waiting for them to end, {waited_s:.0f} of {most_s:.0f} s at most")


def _grown(before: Optional[float], after: Optional[float]) -> Optional[float]:
    return None if before is None or after is None else max(after - before, 0.0)


def _sum(values: Sequence[Optional[float]]) -> Optional[float]:
    known = [value for value in values if value is not None]
    return math.fsum(known) if len(known) == len(values) else None


def _ticks(line: str) -> Optional[List[int]]:
    """The numbers of a line `cpu  1 2 3 ...`; None if it has too few of them."""
    words = line.split()
    if len(words) <= _FIELDS or words[0] != "cpu" or not all(word.isdigit() for word in words[1:]):
        return None
    return [int(word) for word in words[1:]]
