"""Import of Paddle with its environment variables, and the versions of its packages."""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import os
import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

from edgepack.errors import EnvironmentUnfitError
from edgepack.messages import message
from edgepack.progress import SILENT, Progress
from edgepack.recipe import hub
from edgepack.util import hardware, process

PACKAGES = ("paddlepaddle", "paddlenlp", "paddleslim", "paddle2onnx")
GPU_BUILD: Final = "paddlepaddle-gpu"  # the distribution with CUDA; its files are those of `paddlepaddle`
CONSTRAINTS: Final = Path(__file__).parent / "constraints.txt"
# Only the pip of this Python finds the installed edgepack.
_PIP: Final = f"{shlex.quote(sys.executable)} -m pip install -c {shlex.quote(str(CONSTRAINTS))} 'edgepack[paddle]'"
FIX: Final = message("mistake.paddle_fix", pip=_PIP)
_NOT_ASKED_FOR: Final = ("pip", "setuptools")  # nothing requires them, so pip keeps the installed ones
_LIBRARY_FIX: Final = (
    "install the system's package with that library: on Debian and Ubuntu, libgomp.so.1 is in libgomp1"
)
THREADS_VARIABLE: Final = "OMP_NUM_THREADS"
AMD_VARIABLE: Final = "MKL_DEBUG_CPU_TYPE"
SAME_SUMS_VARIABLE: Final = "MKL_CBWR"
STRIDES_VARIABLE: Final = "FLAGS_use_stride_kernel"
# Errors of an import when versions do not match, or a system library is missing.
_BROKEN: Final = (ImportError, AttributeError, TypeError, ValueError, RuntimeError, OSError)


@dataclass(frozen=True)
class Setting:
    """A variable that Paddle reads on import: its value with the reason. `given`: the user has set it."""

    name: str
    value: str
    why: str
    given: bool


def installed() -> dict[str, str | None]:
    """Versions of the Paddle stack; None if missing. The GPU build of Paddle counts as `paddlepaddle`."""
    found = {package: _version(package) for package in PACKAGES}
    if found["paddlepaddle"] is None:
        found["paddlepaddle"] = _version(GPU_BUILD)
    return found


def other_versions() -> dict[str, tuple[str, str]]:
    """Installed packages with another version than the tested one: name -> (installed, tested).

    The tested versions are those of `constraints.txt`. Packages that are missing are not listed, nor are local parts of
    versions (`+cu126`).
    """
    found = {}
    for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        tested = Requirement(line)
        version = _version(tested.name)
        holds = tested.marker is None or tested.marker.evaluate()
        if (
            tested.name not in _NOT_ASKED_FOR
            and holds
            and version is not None
            and not tested.specifier.contains(version, prereleases=True)
        ):
            found[tested.name] = (version, str(tested.specifier).removeprefix("=="))
    return found


def has_gpu_build() -> bool:
    """Whether Paddle's build with CUDA is installed, without importing it."""
    return _version(GPU_BUILD) is not None


def has_both_builds() -> bool:
    """Whether the CPU and GPU builds of Paddle are installed over each other."""
    return has_gpu_build() and _version("paddlepaddle") is not None


def lacking() -> tuple[str, ...]:
    """Packages of the Paddle stack that are not installed. Nothing is imported."""
    return tuple(package for package, version in installed().items() if version is None)


def not_installed(package: str) -> EnvironmentUnfitError:
    """The error of a build that lacks `package`."""
    what = message("mistake.no_package", package=package)
    return EnvironmentUnfitError(what, why=message("mistake.paddle_why"), fix=FIX)


def versions() -> dict[str, str]:
    """Installed versions of the Paddle stack. The GPU build of Paddle counts as `paddlepaddle`.

    Raises:
        EnvironmentUnfitError: a package is missing.
    """
    found: dict[str, str] = {}
    for package, version in installed().items():
        if version is None:
            raise not_installed(package)
        found[package] = version
    return found


def settings(environment: Mapping[str, str] | None = None, root: Path = Path("/")) -> tuple[Setting, ...]:
    """The variables that `start` sets, each with its reason. Values of the user are kept.

    Args:
        environment: environment variables; of this process by default.
        root: parent of /proc and /sys.
    """
    environment = os.environ if environment is None else environment
    return tuple(
        Setting(name, environment.get(name, value), why, name in environment) for name, value, why in _wanted(root)
    )


def _wanted(root: Path) -> Iterator[tuple[str, str, str]]:
    cores = hardware.cores(root)
    yield (
        THREADS_VARIABLE,
        str(cores.threads),
        f"by default Paddle uses one thread; this process may use {cores}",
    )
    if hardware.is_amd(root):
        yield AMD_VARIABLE, "5", "by default Paddle's MKL runs at half speed on AMD"
    else:  # on AMD it may choose the slowest kernels
        why = "by default the last bits of Paddle's MKL depend on threads and addresses; this takes no measurable time"
        yield SAME_SUMS_VARIABLE, "AUTO,STRICT", why
    if not has_gpu_build():
        yield (
            STRIDES_VARIABLE,
            "0",
            "on a CPU, copying a transposed tensor is faster than reading it in place",
        )
    yield "GLOG_minloglevel", "2", "hides Paddle's messages on import"


def threads(set_to: tuple[Setting, ...]) -> int:
    """CPU threads that Paddle uses with these settings; 1 if the value is not a number."""
    value = next(setting.value for setting in set_to if setting.name == THREADS_VARIABLE)
    try:
        return max(1, int(value))
    except ValueError:
        return 1


def start(progress: Progress = SILENT, *, training: bool = True) -> None:
    """Import the Paddle stack with the variables of `settings`, without its start-up messages.

    All packages are imported here, so that a broken one ends a build before hours of training. Paddle reads these
    variables only on import, which takes seconds. Afterwards its device is the CPU: a training selects another one by
    `devices.choose`. By default a Paddle with CUDA would select a GPU.

    Args:
        training: whether more is needed than Paddle and paddle2onnx, which run and convert graphs.

    Raises:
        EnvironmentUnfitError: a package is missing or cannot be imported.
    """
    versions()
    if "paddle" not in sys.modules:
        if training:
            _require_home()
        for setting in settings():
            os.environ[setting.name] = setting.value
        progress.line("importing Paddle")
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            import paddle
            import paddle2onnx  # noqa: F401

            if training:
                import paddleslim.quant  # noqa: F401
                import tensorboardX  # noqa: F401
                from paddlenlp.utils.log import logger

                logger.set_level("ERROR")
        except _BROKEN as error:
            why = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
            fix = _LIBRARY_FIX if "cannot open shared object file" in why else FIX
            raise EnvironmentUnfitError("the Paddle stack cannot be imported", why=why, fix=fix) from error
    process.take_back()
    paddle.set_device("cpu")
    warnings.filterwarnings("ignore", module=r"(paddle|paddlenlp|paddleslim|paddle2onnx)\b.*")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _require_home() -> None:
    """Check that PaddleNLP can create the folder that it creates on import."""
    home = hub.home()
    try:
        home.mkdir(parents=True, exist_ok=True)
        writable = os.access(home, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        raise EnvironmentUnfitError(
            f"PaddleNLP cannot keep its files in {home}",
            why="that folder cannot be written",
            fix=f"set {hub.HOME_VARIABLE} to a writable folder",
        )
