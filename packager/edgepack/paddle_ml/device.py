"""Which device training runs on: chosen openly, never silently. Call `environment.start` before."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from edgepack import machine, nvidia
from edgepack.errors import EnvironmentUnfitError
from edgepack.nvidia import Nvidia, sm_name
from edgepack.paddle_ml import environment, gpus
from edgepack.paddle_ml.gpus import Build, Card, sm_names
from edgepack.wording import counted

CPU: Final = "cpu"
VISIBLE_VARIABLE: Final = "CUDA_VISIBLE_DEVICES"
_GO_ON: Final = "use device: cpu or auto"
_GPU_PADDLE: Final = (
    f"install {environment.GPU_BUILD} in place of paddlepaddle (docs/15-building.md, Devices), or {_GO_ON}"
)


@dataclass(frozen=True)
class Device:
    """What a training runs on. Its text is what is printed: the choice with its reason, then what it is made of."""

    place: str  # as Paddle names it: cpu, gpu:0; for several processes gpu:0,1
    why: str
    hardware: str
    software: str
    card: Card | None = None

    def __str__(self) -> str:
        return f"{self.place}: {self.why}; {self.hardware}\n{self.software}"


@dataclass(frozen=True)
class Obstacle:
    """Why something cannot be used, and what to do."""

    why: str
    fix: str


def choose(wanted: str) -> Device:
    """Select Paddle's device: `auto` takes the first GPU that works, else the CPU, and says why.

    Args:
        wanted: `auto`, `cpu`, `gpu` (the first that works) or `gpu:N`, counted among those that are visible. One
            process computes on one GPU: `gpu:0,1` is for `decide`, and each of its processes chooses its own.

    Raises:
        EnvironmentUnfitError: when a GPU is asked for and cannot be used.
    """
    import paddle

    build, driver = gpus.look(), nvidia.look()
    device = decide(wanted, build, driver)
    paddle.set_device(device.place)
    return device


def require(wanted: str, key: str) -> None:
    """Check that `choose` can select what the recipe's `key` wants; selects nothing.

    Raises:
        EnvironmentUnfitError: when it asks for a GPU that cannot be used.
    """
    decide(wanted, gpus.look(), nvidia.look(), key=key)


def decide(
    wanted: str, build: Build, driver: Nvidia, variables: Mapping[str, str] | None = None, key: str = "device"
) -> Device:
    """What `choose` selects, from what is known of Paddle and the driver; touches neither.

    Args:
        variables: the environment of this process unless given.
        key: the recipe's that asks for it, as an error names it.

    Raises:
        EnvironmentUnfitError: when a GPU is asked for and cannot be used.
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


def no_gpu(build: Build, driver: Nvidia, variables: Mapping[str, str]) -> Obstacle | None:
    """Why not one GPU can be used; None when one can."""
    if any(not card.failure for card in build.cards):
        return None
    if build.cuda is None:
        here = f", and {driver.gpus[0].name} is here" if driver.gpus else ""
        return Obstacle(f"this Paddle is built without CUDA{here}", _GPU_PADDLE if driver.gpus else _GO_ON)
    if build.failure:
        return _too_old(build, driver) or Obstacle(build.failure, f"mend CUDA's libraries or the driver, or {_GO_ON}")
    if build.cards:
        return why_unusable(build.cards[0], build, driver)
    if not driver.gpus:
        return Obstacle(f"no GPU is visible: {driver.why}", f"{driver.fix}, or {_GO_ON}")
    if VISIBLE_VARIABLE in variables:
        value = variables[VISIBLE_VARIABLE]
        fix = f"unset it or name a GPU of this machine, or {_GO_ON}"
        return Obstacle(f"{VISIBLE_VARIABLE}={value!r} leaves no GPU visible", fix)
    if all(gpu.mig == () for gpu in driver.gpus):
        fix = f"make an instance (`nvidia-smi mig -cgi PROFILE -C`) or switch MIG off, or {_GO_ON}"
        return Obstacle(f"MIG is on and {driver.gpus[0].name} has no instance", fix)
    return _too_old(build, driver) or Obstacle(
        "Paddle sees no GPU, and the driver does", f"check that CUDA's libraries are the driver's, or {_GO_ON}"
    )


def why_unusable(card: Card, build: Build, driver: Nvidia) -> Obstacle:
    """Why a first computation failed on `card`, as far as it is known."""
    said = f"gpu:{card.index} said: {card.failure}"
    if build.lacks_kernels(card):
        others = f", only for {sm_names(build.kernels)}" if build.kernels else ""
        why = f"this Paddle has no kernels for {card.name}, {sm_name(card.sm)}{others} ({said})"
        return Obstacle(why, f"install a Paddle that is built for {sm_name(card.sm)}, or {_GO_ON}")
    return _too_old(build, driver) or Obstacle(
        f"a first computation failed: {said}", f"mend CUDA's libraries or the driver, or {_GO_ON}"
    )


def _named(wanted: str, build: Build, driver: Nvidia, variables: Mapping[str, str], key: str) -> list[Card]:
    """The cards that `gpu:N` or `gpu:N,M` names, all of which work."""
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


def _too_old(build: Build, driver: Nvidia) -> Obstacle | None:
    """A driver runs programs of its own CUDA and older ones, and, in part, newer ones of the same major version."""
    if not build.cuda or not driver.cuda or _numbers(driver.cuda) >= _numbers(build.cuda):
        return None
    why = f"the driver {driver.driver} runs CUDA up to {driver.cuda}, and this Paddle is built with CUDA {build.cuda}"
    fix = f"install a newer driver, or a Paddle that is built with CUDA {driver.cuda} or older; or {_GO_ON}"
    return Obstacle(why, fix)


def _cpu(why: str, build: Build) -> Device:
    here = machine.look()
    threads = environment.threads(environment.settings())
    return Device(CPU, why, f"{here.cpu_model}, {here.cores}, {counted(threads, 'thread')}", build.about)


def _gpu(cards: Sequence[Card], why: str, build: Build, driver: Nvidia) -> Device:
    known = f"driver {driver.driver}, " if driver.driver else ""
    each = [f"{card.name}, {sm_name(card.sm)}, {card.memory_mib} MiB" for card in cards]
    alike = {text: each.count(text) for text in each}
    hardware = " and ".join(text if count == 1 else f"{count} x {text}" for text, count in alike.items())
    place = f"gpu:{','.join(str(card.index) for card in cards)}"
    return Device(place, why, hardware, known + build.about, cards[0])


def _unusable(key: str, wanted: str, obstacle: Obstacle) -> EnvironmentUnfitError:
    return EnvironmentUnfitError(
        f"{key}: {wanted} was asked for and cannot be used", why=obstacle.why, fix=obstacle.fix
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
