"""The order of a build, walked with stages that make nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgepack import pipeline
from edgepack.console import Console
from edgepack.errors import EnvironmentUnfitError, StageFailedError
from edgepack.nvidia import Nvidia
from edgepack.order import Choice
from edgepack.outcome import Build, Part
from edgepack.paddle_ml import environment, gpus
from edgepack.paddle_ml.gpus import Card
from edgepack.pipeline import EndOfPart, stages_of, walk
from edgepack.recipe.model import Recipe
from edgepack.workspace import Workspace


class Stages:
    """Hands out the results of `built`; the bundle of a target in `broken` cannot be made."""

    def __init__(self, built: Build, broken: str) -> None:
        self.called: list[str] = []
        self._built, self._broken = built, broken

    def __getattr__(self, stage: str) -> Any:
        def make(*inputs: Any) -> Any:
            self.called.append(stage if stage != "bundle" else f"bundle {inputs[0]}")
            if stage == "bundle" and inputs[0] == self._broken:
                raise StageFailedError(f"bundle: nothing fits {inputs[0]}", fix="give it up")
            delivery = self._built.deliveries[0]
            artifacts = {"bundle": delivery.bundle, "gate": delivery.gate, "quantize": self._built.scales}
            artifact = artifacts.get(stage) or getattr(self._built, stage)
            return SimpleNamespace(artifact=artifact, digest=stage)

        return make


@pytest.fixture
def two_targets(built: Build) -> Build:
    return replace(built, recipe=built.recipe.model_copy(update={"targets": ("one", "two", "three")}))


def test_a_target_that_fails_ends_the_build(two_targets: Build) -> None:
    stages: Any = Stages(two_targets, broken="two")
    with pytest.raises(StageFailedError, match="nothing fits two"):
        walk(two_targets.recipe, stages, Choice(), lambda rows: None)
    assert stages.called == ["data", "teacher", "student", "quantize", "export", "bundle one", "gate", "bundle two"]


def test_the_others_are_built_when_it_is_told_to_keep_going(two_targets: Build) -> None:
    stages: Any = Stages(two_targets, broken="two")
    made = walk(two_targets.recipe, stages, Choice(keep_going=True), lambda rows: None)
    assert stages.called[5:] == ["bundle one", "gate", "bundle two", "bundle three", "gate"]
    assert len(made.deliveries) == 2
    assert [(failure.name, failure.error.fix) for failure in made.failures] == [("two", "give it up")]


def test_every_target_is_bundled_before_a_build_until_bundle_ends(two_targets: Build) -> None:
    stages: Any = Stages(two_targets, broken="none")
    with pytest.raises(EndOfPart):
        walk(two_targets.recipe, stages, Choice(until="bundle"), lambda rows: None)
    assert stages.called[5:] == ["bundle one", "bundle two", "bundle three"]


def test_every_target_has_its_own_bundle_and_gate(two_targets: Build) -> None:
    assert stages_of(two_targets.recipe)[5:] == ["bundle", "gate"] * 3


Train = Callable[..., list[str]]


@pytest.fixture
def train(tmp_path: Path, built: Build, monkeypatch: pytest.MonkeyPatch) -> Train:
    """Builds until the student on a machine with the GPUs `cards`; trainings take no time, and are listed."""
    trained: list[str] = []
    for split, rows in {"train": "好\t1\n差\t0", "dev": "挺好\t1\n很差\t0", "test": "真好\t1\n真差\t0"}.items():
        (tmp_path / f"{split}.tsv").write_text(f"text\tlabel\n{rows}\n", encoding="utf-8")

    def stand_in(stage: str) -> Callable[..., Any]:
        def make(section: Any, *inputs: Any) -> Any:
            trained.append(f"{stage} on {section.device}")
            out = next(value for value in inputs if isinstance(value, Path))
            return replace(built.student, folder=out)

        return make

    for stage in ("teacher", "student"):
        monkeypatch.setattr(f"edgepack.stages.{stage}.run", stand_in(stage))
    monkeypatch.setattr("edgepack.stages.student.check", lambda section: None)
    monkeypatch.setattr("edgepack.targets.wheels.fetch", lambda *inputs: None)
    monkeypatch.setattr("edgepack.nvidia.look", lambda: Nvidia(None, None, (), "no driver", "install one"))
    monkeypatch.setattr(environment, "versions", dict)
    monkeypatch.setattr(environment, "start", lambda: None)

    def run(devices: dict[str, str], *cards: Card, until: Any = "student") -> list[str]:
        def look() -> gpus.Build:
            assert any(device.startswith("gpu") for device in devices.values()), "Paddle is imported for nothing"
            return gpus.Build("3.3.1", "12.6", None, (), cards)

        monkeypatch.setattr(gpus, "look", look)
        trained.clear()
        made = pipeline.run(recipe(tmp_path, devices), Workspace(tmp_path / "w"), Console(quiet=True), Choice(until))
        assert isinstance(made, Part)
        return list(trained)

    return run


def recipe(folder: Path, devices: dict[str, str]) -> Recipe:
    model = {"scratch": {"layers": 1, "hidden": 8, "heads": 2}}
    return Recipe.model_validate({
        "edgepack": 1, "name": "tiny", "version": "0.1.0",
        "data": {split: str(folder / f"{split}.tsv") for split in ("train", "dev", "test")},
        **{role: {"model": model, "device": device} for role, device in devices.items()},
    })  # fmt: skip


def test_a_gpu_that_cannot_be_used_shows_before_the_first_training(train: Train, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentUnfitError) as caught:
        train({"teacher": "cpu", "student": "gpu"})
    assert caught.value.what == "student.device: gpu was asked for and cannot be used"
    assert "no driver" in caught.value.why
    assert list((tmp_path / "w" / "data").glob("*/seal.json"))
    assert not list((tmp_path / "w" / "teacher").glob("*/seal.json"))
    assert train({"teacher": "cpu", "student": "cpu"}) == ["teacher on cpu", "student on cpu"]


def test_a_gpu_is_not_asked_of_what_is_not_trained_any_more(train: Train) -> None:
    devices = {"teacher": "gpu", "student": "gpu:0"}
    assert train(devices, Card(0, "NVIDIA H200", "9.0", 143771)) == ["teacher on gpu", "student on gpu:0"]
    assert train(devices) == []


def test_a_gpu_is_not_asked_of_what_comes_after_the_end(train: Train) -> None:
    assert train({"teacher": "cpu", "student": "gpu"}, until="teacher") == ["teacher on cpu"]
    with pytest.raises(EnvironmentUnfitError, match=r"teacher\.device: gpu"):
        train({"teacher": "gpu", "student": "gpu"}, until="teacher")
    assert train({"teacher": "gpu", "student": "gpu"}, until="data") == []
