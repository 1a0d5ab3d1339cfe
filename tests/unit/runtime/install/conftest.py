"""An install to change."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.runtime.installing import silent

from edgepack_runtime.install.install import install
from edgepack_runtime.install.prefix import Prefix


@pytest.fixture
def installed(small_bundle: Path, prefix: Prefix, proven: None) -> Prefix:
    """The small bundle serves; no process was started for it."""
    install(small_bundle, prefix.root, log=silent)
    return prefix
