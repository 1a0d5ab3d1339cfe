"""The stages of one recipe: what decides each result, and the call that makes it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from edgepack import __version__, datasets, keys, variants
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
from edgepack.digest import sha256_file
from edgepack.errors import EdgepackError
from edgepack.outcome import NotRunHere
from edgepack.places import Whose
from edgepack.progress import Progress
from edgepack.recipe.model import Candidate, Recipe
from edgepack.recipe.training import Distill, FromTeacher
from edgepack.reduced import NarrowedArtifact, PrunedArtifact
from edgepack.selection import SelectArtifact
from edgepack.stages import bundle, data, export, gate, narrow, prune, quantize, select, student, teacher
from edgepack.targets import here
from edgepack.targets.host import host_facts
from edgepack.targets.interpreters import Interpreter
from edgepack.targets.supply import Supply
from edgepack.versions import tool_versions
from edgepack.workspace import Key, Result, Workspace, make_key

A = TypeVar("A", bound=Artifact)


class Step(Protocol):
    """What brings about one stage's result: a build makes it or finds it, a plan only looks."""

    def __call__(
        self, kind: type[A], key: Key, make: Callable[[Path], A], whose: Whose = None, *, only_found: bool = False
    ) -> Result[A]:
        """The result of `key`; `make` is the stage itself, called with an empty folder.

        `whose` is the candidate or the target that it belongs to, for stages that run once for each.

        Raises:
            ToRun: it would have to be made, and nothing is to be (`only_found`, or a plan).
        """


class ToRun(Exception):
    """There is no such result yet, and what comes after it cannot be known."""


@dataclass(frozen=True)
class Chain:
    """What was made of one student, as far as what would ship."""

    learner: Result[ModelArtifact]
    narrowed: Result[NarrowedArtifact] | None
    pruned: Result[PrunedArtifact] | None
    scales: Result[ScalesArtifact]
    exported: Result[ExportArtifact]

    @property
    def model(self) -> Result[ModelArtifact]:
        """The student as it went on."""
        return self.pruned or self.narrowed or self.learner

    @property
    def train_seconds(self) -> float:
        """What its trainings took, that of the student and what narrowed it."""
        once_more = self.narrowed.artifact.train_seconds if self.narrowed else 0.0
        return self.learner.artifact.train_seconds + once_more


class Steps:
    """One method a stage. Each takes the results that it works on.

    With `keep_going`, a candidate that cannot be had does not keep the teacher from being trained for the others.
    """

    def __init__(
        self,
        recipe: Recipe,
        workspace: Workspace,
        listener: Progress,
        step: Step,
        supply: Supply,
        *,
        keep_going: bool = False,
    ) -> None:
        self._recipe = recipe
        self._supply = supply
        self._workspace = workspace
        self._listener = listener
        self._step = step
        self._keep_going = keep_going
        self._tools = tool_versions()
        self._candidate: str | None = None

    def of(self, candidate: Candidate, *, only_found: bool = False) -> Steps:
        """The same for the recipe of one candidate; with `only_found` nothing is made for it."""
        steps = copy.copy(self)
        steps._recipe, steps._candidate = candidate.recipe, candidate.name
        if only_found:
            steps._step = partial(self._step, only_found=True)
        return steps

    def data(self) -> Result[DataArtifact]:
        section = self._recipe.data
        key = make_key(
            "data", data.VERSION, keys.of_data(section), keys.data_digests(section), {"edgepack": __version__}
        )
        return self._step(DataArtifact, key, lambda out: data.run(section, out, self._listener))

    def teacher(self, rows: Result[DataArtifact]) -> Result[ModelArtifact]:
        section = self._recipe.teacher
        assert section is not None, "asked for by a recipe with a teacher only"
        inputs = [*keys.labelled(rows), *keys.weights(section.model)]
        key = make_key("teacher", teacher.VERSION, keys.of_training(section), inputs, self._tools)

        def make(out: Path) -> ModelArtifact:
            self._check_students()
            return teacher.run(section, rows.artifact, out, self._listener, self._workspace.checkpoint(key))

        return self._step(ModelArtifact, key, make)

    def _check_students(self) -> None:
        """Whether students can be had shows before their teacher is trained; to keep going, one of them is enough."""
        failed: list[EdgepackError] = []
        models = {repr(one.recipe.student.model): one for one in self._recipe.candidates}
        for candidate in models.values():
            try:
                student.check(candidate.recipe.student)
            except EdgepackError as error:
                candidate.own(error)
                if not self._keep_going:
                    raise
                failed.append(error)
        if not models:
            student.check(self._recipe.student)
        elif len(failed) == len(models):
            raise failed[0]

    def student(self, rows: Result[DataArtifact], taught_by: Result[ModelArtifact] | None) -> Result[ModelArtifact]:
        section = self._recipe.student
        # A teacher that it neither learns nor starts from decides nothing.
        needed = section.distill is not None or isinstance(section.model, FromTeacher)
        source = taught_by if needed else None
        inputs = [*keys.labelled(rows), *keys.weights(section.model), *(keys.model(source) if source else [])]
        if section.distill is not None:
            inputs += keys.unlabelled(rows)
        key = make_key("student", student.VERSION, keys.of_training(section), inputs, self._tools)
        model = source.artifact if source else None
        kept = self._workspace.checkpoint(key)
        return self._step(
            ModelArtifact,
            key,
            lambda out: student.run(section, rows.artifact, model, out, self._listener, kept),
            self._candidate,
        )

    def narrow(
        self, rows: Result[DataArtifact], taught_by: Result[ModelArtifact] | None, learner: Result[ModelArtifact]
    ) -> Result[NarrowedArtifact]:
        """Without a teacher, the student itself is the one: as it was, before it is cut."""
        section = self._recipe.student
        source, distill = (learner, Distill()) if taught_by is None else (taught_by, section.distill)
        decides = keys.of_training(section) | {"width": section.width, "distill": distill and keys.dump(distill)}
        inputs = [*keys.labelled(rows), *keys.model(learner)]
        if distill is not None:
            inputs += [*keys.model(source), *keys.unlabelled(rows)]
        key = make_key("narrow", narrow.VERSION, decides, inputs, self._tools)
        kept = self._workspace.checkpoint(key)
        whole, soft = learner.artifact, source.artifact
        return self._step(
            NarrowedArtifact,
            key,
            lambda out: narrow.run(section, distill, rows.artifact, whole, soft, out, self._listener, kept),
            self._candidate,
        )

    def prune(self, rows: Result[DataArtifact], learner: Result[ModelArtifact]) -> Result[PrunedArtifact]:
        section, columns = self._recipe.student.pruning, self._recipe.data.columns
        assert section is not None, "asked for by a student that is to be pruned only"
        decides: dict[str, Any] = {"pruning": keys.dump(section)}
        inputs = [*keys.labelled(rows), *keys.unlabelled(rows), *keys.model(learner)]
        if section.texts is not None:
            decides |= {
                "pruning": {**keys.dump(section), "texts": Path(section.texts).suffix},
                "columns": columns.texts,
            }
            inputs += [*keys.sources(Path(datasets.__path__[0])), sha256_file(Path(section.texts))]
        key = make_key("prune", prune.VERSION, decides, inputs, self._tools)
        return self._step(
            PrunedArtifact,
            key,
            lambda out: prune.run(section, columns, rows.artifact, learner.artifact, out, self._listener),
            self._candidate,
        )

    def quantize(self, rows: Result[DataArtifact], learner: Result[ModelArtifact]) -> Result[ScalesArtifact]:
        section = self._recipe.quantize
        sample, seed = self._recipe.data.calibration, self._recipe.data.seed
        decides = {"quantize": keys.dump(section), "calibration": keys.dump(sample), "seed": seed}
        inputs = [*keys.labelled(rows), *keys.model(learner)]
        training = self._recipe.student
        if section.method == "qat":
            decides["training"] = keys.of_training(training)
            inputs += keys.unlabelled(rows)
        key = make_key("quantize", quantize.VERSION, decides, inputs, self._tools)
        kept = self._workspace.checkpoint(key)
        model = learner.artifact
        return self._step(
            ScalesArtifact,
            key,
            lambda out: quantize.run(section, sample, seed, training, rows.artifact, model, out, self._listener, kept),
            self._candidate,
        )

    def export(
        self, rows: Result[DataArtifact], learner: Result[ModelArtifact], scales: Result[ScalesArtifact]
    ) -> Result[ExportArtifact]:
        section = self._recipe.quantize
        differing = variants.wanted(map(self._supply.profile, self._recipe.targets), section)
        inputs = [*keys.labelled(rows), *keys.model(learner), scales.digest, *keys.runtime()]
        decides = {
            "quantize": keys.dump(section),
            "differing": {one.name: targets for one, targets in differing.items()},
        }
        key = make_key("export", export.VERSION, decides, inputs, self._tools | host_facts())
        return self._step(
            ExportArtifact,
            key,
            lambda out: export.run(
                section,
                rows.artifact,
                learner.artifact,
                scales.artifact,
                out,
                self._listener,
                differing=differing,
            ),
            self._candidate,
        )

    def select(
        self, rows: Result[DataArtifact], chains: Mapping[str, Chain], left_out: Sequence[str], untried: Sequence[str]
    ) -> Result[SelectArtifact]:
        """`chains` are the candidates that were built, by name; `left_out` failed, for `untried` there was no time."""
        section, gates = self._recipe.search, self._recipe.gates
        assert section is not None, "asked for by a recipe with candidates only"
        decides = {
            "prefer": section.prefer,
            "tolerance": section.tolerance_points,
            "gates": keys.of_gates(gates),
            "names": list(chains),
            "left_out": list(left_out),
            "untried": list(untried),
        }
        inputs = [*keys.labelled(rows, ("dev",)), *(chain.exported.digest for chain in chains.values())]
        inputs += [digest for chain in chains.values() for digest in keys.model(chain.model)]
        key = make_key("select", select.VERSION, decides, [*inputs, *keys.runtime()], self._tools | host_facts())
        entries = {
            name: select.Entry(chain.model.artifact, chain.exported.artifact, chain.train_seconds)
            for name, chain in chains.items()
        }
        return self._step(
            SelectArtifact,
            key,
            lambda out: select.run(section, gates, rows.artifact, entries, left_out, untried, out, self._listener),
        )

    def bundle(
        self,
        target: str,
        rows: Result[DataArtifact],
        exported: Result[ExportArtifact],
        ledger: tuple[LedgerRow, ...],
    ) -> Result[BundleArtifact]:
        recipe, model = self._recipe, exported.artifact.for_target(target)
        facts = {
            "recipe": bundle.recipe_sha256(recipe),
            "target": target,
            "ledger": [asdict(row) for row in ledger],
        }
        supply = self._supply
        about = bundle.inputs(supply.profile(target), supply, serve=recipe.serve)
        about += [sha256_file(recipe.gates.baseline)] if recipe.gates.baseline is not None else []
        inputs = [rows.digest, exported.digest, *keys.runtime(), *about]
        key = make_key("bundle", bundle.VERSION, facts, inputs, self._tools)
        return self._step(
            BundleArtifact,
            key,
            lambda out: bundle.run(recipe, target, model, rows.artifact, ledger, supply, out, self._listener),
            target,
        )

    def gate(self, packed: Result[BundleArtifact], exported: Result[ExportArtifact]) -> GateArtifact | NotRunHere:
        """Only a pass is kept: what failed or could not be decided is measured again by the next build.

        A bundle that this machine cannot run is not gated here.
        """
        target = packed.artifact.target
        model = exported.artifact.for_target(target)
        found = self._runner(packed.artifact)
        if isinstance(found, NotRunHere):
            self._listener.line(f"gate of {target}: not run here: {found.why}")
            return found
        about = host_facts() | {"python": found.version}
        key = make_key("gate", gate.VERSION, target, [packed.digest], about)
        model_mib = model.shipped_model.ledger.model_mib or 0.0
        judged = self._step(
            GateArtifact,
            key,
            lambda out: gate.run(packed.artifact, model_mib, found, out, self._listener),
            target,
        )
        if judged.artifact.verdict != "pass":
            self._workspace.forget(judged.artifact.folder)
        return judged.artifact

    def _runner(self, packed: BundleArtifact) -> Interpreter | NotRunHere:
        """What gates this bundle on this machine."""
        profile = self._supply.profile(packed.target)
        found = here.runner(
            profile,
            profile.provider,
            libc_min=packed.libc_min,
            jetpack=profile.jetpack,
            pythons=self._supply.pythons,
        )
        if isinstance(found, NotRunHere):
            return replace(found, command=f"python3 {packed.file_name} gate")
        return found
