"""Report of `edgepack doctor`: the device for training on this machine, and problems that stop or slow it."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from edgepack import __version__
from edgepack.errors import EnvironmentUnfitError
from edgepack.messages import message
from edgepack.recipe import hub
from edgepack.recipe.hub import HubModel
from edgepack.training import environment
from edgepack.training.environment import Setting
from edgepack.util import hardware, nvidia
from edgepack.util.hardware import Machine
from edgepack.util.nvidia import Nvidia
from edgepack.util.text import mib
from edgepack_runtime.device.doctor import existing_parent

if TYPE_CHECKING:
    from edgepack.training.devices import PaddleBuild

_MOST_SHOWN: Final = 8  # packages in one message
LEAST_FREE_BYTES: Final = 5 * 2**30  # ERNIE-base: weights, the two moments of AdamW and the best weights take 2 GiB


@dataclass(frozen=True)
class Problem:
    """A fault that stops training (`error`) or probably slows it (`warning`)."""

    severity: Literal["error", "warning"]
    what: str
    why: str
    fix: str


@dataclass(frozen=True)
class Report:
    """State of this machine and installation."""

    packages: Mapping[str, str | None]  # versions of the Paddle stack; None: missing
    paddle: PaddleBuild | None  # None: it cannot be imported
    driver: Nvidia
    machine: Machine
    settings: tuple[Setting, ...]  # environment variables of a training
    workspace: Path
    free_bytes: int  # on the disk of the workspace
    models_folder: Path  # of models of PaddleNLP's hub
    models: tuple[HubModel, ...]  # in that folder
    device: str | None  # the device of `device: auto`, in two lines; None: there is none
    problems: tuple[Problem, ...]

    @property
    def can_train(self) -> bool:
        """Whether a training would run, even if slowly."""
        return all(problem.severity == "warning" for problem in self.problems)

    def document(self) -> dict[str, Any]:
        """The report in JSON types; units are in names."""
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
            "models": {"folder": str(self.models_folder), "names": [model.name for model in self.models]},
            "problems": [asdict(problem) for problem in self.problems],
        }


def examine(workspace: Path) -> Report:
    """Examine this machine and test the devices of a training. Imports Paddle.

    Args:
        workspace: folder of stage results, which need not exist.
    """
    settings = environment.settings()  # before Paddle is imported, which sets these variables
    packages, driver, here = environment.installed(), nvidia.detect(), hardware.detect()
    problems = [*_missing(packages), *_doubtful_threads(settings, here)]
    build, device = None, None
    if None not in packages.values():
        problems += _other_versions()
        try:
            environment.start()
        except EnvironmentUnfitError as error:
            problems.append(Problem("error", error.what, error.why, error.fix))
        else:
            build, device, found = _test_devices(driver)
            problems += found
    free_bytes = hardware.free_bytes(workspace)
    problems += _disk(workspace, free_bytes)
    return Report(
        packages,
        build,
        driver,
        here,
        settings,
        workspace,
        free_bytes,
        hub.models_folder(),
        hub.cached(),
        device,
        tuple(problems),
    )


def _test_devices(driver: Nvidia) -> tuple[PaddleBuild, str, list[Problem]]:
    """The installed Paddle, the device of `device: auto`, and the problems of GPUs."""
    from edgepack.training import devices

    build = devices.detect()
    return build, str(devices.decide("auto", build, driver)), list(gpu_problems(build, driver, os.environ))


def gpu_problems(build: PaddleBuild, driver: Nvidia, variables: Mapping[str, str]) -> Iterator[Problem]:
    """Problems of GPUs. A machine without GPUs and a Paddle without CUDA have none."""
    from edgepack.training import devices

    obstacle = devices.no_gpu(build, driver, variables)
    if obstacle is not None and (driver.gpus or build.cuda is not None):
        yield Problem("warning", message("examined.no_gpu"), obstacle.why, obstacle.fix)
    elif obstacle is None:
        for card in (card for card in build.cards if card.failure):
            found = devices.why_unusable(card, build, driver)
            yield Problem(
                "warning", message("examined.unusable", index=card.index, name=card.name), found.why, found.fix
            )
    if driver.gpus and driver.why:
        yield Problem("warning", message("examined.fault"), driver.why, driver.fix)


def _missing(packages: Mapping[str, str | None]) -> Iterator[Problem]:
    missing = [name for name, version in packages.items() if version is None]
    if missing:
        what = message("examined.lacks", names=missing, verb="is" if len(missing) == 1 else "are")
        yield Problem("error", what, message("examined.lacks_why"), environment.FIX)
    if environment.has_both_builds():
        yield Problem(
            "warning",
            message("examined.both", build=environment.GPU_BUILD),
            message("examined.both_why"),
            message("examined.both_fix"),
        )


def _other_versions() -> Iterator[Problem]:
    others = environment.other_versions()
    if others:
        shown = [f"{name} {version} ({tested})" for name, (version, tested) in others.items()]
        more = message("examined.untested_more", n=len(shown) - _MOST_SHOWN) if len(shown) > _MOST_SHOWN else ""
        yield Problem(
            "warning",
            message("examined.untested", n=len(shown), names=shown[:_MOST_SHOWN], more=more),
            message("examined.untested_why"),
            environment.FIX,
        )


def _doubtful_threads(settings: tuple[Setting, ...], here: Machine) -> Iterator[Problem]:
    set_to = next(setting for setting in settings if setting.name == environment.THREADS_VARIABLE)
    threads, best = environment.threads(settings), here.cores.threads
    if set_to.given and threads != best:
        why = message("examined.threads_why", n=threads, best=best, cores=str(here.cores))
        what = message("examined.threads", name=set_to.name, value=repr(set_to.value))
        yield Problem("warning", what, why, message("examined.threads_fix", name=set_to.name))


def _disk(workspace: Path, free_bytes: int) -> Iterator[Problem]:
    place = existing_parent(workspace)
    if not os.access(place, os.W_OK | os.X_OK):
        what, why = (
            message("examined.unwritable", folder=str(workspace)),
            message("examined.unwritable_why", place=str(place)),
        )
        yield Problem("error", what, why, message("examined.unwritable_fix"))
    elif free_bytes < LEAST_FREE_BYTES:
        yield Problem(
            "warning",
            message("examined.little", size=mib(free_bytes), folder=str(workspace)),
            message("examined.little_why"),
            message("examined.little_fix"),
        )
