"""What must be set before Paddle is imported, and what it says of itself afterwards. Imports no Paddle itself."""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import os
import sys
import warnings
from pathlib import Path

from edgepack.errors import EnvironmentUnfitError

PACKAGES = ("paddlepaddle", "paddlenlp", "paddleslim", "paddle2onnx")
_FIX = "run `make install`, or pip install -r requirements/build.txt, in Python 3.10-3.12"


def versions() -> dict[str, str]:
    """Installed versions of the Paddle stack; the GPU build of Paddle counts as `paddlepaddle`.

    Raises:
        EnvironmentUnfitError: when a package is missing.
    """
    found: dict[str, str] = {}
    for package in PACKAGES:
        names = (package, f"{package}-gpu") if package == "paddlepaddle" else (package,)
        for name in names:
            try:
                found[package] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
        if package not in found:
            raise EnvironmentUnfitError(
                f"{package} is not installed", why="training, quantization and export need it", fix=_FIX
            )
    return found


def start() -> None:
    """Import Paddle and PaddleNLP with their threads set and their start-up messages kept off the screen.

    Paddle uses one CPU thread unless OMP_NUM_THREADS says otherwise, and its MKL takes a slow path on AMD unless
    MKL_DEBUG_CPU_TYPE=5: both are read when Paddle is imported, never later. What the user set is kept.

    Raises:
        EnvironmentUnfitError: when a package is missing or cannot be imported.
    """
    versions()
    if "paddle" not in sys.modules:
        _require_home()
        os.environ.setdefault("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0))))
        if _is_amd():
            os.environ.setdefault("MKL_DEBUG_CPU_TYPE", "5")
        os.environ.setdefault("GLOG_minloglevel", "2")
    said = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stderr(said):
        warnings.simplefilter("ignore")
        try:
            import paddle  # noqa: F401
            from paddlenlp.utils.log import logger
        except ImportError as error:
            raise EnvironmentUnfitError("the Paddle stack cannot be imported", why=str(error), fix=_FIX) from error
    logger.set_level("ERROR")
    warnings.filterwarnings("ignore", module=r"(paddle|paddlenlp|paddleslim|paddle2onnx)\b.*")


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


def _is_amd() -> bool:
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.is_file() and "AuthenticAMD" in cpuinfo.read_text(encoding="utf-8", errors="replace")
