"""What the wheels of an engine take of a device."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from edgepack.progress import Progress
from edgepack.targets import wheels
from edgepack.targets.site import SiteFacts, assemble
from edgepack.targets.supply import Supply


def site_bytes(target: str, engine: str, supply: Supply, progress: Progress) -> int:
    """Bytes of `site/`, unpacked and slimmed, in a bundle for `target` whose model runs on `engine`.

    Raises:
        EnvironmentUnfitError, StageFailedError: as for the bundle itself.
    """
    return _assembled(target, engine, supply, progress).site_bytes


def require_fitting(target: str, engine: str, supply: Supply, progress: Progress) -> None:
    """Look into the wheels of a bundle for `target` as its own stage will.

    Raises:
        EnvironmentUnfitError, StageFailedError: as for the bundle itself.
    """
    progress.line(f"looking into the wheels that were given for {target}")
    _assembled(target, engine, supply, progress)


def _assembled(target: str, engine: str, supply: Supply, progress: Progress) -> SiteFacts:
    """What `site/` of such a bundle is; the folder does not last."""
    profile = supply.profile(target)
    with TemporaryDirectory() as scratch:
        found = wheels.fetch(profile, engine, supply, progress)
        return assemble(found, Path(scratch), profile, given=supply.given.get(target, ()))
