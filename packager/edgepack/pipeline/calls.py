"""Stage calls: one call of a stage, the results so far, and what the calls of every recipe have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from edgepack.artifacts import Artifact, BundleArtifact, GateArtifact, mebibytes
from edgepack.pipeline import cache_keys
from edgepack.pipeline.stages import bundle, gate
from edgepack.pipeline.stages.bundle import PayloadMaker
from edgepack.pipeline.workspace import Key, StageResult
from edgepack.progress import Progress
from edgepack.recipe.model import AnyRecipe
from edgepack.results import Build, Delivery, Failure, NotRunHere
from edgepack.targets import local
from edgepack.targets.context import BuildContext
from edgepack.targets.profiles import Profile
from edgepack.util.versions import tool_versions

A = TypeVar("A", bound=Artifact)
A_co = TypeVar("A_co", bound=Artifact, covariant=True)


@dataclass(frozen=True)
class Work(Generic[A_co]):
    """The cache key of a stage call, and the function that makes its result.

    `run` takes an empty folder for the result, the folder for a checkpoint, and a progress reporter.
    """

    key: Key
    run: Callable[[Path, Path, Progress], A_co]


@dataclass(frozen=True, eq=False)
class StageCall(Generic[A_co]):
    """One call of a stage. Candidates with equal inputs share the call.

    Attributes:
        needs: the calls whose results it reads.
        alternatives: calls of which at least one must have a result.
        work: key and function, given the results so far; `NotRunHere` for a bundle that this machine cannot gate.
    """

    stage: str
    kind: type[A_co]
    needs: tuple[StageCall[Any], ...]
    work: Callable[[Results], Work[A_co] | NotRunHere]
    target: str | None = None
    alternatives: tuple[StageCall[Any], ...] = ()


class Results:
    """The results of stage calls so far. `untried` names the candidates that the time limit left out."""

    def __init__(self) -> None:
        self.untried: list[str] = []
        self._found: dict[StageCall[Any], StageResult[Any]] = {}

    def __getitem__(self, call: StageCall[A]) -> StageResult[A]:
        return self._found[call]

    def __setitem__(self, call: StageCall[A], result: StageResult[A]) -> None:
        self._found[call] = result

    def __contains__(self, call: StageCall[Any]) -> bool:
        return call in self._found

    def has_all(self, calls: Iterable[StageCall[Any]]) -> bool:
        """Whether each of `calls` has a result."""
        return all(call in self._found for call in calls)

    def artifact(self, call: StageCall[A] | None) -> A | None:
        """The artifact of `call`; None without a call."""
        return None if call is None else self._found[call].artifact


class Calls(ABC):
    """The stage calls of a recipe. Iteration yields each once, in the order of the build.

    Attributes:
        inputs: the call whose result is checked against the recipe before a build goes on.
        bundles, gates: the calls of each target.
    """

    def __init__(self, recipe: AnyRecipe, context: BuildContext, inputs: StageCall[Any]) -> None:
        self.recipe = recipe
        self.context = context
        self.inputs = inputs
        self.bundles: dict[str, StageCall[BundleArtifact]] = {}
        self.gates: dict[str, StageCall[GateArtifact]] = {}
        self._order: list[StageCall[Any]] = []

    def __iter__(self) -> Iterator[StageCall[Any]]:
        return iter(self._order)

    def __len__(self) -> int:
        return len(self._order)

    @property
    def candidates(self) -> Sequence[str]:
        """The names of all candidates of a search; one empty name without a search."""
        return ("",)

    def candidates_of(self, call: StageCall[Any]) -> tuple[str, ...]:
        """The names of the candidates that share `call`; empty without a search."""
        return ()

    def owners(self, call: StageCall[Any]) -> tuple[str, ...]:
        """The names of the candidates that share `call`; empty if all of them do."""
        return ()

    def label(self, call: StageCall[Any]) -> str:
        """The searched values of `call`, as `model=./nano`; empty if all candidates share the call."""
        return ""

    def name(self, call: StageCall[Any]) -> str:
        """Stage and label: `student model=./nano`."""
        return f"{call.stage} {self.label(call)}".rstrip()

    @abstractmethod
    def build(
        self,
        results: Results,
        deliveries: Sequence[Delivery] = (),
        failures: Sequence[Failure] = (),
        left_out: Sequence[Failure] = (),
    ) -> Build:
        """The artifacts of what ships, with delivered and failed targets and candidates."""


@dataclass(frozen=True)
class Shipped:
    """What a bundle ships.

    Attributes:
        recipe: with the values of the chosen candidate.
        made: the results that go into the bundle.
        payload: makes the files.
        decides: JSON value that changes the bundle besides recipe, ledger and results.
    """

    recipe: AnyRecipe
    made: Sequence[StageResult[Any]]
    payload: PayloadMaker
    decides: Any = None


def bundle_call(
    calls: Calls, target: str, needs: tuple[StageCall[Any], ...], shipped: Callable[[Results], Shipped]
) -> StageCall[BundleArtifact]:
    """The bundle of a target. `shipped`: what goes into it, given the results so far."""
    context = calls.context

    def work(results: Results) -> Work[BundleArtifact]:
        ships = shipped(results)
        recipe = ships.recipe
        ledger = tuple(row.timeless() for row in calls.build(results).ledger)
        decides = {
            "version": recipe.version,  # a part of the recipe, for `plan` to name
            "recipe": bundle.recipe_sha256(recipe),
            "target": target,
            "ledger": [asdict(row) for row in ledger],
            "tools": tool_versions(),  # the manifest lists them
            "ships": ships.decides,
        }
        inputs = [*map(cache_keys.whole, ships.made), *cache_keys.runtime()]
        packed = bundle.inputs(recipe, context.profile(target), context)
        inputs += [*cache_keys.named("packages, profile or templates", packed), *cache_keys.baseline(recipe.gates)]
        key = cache_keys.make("bundle", bundle.VERSION, decides, inputs)
        return Work(
            key,
            lambda out, checkpoint, progress: bundle.run(recipe, target, ships.payload, ledger, context, out, progress),
        )

    return StageCall("bundle", BundleArtifact, needs, work, target)


def gate_call(
    context: BuildContext,
    target: str,
    packed: StageCall[BundleArtifact],
    weight_bytes: Callable[[Results], int],
) -> StageCall[GateArtifact]:
    """The gate of a bundle on this machine. `weight_bytes`: of the model in it, for the ledger."""

    def work(results: Results) -> Work[GateArtifact] | NotRunHere:
        made = results[packed]
        lacking = not_gated_here(context.profile(target), made.artifact.libc_min)
        if lacking is not None:
            return replace(lacking, command=f"sh {made.artifact.file_name} gate")
        return Work(
            cache_keys.make("gate", gate.VERSION, target, [cache_keys.whole(made)], local.host_facts()),
            lambda out, checkpoint, progress: gate.run(made.artifact, mebibytes(weight_bytes(results)), out, progress),
        )

    return StageCall("gate", GateArtifact, (packed,), work, target)


def not_gated_here(profile: Profile, libc_min: str = "") -> NotRunHere | None:
    """Why bundles of a target cannot be gated on this machine; None if they can.

    Args:
        libc_min: the oldest glibc that loads the bundle's binaries; "" if unknown.
    """
    return local.lacking(
        profile.machines, profile.provider, profile.interpreter, libc_min=libc_min, jetpack=profile.jetpack
    )
