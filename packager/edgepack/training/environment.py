"""What must be set before Paddle is imported, and what it says of itself afterwards. Imports no Paddle itself."""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgepack.errors import EnvironmentUnfitError
from edgepack.progress import SILENT, Progress
from edgepack.util import hardware, process

PACKAGES = ("paddlepaddle", "paddlenlp", "paddleslim", "paddle2onnx")
GPU_BUILD: Final = "paddlepaddle-gpu"  # the distribution with CUDA; its files are those of `paddlepaddle`
FIX: Final = "run `make install`, or pip install -r requirements/build.txt, in Python 3.10-3.12"
THREADS_VARIABLE: Final = "OMP_NUM_THREADS"
AMD_VARIABLE: Final = "MKL_DEBUG_CPU_TYPE"
STRIDES_VARIABLE: Final = "FLAGS_use_stride_kernel"
# What an import raises when versions do not fit each other, or a library of the system is missing.
_BROKEN: Final = (ImportError, AttributeError, TypeError, ValueError, RuntimeError, OSError)


@dataclass(frozen=True)
class Setting:
    """A variable that Paddle reads when it is imported: its value, and why it is that. `given`: the user set it."""

    name: str
    value: str
    why: str
    given: bool


def installed() -> dict[str, str | None]:
    """Versions of the Paddle stack, None for what is missing; the GPU build of Paddle counts as `paddlepaddle`."""
    found = {package: _version(package) for package in PACKAGES}
    if found["paddlepaddle"] is None:
        found["paddlepaddle"] = _version(GPU_BUILD)
    return found


def has_gpu_build() -> bool:
    """Whether Paddle's build with CUDA is installed, told without importing it."""
    return _version(GPU_BUILD) is not None


def has_both_builds() -> bool:
    """Whether Paddle is installed twice, the one over the other."""
    return has_gpu_build() and _version("paddlepaddle") is not None


def versions() -> dict[str, str]:
    """Installed versions of the Paddle stack; the GPU build of Paddle counts as `paddlepaddle`.

    Raises:
        EnvironmentUnfitError: when a package is missing.
    """
    found: dict[str, str] = {}
    for package, version in installed().items():
        if version is None:
            raise EnvironmentUnfitError(
                f"{package} is not installed", why="training, quantization and export need it", fix=FIX
            )
        found[package] = version
    return found


def settings(environment: Mapping[str, str] | None = None, root: Path = Path("/")) -> tuple[Setting, ...]:
    """The variables that `start` sets, each with its reason. What the user set is kept.

    Args:
        environment: variables of this process unless given.
        root: where /proc and /sys lie.
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
        f"Paddle uses one thread unless it is told; this process may use {cores}",
    )
    if hardware.is_amd(root):
        yield AMD_VARIABLE, "5", "on AMD, Paddle's MKL takes a path half as fast unless it is told"
    if not has_gpu_build():
        yield (
            STRIDES_VARIABLE,
            "0",
            "Paddle's way to read a transposed tensor in place is slower on a CPU than to copy it",
        )
    yield "GLOG_minloglevel", "2", "keeps what Paddle says when it starts off the screen"


def threads(set_to: tuple[Setting, ...]) -> int:
    """CPU threads that Paddle uses with these settings. A text that is no number means one to it."""
    value = next(setting.value for setting in set_to if setting.name == THREADS_VARIABLE)
    try:
        return max(1, int(value))
    except ValueError:
        return 1


def start(progress: Progress = SILENT) -> None:
    """Import Paddle and PaddleNLP with their threads set and their start-up messages kept off the screen.

    `progress` is told when that begins: it takes seconds, on a busy machine many.

    Paddle uses one CPU thread unless OMP_NUM_THREADS says otherwise, and its MKL takes a slow path on AMD unless
    MKL_DEBUG_CPU_TYPE=5: both are read when Paddle is imported, never later. What the user set is kept.

    Afterwards Paddle is set to the CPU: only a training chooses another device (`device.choose`). A Paddle with CUDA
    would take a GPU of its own accord, and a build that goes on after an interruption another one than before.

    Raises:
        EnvironmentUnfitError: when a package is missing or cannot be imported.
    """
    versions()
    if "paddle" not in sys.modules:
        _require_home()
        for setting in settings():
            os.environ[setting.name] = setting.value
        progress.line("importing Paddle")
    said = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stderr(said):
        warnings.simplefilter("ignore")
        try:
            import paddle
            from paddlenlp.utils.log import logger
        except _BROKEN as error:
            why = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
            raise EnvironmentUnfitError("the Paddle stack cannot be imported", why=why, fix=FIX) from error
    process.take_back()
    paddle.set_device("cpu")
    logger.set_level("ERROR")
    warnings.filterwarnings("ignore", module=r"(paddle|paddlenlp|paddleslim|paddle2onnx)\b.*")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _require_home() -> None:
    """PaddleNLP makes a folder for its files when it is imported, and fails in its own words where it cannot."""
    home = Path(os.environ.get("PPNLP_HOME") or Path.home() / ".paddlenlp")
    try:
        home.mkdir(parents=True, exist_ok=True)
        writable = os.access(home, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        raise EnvironmentUnfitError(
            f"PaddleNLP cannot keep its files in {home}",
            why="that folder cannot be written",
            fix="set PPNLP_HOME to a folder that can be",
        )
