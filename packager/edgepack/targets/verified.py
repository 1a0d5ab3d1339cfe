"""A bundle checked by the runtime's own verifier, its errors told as the build side tells them."""

from __future__ import annotations

from pathlib import Path

from edgepack.errors import BundleInvalidError
from edgepack_runtime.errors import DeviceError
from edgepack_runtime.manifest import Manifest
from edgepack_runtime.verify import verify_file


def verified(bundle: Path) -> Manifest:
    """The manifest of `bundle`, every byte of which was compared with it.

    Raises:
        BundleInvalidError: naming the damaged member, or the part of the file.
    """
    try:
        manifest, _ = verify_file(bundle)
    except DeviceError as error:
        raise BundleInvalidError(error.what, why=error.why, fix=error.fix) from error
    return manifest
