"""Memory that this process may use: what the machine has available, and the limit of its control groups.

A missing or unreadable file is no error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from edgepack_runtime.device import info
from edgepack_runtime.device.cores import control_groups

_NO_LIMIT_BYTES = 2**60  # control groups v1 write a number near 2**63 for "no limit"


def limit_bytes(root: Path = info.ROOT) -> Optional[int]:
    """The limit of the container or service that this process runs in; None: there is none."""
    names = ("memory.max", "memory.limit_in_bytes")
    found = [info.number(info.read(group / name)) for group in control_groups("memory", root) for name in names]
    limits = [int(value) for value in found if value is not None and value < _NO_LIMIT_BYTES]
    return min(limits, default=None)


def usable_bytes(root: Path = info.ROOT) -> Optional[int]:
    """The smaller one of what is available and of the limit; None: neither is known."""
    known = [number for number in (info.memory_available_bytes(root), limit_bytes(root)) if number is not None]
    return min(known, default=None)
