"""A tiny recipe and one build of it with the real stack, shared by all integration tests."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgepack.data.synthetic.reviews_zh import generate

RECIPE = """\
edgepack: 1
name: tiny
version: 0.1.0
data:
  train: train.tsv
  dev: dev.tsv
  test: test.tsv
  calibration: {from: train, rows: 32}
teacher:
  model: {scratch: {layers: 2, hidden: 64, heads: 4}}
  epochs: 1
  learning_rate: 1e-3
  max_length: 24
student:
  model: {scratch: {layers: 2, hidden: 312, heads: 12}}
  epochs: 1
  learning_rate: 1e-3
  max_length: 24
gates:
  accuracy: {min: 0.3, confidence: 0.9}
  latency: {p95_ms: 5000}
  memory: {peak_rss_mib: 2000}
  size: {model_mib: 5, bundle_mib: 200}
  cold_start: {ms: 60000}
"""
SIZES = {"train": 480, "dev": 60, "test": 120}


@dataclass(frozen=True)
class Project:
    """A folder with a recipe, built once; commands run in it."""

    folder: Path

    def edgepack(
        self, *arguments: str, environment: Mapping[str, str] | None = None, umask: int = -1
    ) -> subprocess.CompletedProcess[str]:
        """What the command said. `environment` is beside that of this process; -1 leaves the umask as it is."""
        return subprocess.run(
            [sys.executable, "-I", "-m", "edgepack.cli", *arguments],
            cwd=self.folder,
            env={**os.environ, **(environment or {})},
            umask=umask,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
            timeout=900,
        )

    def copy(self, folder: Path, *left_out: str) -> Project:
        """A copy for another recipe, without dist/ and stages of the names `left_out`: the other stages are cached."""
        shutil.copytree(self.folder, folder, ignore=shutil.ignore_patterns("dist*", *left_out))
        return Project(folder)

    @property
    def bundle(self) -> Path:
        return self.folder / "dist" / "tiny-0.1.0-local.edgepack"


def write_rows(folder: Path) -> None:
    for split, rows in generate(0, SIZES).items():
        lines = ["text\tlabel", *(f"{row.text}\t{row.label}" for row in rows)]
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, subprocess.CompletedProcess[str]]:
    """The project and the result of its first build. One test process builds; each has a copy of the folder."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent  # that of all test processes
    first, result = shared / "tiny", shared / "tiny.json"
    with (shared / "tiny.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.is_file():
            first.mkdir()
            write_rows(first)
            (first / "tiny.yaml").write_text(RECIPE, encoding="utf-8")
            planted = [first / f"{name}.py" for name in ("bisect", "heapq", "json", "random", "statistics")]
            for module in planted:  # a build imports nothing of the folder that it is started in
                module.write_text("import os; os._exit(99)\n", encoding="utf-8")
            done = Project(first).edgepack("build", "tiny.yaml")
            for module in planted:
                module.unlink()
            result.write_text(json.dumps([done.args, done.returncode, done.stdout, done.stderr]), encoding="utf-8")
    folder = tmp_path_factory.mktemp("project") / "tiny"
    shutil.copytree(first, folder)
    return Project(folder), subprocess.CompletedProcess(*json.loads(result.read_text(encoding="utf-8")))


@pytest.fixture(scope="session")
def project(built: tuple[Project, subprocess.CompletedProcess[str]]) -> Project:
    project, result = built
    assert result.returncode == 0, result.stderr[-4000:]
    return project


@pytest.fixture(scope="session")
def device_environment() -> dict[str, str]:
    """What a device offers: a PATH, and a HOME that does not exist."""
    return {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "TMPDIR": os.environ.get("TMPDIR", "/tmp")}
