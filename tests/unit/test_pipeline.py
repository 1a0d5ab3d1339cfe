"""The order of a build, walked with stages that make nothing."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from edgepack.errors import StageFailedError
from edgepack.order import Choice
from edgepack.outcome import Build
from edgepack.pipeline import EndOfPart, stages_of, walk


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
    assert [(failure.target, failure.error.fix) for failure in made.failures] == [("two", "give it up")]


def test_every_target_is_bundled_before_a_build_until_bundle_ends(two_targets: Build) -> None:
    stages: Any = Stages(two_targets, broken="none")
    with pytest.raises(EndOfPart):
        walk(two_targets.recipe, stages, Choice(until="bundle"), lambda rows: None)
    assert stages.called[5:] == ["bundle one", "bundle two", "bundle three"]


def test_every_target_has_its_own_bundle_and_gate(two_targets: Build) -> None:
    assert stages_of(two_targets.recipe)[5:] == ["bundle", "gate"] * 3
