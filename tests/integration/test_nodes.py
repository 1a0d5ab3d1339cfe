"""Builds on two machines that train together, both played by this one; and what their processes do when one dies."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.integration.conftest import write_rows
from tests.integration.test_ranks import free_ports

from edgepack.training.checkpoint import FILE, SECONDS_VARIABLE

pytestmark = [pytest.mark.integration, pytest.mark.sweep]
RECIPE = """\
edgepack: 1
name: tiny
version: 0.1.0
data: {{train: train.tsv, dev: dev.tsv, test: test.tsv}}
student:
  model: {{scratch: {{layers: 1, hidden: 16, heads: 2}}}}
  distill: null
  epochs: {epochs}
  batch_size: 16
  learning_rate: 1e-2
  max_length: 16
  device: cpu
  nodes: {{count: 2, master: "127.0.0.1:{port}"}}
"""
_SOON_SECONDS = 240.0  # on a machine that has much else to do


class Pair:
    """Two folders with a recipe each, and the builds that run in them."""

    def __init__(self, folder: Path) -> None:
        self.folders = [folder / "one", folder / "two"]
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        (port,) = free_ports(1)
        for place in self.folders:
            place.mkdir()
            write_rows(place)
            (place / "tiny.yaml").write_text(RECIPE.format(epochs=4, port=port), encoding="utf-8")

    @contextmanager
    def builds(self, *more: str) -> Iterator[list[subprocess.Popen[str]]]:
        """Both, up to the student unless told `more`, with a checkpoint after every step; none is left behind."""
        command = [sys.executable, "-m", "edgepack.cli", "build", "tiny.yaml", "--until", "student", *more]
        variables = {**os.environ, SECONDS_VARIABLE: "0", "TMPDIR": str(self.temporary)}
        started = [
            subprocess.Popen(
                command, cwd=folder, env=variables, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, encoding="utf-8"
            )
            for folder in self.folders
        ]
        try:
            yield started
        finally:
            for build in started:
                build.kill()
                build.communicate()

    def processes(self) -> list[int]:
        """Launchers and workers: their command lines name a folder below TMPDIR."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                words = (place / "cmdline").read_bytes()
            except OSError:  # it has ended
                continue
            if str(self.temporary).encode() in words:
                found.append(int(place.name))
        return found

    def checkpoints(self) -> list[Path]:
        return [file for folder in self.folders for file in folder.glob(f".edgepack/student/*/checkpoint/{FILE}")]

    def weights(self, stage: str = "student") -> list[bytes]:
        files = [file for folder in self.folders for file in folder.glob(f".edgepack/{stage}/*/model_state.pdparams")]
        return [file.read_bytes() for file in files]


def wait_until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _SOON_SECONDS
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.02)


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def test_two_builds_killed_while_they_train_go_on_together(pair: Pair) -> None:
    with pair.builds() as builds:
        wait_until(lambda: len(pair.checkpoints()) == 2, "a checkpoint on each machine")
        for build, number in zip(builds, (signal.SIGKILL, signal.SIGTERM), strict=True):
            build.send_signal(number)
        wait_until(lambda: not pair.processes(), "the processes end with the builds that started them")
    with pair.builds() as builds:
        said = [build.communicate(timeout=_SOON_SECONDS)[1] for build in builds]
        assert [build.returncode for build in builds] == [0, 0], said
    assert not pair.processes()
    for text in said:
        assert "2 processes, 2 x 16 rows a step, learning rate x 1.41 (sqrt)" in text
        assert re.search(r"train student: continues at step \d+ of 60, where it was interrupted", text), text
    one, two = pair.weights()
    assert one == two


def test_two_builds_prune_the_width_of_a_student_together(pair: Pair) -> None:
    """It starts from what both have trained, and learns from that: nothing of it names a folder of one machine."""
    less = ("--set", "student.width=0.5", "--set", "student.epochs=2")
    with pair.builds(*less, "--until", "width_pruning") as builds:
        said = [build.communicate(timeout=3 * _SOON_SECONDS)[1] for build in builds]  # they meet twice
        assert [build.returncode for build in builds] == [0, 0], said
    for text in said:
        assert "width-pruned: 2 processes, 2 x 16 rows a step, learning rate x 1.41 (sqrt)" in text
        assert "width-pruned: every layer keeps 1 of 2 heads and 32 of 64 neurons, chosen on 480 training rows" in text
        assert "width_pruning: 2 -> 1 head, 64 -> 32 neurons a layer; dev " in text
    one, two = pair.weights("width_pruning")
    assert one == two


def test_builds_that_would_train_different_things_are_told(pair: Pair) -> None:
    recipe = pair.folders[1] / "tiny.yaml"
    recipe.write_text(recipe.read_text(encoding="utf-8").replace("epochs: 4", "epochs: 5"), encoding="utf-8")
    with pair.builds() as builds:
        said = [build.communicate(timeout=_SOON_SECONDS)[1] for build in builds]
        assert [build.returncode for build in builds] == [5, 5], said
    for text in said:
        assert "error: student: the machines of `nodes` do not train the same" in text
        assert "why: they differ in: its settings" in text
    assert not pair.processes()


def test_a_worker_that_is_killed_ends_both_builds(pair: Pair) -> None:
    with pair.builds() as builds:
        wait_until(lambda: len(pair.checkpoints()) == 2, "a checkpoint on each machine")
        victim = next(number for number in pair.processes() if is_worker(number) and is_first(number))
        os.kill(victim, signal.SIGKILL)
        said = [build.communicate(timeout=_SOON_SECONDS)[1] for build in builds]
        assert [build.returncode for build in builds] == [5, 5], said
    assert any("a process of the training was killed" in text for text in said), said
    assert all("on all of them" in text or "continues from the last checkpoint" in text for text in said), said
    assert not pair.processes()


def is_worker(number: int) -> bool:
    words = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
    return b"edgepack.training.launch" in words and b"paddle.distributed.launch" not in words


def is_first(number: int) -> bool:
    """Whether it keeps the store at which the ranks meet, so that the other one notices at once."""
    return b"PADDLE_TRAINER_ID=0" in Path(f"/proc/{number}/environ").read_bytes().split(b"\0")
