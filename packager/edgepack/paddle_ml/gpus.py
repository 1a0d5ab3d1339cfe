"""What the installed Paddle is built for, and which GPUs it can really use: each is tried with a first computation."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

PROBE: Final = "edgepack.paddle_ml.probe"
_SOURCE: Final = re.compile(r"\.? \(at [^()]*\)$")  # the place in Paddle's sources
_NO_KERNEL: Final = "no kernel image is available"  # CUDA's words (cudaErrorNoKernelImageForDevice)
TIMEOUT_SECONDS: Final = 300  # the first use of a driver, or of kernels that it has to compile, takes minutes


@dataclass(frozen=True)
class Card:
    """A GPU as Paddle counts them: only those that are visible to this process. `failure` is empty when it works."""

    index: int
    name: str
    sm: str  # compute capability, as "9.0"
    memory_mib: int
    failure: str = ""


@dataclass(frozen=True)
class Build:
    """One installed Paddle, and the GPUs that it finds."""

    version: str
    cuda: str | None  # that it is built with; None: without CUDA
    cudnn: str | None
    kernels: tuple[int, ...]  # compute capabilities it is compiled for, as 90 for 9.0; empty when it does not tell
    cards: tuple[Card, ...] = ()
    failure: str = ""  # why nothing can be said of its GPUs

    def lacks_kernels(self, card: Card) -> bool:
        """Whether a card that failed did so because this Paddle is not compiled for it, as far as that is told.

        Code for one capability runs on all of its generation that are not below it (CUDA C++ Programming Guide,
        "Binary Compatibility"); intermediate code, which runs on later generations too, is not listed.
        """
        if _NO_KERNEL in card.failure:
            return True
        generation, _, step = card.sm.partition(".")
        runs = (arch // 10 == int(generation) and arch % 10 <= int(step) for arch in self.kernels)
        return bool(self.kernels) and not any(runs)

    @property
    def about(self) -> str:
        """`Paddle 3.3.1 for CUDA 12.6 and cuDNN 9.5.1, kernels for sm_80, sm_90`."""
        if self.cuda is None:
            return f"Paddle {self.version}, built without CUDA"
        cudnn = f" and cuDNN {self.cudnn}" if self.cudnn else ""
        kernels = f", kernels for {sm_names(self.kernels)}" if self.kernels else ""
        return f"Paddle {self.version} for CUDA {self.cuda}{cudnn}{kernels}"


def sm_names(archs: Sequence[int]) -> str:
    """`sm_80, sm_90`."""
    return ", ".join(f"sm_{arch}" for arch in sorted(archs))


@functools.cache
def look() -> Build:
    """The installed Paddle, and every GPU that it sees, tried once in a process. Call `environment.start` before."""
    import paddle

    build = described(paddle.version)
    if not paddle.is_compiled_with_cuda():
        return Build(build.version, None, None, ())
    return tried(build, [sys.executable, "-m", PROBE])


def described(version: Any) -> Build:
    """What the module `paddle.version` says; Paddle 2.6 does not have all of it."""
    archs: Sequence[int] = getattr(version, "cuda_archs", tuple)()
    return Build(
        version.full_version,
        _told(version.cuda()),
        _told(version.cudnn()),
        tuple(sorted(int(arch) for arch in archs)),
    )


def tried(build: Build, command: Sequence[str], timeout_seconds: float = TIMEOUT_SECONDS) -> Build:
    """`build` with its cards, as the program `command` (`probe.py`) finds them.

    It runs in a process of its own: libraries of CUDA that do not fit each other end it without a word, and must not
    end a build that can go on, or has to say why it cannot.
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _failed(build, f"a first computation did not end within {timeout_seconds:g} s")
    lines = done.stdout.strip().splitlines()
    if done.returncode < 0:
        return _failed(build, f"a first computation was ended by signal {-done.returncode}{_last(done.stderr)}")
    try:
        cards = [Card(**card) for card in json.loads(lines[-1])] if done.returncode == 0 else None
    except (IndexError, ValueError, TypeError):  # whatever it printed, it was not its answer
        cards = None
    if cards is None:
        return _failed(build, f"a first computation failed (exit {done.returncode}){_last(done.stderr)}")
    return Build(build.version, build.cuda, build.cudnn, build.kernels, tuple(cards))


def gist(text: str) -> str:
    """The line of an error of Paddle's that says what it is: after its C++ traceback, before hints in brackets."""
    lines = [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("[")]
    return _SOURCE.sub("", lines[-1]) if lines else ""


def _failed(build: Build, why: str) -> Build:
    return Build(build.version, build.cuda, build.cudnn, build.kernels, (), why)


def _last(text: str) -> str:
    line = gist(text)
    return f": {line}" if line else ""


def _told(value: object) -> str | None:
    """A version, or None for what Paddle says of one that it is built without."""
    text = str(value)
    return None if text in ("False", "None", "", "0") else text
