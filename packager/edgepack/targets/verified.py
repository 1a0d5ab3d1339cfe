"""What the runtime's own verifier finds of a bundle, its errors told as the build side tells them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from edgepack.errors import BundleInvalidError, EdgepackError, EnvironmentUnfitError, UsageError
from edgepack_runtime.errors import DeviceError
from edgepack_runtime.exit_codes import ExitCode
from edgepack_runtime.manifest import Manifest
from edgepack_runtime.verify import verify_file

_KINDS: Final[Mapping[ExitCode, type[EdgepackError]]] = {
    ExitCode.USAGE: UsageError,
    ExitCode.ENVIRONMENT_UNFIT: EnvironmentUnfitError,
}


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Errors of the runtime inside the block as errors of ours, with the same exit code.

    Raises:
        UsageError: there is no such file.
        EnvironmentUnfitError: it may not be read, or its signature cannot be checked here.
        BundleInvalidError: naming what is damaged or wrong.
    """
    try:
        yield
    except DeviceError as error:
        kind = _KINDS.get(error.exit_code, BundleInvalidError)
        raise kind(error.what, why=error.why, fix=error.fix) from error


def verified(bundle: Path) -> Manifest:
    """The manifest of `bundle`, every byte of which was compared with it; who signed it is not looked at.

    Raises:
        As `told`.
    """
    with told():
        return verify_file(bundle)[0]
