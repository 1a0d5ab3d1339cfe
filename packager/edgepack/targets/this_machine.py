"""This machine as a target: whether it can run bundles of a target, and how they are started.

Bundles that it can run are gated during the build, others on their device.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from pathlib import Path

from edgepack.messages import message
from edgepack.results import NotRunHere
from edgepack.util.versions import minor_version
from edgepack_runtime.bundle.manifest import BUNDLED, HOST
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


def start(bundle: Path, interpreter: str) -> list[str]:
    """The beginning of a command line that runs verbs of `bundle` here.

    Args:
        interpreter: BUNDLED, OWN, or HOST: the Python that runs edgepack, without its packages.
    """
    return [base_python(), "-I", "-S", str(bundle)] if interpreter == HOST else ["sh", str(bundle)]


def lacking(
    machines: Sequence[str], provider: str, interpreter: str, *, libc_min: str = "", jetpack: str = ""
) -> NotRunHere | None:
    """Why this machine cannot run bundles of a target; None if it can.

    Args:
        machines: for which the target is.
        provider: ONNX Runtime's execution provider.
        interpreter: BUNDLED, HOST or OWN.
        libc_min: oldest glibc for the bundle's binaries, if known.
        jetpack: JetPack's major version, for a Jetson.
    """
    here = f"{platform.system()} {platform.machine()}"
    if here not in [f"Linux {machine}" for machine in machines]:
        return NotRunHere(message("here.machine", machines=list(machines), here=here))
    name, version = info.libc()
    if interpreter != BUNDLED and (name != "glibc" or version_numbers(version) < version_numbers(libc_min)):
        wanted, own = f"glibc {libc_min}".rstrip(), f"{name} {version}".rstrip()
        return NotRunHere(message("here.glibc", wanted=wanted, own=own))
    if provider == CUDA and (reason := _lacks_gpu(jetpack)):
        return NotRunHere(reason)
    return None


def _lacks_gpu(jetpack: str) -> str:
    """Why this machine lacks the target's GPU; empty if it has one."""
    board = jetson.facts(info.ROOT)
    if jetpack and (board is None or (board.jetpack or "").split(".")[0] != jetpack):
        return message("here.jetpack", jetpack=jetpack)
    try:
        nvidia.gpu_facts()
    except EnvironmentUnfitError as error:
        return message("here.no_gpu", why=error.what)
    return ""
