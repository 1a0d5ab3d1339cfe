"""What this machine is, as far as training depends on it: processor, cores, memory, disk. Standard library only.

Nothing here raises when a file is missing: systems differ in what they tell, and what is not told is None.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgepack_runtime.device import doctor, info
from edgepack_runtime.device.cores import Cores as Cores
from edgepack_runtime.device.cores import control_groups
from edgepack_runtime.device.cores import cores as cores  # one for both sides

_ROOT: Final = Path("/")
_NO_LIMIT_BYTES: Final = 2**60  # the first version of control groups tells "none" by a number near 2**63


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
    return Machine(info.cpu_model(), cores(root), memory(root))


def memory(root: Path = _ROOT) -> Memory:
    """How much memory there is, and how much of it this process may use."""
    names = ("memory.max", "memory.limit_in_bytes")
    found = [info.number(info.read(group / name)) for group in control_groups("memory", root) for name in names]
    limits = [int(value) for value in found if value is not None and value < _NO_LIMIT_BYTES]
    return Memory(info.memory_total_bytes(root), info.memory_available_bytes(), min(limits, default=None))


def is_amd(root: Path = _ROOT) -> bool:
    """Whether the processor is one of AMD's."""
    return "AuthenticAMD" in (info.read(root / "proc/cpuinfo") or "")


def free_bytes(folder: Path) -> int:
    """Bytes that a user may still write where `folder` lies, or would lie."""
    return shutil.disk_usage(doctor.existing_parent(folder)).free
