"""What the wheels of an engine take of a device."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from edgepack.progress import Progress
from edgepack.targets import wheels
from edgepack.targets.site import assemble
from edgepack.targets.supply import Supply


def site_bytes(target: str, engine: str, supply: Supply, progress: Progress) -> int:
    """Bytes of `site/`, unpacked and slimmed, in a bundle for `target` whose model runs on `engine`.

    Raises:
        EnvironmentUnfitError, StageFailedError: as for the bundle itself.
    """
    profile = supply.profile(target)
    with TemporaryDirectory() as scratch:
        found = wheels.fetch(profile, engine, supply, progress)
        return assemble(found, Path(scratch), profile).site_bytes
