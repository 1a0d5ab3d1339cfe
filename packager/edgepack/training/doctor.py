"""What `edgepack doctor` finds: what training would run on here, and what keeps it from running or makes it slow."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from edgepack import __version__
from edgepack.errors import EnvironmentUnfitError
from edgepack.training import environment
from edgepack.training.environment import Setting
from edgepack.util import hardware, nvidia
from edgepack.util.hardware import Machine
from edgepack.util.nvidia import Nvidia
from edgepack.util.text import counted, mib
from edgepack_runtime.device.doctor import existing_parent

if TYPE_CHECKING:
    from edgepack.training.devices import Build

LEAST_FREE_BYTES: Final = 5 * 2**30  # ERNIE-base: weights, the two moments of AdamW and the best weights take 2 GiB


@dataclass(frozen=True)
class Problem:
    """Something that keeps training from running (`error`) or is likely not what was meant (`warning`)."""

    severity: Literal["error", "warning"]
    what: str
    why: str
    fix: str


@dataclass(frozen=True)
class Report:
    """One machine with one installation."""

    packages: Mapping[str, str | None]  # of the Paddle stack; None: missing
    paddle: Build | None  # None where it cannot be imported
    driver: Nvidia
    machine: Machine
    settings: tuple[Setting, ...]  # as a training would set them
    workspace: Path
    free_bytes: int  # for the workspace
    device: str | None  # what `device: auto` runs on, in one line and one on its software; None: nothing
    problems: tuple[Problem, ...]

    @property
    def can_train(self) -> bool:
        """Whether a training would run, be it slowly."""
        return all(problem.severity == "warning" for problem in self.problems)

    def document(self) -> dict[str, Any]:
        """The report as plain JSON values; units are in names."""
        return {
            "can_train": self.can_train,
            "device": self.device,
            "edgepack": __version__,
            "python": platform.python_version(),
            "packages": dict(self.packages),
            "paddle": None if self.paddle is None else asdict(self.paddle),
            "driver": asdict(self.driver),
            "machine": asdict(self.machine) | {"threads": environment.threads(self.settings)},
            "settings": [asdict(setting) for setting in self.settings],
            "workspace": {"folder": str(self.workspace), "free_bytes": self.free_bytes},
            "problems": [asdict(problem) for problem in self.problems],
        }


def examine(workspace: Path) -> Report:
    """Look at this machine and try what a training would use; imports Paddle, makes no result.

    Args:
        workspace: the folder of stage results, which may not exist yet.
    """
    settings = environment.settings()  # before Paddle is imported: afterwards all of them seem to be the user's
    packages, driver, here = environment.installed(), nvidia.look(), hardware.look()
    problems = [*_missing(packages), *_doubtful_threads(settings, here)]
    build, device = None, None
    if None not in packages.values():
        try:
            environment.start()
        except EnvironmentUnfitError as error:
            problems.append(Problem("error", error.what, error.why, error.fix))
        else:
            build, device, found = _tried(driver)
            problems += found
    free_bytes = hardware.free_bytes(workspace)
    problems += _disk(workspace, free_bytes)
    return Report(packages, build, driver, here, settings, workspace, free_bytes, device, tuple(problems))


def _tried(driver: Nvidia) -> tuple[Build, str, list[Problem]]:
    """What Paddle is, what `device: auto` chooses, and what is wrong with GPUs that are here."""
    from edgepack.training import devices
    from edgepack.training import devices as device

    build = devices.look()
    return build, str(device.decide("auto", build, driver)), list(gpu_problems(build, driver, os.environ))


def gpu_problems(build: Build, driver: Nvidia, variables: Mapping[str, str]) -> Iterator[Problem]:
    """What is wrong with GPUs that are here or were meant to be used; a machine without any has no problem."""
    from edgepack.training import devices as device

    obstacle = device.no_gpu(build, driver, variables)
    if obstacle is not None and (driver.gpus or build.cuda is not None):
        yield Problem("warning", "no GPU can be used: training runs on the CPU", obstacle.why, obstacle.fix)
    elif obstacle is None:
        for card in (card for card in build.cards if card.failure):
            found = device.why_unusable(card, build, driver)
            yield Problem("warning", f"gpu:{card.index} ({card.name}) cannot be used", found.why, found.fix)
    if driver.gpus and driver.why:
        yield Problem("warning", "the driver reports a fault", driver.why, driver.fix)


def _missing(packages: Mapping[str, str | None]) -> Iterator[Problem]:
    missing = [name for name, version in packages.items() if version is None]
    if missing:
        what = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
        yield Problem("error", what, "training, quantization and export need the whole Paddle stack", environment.FIX)
    if environment.has_both_builds():
        yield Problem(
            "warning",
            f"paddlepaddle and {environment.GPU_BUILD} are both installed",
            "they hold the same files: the one that was installed last overwrote the other",
            "uninstall both, then install the one that is meant",
        )


def _doubtful_threads(settings: tuple[Setting, ...], here: Machine) -> Iterator[Problem]:
    set_to = next(setting for setting in settings if setting.name == environment.THREADS_VARIABLE)
    threads, best = environment.threads(settings), here.cores.threads
    if set_to.given and threads != best:
        why = f"Paddle will use {counted(threads, 'thread')} where {counted(best, 'thread')} can run: {here.cores}"
        what = f"{set_to.name} is set to {set_to.value!r}"
        yield Problem("warning", what, why, f"unset it, unless the rest is for other work: `unset {set_to.name}`")


def _disk(workspace: Path, free_bytes: int) -> Iterator[Problem]:
    place = existing_parent(workspace)
    if not os.access(place, os.W_OK | os.X_OK):
        why = f"this user may not write in {place}"
        yield Problem("error", f"the workspace {workspace} cannot be written", why, "choose another with --workspace")
    elif free_bytes < LEAST_FREE_BYTES:
        yield Problem(
            "warning",
            f"{mib(free_bytes)} are free for the workspace {workspace}",
            "a training of ERNIE-base with its checkpoint and results takes some GiB",
            "free some space, or choose another disk with --workspace",
        )
