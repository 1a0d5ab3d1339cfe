"""Builds whose trainings are stand-ins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgepack.build import runner
from edgepack.build.options import BuildOptions
from edgepack.build.workspace import Workspace
from edgepack.console.console import Console
from edgepack.recipe.model import Recipe
from edgepack.results import Build
from edgepack.stages.bundle import BundleStage
from edgepack.stages.data import DataStage
from edgepack.stages.export import ExportStage
from edgepack.stages.gate import GateStage
from edgepack.stages.quantize import QuantizeStage
from edgepack.stages.select import SelectStage
from edgepack.stages.stage import Context, Stage
from edgepack.stages.train import StudentStage, TeacherStage
from edgepack.stages.vocabulary_trimming import VocabularyTrimmingStage
from edgepack.stages.width_pruning import WidthPruningStage
from edgepack.training import devices as gpus
from edgepack.training import environment
from edgepack.training.devices import Card
from edgepack.util.nvidia import Nvidia

STAGES: dict[str, type[Stage[Any]]] = {
    stage.name: stage
    for stage in (
        *(
            DataStage,
            TeacherStage,
            StudentStage,
            WidthPruningStage,
            VocabularyTrimmingStage,
            QuantizeStage,
            ExportStage,
            SelectStage,
        ),
        *(BundleStage, GateStage),
    )
}


@pytest.fixture
def built(built: Build) -> Build:
    """A build without a linear model."""
    return replace(built, recipe=built.recipe.model_copy(update={"linear": "off"}))


Train = Callable[..., list[str]]


@pytest.fixture
def train(tmp_path: Path, built: Build, monkeypatch: pytest.MonkeyPatch) -> Train:
    """Builds until the student on a machine with the GPUs `cards`; trainings take no time, and are listed."""
    trained: list[str] = []
    for split, rows in {"train": "好\t1\n差\t0", "dev": "挺好\t1\n很差\t0", "test": "真好\t1\n真差\t0"}.items():
        (tmp_path / f"{split}.tsv").write_text(f"text\tlabel\n{rows}\n", encoding="utf-8")

    def stand_in(stage: Any, ctx: Context, out: Path) -> Any:
        trained.append(f"{stage.name} on {stage.section.device}")
        return replace(built.student, folder=out)

    for stage in (TeacherStage, StudentStage):
        monkeypatch.setattr(stage, "run", stand_in)
    monkeypatch.setattr("edgepack.stages.train.probe", lambda model: None)
    monkeypatch.setattr("edgepack.packages.wheels.fetch", lambda *inputs, **options: None)
    monkeypatch.setattr("edgepack.util.nvidia.detect", lambda: Nvidia(None, None, (), "no driver", "install one"))
    monkeypatch.setattr(environment, "versions", dict)
    monkeypatch.setattr(environment, "start", lambda: None)

    def run(devices: dict[str, str], *cards: Card, until: Any = "student", width: float = 1.0) -> list[str]:
        def detect() -> gpus.PaddleBuild:
            assert any(device.startswith("gpu") for device in devices.values()), "Paddle is imported for nothing"
            return gpus.PaddleBuild("3.3.1", "12.6", None, (), cards)

        monkeypatch.setattr(gpus, "detect", detect)
        trained.clear()
        asked, results = recipe(tmp_path, devices, width), Workspace(tmp_path / "w")
        made = runner.build(asked, results, Console(quiet=True), BuildOptions(until))
        assert made.ended_early
        return list(trained)

    return run


def recipe(folder: Path, devices: dict[str, str], width: float = 1.0) -> Recipe:
    model = {"scratch": {"layers": 1, "hidden": 8, "heads": 2}}
    sections: dict[str, Any] = {role: {"model": model, "device": device} for role, device in devices.items()}
    sections["student"]["width"] = width
    return Recipe.model_validate({
        "edgepack": 1, "name": "tiny", "version": "0.1.0",
        "data": {split: str(folder / f"{split}.tsv") for split in ("train", "dev", "test")},
        "linear": "off",
        **sections,
    })  # fmt: skip
