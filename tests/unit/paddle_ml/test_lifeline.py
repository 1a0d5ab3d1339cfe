"""A process that hangs on a build ends with it, however the build ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgepack.paddle_ml.lifeline import MODULE, Lifeline

FOREVER = "import sys, time\nprint('there', sys.argv, flush=True)\ntime.sleep(600)\n"
HOLDER = (
    "import sys, time\nfrom pathlib import Path\nfrom edgepack.paddle_ml.lifeline import Lifeline\n"
    "line = Lifeline(Path(sys.argv[1]))\nprint('held', flush=True)\ntime.sleep(600)\n"
)


@contextmanager
def running(*command: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has said its first line; it is not left behind."""
    process = subprocess.Popen(
        [sys.executable, *command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8"
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_module_runs_with_its_arguments_until_the_line_is_cut(tmp_path: Path) -> None:
    (tmp_path / "forever.py").write_text(FOREVER, encoding="utf-8")
    line = Lifeline(tmp_path / "line")
    with running("-m", MODULE, str(tmp_path / "line"), "forever", "--nnodes", "2", folder=tmp_path) as process:
        assert said(process) == f"there ['{tmp_path / 'forever.py'}', '--nnodes', '2']"
        assert process.poll() is None
        line.cut()
        assert process.wait(60) == 3


def test_a_build_that_is_killed_takes_its_processes_along(tmp_path: Path) -> None:
    (tmp_path / "forever.py").write_text(FOREVER, encoding="utf-8")
    with running("-c", HOLDER, str(tmp_path / "line"), folder=tmp_path) as build:
        assert said(build) == "held"
        with running("-m", MODULE, str(tmp_path / "line"), "forever", folder=tmp_path) as process:
            assert said(process).startswith("there")
            build.kill()
            assert process.wait(60) == 3
