"""Golden files: what a test expects, as a file. `make golden` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

WRITES = "EDGEPACK_WRITE_GOLDEN"  # set by `make golden`


def assert_golden(found: str, file: Path) -> None:
    """Check that `found` is what `file` holds; with `EDGEPACK_WRITE_GOLDEN=1` it is written instead."""
    if os.environ.get(WRITES) == "1":
        file.write_text(found, encoding="utf-8")
    assert found == file.read_text(encoding="utf-8")
