"""Checks before a build."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgepack.artifacts import ExamplesArtifact
from edgepack.pipeline import preflight
from edgepack.recipe.gates import AccuracyGate


@pytest.mark.parametrize(("rows", "cached", "warned"), [(24, False, True), (24, True, False), (73, False, False)])
def test_examples_that_are_too_few_for_the_min_are_counted_before_the_first_build(
    rows: int, cached: bool, warned: bool
) -> None:
    lines: list[str] = []
    gates = SimpleNamespace(accuracy=AccuracyGate.model_validate({"min": 0.95}))
    calls: Any = SimpleNamespace(recipe=SimpleNamespace(gates=gates, targets=()), context=None)
    progress: Any = SimpleNamespace(line=lines.append)
    preflight.check_inputs(calls, ExamplesArtifact(Path(), "text", rows), progress, cached=cached)
    assert len(lines) == warned
    assert all(line.startswith("1 warning") and "edgepack check" in line for line in lines)
