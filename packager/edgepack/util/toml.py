"""Reading TOML: the standard library's reader, and on Python 3.10, which has none, the package that became it."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 11):
    from tomllib import loads
else:
    from tomli import loads

__all__ = ["loads"]
