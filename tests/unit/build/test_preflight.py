"""Checks before a build."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edgepack.artifacts import ExamplesArtifact
from edgepack.build import preflight
from edgepack.imported.examples import ExamplesStage
from edgepack.recipe.gates import AccuracyGate
from edgepack.stages.stage import Context, StageResult


@pytest.mark.parametrize(("rows", "cached", "warned"), [(24, False, True), (24, True, False), (73, False, False)])
def test_examples_that_are_too_few_for_the_min_are_counted_before_the_first_build(
    rows: int, cached: bool, warned: bool
) -> None:
    lines: list[str] = []
    gates = SimpleNamespace(accuracy=AccuracyGate.model_validate({"min": 0.95}))
    recipe: Any = SimpleNamespace(gates=gates, targets=(), needs_paddle=False)
    stage, progress = ExamplesStage(Path(), "text"), SimpleNamespace(line=lines.append)
    result = StageResult("examples", ExamplesArtifact(Path(), "text", rows), "", {})
    ctx = Context(progress=cast(Any, progress)).with_result(stage, result)
    preflight.check_inputs(recipe, ctx, stage, cached=cached)
    assert len(lines) == warned
    assert all(line.startswith("1 warning") and "edgepack check" in line for line in lines)
