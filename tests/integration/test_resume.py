"""Killed at any moment and started again, a build ends with the very bytes of one that was left alone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from tests.integration import trainings
from tests.integration.conftest import RECIPE, Project, write_rows
from tests.integration.test_width import pruned, taught
from tests.integration.trainings import ONE, Heard, classifier_of
from tests.stage_lists import begun, known, ordered

from edgepack.recipe.training import Distill
from edgepack.training.checkpoint import FILE, SECONDS_VARIABLE, Arrays, Checkpoint, State

pytestmark = pytest.mark.integration


class Killed(Exception):
    """Stands in for the kill."""


class Killing(Checkpoint):
    """Writes a checkpoint after every step, and dies after `deadly` of them."""

    def __init__(self, folder: Path, deadly: int) -> None:
        super().__init__(folder, seconds=0.0)
        self._left = deadly

    def is_due(self) -> bool:
        return True

    def write(self, state: State) -> None:
        super().write(state)
        self._left -= 1
        if not self._left:
            raise Killed


def learn(folder: Path, checkpoint: Checkpoint, said: Heard | None = None) -> Arrays:
    """The weights that a distillation ends with, through a projection that is kept in its checkpoints too."""
    teacher = classifier_of(ONE, folder / "teacher")
    distill = Distill(hidden=True)
    return trainings.learn(ONE, folder, checkpoint=checkpoint, distill=distill, teacher=teacher, said=said).weights


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Arrays:
    folder = tmp_path_factory.mktemp("undisturbed")
    return learn(folder, Checkpoint(folder / "checkpoint", seconds=1e9))


@pytest.mark.parametrize("steps", [(1,), (6,), (7,), (8,), (17,), (18,), (3, 4, 1)], ids=str)
def test_an_interrupted_training_ends_with_the_same_weights(
    tmp_path: Path, undisturbed: Arrays, steps: tuple[int, ...]
) -> None:
    """Within an epoch, at its end, at the start of the next, after the last step, and again and again."""
    for deadly in steps:
        with pytest.raises(Killed):
            learn(tmp_path, Killing(tmp_path / "checkpoint", deadly))
    said = Heard()
    found = learn(tmp_path, Checkpoint(tmp_path / "checkpoint", seconds=1e9), said)
    assert said.beside_epochs == [f"train: continues at step {sum(steps)} of 18, where it was interrupted"]
    assert found.keys() == undisturbed.keys()
    for name, value in undisturbed.items():
        assert np.array_equal(found[name], value), name


def test_an_interrupted_training_of_a_pruned_student_ends_with_the_same_weights(tmp_path: Path) -> None:
    """What it keeps of its teacher is chosen anew before its checkpoint is taken up."""

    def end(folder: Path, checkpoint: Checkpoint) -> Arrays:
        teacher = taught(folder / "teacher")
        student = pruned(folder / "teacher", "student", 0.5)
        distill = Distill(hidden=True, relations=True)
        return trainings.learn(
            ONE, folder, classifier=student, checkpoint=checkpoint, distill=distill, teacher=teacher
        ).weights

    expected = end(tmp_path / "one", Checkpoint(tmp_path / "one" / "checkpoint", seconds=1e9))
    with pytest.raises(Killed):
        end(tmp_path / "two", Killing(tmp_path / "two" / "checkpoint", 9))
    found = end(tmp_path / "two", Checkpoint(tmp_path / "two" / "checkpoint", seconds=1e9))
    assert all(np.array_equal(found[name], value) for name, value in expected.items())


@pytest.mark.parametrize("damage", [b"", b"PK", None])
def test_a_damaged_checkpoint_starts_anew(tmp_path: Path, undisturbed: Arrays, damage: bytes | None) -> None:
    with pytest.raises(Killed):
        learn(tmp_path, Killing(tmp_path / "checkpoint", 9))
    file = tmp_path / "checkpoint" / FILE
    whole = bytearray(file.read_bytes())
    whole[len(whole) // 2] ^= 1
    file.write_bytes(whole if damage is None else damage)
    said = Heard()
    found = learn(tmp_path, Checkpoint(tmp_path / "checkpoint", seconds=1e9), said)
    assert said.beside_epochs == ["train: the checkpoint is damaged; starting again"]
    assert all(np.array_equal(found[name], value) for name, value in undisturbed.items())


def started(folder: Path) -> subprocess.Popen[str]:
    """A build of the tiny recipe that writes a checkpoint after every step."""
    command = [sys.executable, "-m", "edgepack.cli", "build", "tiny.yaml"]
    environment = {**os.environ, SECONDS_VARIABLE: "0"}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, encoding="utf-8"
    )


def kill_at(folder: Path, head: str) -> re.Match[str]:
    """Start a build, kill it as soon as it prints a line like the pattern `head`, and return what matched."""
    build = started(folder)
    assert build.stderr is not None
    matches = (re.fullmatch(head, line.rstrip("\n")) for line in build.stderr)
    found = next(filter(None, matches), None)
    assert found is not None, f"the build ended without the line {head}"
    build.send_signal(signal.SIGKILL)
    build.communicate()
    return found


def kill_in_training(folder: Path, stage: str) -> None:
    """Start a build and kill it as soon as the training of `stage` has left a checkpoint."""
    build = started(folder)
    while not any((folder / ".edgepack" / stage).glob(f"*.partial/checkpoint/{FILE}")):
        assert build.poll() is None, "the build ended without a checkpoint"
        try:
            build.wait(0.005)
        except subprocess.TimeoutExpired:
            continue
    build.send_signal(signal.SIGKILL)
    build.communicate()


def contents(bundle: Path) -> dict[str, int]:
    """The checksum of each file in a bundle, by name: where bundles differ, this says in what."""
    with zipfile.ZipFile(bundle) as files:
        return {item.filename: item.CRC for item in files.infolist()}


@pytest.mark.paddle33
@pytest.mark.sweep
def test_a_build_killed_everywhere_makes_the_same_bundle(project: Project, tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(RECIPE, encoding="utf-8")
    write_rows(tmp_path)
    steps = {"teacher": 45, "student": 15}
    killed: list[str] = []
    total = 1  # the first line says how many there are
    while len(killed) < total:
        head = kill_at(tmp_path, rf"\[{len(killed) + 1}/(\d+)\] (\w+)")
        total, stage = int(head[1]), head[2]
        killed.append(stage)
        if stage in steps:
            kill_in_training(tmp_path, stage)
            kill_at(
                tmp_path, rf"      train {stage}: continues at step \d+ of {steps[stage]}, where it was interrupted"
            )
    assert known(killed) == ordered({*steps, "data", "linear", "quantize", "export", "combine", "bundle", "gate"})
    build = started(tmp_path)
    _, said = build.communicate(timeout=600)
    assert build.returncode == 0, said
    lines = begun(said)
    assert [line.stage for line in lines] == killed
    assert [line.note == "cached" for line in lines] == [True] * (total - 1) + [False]
    for folder in (tmp_path, project.folder):  # the one choice that a clock makes
        assert "INT8 ships" in (folder / "dist" / "tiny-0.1.0.report.json").read_text(encoding="utf-8"), folder
    bundle = tmp_path / project.bundle.relative_to(project.folder)
    assert contents(bundle) == contents(project.bundle)
    assert bundle.read_bytes() == project.bundle.read_bytes()
    assert not list((tmp_path / ".edgepack").glob("*/*.partial"))
