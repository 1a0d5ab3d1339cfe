"""Cores that this process may use: its affinity, and the CPU quota of its control groups.

A missing or unreadable file is no error.
"""

from __future__ import annotations

import dataclasses
import math
import os
from pathlib import Path, PurePosixPath
from typing import Iterator, List, Optional

from edgepack_runtime.device import info
from edgepack_runtime.messages import message
from edgepack_runtime.util.texts import counted


@dataclasses.dataclass(frozen=True)
class Cores:
    """Logical cores of the machine, the cores that this process may run on, and its CPU seconds per second."""

    machine: int
    allowed: int
    quota: Optional[float]  # of the control groups of a container or batch system; None: no limit

    @property
    def threads(self) -> int:
        """Number of threads that can run at the same time.

        A quota is rounded down. With one thread more than the quota, the kernel stops a thread in every period, and
        the other threads of a matrix product wait for it.
        """
        return self.allowed if self.quota is None else max(1, min(self.allowed, math.floor(self.quota)))

    @property
    def share(self) -> float:
        """CPU seconds per second that `threads` get: less than 1 with a quota below one core."""
        return self.threads if self.quota is None else min(self.threads, self.quota)

    def __str__(self) -> str:
        allowed = f"{self.allowed} of {counted(self.machine, 'core')}"
        return allowed if self.quota is None else f"{allowed}, and a quota of {self.quota:g}"


def cores(root: Path = info.ROOT) -> Cores:
    """Cores of the machine and of this process. `root` is the folder of /proc and /sys."""
    machine = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else machine
    quotas = [quota for group in control_groups("cpu", root) for quota in [_quota(group)] if quota is not None]
    return Cores(machine, allowed, min(quotas, default=None))


def named(share: float) -> str:
    """A `share` in words: `2 cores`, `0.5 of a core`."""
    return message("doctor.cores" if share >= 1 else "doctor.part_of_core", n=share)


def usable_cores(root: Path = info.ROOT) -> int:
    """Number of threads of this process that can run at the same time."""
    return cores(root).threads


def control_groups(controller: str, root: Path = info.ROOT) -> Iterator[Path]:
    """Folders of all control groups that limit this process, its own first (man 7 cgroups)."""
    entries = (line.split(":", 2) for line in _lines(root / "proc/self/cgroup") if line.count(":") >= 2)
    paths = {name: PurePosixPath(path) for _, names, path in entries for name in names.split(",")}
    for line in _lines(root / "proc/self/mountinfo"):
        mount, _, kind = (part.split() for part in line.partition(" - "))
        if len(mount) < 5 or len(kind) < 3 or not kind[0].startswith("cgroup"):
            continue
        # Version 2 has one unnamed tree for all controllers.
        name = "" if kind[0] == "cgroup2" else controller
        if name not in paths or (name and name not in kind[2].split(",")):
            continue
        top = root / mount[4].lstrip("/")
        yield from _upwards(top, paths[name], PurePosixPath(mount[3]))


def _upwards(top: Path, path: PurePosixPath, mounted: PurePosixPath) -> Iterator[Path]:
    """The folder of group `path`, and its parents, in a tree whose group `mounted` is mounted at `top`."""
    inside = mounted in (path, *path.parents) and ".." not in path.parts  # else it is outside of the container
    folder = top / path.relative_to(mounted) if inside else top
    while folder != top:
        yield folder
        folder = folder.parent
    yield top


def _quota(group: Path) -> Optional[float]:
    """CPU seconds per second of one control group, from `cpu.max` or the two files of version 1."""
    limit, _, period = (info.read(group / "cpu.max") or "").partition(" ")
    if not period:
        limit, period = (info.read(group / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period"))
    quota, length = info.number(limit), info.number(period)
    return quota / length if quota and length and quota > 0 else None  # "max" and -1 are no limit


def _lines(path: Path) -> List[str]:
    return (info.read(path) or "").splitlines()
