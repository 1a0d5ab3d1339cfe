"""What processes are started with."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepack.util.process import find_program


@pytest.mark.parametrize("entry", ["", ".", "folder/.."])
def test_no_program_of_the_current_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{entry}:/bin")
    assert find_program("tool") is None
    monkeypatch.setenv("PATH", f"{entry}:{tmp_path}")
    assert find_program("tool") == str(tmp_path / "tool")
