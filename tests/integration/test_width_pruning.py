"""Students that are cut to a part of their own width when they are trained, and trained once more."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.integration.conftest import RECIPE, STEPS, STUDENT, Project
from tests.integration.test_build import device
from tests.integration.test_resume import kill_in_training
from tests.integration.test_vocabulary import logits_of, rows_on_disk
from tests.integration.trainings import MANY, ONE, PAIRS, SPANS, Heard
from tests.stage_context import context_of
from tests.stage_lists import begun, known

from edgepack.artifacts import DataArtifact, ModelArtifact, Row, WidthPrunedArtifact
from edgepack.recipe.model import Data
from edgepack.recipe.training import Distill, Student, Teacher
from edgepack.stages.data import DataStage
from edgepack.stages.train import StudentStage, TeacherStage
from edgepack.stages.width_pruning import WidthPruningStage
from edgepack.targets.this_machine import base_python
from edgepack_runtime.inference.tokenizer import read_vocab

ROWS = DataStage(Data(train="builtin:reviews-zh"))
pytestmark = pytest.mark.integration
SECTION = Student.model_validate({
    "model": {"scratch": {"layers": 2, "hidden": 16, "heads": 4, "dropout": 0}},
    "distill": None, "width": 0.5, "epochs": 24, "batch_size": 8, "learning_rate": 5e-3, "max_length": 16, "seed": 3,
    "device": "cpu",
})  # fmt: skip


def trained(folder: Path, rows: Sequence[Row], section: Student = SECTION) -> tuple[DataArtifact, ModelArtifact]:
    """Rows, and a whole student that has learnt from their labels."""
    data, out = rows_on_disk(folder / "data", rows), folder / "student"
    out.mkdir()
    ctx = context_of({ROWS: data}, checkpoint=folder / "checkpoint")
    return data, StudentStage(section, ROWS).run(ctx, out)


def width_pruned(
    folder: Path,
    data: DataArtifact,
    student: ModelArtifact,
    teacher: ModelArtifact,
    distill: Distill | None,
    heard: Heard | None = None,
) -> WidthPrunedArtifact:
    folder.mkdir()
    checkpoint = folder.with_name(f"{folder.name}-checkpoint")
    section = SECTION.model_copy(update={"distill": distill})
    whole, larger = StudentStage(section, ROWS), TeacherStage(Teacher(model="larger"), ROWS)
    ctx = context_of({ROWS: data, whole: student, larger: teacher}, heard or Heard(), checkpoint)
    return WidthPruningStage(section, ROWS, whole, larger).run(ctx, folder)


def said_of(model: ModelArtifact, data: DataArtifact) -> bytes:
    """Its logits on the dev rows, to the bit. Its file also holds names that count what the process has made."""
    return b"".join(np.asarray(row).tobytes() for row in logits_of(model, data, data.read("dev")))


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(ONE, id="one label"),
        *(pytest.param(rows, id=id, marks=pytest.mark.sweep) for rows, id in ((PAIRS, "pairs"), (MANY, "many labels"))),
        pytest.param(SPANS, id="spans"),
    ],
)
def test_a_student_without_a_teacher_learns_from_itself(tmp_path: Path, rows: Sequence[Row]) -> None:
    data, student = trained(tmp_path, rows)
    heard = Heard()
    made = width_pruned(tmp_path / "width-pruned", data, student, student, Distill(), heard)
    assert (made.heads_before, made.heads, made.neurons_before, made.neurons) == (4, 2, 64, 32)
    assert made.dev_score_before == student.dev_score
    assert made.steps == student.steps
    # Of each of two layers half of 4 x 16 x 16 and of 2 x 16 x 64, and of the biases.
    assert student.parameters - made.parameters == 2 * (512 + 1024 + 3 * 8 + 32)
    assert (made.folder / "vocab.txt").read_bytes() == (student.folder / "vocab.txt").read_bytes()
    assert len(logits_of(made, data, data.read("dev"))) == 12
    assert heard.lines[1:3] == [
        "width-pruned: every layer keeps 2 of 4 heads and 32 of 64 neurons, chosen on 40 training rows",
        f"width-pruned: {made.parameters / 1e6:.1f} M parameters, 40 training rows",
    ]
    assert heard.lines[-1] == f"width_pruning: {made.cost}"


def test_whom_it_learns_from(tmp_path: Path) -> None:
    """From the teacher that it is given, or from nobody where labels are all it is told."""
    data, student = trained(tmp_path, ONE)
    other = tmp_path / "other"
    other.mkdir()
    _, teacher = trained(other, ONE, SECTION.model_copy(update={"seed": 4}))
    told = {
        name: said_of(width_pruned(tmp_path / name, data, student, source, distill), data)
        for name, source, distill in (
            ("itself", student, Distill()),
            ("teacher", teacher, Distill()),
            ("labels", student, None),
            ("labels still", teacher, None),
        )
    }
    assert told["labels"] == told["labels still"]
    assert len(set(told.values())) == 3


def test_texts_without_labels_are_learnt_from(tmp_path: Path) -> None:
    data, student = trained(tmp_path, ONE)
    lines = (json.dumps({"text": f"第{number}间房很便宜"}, ensure_ascii=False) for number in range(16))
    (data.folder / "unlabelled.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    more = replace(data, rows={**data.rows, "unlabelled": 16})
    plain, fed = (
        width_pruned(tmp_path / name, rows, student, student, Distill())
        for name, rows in (("plain", data), ("fed", more))
    )
    assert (plain.steps, fed.steps) == (120, 168)  # of 40 and of 56 rows


PRUNED = """\
  model: {scratch: {layers: 2, hidden: 64, heads: 4}}
  width: 0.5
  epochs: 3
  learning_rate: 3e-3
"""
KILLED = RECIPE.replace(STUDENT + STEPS, PRUNED)


@pytest.mark.sweep
@pytest.mark.paddle33
def test_a_build_that_is_killed_in_width_pruning_ends_with_the_same_bytes(project: Project, tmp_path: Path) -> None:
    exported = []
    for name in ("killed", "left alone"):
        folder = project.copy(tmp_path / name, "export").folder
        (folder / "tiny.yaml").write_text(KILLED, encoding="utf-8")
        if name == "killed":
            kill_in_training(folder, "width_pruning")
        done = Project(folder).edgepack("build", "tiny.yaml", "--until", "export")
        assert done.returncode == 0, done.stderr[-4000:]
        assert ("train student: " in done.stderr) == (name == "left alone")
        assert ("train width-pruned: continues at step " in done.stderr) == (name == "killed")
        files = sorted((folder / ".edgepack" / "export").glob("*/onnx-*/model.onnx"))
        assert [file.parent.name for file in files] == ["onnx-float", "onnx-int8"]
        exported.append([file.read_bytes() for file in files])
        assert not list((folder / ".edgepack").glob("*/*.partial"))
    assert exported[0] == exported[1]


SEARCH = """\
linear: off
search:
  over:
    student.width: [1.0, 0.5]
  prefer: size
  tolerance_points: 100
"""


@pytest.mark.sweep
def test_a_width_pruned_student_of_fewer_tokens_goes_all_the_way_to_an_answer(
    project: Project, tmp_path: Path, device_environment: dict[str, str]
) -> None:
    """Of two candidates that share the training of the whole student, the one of half the width is built on."""
    project = project.copy(tmp_path / "copy")
    folder = project.folder
    whole = RECIPE.replace("heads: 12}}", "heads: 12}}\n  vocabulary: {trim: {min_count: 4}}")
    (folder / "tiny.yaml").write_text(whole + SEARCH, encoding="utf-8")
    done = project.edgepack("build", "tiny.yaml", "--until", "bundle", "--json")
    assert done.returncode == 0, done.stderr[-4000:]
    for name, trainings in {"teacher": 0, "student": 0, "width-pruned": 1}.items():  # those of the project are cached
        assert done.stderr.count(f"train {name}: epoch 1: ") == trainings
    told = json.loads(done.stdout)
    chain = ["vocabulary_trimming", "quantize", "export"]
    stages = ["data", "teacher", "student", *chain, "width_pruning", *chain, "select", "bundle"]
    assert known(one["stage"] for one in told["stages"]) == stages
    assert told["selection"]["chosen"] == "width=0.5"
    wide, narrow = told["selection"]["candidates"]
    assert narrow["onnx_bytes"] < wide["onnx_bytes"]
    assert narrow["train_seconds"] > wide["train_seconds"]  # it was trained twice
    rows = told["ledger"]
    assert [row["stage"] for row in rows][:5] == ["teacher", "student", "width-pruned", "trimmed", "static graph"]
    assert "12 -> 6 heads, 1,248 -> 624 neurons a layer; dev " in rows[2]["note"]
    assert rows[4]["parity_with"] == "trimmed"
    folders = {one["stage"]: folder / one["folder"] for one in told["stages"]}
    tokens = json.loads((folders["vocabulary_trimming"] / "artifact.json").read_text(encoding="utf-8"))["tokens"]
    assert len(read_vocab(folders["export"] / "onnx-int8" / "vocab.txt")) == tokens
    answers(folders["bundle"], device_environment)
    again = project.edgepack("build", "tiny.yaml", "--until", "bundle")
    lines = begun(again.stderr)
    assert known(line.stage for line in lines) == stages
    assert {line.note for line in lines} == {"cached"}, again.stderr[-2000:]
    plain = project.edgepack(
        "build", "tiny.yaml", "--set", "search=null", "--set", "student.width=0.5", "--until", "export", "--json"
    )
    assert plain.returncode == 0, plain.stderr[-2000:]
    assert folder / json.loads(plain.stdout)["stages"][-1]["folder"] == folders["export"]


def answers(folder: Path, environment: dict[str, str]) -> None:
    """What the bundle in a folder answers. One epoch makes no student that an install accepts."""
    (bundle,) = folder.glob("*.edgepack")
    answered: subprocess.CompletedProcess[str] = device(base_python(), bundle, "predict", "房间很干净", env=environment)
    assert json.loads(answered.stdout)["label"] in ("正面", "负面"), answered.stderr
