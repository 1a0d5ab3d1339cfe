"""Whether this machine can run bundles of a target, and with which interpreter: those it can are gated where they are
built, the others on their device.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from edgepack.results import NotRunHere
from edgepack.targets import interpreters
from edgepack.targets.interpreters import Interpreter
from edgepack.targets.profiles import Host, this_host
from edgepack_runtime import cuda_driver, device, jetson
from edgepack_runtime.errors import EnvironmentUnfitError
from edgepack_runtime.model_config import CUDA


class Wanted(Protocol):
    """What both a profile and a bundle's manifest say of a target."""

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
    """The interpreter that runs bundles of `target` on this machine, or why none does.

    Args:
        provider: what has to compute there, in ONNX Runtime's words.
        libc_min: oldest glibc that the carried binaries load on, where it is known.
        jetpack: JetPack's major version, of a Jetson.
        pythons: interpreters to look at first.
        host: this machine, unless given.
    """
    host = host or this_host()
    wanted = (target.system, target.machine, target.libc)
    if (host.system, host.machine, host.libc) != wanted:
        return NotRunHere(f"it is for {' '.join(wanted)}, and this machine is {host.system} {host.machine} {host.libc}")
    if libc_min and _numbers(host.libc_version) < _numbers(libc_min):
        return NotRunHere(f"it needs glibc {libc_min}, and this machine has {host.libc_version}")
    if provider == CUDA and (lacking := _lacks_gpu(jetpack)):
        return NotRunHere(lacking)
    found = interpreters.find(target.python, pythons)
    if found is None:
        return NotRunHere(
            f"there is no CPython {target.python} on this machine (name one with --python, or in "
            f"${interpreters.VARIABLE})"
        )
    return found


def _lacks_gpu(jetpack: str) -> str:
    """What this machine lacks of the GPU that a target computes on; empty where it has one of the kind."""
    board = jetson.facts(device.ROOT)
    if jetpack and (board is None or (board.jetpack or "").split(".")[0] != jetpack):
        return f"this machine is no Jetson with JetPack {jetpack}"
    try:
        cuda_driver.facts()
    except EnvironmentUnfitError as error:
        return f"this machine has no NVIDIA GPU to run it on: {error.what}"
    return ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
