"""The facts of a device as one JSON file, to travel back to where bundles are built (standard library only).

It is written on a device that has nothing but its Python, from a bundle that need not fit: `doctor --probe FILE`.
Nothing in it names the device, its users or its network.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Optional

from edgepack_runtime.device import info, jetson, nvidia
from edgepack_runtime.errors import EnvironmentUnfitError

FORMAT = 1
MIB = 1024 * 1024
_OPENSSH = re.compile(r"OpenSSH_(\d+\.\d+)")


def collect(root: Path = info.ROOT) -> Dict[str, Any]:
    """Plain JSON values; null is what is not there or not told.

    Args:
        root: where /proc, /etc and /var lie.
    """
    board = jetson.facts(root)
    return {
        "edgepack_probe": FORMAT,
        "system": platform.system(),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "page_bytes": os.sysconf("SC_PAGE_SIZE"),
        "distribution": dict(info.system_release(root)),
        "libc": "{} {}".format(*info.libc()).strip(),
        "libstdcxx": info.libstdcxx(),
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "bits": struct.calcsize("P") * 8,
            "abi_flags": sys.abiflags,
            "executable": sys.executable,
        },
        "cpu_model": info.cpu_model(root),
        "cpu_flags": info.cpu_flags(root),
        "cores": os.cpu_count(),
        "memory_total_mib": _mib(info.memory_total_bytes(root)),
        "memory_available_mib": _mib(info.memory_available_bytes(root)),
        "gpu": _gpu(),
        "cuda_runtime": nvidia.cuda_runtime_version(),
        "cudnn": nvidia.cudnn_version(),
        "board": info.board(root),
        "jetson": None if board is None else board._asdict(),
        "openssh": openssh_version(),
    }


def dump(facts: Dict[str, Any]) -> bytes:
    """The file that `collect`'s facts travel in."""
    return (json.dumps(facts, ensure_ascii=False, indent=1, sort_keys=True) + "\n").encode("utf-8", "replace")


def openssh_version() -> Optional[str]:
    """The version of this system's OpenSSH, as "9.2", if it has the `ssh-keygen` by which signatures are verified."""
    program = shutil.which("ssh")
    if program is None or shutil.which("ssh-keygen") is None:
        return None
    try:  # ssh-keygen tells no version of its own; both come in one package
        told = subprocess.run([program, "-V"], stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _OPENSSH.search((told.stderr + told.stdout).decode("utf-8", "replace"))
    return found.group(1) if found else None


def _gpu() -> Optional[Dict[str, Any]]:
    try:
        from edgepack_runtime.device import nvidia  # needs ctypes, which a minimal Python lacks

        return nvidia.gpu_facts()._asdict()
    except (EnvironmentUnfitError, ImportError):
        return None  # no driver, no GPU, or no way to ask


def _mib(count: Optional[int]) -> Optional[int]:
    return None if count is None else count // MIB
