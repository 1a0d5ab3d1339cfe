"""How many cores this process may use: its affinity, and the CPU quota of its control groups.

A missing or unreadable file is no error: systems differ in the files that they have.
"""

from __future__ import annotations

import dataclasses
import math
import os
from pathlib import Path, PurePosixPath
from typing import Iterator, List, Optional

from edgepack_runtime.device import info
from edgepack_runtime.util.texts import counted


@dataclasses.dataclass(frozen=True)
class Cores:
    """Logical cores of the machine, the cores that this process may run on, and its CPU seconds a second."""

    machine: int
    allowed: int
    quota: Optional[float]  # of the control groups, as containers and batch systems set them; None: no limit

    @property
    def threads(self) -> int:
        """Threads that can all run at the same time.

        A quota is rounded down: the threads of a matrix product wait for the last of them, and one more than the
        quota pays for is stopped by the kernel in every period while the others wait.
        """
        return self.allowed if self.quota is None else max(1, min(self.allowed, math.floor(self.quota)))

    def __str__(self) -> str:
        allowed = f"{self.allowed} of {counted(self.machine, 'core')}"
        return allowed if self.quota is None else f"{allowed}, and a quota of {self.quota:g}"


def cores(root: Path = info.ROOT) -> Cores:
    """How many cores there are, and how many of them this process may use; `root` is where /proc and /sys lie."""
    machine = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else machine
    quotas = [quota for group in control_groups("cpu", root) for quota in [_quota(group)] if quota is not None]
    return Cores(machine, allowed, min(quotas, default=None))


def usable_cores(root: Path = info.ROOT) -> int:
    """Threads of this process that can all run at the same time."""
    return cores(root).threads


def control_groups(controller: str, root: Path = info.ROOT) -> Iterator[Path]:
    """Folders of the control groups that limit this process, its own first: each of them counts (man 7 cgroups)."""
    entries = (line.split(":", 2) for line in _lines(root / "proc/self/cgroup") if line.count(":") >= 2)
    paths = {name: PurePosixPath(path) for _, names, path in entries for name in names.split(",")}
    for line in _lines(root / "proc/self/mountinfo"):
        mount, _, kind = (part.split() for part in line.partition(" - "))
        if len(mount) < 5 or len(kind) < 3 or not kind[0].startswith("cgroup"):
            continue
        # The second version has one tree for all controllers, and no name for it.
        name = "" if kind[0] == "cgroup2" else controller
        if name not in paths or (name and name not in kind[2].split(",")):
            continue
        top = root / mount[4].lstrip("/")
        yield from _upwards(top, paths[name], PurePosixPath(mount[3]))


def _upwards(top: Path, path: PurePosixPath, mounted: PurePosixPath) -> Iterator[Path]:
    """The folder of group `path` in a tree whose group `mounted` lies at `top`, and all folders above it."""
    inside = mounted in (path, *path.parents) and ".." not in path.parts  # else it is outside of what a container sees
    folder = top / path.relative_to(mounted) if inside else top
    while folder != top:
        yield folder
        folder = folder.parent
    yield top


def _quota(group: Path) -> Optional[float]:
    """CPU seconds a second that one control group may take: of `cpu.max`, or of the two files of version 1."""
    limit, _, period = (info.read(group / "cpu.max") or "").partition(" ")
    if not period:
        limit, period = (info.read(group / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period"))
    quota, length = info.number(limit), info.number(period)
    return quota / length if quota and length and quota > 0 else None  # "max" and -1 are no limit


def _lines(path: Path) -> List[str]:
    return (info.read(path) or "").splitlines()
