"""The interpreter of this machine that virtual environments are made from."""

from __future__ import annotations

import sys


def base_python() -> str:
    """The interpreter that the running virtual environment was made from."""
    return str(getattr(sys, "_base_executable", sys.executable))
