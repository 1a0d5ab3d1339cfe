"""This machine as a target: whether it can run bundles of a target, and with which interpreter.

Bundles that it can run are gated during the build, others on their device.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Protocol

from edgepack.results import NotRunHere
from edgepack.targets.profiles import Host, this_host
from edgepack.util.versions import minor_version
from edgepack_runtime.bundle.model_config import CUDA
from edgepack_runtime.device import info, jetson, nvidia
from edgepack_runtime.device.doctor import version_numbers
from edgepack_runtime.device.info import cpu_model
from edgepack_runtime.errors import EnvironmentUnfitError


def host_facts() -> dict[str, str]:
    """Processor, kernel architecture and Python's minor version, on which measured figures depend."""
    return {
        "cpu": cpu_model(),
        "machine": platform.machine(),
        "python": minor_version(platform.python_version()),
    }


def base_python() -> str:
    """The base interpreter of the running virtual environment."""
    return str(getattr(sys, "_base_executable", sys.executable))


VARIABLE: Final = "EDGEPACK_PYTHONS"
_TIMEOUT_SECONDS: Final = 20
_PROBE: Final = (
    "import json, platform, struct, sys; print(json.dumps([platform.python_implementation(), "
    "platform.python_version(), platform.machine(), struct.calcsize('P') * 8, getattr(sys, 'abiflags', ''), "
    "getattr(sys, '_base_executable', None) or sys.executable]))"
)


@dataclass(frozen=True)
class Interpreter:
    """An interpreter of this machine: full version, such as "3.8.18", and path of its binary.

    A name on the PATH may be a script that selects an interpreter by environment variables, which a gate removes.
    """

    path: Path
    version: str

    @property
    def python(self) -> str:
        """Its version as in profiles, "3.8"."""
        return ".".join(self.version.split(".")[:2])


def find(python: str, named: Sequence[Path] = ()) -> Interpreter | None:
    """A CPython of version `python` ("3.8") for this machine's ABI; None if there is none.

    The first of: the `named` ones, those of `$EDGEPACK_PYTHONS`, the one of this process, `python3.8` on the PATH.
    """
    for path in _candidates(python, named):
        found = looked_at(path)
        if found is not None and found.python == python:
            return found
    return None


@cache
def looked_at(path: Path) -> Interpreter | None:
    """Version of the interpreter `path`; None if it is not a CPython release of this machine's ABI, or does not run."""
    if path == Path(base_python()):
        return Interpreter(path, platform.python_version())
    try:
        answer = subprocess.run(
            [str(path), "-I", "-S", "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
        implementation, version, machine, bits, flags, binary = json.loads(answer.stdout)
        found = Interpreter(Path(binary), version)
    except (OSError, subprocess.TimeoutExpired, ValueError, TypeError):
        return None  # not an interpreter, or none that runs here
    here = (implementation, machine, bits, flags) == ("CPython", platform.machine(), 64, "")
    return found if here else None


def _candidates(python: str, named: Sequence[Path]) -> Iterator[Path]:
    yield from named
    yield from (Path(entry) for entry in os.environ.get(VARIABLE, "").split(os.pathsep) if entry)
    yield Path(base_python())
    if found := shutil.which(f"python{python}"):
        yield Path(found)


class Wanted(Protocol):
    """Properties of a target that both a profile and a bundle's manifest have."""

    @property
    def system(self) -> str: ...
    @property
    def machine(self) -> str: ...
    @property
    def libc(self) -> str: ...
    @property
    def python(self) -> str: ...


def runner(
    target: Wanted,
    provider: str,
    *,
    libc_min: str = "",
    jetpack: str = "",
    pythons: Sequence[Path] = (),
    host: Host | None = None,
) -> Interpreter | NotRunHere:
    """The interpreter that runs bundles of `target` on this machine, or the reason why none does.

    Args:
        provider: ONNX Runtime's execution provider.
        libc_min: oldest glibc for the bundle's binaries, if known.
        jetpack: JetPack's major version, for a Jetson.
        pythons: interpreters to try first.
        host: this machine by default.
    """
    host = host or this_host()
    wanted = (target.system, target.machine, target.libc)
    if (host.system, host.machine, host.libc) != wanted:
        return NotRunHere(f"it is for {' '.join(wanted)}, and this machine is {host.system} {host.machine} {host.libc}")
    if libc_min and version_numbers(host.libc_version) < version_numbers(libc_min):
        return NotRunHere(f"it needs glibc {libc_min}, and this machine has {host.libc_version}")
    if provider == CUDA and (lacking := _lacks_gpu(jetpack)):
        return NotRunHere(lacking)
    found = find(target.python, pythons)
    if found is None:
        return NotRunHere(
            f"there is no CPython {target.python} on this machine (name one with --python, or in ${VARIABLE})"
        )
    return found


def _lacks_gpu(jetpack: str) -> str:
    """Why this machine lacks the target's GPU; empty if it has one."""
    board = jetson.facts(info.ROOT)
    if jetpack and (board is None or (board.jetpack or "").split(".")[0] != jetpack):
        return f"this machine is not a Jetson with JetPack {jetpack}"
    try:
        nvidia.gpu_facts()
    except EnvironmentUnfitError as error:
        return f"this machine has no NVIDIA GPU to run it on: {error.what}"
    return ""
