"""Choice of the device for training, and the GPUs that Paddle can use. Call `environment.start` first."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from edgepack.errors import EnvironmentUnfitError
from edgepack.training import environment
from edgepack.util import hardware as machine
from edgepack.util import nvidia
from edgepack.util.nvidia import Nvidia, sm_name
from edgepack.util.text import counted

PROBE: Final = "edgepack.training.gpu_probe"
_SOURCE: Final = re.compile(r"\.? \(at [^()]*\)$")  # a position in Paddle's sources
_NO_KERNEL: Final = "no kernel image is available"  # text of cudaErrorNoKernelImageForDevice
TIMEOUT_SECONDS: Final = 300  # the first use of a driver may compile kernels for minutes


@dataclass(frozen=True)
class Card:
    """A GPU that Paddle sees. `index` counts visible GPUs; `failure` is "" if it can compute."""

    index: int
    name: str
    sm: str  # compute capability, as "9.0"
    memory_mib: int
    failure: str = ""


@dataclass(frozen=True)
class PaddleBuild:
    """The installed Paddle and the GPUs that it sees."""

    version: str
    cuda: str | None  # None: built without CUDA
    cudnn: str | None
    kernels: tuple[int, ...]  # compute capabilities of its kernels, 90 for 9.0; empty if unknown
    cards: tuple[Card, ...] = ()
    failure: str = ""  # why its GPUs are unknown

    def lacks_kernels(self, card: Card) -> bool:
        """Whether `card` failed because Paddle has no kernels for it, as far as is known.

        Kernels for one compute capability run on later ones of the same generation (CUDA C++ Programming Guide, "Binary
        Compatibility"). PTX, which also runs on later generations, is not listed.
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
def detect() -> PaddleBuild:
    """The installed Paddle and its GPUs. Each is tested once per process, in a child process."""
    import paddle

    build = from_version(paddle.version)
    if not paddle.is_compiled_with_cuda():
        return PaddleBuild(build.version, None, None, ())
    return with_cards(build, [sys.executable, "-I", "-m", PROBE])


def from_version(version: Any) -> PaddleBuild:
    """The facts of the module `paddle.version`; Paddle 2.6 does not have all of them."""
    archs: Sequence[int] = getattr(version, "cuda_archs", tuple)()
    return PaddleBuild(
        version.full_version,
        _version_or_none(version.cuda()),
        _version_or_none(version.cudnn()),
        tuple(sorted(int(arch) for arch in archs)),
    )


def with_cards(build: PaddleBuild, command: Sequence[str], timeout_seconds: float = TIMEOUT_SECONDS) -> PaddleBuild:
    """`build` with the cards that `command` (`gpu_probe.py`) prints.

    The program runs in a child process, because mismatched CUDA libraries may end their process.
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
    except (IndexError, ValueError, TypeError):  # not the JSON of the program
        cards = None
    if cards is None:
        return _failed(build, f"a first computation failed (exit {done.returncode}){_last(done.stderr)}")
    return PaddleBuild(build.version, build.cuda, build.cudnn, build.kernels, tuple(cards))


def gist(text: str) -> str:
    """The message in an error text of Paddle: after its C++ traceback, before hints in brackets."""
    lines = [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("[")]
    return _SOURCE.sub("", lines[-1]) if lines else ""


def _failed(build: PaddleBuild, why: str) -> PaddleBuild:
    return PaddleBuild(build.version, build.cuda, build.cudnn, build.kernels, (), why)


def _last(text: str) -> str:
    line = gist(text)
    return f": {line}" if line else ""


def _version_or_none(value: object) -> str | None:
    """A version; None for Paddle's text for a library that it is built without."""
    text = str(value)
    return None if text in ("False", "None", "", "0") else text


CPU: Final = "cpu"
VISIBLE_VARIABLE: Final = "CUDA_VISIBLE_DEVICES"
_GO_ON: Final = "use device: cpu or auto"
_GPU_PADDLE: Final = f"install {environment.GPU_BUILD} in place of paddlepaddle (docs/how-to/gpus.md), or {_GO_ON}"


@dataclass(frozen=True)
class Device:
    """The device of a training. Its text has the choice with its reason, hardware, and software."""

    place: str  # Paddle's name: cpu, gpu:0; for several processes gpu:0,1
    why: str
    hardware: str
    software: str
    card: Card | None = None

    def __str__(self) -> str:
        return f"{self.place}: {self.why}; {self.hardware}\n{self.software}"


@dataclass(frozen=True)
class Obstacle:
    """Why a device cannot be used, and what to do."""

    why: str
    fix: str


def choose(wanted: str) -> Device:
    """Select Paddle's device. `auto` takes the first GPU that works, else the CPU.

    Args:
        wanted: `auto`, `cpu`, `gpu` (the first that works) or `gpu:N`, counted among visible GPUs. A process uses one
            GPU; `decide` also takes `gpu:0,1`.

    Raises:
        EnvironmentUnfitError: the requested GPU cannot be used.
    """
    import paddle

    build, driver = detect(), nvidia.detect()
    device = decide(wanted, build, driver)
    paddle.set_device(device.place)
    return device


def require(wanted: str, key: str) -> None:
    """Check that `choose` can select the device of the recipe's `key`, without selecting it.

    Raises:
        EnvironmentUnfitError: the requested GPU cannot be used.
    """
    decide(wanted, detect(), nvidia.detect(), key=key)


def decide(
    wanted: str, build: PaddleBuild, driver: Nvidia, variables: Mapping[str, str] | None = None, key: str = "device"
) -> Device:
    """The device that `choose` selects, from facts about Paddle and the driver only.

    Args:
        variables: environment variables; of this process by default.
        key: the recipe's key, for messages.

    Raises:
        EnvironmentUnfitError: the requested GPU cannot be used.
    """
    variables = os.environ if variables is None else variables
    if wanted == CPU:
        return _cpu("asked for", build)
    if wanted not in ("auto", "gpu"):
        found = _named(wanted, build, driver, variables, key)
        return _gpu(found, "asked for", build, driver)
    obstacle = no_gpu(build, driver, variables)
    if obstacle is None:
        card = next(card for card in build.cards if not card.failure)
        others = f", {len(build.cards)} visible" if len(build.cards) > 1 else ""
        return _gpu([card], ("asked for" if wanted == "gpu" else "a first computation worked") + others, build, driver)
    if wanted == "gpu":
        raise _unusable(key, wanted, obstacle)
    return _cpu(obstacle.why, build)


def no_gpu(build: PaddleBuild, driver: Nvidia, variables: Mapping[str, str]) -> Obstacle | None:
    """Why no GPU can be used; None if one can."""
    if any(not card.failure for card in build.cards):
        return None
    if build.cuda is None:
        here = f", but this machine has {driver.gpus[0].name}" if driver.gpus else ""
        return Obstacle(f"this Paddle is built without CUDA{here}", _GPU_PADDLE if driver.gpus else _GO_ON)
    if build.failure:
        return _too_old(build, driver) or Obstacle(build.failure, f"repair CUDA's libraries or the driver, or {_GO_ON}")
    if build.cards:
        return why_unusable(build.cards[0], build, driver)
    if not driver.gpus:
        return Obstacle(f"no GPU is visible: {driver.why}", f"{driver.fix}, or {_GO_ON}")
    if VISIBLE_VARIABLE in variables:
        value = variables[VISIBLE_VARIABLE]
        fix = f"unset it or name a GPU of this machine, or {_GO_ON}"
        return Obstacle(f"{VISIBLE_VARIABLE}={value!r} leaves no GPU visible", fix)
    if all(gpu.mig == () for gpu in driver.gpus):
        fix = f"create an instance (`nvidia-smi mig -cgi PROFILE -C`) or switch MIG off, or {_GO_ON}"
        return Obstacle(f"MIG is on and {driver.gpus[0].name} has no instance", fix)
    return _too_old(build, driver) or Obstacle(
        "the driver sees a GPU and Paddle does not", f"check that CUDA's libraries are the driver's, or {_GO_ON}"
    )


def why_unusable(card: Card, build: PaddleBuild, driver: Nvidia) -> Obstacle:
    """Why a first computation failed on `card`, as far as is known."""
    reported = f"gpu:{card.index} reported: {card.failure}"
    if build.lacks_kernels(card):
        others = f", only for {sm_names(build.kernels)}" if build.kernels else ""
        why = f"this Paddle has no kernels for {card.name}, {sm_name(card.sm)}{others} ({reported})"
        return Obstacle(why, f"install a Paddle that is built for {sm_name(card.sm)}, or {_GO_ON}")
    return _too_old(build, driver) or Obstacle(
        f"a first computation failed: {reported}", f"repair CUDA's libraries or the driver, or {_GO_ON}"
    )


def _named(wanted: str, build: PaddleBuild, driver: Nvidia, variables: Mapping[str, str], key: str) -> list[Card]:
    """The cards that `gpu:N` or `gpu:N,M` names. Raises EnvironmentUnfitError unless all of them work."""
    found = []
    for index in map(int, wanted.removeprefix("gpu:").split(",")):
        card = next((card for card in build.cards if card.index == index), None)
        if card is None:
            visible = f"{len(build.cards)} visible here, counted from 0"
            few = Obstacle(f"there is no gpu:{index}: {visible}", f"name one of them, or {_GO_ON}")
            raise _unusable(key, wanted, few if build.cards else no_gpu(build, driver, variables) or few)
        if card.failure:
            raise _unusable(key, wanted, why_unusable(card, build, driver))
        found.append(card)
    return found


def _too_old(build: PaddleBuild, driver: Nvidia) -> Obstacle | None:
    """The obstacle if the driver supports only older versions of CUDA than Paddle is built with."""
    if not build.cuda or not driver.cuda or _numbers(driver.cuda) >= _numbers(build.cuda):
        return None
    why = f"the driver {driver.driver} runs CUDA up to {driver.cuda}, and this Paddle is built with CUDA {build.cuda}"
    fix = f"install a newer driver, or a Paddle that is built with CUDA {driver.cuda} or older; or {_GO_ON}"
    return Obstacle(why, fix)


def _cpu(why: str, build: PaddleBuild) -> Device:
    here = machine.detect()
    threads = environment.threads(environment.settings())
    return Device(CPU, why, f"{here.cpu_model}, {here.cores}, {counted(threads, 'thread')}", build.about)


def _gpu(cards: Sequence[Card], why: str, build: PaddleBuild, driver: Nvidia) -> Device:
    known = f"driver {driver.driver}, " if driver.driver else ""
    each = [f"{card.name}, {sm_name(card.sm)}, {card.memory_mib} MiB" for card in cards]
    alike = {text: each.count(text) for text in each}
    hardware = " and ".join(text if count == 1 else f"{count} x {text}" for text, count in alike.items())
    place = f"gpu:{','.join(str(card.index) for card in cards)}"
    return Device(place, why, hardware, known + build.about, cards[0])


def _unusable(key: str, wanted: str, obstacle: Obstacle) -> EnvironmentUnfitError:
    return EnvironmentUnfitError(
        f"{key}: {wanted} is requested, but cannot be used", why=obstacle.why, fix=obstacle.fix
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
