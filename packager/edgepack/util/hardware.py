"""Facts about this machine for training: processor, cores, memory, disk.

Unknown facts are None; missing files raise no errors.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgepack_runtime.device import doctor, info
from edgepack_runtime.device import memory as limits
from edgepack_runtime.device.cores import Cores as Cores
from edgepack_runtime.device.cores import cores as cores  # one for both sides

_ROOT: Final = Path("/")


@dataclass(frozen=True)
class Memory:
    """Memory in bytes: total, available to new processes, and the limit of this process's container."""

    total_bytes: int | None
    available_bytes: int | None
    limit_bytes: int | None


@dataclass(frozen=True)
class Machine:
    """The machine that this process runs on."""

    cpu_model: str
    cores: Cores
    memory: Memory


def detect(root: Path = _ROOT) -> Machine:
    """This machine. `root` is the parent of /proc and /sys."""
    return Machine(info.cpu_model(), cores(root), memory(root))


def memory(root: Path = _ROOT) -> Memory:
    """The memory of the machine, and the limit of this process."""
    return Memory(info.memory_total_bytes(root), info.memory_available_bytes(root), limits.limit_bytes(root))


def is_amd(root: Path = _ROOT) -> bool:
    """Whether the processor is made by AMD."""
    return "AuthenticAMD" in (info.read(root / "proc/cpuinfo") or "")


def free_bytes(folder: Path) -> int:
    """Free bytes on the disk of `folder`, which need not exist."""
    return shutil.disk_usage(doctor.existing_parent(folder)).free
