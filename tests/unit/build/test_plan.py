"""Plans: why each stage runs and about how long, compared with what earlier builds left."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.build.conftest import Train, recipe

from edgepack.build import plan
from edgepack.build.options import BuildOptions
from edgepack.build.plan import PlannedStage
from edgepack.build.planned_trainings import training_estimate
from edgepack.build.workspace import RECORD_FILE, Workspace
from edgepack.recipe.model import Recipe
from edgepack.recipe.training import Student
from edgepack.stages.data import DataStage
from edgepack.stages.stage import PlannedRows
from edgepack.stages.train import StudentStage, TeacherStage

CPU = {"teacher": "cpu", "student": "cpu"}
Planned = Callable[..., dict[str, PlannedStage]]


@pytest.fixture
def planned(train: Train, tmp_path: Path) -> Planned:
    """Plans of the recipe whose teacher and student were trained, with other values of the student."""
    train(CPU)

    def run(*, options: BuildOptions = BuildOptions(), **values: Any) -> dict[str, PlannedStage]:  # noqa: B008 (frozen)
        asked = recipe(tmp_path, CPU)
        student = Student.model_validate(asked.student.model_dump(by_alias=True) | values)
        made = plan.make(asked.model_copy(update={"student": student}), Workspace(tmp_path / "w"), options)
        return {stage.stage: stage for stage in made.stages}

    return run


def why(found: dict[str, PlannedStage], *names: str) -> list[str]:
    return [found[name].why for name in names]


def test_what_is_cached_has_no_reason_and_what_never_ran_has_no_result(planned: Planned) -> None:
    found = planned()
    assert [found[name].state for name in ("data", "teacher", "student")] == ["cached"] * 3
    assert why(found, "student", "quantize", "gate") == ["", "no result yet", "no result yet"]
    assert found["student"].estimate is found["quantize"].estimate is None


def test_a_value_and_a_library_that_changed_are_named(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    assert why(planned(max_length=64), "teacher", "student") == ["", "student.max_length 128 -> 64"]
    monkeypatch.setattr(TeacherStage, "version", 99)
    changed, *_ = why(planned(), "teacher")
    assert changed.startswith("edgepack's stage version ")
    assert changed.endswith(" -> 99")


def test_rows_are_counted_and_what_follows_waits_unless_its_own_section_changed(
    planned: Planned, tmp_path: Path
) -> None:
    with (tmp_path / "train.tsv").open("a", encoding="utf-8") as stream:
        stream.write("还好\t1\n一般\t0\n")
    stages = ("data", "teacher", "student")
    assert why(planned(), *stages) == ["train: 2 rows more", "after data", "after data"]
    assert why(planned(seed=7), *stages)[1:] == ["after data", "after data; student.seed 0 -> 7"]


def test_an_option_and_damage_are_reasons(planned: Planned, tmp_path: Path) -> None:
    assert why(planned(options=BuildOptions(force=True)), "data", "student") == ["--force", "--force"]
    assert why(planned(options=BuildOptions(start="student")), "teacher", "student") == ["", "--from student"]
    (folder,) = (path for path in (tmp_path / "w" / "teacher").iterdir() if path.is_dir())
    (folder / "extra").touch()
    assert why(planned(), "teacher", "student") == ["the result is damaged", "after teacher"]


def test_a_training_is_estimated_from_the_last_one_of_such_a_model(planned: Planned, tmp_path: Path) -> None:
    record = next((tmp_path / "w" / "student").glob(f"*/{RECORD_FILE}"))
    document = json.loads(record.read_bytes())
    trained = json.loads((record.parent / "artifact.json").read_bytes())
    record.write_text(json.dumps(document | {"seconds": trained["train_seconds"] + 2}), encoding="utf-8")
    a_step = trained["train_seconds"] / trained["steps"]

    def seconds(**values: Any) -> tuple[float, str]:
        estimate = planned(**values)["student"].estimate
        assert estimate is not None
        return estimate.seconds, estimate.source

    assert seconds(epochs=3)[0] == pytest.approx(2 + 3 * a_step)
    assert seconds(epochs=9)[0] == pytest.approx(2 + 9 * a_step)
    assert seconds(epochs=3, max_length=64, batch_size=16)[0] == pytest.approx(2 + 3 * a_step / 4)
    assert seconds(seed=1)[1] == f"the last student: {a_step:.3g} s a step of 32 x 128 tokens"
    for other in ({"model": {"scratch": {"layers": 2, "hidden": 8, "heads": 2}}}, {"distill": None}):
        assert seconds(**other)[1].startswith("rough: ")


def test_a_first_training_has_a_rough_figure_on_a_cpu_and_none_on_a_gpu(tmp_path: Path) -> None:
    asked = recipe(tmp_path, CPU)

    def rough(made: Recipe, rows: int) -> float | None:
        stage, planned = StudentStage(made.student, DataStage(made.data)), PlannedRows({"train": rows}, {20: rows})
        estimate = training_estimate(stage, planned, None, [], Workspace(tmp_path))
        return None if estimate is None else estimate.seconds

    few, many = rough(asked, 1_000), rough(asked, 100_000_000)
    assert few is not None
    assert many is not None
    assert 10 <= few < many
    on_gpu = asked.model_copy(update={"student": asked.student.model_copy(update={"device": "gpu"})})
    assert rough(on_gpu, 1_000) is None


def test_the_sum_leaves_out_what_is_not_known(planned: Planned, tmp_path: Path) -> None:
    made = plan.make(recipe(tmp_path, CPU), Workspace(tmp_path / "w"), BuildOptions(force=True))
    known = [stage.estimate.seconds for stage in made.to_run if stage.estimate is not None]
    assert len(known) == 3
    assert made.seconds == pytest.approx(sum(known))
    assert replace(made, stages=()).seconds == 0
