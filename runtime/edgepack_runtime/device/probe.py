"""Probe: the facts of a device in one JSON file, for the machine that builds bundles (`doctor --probe FILE`).

Any bundle can write it, even one that does not fit the device. It does not name the device, its users or its network.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple

from edgepack_runtime.device import info, jetson
from edgepack_runtime.errors import EnvironmentUnfitError
from edgepack_runtime.schema.fields import field, to_json

FORMAT = 1
_SYSTEM = "/usr/bin:/bin:/usr/local/bin"
_OPENSSH = re.compile(r"OpenSSH_(\d+\.\d+)")


@dataclasses.dataclass(frozen=True)
class Probe:
    """The facts of a device; unknown ones are None. `board` and `jetson` are None on a PC, `gpu` without a driver."""

    system: Optional[str] = None
    machine: Optional[str] = None
    kernel: Optional[str] = None
    page_bytes: Optional[int] = None
    distribution: Mapping[str, Any] = field(default={})
    libc: Optional[str] = None
    libstdcxx: Optional[str] = None
    python: Mapping[str, Any] = field(default={})
    cpu_model: Optional[str] = None
    cpu_flags: Optional[Tuple[str, ...]] = None
    cores: Optional[int] = None
    memory_total_mib: Optional[int] = None
    memory_available_mib: Optional[int] = None
    gpu: Optional[Mapping[str, Any]] = None
    cuda_runtime: Optional[str] = None
    cudnn: Optional[str] = None
    board: Optional[str] = None
    jetson: Optional[Mapping[str, Any]] = None
    openssh: Optional[str] = None
    edgepack_probe: int = FORMAT


def collect(root: Path = info.ROOT) -> Dict[str, Any]:
    """A `Probe` in JSON types. `root` is the folder of /proc, /etc and /var."""
    board = jetson.facts(root)
    facts = Probe(
        system=platform.system(),
        machine=platform.machine(),
        kernel=platform.release(),
        page_bytes=os.sysconf("SC_PAGE_SIZE"),
        distribution=info.system_release(root),
        libc="{} {}".format(*info.libc()).strip(),
        libstdcxx=info.libstdcxx(),
        python={
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "bits": struct.calcsize("P") * 8,
            "abi_flags": sys.abiflags,
            "executable": sys.executable,
        },
        cpu_model=info.cpu_model(root),
        cpu_flags=tuple(info.cpu_flags(root)),
        cores=os.cpu_count(),
        memory_total_mib=_mib(info.memory_total_bytes(root)),
        memory_available_mib=_mib(info.memory_available_bytes(root)),
        board=info.board(root),
        jetson=None if board is None else board._asdict(),
        openssh=openssh_version(),
        **_gpu_facts(),
    )
    found: Dict[str, Any] = to_json(facts)
    return found


def dump(facts: Dict[str, Any]) -> bytes:
    """The bytes of a probe file with the facts from `collect`."""
    return (json.dumps(facts, ensure_ascii=False, indent=1, sort_keys=True) + "\n").encode("utf-8", "replace")


def openssh_version() -> Optional[str]:
    """Version of OpenSSH, such as "9.2", if there is an `ssh-keygen` to verify signatures."""
    program = shutil.which("ssh", path=_SYSTEM)  # not on PATH, which may name the folder of a stick
    if program is None or shutil.which("ssh-keygen", path=_SYSTEM) is None:
        return None
    try:  # ssh-keygen has no option for its version; both come in one package
        output = subprocess.run([program, "-V"], input=b"", capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _OPENSSH.search((output.stderr + output.stdout).decode("utf-8", "replace"))
    return found.group(1) if found else None


def _gpu_facts() -> Dict[str, Any]:
    gpu = cuda_runtime = cudnn = None
    with contextlib.suppress(ImportError):  # a minimal Python lacks ctypes
        from edgepack_runtime.device import nvidia

        cuda_runtime, cudnn = nvidia.cuda_runtime_version(), nvidia.cudnn_version()
        with contextlib.suppress(EnvironmentUnfitError):  # no driver or GPU
            gpu = nvidia.gpu_facts()._asdict()
    return {"gpu": gpu, "cuda_runtime": cuda_runtime, "cudnn": cudnn}


def _mib(count: Optional[int]) -> Optional[int]:
    return None if count is None else count // 2**20
