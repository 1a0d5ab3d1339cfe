"""What this machine is, as far as training depends on it: processor, cores, memory, disk. Standard library only.

Nothing here raises when a file is missing: systems differ in what they tell, and what is not told is None.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from edgepack_runtime import device, doctor
from edgepack_runtime.wording import counted

_ROOT: Final = Path("/")
_NO_LIMIT_BYTES: Final = 2**60  # the first version of control groups tells "none" by a number near 2**63


@dataclass(frozen=True)
class Cores:
    """Logical cores of the machine, those that this process may run on, and the CPU seconds a second it may take."""

    machine: int
    allowed: int
    quota: float | None  # of the control groups, as containers and batch systems set them; None: no limit

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


@dataclass(frozen=True)
class Memory:
    """Bytes of memory: of the machine, free for new processes, and the most that this process's container may take."""

    total_bytes: int | None
    available_bytes: int | None
    limit_bytes: int | None


@dataclass(frozen=True)
class Machine:
    """The machine that this process runs on."""

    cpu_model: str
    cores: Cores
    memory: Memory


def look(root: Path = _ROOT) -> Machine:
    """This machine; `root` is where /proc and /sys lie."""
    return Machine(device.cpu_model(), cores(root), memory(root))


def cores(root: Path = _ROOT) -> Cores:
    """How many cores there are, and how many of them this process may use."""
    machine = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else machine
    quotas = [quota for group in _groups(root, "cpu") if (quota := _quota(group)) is not None]
    return Cores(machine, allowed, min(quotas, default=None))


def memory(root: Path = _ROOT) -> Memory:
    """How much memory there is, and how much of it this process may use."""
    names = ("memory.max", "memory.limit_in_bytes")
    told = [_number(_read(group / name)) for group in _groups(root, "memory") for name in names]
    limits = [int(value) for value in told if value is not None and value < _NO_LIMIT_BYTES]
    total = next((line.split()[1] for line in _lines(root / "proc/meminfo") if line.startswith("MemTotal:")), "")
    kib = _number(total)
    return Memory(None if kib is None else int(kib) * 1024, device.memory_available_bytes(), min(limits, default=None))


def is_amd(root: Path = _ROOT) -> bool:
    """Whether the processor is one of AMD's."""
    return "AuthenticAMD" in (_read(root / "proc/cpuinfo") or "")


def free_bytes(folder: Path) -> int:
    """Bytes that a user may still write where `folder` lies, or would lie."""
    return shutil.disk_usage(doctor.existing_parent(folder)).free


def _quota(group: Path) -> float | None:
    """CPU seconds a second that one control group may take: of `cpu.max`, or of the two files before it."""
    limit, _, period = (_read(group / "cpu.max") or "").partition(" ")
    if not period:
        limit, period = (_read(group / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period"))
    quota, length = _number(limit), _number(period)
    return quota / length if quota and length and quota > 0 else None  # "max" and -1 are no limit


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of the control groups that limit this process, its own first: each of them counts (man 7 cgroups)."""
    told = (line.split(":", 2) for line in _lines(root / "proc/self/cgroup") if line.count(":") >= 2)
    paths = {name: PurePosixPath(path) for _, names, path in told for name in names.split(",")}
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
    """The folder of group `path` in a tree whose group `mounted` lies at `top`, and all above it."""
    inside = path.is_relative_to(mounted) and ".." not in path.parts  # else it is outside of what a container sees
    folder = top / path.relative_to(mounted) if inside else top
    while folder != top:
        yield folder
        folder = folder.parent
    yield top


def _lines(path: Path) -> list[str]:
    return (_read(path) or "").splitlines()


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
