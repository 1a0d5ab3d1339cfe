"""What tests of installs share: the fixtures' types, an ear that hears nothing, and the name of a release."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from edgepack_runtime.bundle.manifest import release_id
from edgepack_runtime.bundle.verify import verify_file

Device = Callable[..., "subprocess.CompletedProcess[str]"]
MakeBundle = Callable[..., Path]


def silent(text: str) -> None:
    """Nobody listens."""


def id_of(bundle: Path) -> str:
    """What the release that a bundle holds is called on a device."""
    return release_id(*verify_file(bundle))
