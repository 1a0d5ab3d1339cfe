"""A tiny recipe and one build of it with the real stack, shared by all integration tests."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.integration.warm import Warm, warm

from edgepack.data.synthetic.reviews_zh import POSITIVE, generate
from edgepack_runtime.errors import ExitCode
from edgepack_runtime.util import gate_lock

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
  epochs: 3
  learning_rate: 3e-3
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
"""
STUDENT = "  model: {scratch: {layers: 2, hidden: 312, heads: 12}}\n"
STEPS = "  epochs: 1\n  learning_rate: 1e-3\n"
SMALL_STEPS = "  epochs: 3\n  learning_rate: 1e-2\n"  # in which a student of 16 to 32 units learns
SIZES = {"train": 480, "dev": 60, "test": 120}
HERE = f"linux-{platform.machine()}"
CARRIED = ("--set", f"targets=[{HERE}]", "--set", "serve=true")
Done = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Project:
    """A folder with a recipe, built once; commands run in it."""

    folder: Path

    def edgepack(self, *arguments: str) -> Done:
        """What the command said, in a fork of a process that has imported Paddle."""
        return warm().run(arguments, self.folder)

    def edgepack_alone(
        self,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        umask: int = -1,
        flags: Sequence[str] = ("-I",),
    ) -> Done:
        """As `edgepack`, in its own process.

        Args:
            environment: added to that of this process.
            umask: -1 leaves it as it is.
            flags: of Python; with `-I` it reads no variables.
        """
        return subprocess.run(
            [sys.executable, *flags, "-m", "edgepack.cli", *arguments],
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
    """Rows whose first character tells the label of nine in ten, so that a training of some steps learns it."""
    for split, rows in generate(0, SIZES).items():
        right = [number % 10 > 0 for number in range(len(rows))]
        marks = [
            "好" if (row.label == POSITIVE) == is_right else "差" for row, is_right in zip(rows, right, strict=True)
        ]
        marked = (f"{mark}{row.text[1:]}\t{row.label}" for mark, row in zip(marks, rows, strict=True))
        lines = ["text\tlabel", *marked]
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """That of all test processes."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session", autouse=True)
def deflated(tmp_path_factory: pytest.TempPathFactory) -> None:
    Warm.deflated = shared_folder(tmp_path_factory) / "deflated"
    Warm.deflated.mkdir(exist_ok=True)


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Done]) -> tuple[Path, Done]:
    """A folder that one test process fills with `make`, and the command's result. The folder is for all: copy it."""
    shared = shared_folder(factory)
    folder, result = shared / name, shared / f"{name}.json"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.is_file():
            done = make(folder)
            result.write_text(json.dumps([done.args, done.returncode, done.stdout, done.stderr]), encoding="utf-8")
    return folder, subprocess.CompletedProcess(*json.loads(result.read_text(encoding="utf-8")))


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Done]:
    """The project and the result of its first build. One test process builds; each has a copy of the folder."""

    def make(first: Path) -> Done:
        first.mkdir()
        write_rows(first)
        (first / "tiny.yaml").write_text(RECIPE, encoding="utf-8")
        planted = [first / f"{name}.py" for name in ("bisect", "heapq", "json", "random", "statistics")]
        for module in planted:  # a build imports nothing of the folder that it is started in
            module.write_text("import os; os._exit(99)\n", encoding="utf-8")
        done = Project(first).edgepack_alone("build", "tiny.yaml")
        for module in planted:
            module.unlink()
        return done

    first, done = once(tmp_path_factory, "tiny", make)
    folder = tmp_path_factory.mktemp("project") / "tiny"
    shutil.copytree(first, folder)
    return Project(folder), done


@pytest.fixture(scope="session")
def project(built: tuple[Project, Done]) -> Project:
    project, result = built
    assert result.returncode == 0, result.stderr[-4000:]
    return project


@pytest.fixture(scope="session")
def device_environment(lock_folder: Path) -> dict[str, str]:
    """What a device offers: a PATH, and a HOME that does not exist. Its gates wait for those of this process alone."""
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": "/nonexistent",
        "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
        gate_lock.VARIABLE: str(lock_folder),
    }


@pytest.fixture(scope="session")
def carried(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy of the project with `dist/` of a bundle that carries an interpreter, and serves. It is built once for all.

    Tests that need it are skipped where the packages of the interpreter cannot be had.
    """

    def make(folder: Path) -> Done:
        copy = project.copy(folder)
        done = copy.edgepack("fetch", "--target", HERE)
        return done if done.returncode else copy.edgepack("build", "tiny.yaml", *CARRIED, "--offline")

    first, done = once(tmp_path_factory, "carried", make)
    if done.returncode == ExitCode.ENVIRONMENT_UNFIT and "fetch" in done.args:
        pytest.skip(f"the packages of the interpreter cannot be had here: {done.stderr[-400:]}")
    assert done.returncode == 0, done.stderr[-4000:]
    folder = tmp_path_factory.mktemp("carried") / "tiny"
    shutil.copytree(first, folder)
    return Project(folder)
