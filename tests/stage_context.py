"""Contexts of stages whose inputs are there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgepack.artifacts import Artifact
from edgepack.progress import SILENT, Progress
from edgepack.stages.stage import Context, Stage, StageResult


def context_of(
    artifacts: Mapping[Stage[Any], Artifact], progress: Progress = SILENT, checkpoint: Path = Path("checkpoint")
) -> Context:
    """A context with the artifacts of earlier stages."""
    ctx = Context(progress=progress, checkpoint=checkpoint)
    for stage, artifact in artifacts.items():
        ctx = ctx.with_result(stage, StageResult(stage.name, artifact, "", {}))
    return ctx
