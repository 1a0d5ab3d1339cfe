"""The stages in order: data, teacher, student, quantize, export, then bundle and gate for each target."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, TypeVar

from edgepack import __version__
from edgepack.artifacts import (
    Artifact,
    BundleArtifact,
    DataArtifact,
    ExportArtifact,
    GateArtifact,
    LedgerRow,
    ModelArtifact,
    ScalesArtifact,
)
from edgepack.digest import sha256_file, sha256_folder
from edgepack.outcome import Build, Delivery, model_ledger
from edgepack.paddle_ml import environment
from edgepack.progress import Progress
from edgepack.recipe.model import Data, FromScratch, Recipe, Section, is_builtin, is_local_folder
from edgepack.stages import bundle, data, export, gate, quantize, student, teacher
from edgepack.targets import wheels
from edgepack.targets.host import host_facts
from edgepack.targets.profiles import profile_for
from edgepack.versions import tool_versions
from edgepack.workspace import Key, Result, Workspace, make_key

A = TypeVar("A", bound=Artifact)


class Listener(Progress, Protocol):
    """A progress that also hears where a build is."""

    def stage(self, name: str, index: int, total: int, cached: bool) -> None:
        """A stage starts, or its result was found in the workspace."""

    def stage_done(self, name: str, seconds: float) -> None:
        """The stage that started last has its result."""


def run(recipe: Recipe, workspace: Workspace, listener: Listener) -> Build:
    """Build `recipe`, taking from the workspace whatever is already there.

    Raises:
        EdgepackError: naming the stage that failed. A missed gate does not raise: its verdict is in the result.
    """
    stages = 4 + (recipe.teacher is not None) + 2 * len(recipe.targets)
    step = _Stepper(workspace, listener, stages)
    rows = step(
        DataArtifact,
        make_key("data", data.VERSION, _dump(recipe.data), _data_digests(recipe.data), {"edgepack": __version__}),
        lambda out: data.run(recipe.data, out, listener),
    )
    _check_environment(recipe, listener)
    tools = tool_versions()
    taught_by: Result[ModelArtifact] | None = None
    if (lesson := recipe.teacher) is not None:
        taught_by = step(
            ModelArtifact,
            make_key("teacher", teacher.VERSION, _dump(lesson), [rows.digest, *_weights(lesson.model)], tools),
            lambda out: teacher.run(lesson, rows.artifact, out, listener),
        )
    soft = taught_by if recipe.student.distill is not None else None
    learner = step(
        ModelArtifact,
        make_key(
            "student",
            student.VERSION,
            _dump(recipe.student),
            [rows.digest, *_weights(recipe.student.model), *([soft.digest] if soft else [])],
            tools,
        ),
        lambda out: student.run(recipe.student, rows.artifact, soft.artifact if soft else None, out, listener),
    )
    scales = step(
        ScalesArtifact,
        make_key("quantize", quantize.VERSION, _dump(recipe.quantize), [rows.digest, learner.digest], tools),
        lambda out: quantize.run(recipe.quantize, rows.artifact, learner.artifact, out, listener),
    )
    exported = step(
        ExportArtifact,
        make_key(
            "export",
            export.VERSION,
            _dump(recipe.quantize),
            [rows.digest, learner.digest, scales.digest, *_runtime()],
            tools | host_facts(),
        ),
        lambda out: export.run(recipe.quantize, rows.artifact, learner.artifact, scales.artifact, out, listener),
    )
    ledger = model_ledger(taught_by.artifact if taught_by else None, learner.artifact, exported.artifact)
    deliveries = tuple(
        _deliver(step, recipe, target, rows, exported, ledger, tools, listener) for target in recipe.targets
    )
    return Build(
        recipe,
        rows.artifact,
        taught_by.artifact if taught_by else None,
        learner.artifact,
        scales.artifact,
        exported.artifact,
        deliveries,
    )


def _check_environment(recipe: Recipe, listener: Listener) -> None:
    """What is not installed, and what a target lacks, shows now and not after hours of training."""
    environment.versions()
    for target in recipe.targets:
        wheels.fetch(profile_for(target), wheels.default_cache(), listener)


def _deliver(
    step: _Stepper,
    recipe: Recipe,
    target: str,
    rows: Result[DataArtifact],
    exported: Result[ExportArtifact],
    ledger: tuple[LedgerRow, ...],
    tools: dict[str, str],
    listener: Listener,
) -> Delivery:
    """Bundle and gate one target. A gate that did not pass is measured again by the next build, never cached."""
    facts = {"recipe": bundle.recipe_sha256(recipe), "target": target, "ledger": [asdict(row) for row in ledger]}
    packed = step(
        BundleArtifact,
        make_key(
            "bundle",
            bundle.VERSION,
            facts,
            [rows.digest, exported.digest, *_runtime(), *bundle.inputs(target)],
            tools,
        ),
        lambda out: bundle.run(recipe, target, exported.artifact, rows.artifact, ledger, out, listener),
    )
    judged = step(
        GateArtifact,
        make_key("gate", gate.VERSION, facts, [packed.digest], host_facts()),
        lambda out: gate.run(packed.artifact, exported.artifact.shipped_model.ledger.model_mib or 0.0, out, listener),
    )
    if judged.artifact.verdict != "pass":
        step.workspace.forget(judged.artifact.folder)
    return Delivery(packed.artifact, judged.artifact)


class _Stepper:
    """Runs one stage after the other, or finds its result in the workspace, and tells the listener which."""

    def __init__(self, workspace: Workspace, listener: Listener, total: int) -> None:
        self.workspace = workspace
        self._listener = listener
        self._total = total
        self._index = 0

    def __call__(self, kind: type[A], key: Key, run_stage: Callable[[Path], A]) -> Result[A]:
        self._index += 1
        found = self.workspace.load(kind, key)
        self._listener.stage(key.stage, self._index, self._total, cached=found is not None)
        if found is not None:
            return found
        started = time.monotonic()
        made = self.workspace.build(key, run_stage)
        self._listener.stage_done(key.stage, time.monotonic() - started)
        return made


def _dump(section: Section) -> dict[str, Any]:
    return section.model_dump(mode="json", by_alias=True)


def _data_digests(section: Data) -> list[str]:
    """Digests of the data files; a built-in generator is named by its seed and edgepack's version."""
    files = [section.train, section.dev, section.test]
    return [sha256_file(Path(file)) for file in files if file is not None and not is_builtin(file)]


def _weights(model: str | FromScratch) -> list[str]:
    return [sha256_folder(Path(str(model)))] if is_local_folder(model) else []


def _runtime() -> Sequence[str]:
    """Digest of the runtime's own source: it measures what is exported and travels in what is bundled."""
    import edgepack_runtime

    folder = Path(edgepack_runtime.__path__[0])
    return [sha256_file(file) for file in sorted(folder.rglob("*.py"))]
