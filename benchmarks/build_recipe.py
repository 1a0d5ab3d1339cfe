"""Run a recipe with the command line, for benchmarks that measure what comes out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def build_recipe(path: Path, workspace: Path, until: str, settings: Sequence[str] = ()) -> dict[str, Path]:
    """Run a recipe, with `settings` as --set takes them, up to a stage; the folder of each stage's result."""
    command = [sys.executable, "-m", "edgepack.cli", "build", str(path), "--until", until, "--json"]
    command += [part for setting in settings for part in ("--set", setting)]
    done = subprocess.run([*command, "--workspace", str(workspace)], stdout=subprocess.PIPE, text=True, check=True)
    return {stage["stage"]: Path(stage["folder"]) for stage in json.loads(done.stdout)["stages"]}
