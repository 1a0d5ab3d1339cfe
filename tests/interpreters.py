"""Pythons of this machine, for tests of what every Python has to run."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

import pytest

from edgepack_runtime.bundle.manifest import MACHINES


def required_python(version: str) -> Path:
    """An interpreter of `version`, such as "3.8"; the test is skipped without one."""
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    found = kept[-1] if kept else shutil.which(f"python{version}")
    if not found:
        pytest.skip(f"there is no Python {version} here")
    return Path(found)


def other_machine() -> str:
    """One that this machine is not."""
    return next(machine for machine in MACHINES if machine != platform.machine())
