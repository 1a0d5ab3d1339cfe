"""`edgepack demo` as a new user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_the_whole_way_is_shown(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "edgepack.cli", "demo", "--keep", str(tmp_path / "demo")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('  {"label"')]
    assert [answer["label"] for answer in answers] == ["正面", "负面", "负面"]
    assert "is damaged" in done.stdout
    program = tmp_path / "demo" / "app" / "bin" / "demo"
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    assert version.startswith("demo 1.0.0 ")
