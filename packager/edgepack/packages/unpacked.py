"""The packages of a recipe, unpacked for the Python that builds: a handler runs with them during the build."""

from __future__ import annotations

import hashlib
import platform
import sys
import tempfile
from pathlib import Path
from typing import Final

from edgepack.errors import StageFailedError
from edgepack.packages import local_wheels, wheels
from edgepack.packages.site_packages import SITE, assemble
from edgepack.progress import Progress
from edgepack.targets.context import BuildContext
from edgepack.targets.profiles import Profile
from edgepack_runtime.bundle.manifest import HOST

_VERSION: Final = 1  # of what lies in a folder; a higher one makes all folders again


def unpacked_here(
    requirements: Path,
    context: BuildContext,
    progress: Progress,
    folder: Path,
    *,
    download: wheels.Download | None = None,
) -> Path:
    """A folder for `sys.path` with the packages of the requirements file, for this Python on this machine.

    It is made once, below `folder`, and found again by the digest of the wheels.

    Args:
        requirements: as `requirements.load` reads it.
        context: where wheels are kept and come from.
        progress: gets one step a package.
        folder: cache of such folders; made if it is not there.
        download: as in `wheels.fetch`.

    Raises:
        RecipeInvalidError: the requirements are invalid.
        EnvironmentUnfitError: a wheel is not cached, and could not be downloaded.
        StageFailedError: a wheel is damaged, or does not run on this machine; or the folder cannot be written.
    """
    python = sys.version_info[:2]
    here = Profile("this machine", "", (platform.machine(),), HOST)
    found = wheels.fetch_for(requirements, here, python, context, progress, download=download)
    digests = "\n".join(wheel.parent.name for wheel in found)
    key = hashlib.sha256(f"{_VERSION} {python} {digests}".encode()).hexdigest()[:16]
    place = folder / key
    if place.is_dir():
        return place / SITE
    names = {local_wheels.package_of(wheel) for wheel in found}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder) as scratch:
            facts = assemble(found, Path(scratch) / key, here, added=names, python=python)
            if not place.is_dir():  # another build may have been faster
                facts.folder.rename(place)
    except OSError as error:
        if not place.is_dir():
            raise StageFailedError(
                f"the packages of {requirements.name} cannot be unpacked into {folder}",
                why=error.strerror or str(error),
            ) from error
    return place / SITE
