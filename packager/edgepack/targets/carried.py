"""Whether wheels that were given by path run on their target."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from edgepack.progress import Progress
from edgepack.targets import wheels
from edgepack.targets.site import assemble
from edgepack.targets.supply import Supply


def require_fitting(target: str, supply: Supply, progress: Progress) -> None:
    """Look into the wheels of a bundle for `target` as its own stage will.

    Raises:
        EnvironmentUnfitError, StageFailedError: as for the bundle itself.
    """
    progress.line(f"looking into the wheels that were given for {target}")
    profile = supply.profile(target)
    with TemporaryDirectory() as scratch:
        assemble(wheels.fetch(profile, supply, progress), Path(scratch), profile, given=supply.given.get(target, ()))
