"""Cutting a bundle: the parts are its bytes, the same each time, and nothing of anybody else is replaced."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from edgepack.cli import main
from edgepack.errors import BundleInvalidError, UsageError
from edgepack.targets import splitting
from edgepack.targets.archive import write_bundle
from edgepack_runtime import manifest as contract
