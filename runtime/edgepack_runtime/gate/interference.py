"""How much CPU time other programs took while something was timed, read from /proc/stat.

Other programs only add time: a limit that holds beside them holds, and one that is missed beside them may hold on a
quiet machine. So a disturbed timing may pass, but not fail. What takes memory bandwidth, or the other thread of a core,
from outside this system (another guest of the same host) is not seen.
"""

from __future__ import annotations

import math
import os
import resource
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from edgepack_runtime.device import info
from edgepack_runtime.util.texts import counted

# Cores that others may use on average before a timing counts as disturbed: kernel threads and daemons of an idle
# system take a few percent of one core.
DISTURBED_CORES = 0.1
# /proc/stat counts in ticks, each of its numbers rounded down.
TICK_MS = 1e3 / os.sysconf("SC_CLK_TCK")
_IDLE = (3, 4)  # idle and iowait, among the numbers of a line of /proc/stat
_STOLEN = 7
_FIELDS = 8  # those behind are part of the others
_STANDS_STILL_MS = 2 * _FIELDS * TICK_MS  # some sandboxes have the file, and nothing in it moves


class Reading(NamedTuple):
    """Counters at one moment, in ms since they began; None where the device does not report them."""

    clock_ms: float
    own_cpu_ms: float  # of this process, and of its children that ended
    cores: Optional[int] = None
    total_ms: Optional[float] = None  # of all cores, idle time included
    idle_ms: Optional[float] = None
    stolen_ms: Optional[float] = None


class Interval(NamedTuple):
    """What happened between two readings.

    `others_ms` is CPU time of all cores that was neither idle nor of this process and its children; it may be some
    ticks below 0. `stolen_ms` is the part of it that other guests of the host took. Both are None where the device does
    not report them.
    """

    wall_ms: float
    own_cpu_ms: float
    cores: Optional[int] = None
    others_ms: Optional[float] = None
    stolen_ms: Optional[float] = None

    @property
    def others_cores(self) -> Optional[float]:
        """How many cores others used on average."""
        return None if self.others_ms is None else max(self.others_ms, 0.0) / max(self.wall_ms, 1e-9)

    @property
    def disturbed(self) -> bool:
        """Whether others used more than DISTURBED_CORES, beyond what ticks can hide; true where it is not known."""
        return self.others_ms is None or self.others_ms - 2 * TICK_MS > DISTURBED_CORES * self.wall_ms

    def describe(self) -> str:
        """For the detail of a check."""
        if self.others_cores is None or self.cores is None:
            return "this device does not report the CPU time of other programs"
        found = f"others used {self.others_cores:.2f} of {counted(self.cores, 'core')} meanwhile"
        if self.stolen_ms and self.stolen_ms > DISTURBED_CORES * self.wall_ms:
            found += f", other guests of the host {self.stolen_ms / self.wall_ms:.2f} of that"
        return found

    def as_json(self) -> Dict[str, Any]:
        """For a receipt."""
        row: Dict[str, Any] = {
            key: round(value, 3) if isinstance(value, float) else value for key, value in self._asdict().items()
        }
        row["others_cores"] = None if self.others_cores is None else round(self.others_cores, 4)
        row["disturbed"] = self.disturbed
        return row


def read(root: Path = info.ROOT) -> Reading:
    """The counters now; `root` is where /proc lies."""
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


def between(before: Reading, after: Reading) -> Interval:
    """What happened from one reading to the other.

    The kernel counts idling exactly and running by sampling, so `others_ms` is what is missing to the whole.
    """
    wall_ms, own_ms = after.clock_ms - before.clock_ms, after.own_cpu_ms - before.own_cpu_ms
    total_ms, idle_ms = _grown(before.total_ms, after.total_ms), _grown(before.idle_ms, after.idle_ms)
    if total_ms is None or idle_ms is None or after.cores is None or after.cores != before.cores:
        return Interval(wall_ms, own_ms)
    whole_ms = after.cores * wall_ms
    if total_ms == 0 and whole_ms > _STANDS_STILL_MS:
        return Interval(wall_ms, own_ms)
    stolen_ms = _grown(before.stolen_ms, after.stolen_ms)
    return Interval(wall_ms, own_ms, after.cores, whole_ms - idle_ms - own_ms, stolen_ms)


def together(parts: Sequence[Interval]) -> Interval:
    """All of `parts`, at least one, as one; what one of them does not report, the whole does not."""
    return Interval(
        wall_ms=math.fsum(part.wall_ms for part in parts),
        own_cpu_ms=math.fsum(part.own_cpu_ms for part in parts),
        cores=parts[-1].cores,
        others_ms=_sum([part.others_ms for part in parts]),
        stolen_ms=_sum([part.stolen_ms for part in parts]),
    )


def _grown(before: Optional[float], after: Optional[float]) -> Optional[float]:
    return None if before is None or after is None else max(after - before, 0.0)


def _sum(values: Sequence[Optional[float]]) -> Optional[float]:
    known = [value for value in values if value is not None]
    return math.fsum(known) if len(known) == len(values) else None


def _ticks(line: str) -> Optional[List[int]]:
    """The numbers of `cpu  1 2 3 ...`; kernels before 2.6.33 have fewer of them."""
    words = line.split()
    if len(words) <= _FIELDS or words[0] != "cpu" or not all(word.isdigit() for word in words[1:]):
        return None
    return [int(word) for word in words[1:]]
