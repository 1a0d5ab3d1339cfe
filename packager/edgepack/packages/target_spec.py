"""What a bundle carries for one machine of its target, besides model and runtime: made once from recipe and profile."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from edgepack.interpreter import from_archive
from edgepack.recipe.model import AnyRecipe, OwnInterpreter
from edgepack.targets import tags
from edgepack.targets.profiles import Profile
from edgepack.targets.tags import Python
from edgepack_runtime.bundle.manifest import BUNDLED


@dataclass(frozen=True)
class TargetSpec:
    """A target with one machine, and the packages that its bundle carries.

    Attributes:
        profile: that and its C library decide which wheels fit, whatever runs here.
        serve: with what the verb `serve` imports.
        engine: with ONNX Runtime; a linear model runs without it.
        packages: the recipe's requirements file, as `requirements.load` reads it.
        python: version of the Python that these packages run on; None for wheels that any Python takes.
    """

    profile: Profile
    serve: bool = False
    engine: bool = True
    packages: Path | None = None
    python: Python | None = None


def target_specs(recipe: AnyRecipe | None, profile: Profile) -> tuple[TargetSpec, ...]:
    """One for each machine of a recipe's target; without a recipe with everything that any recipe may ask for.

    Raises:
        StageFailedError: as `python_of`.
    """
    machines = [profile.on(machine) for machine in profile.machines]
    if recipe is None:
        return tuple(TargetSpec(one, serve=True) for one in machines)
    python = None if recipe.requirements is None else python_of(recipe, profile)  # reads an archive
    return tuple(TargetSpec(one, recipe.serve, recipe.needs_engine, recipe.requirements, python) for one in machines)


def python_of(recipe: AnyRecipe | None, profile: Profile) -> Python | None:
    """Version of the Python that a bundle runs on; None where the device decides.

    Raises:
        StageFailedError: the archive of the recipe is not there, or another, or holds no standard library.
    """
    if recipe is not None and isinstance(recipe.interpreter, OwnInterpreter):
        return from_archive.python_of(recipe.interpreter)
    if profile.interpreter == BUNDLED:
        return tags.PYTHON
    return None if profile.glibc else sys.version_info[:2]
