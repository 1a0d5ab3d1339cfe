"""What a stage is: one step of a build, with what it reads, what decides its result, and its work.

The cache key of a result is the digest of the stage's version, of the recipe values that change the result, of its
inputs, and of the versions of the libraries that compute it. The versions of edgepack and Python are not part of it: an
upgrade of either trains nothing again.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Final, Generic, TypeVar

from edgepack.artifacts import Artifact, Split
from edgepack.progress import SILENT, Progress
from edgepack.results import NotRunHere
from edgepack.targets import this_machine
from edgepack.targets.context import BuildContext
from edgepack.util.versions import installed_versions

A = TypeVar("A", bound=Artifact)
A_co = TypeVar("A_co", bound=Artifact, covariant=True)
TRAINING: Final = ("paddlepaddle", "paddlepaddle-gpu", "paddlenlp", "numpy")  # libraries that train


@dataclass(frozen=True)
class Input:
    """What a stage reads: its name in words (`train`, `weights of student`) and its digest; the number of `rows`."""

    name: str
    digest: str
    rows: int | None = None


@dataclass(frozen=True)
class MadeOf:
    """Everything that decides a stage result.

    Attributes:
        version: of the stage.
        section: the recipe values, in JSON types.
        inputs: several may have one name, as the files of a model do.
        versions: of the libraries that compute it, and facts of the machine if it measures.
    """

    version: int
    section: Any
    inputs: tuple[Input, ...]
    versions: dict[str, str]


@dataclass(frozen=True)
class Key:
    """Cache key of a stage result: the digest of everything that decides it."""

    stage: str
    digest: str
    made_of: MadeOf = field(compare=False)

    @classmethod
    def of(cls, stage: str, made_of: MadeOf) -> Key:
        """The key of a result of `stage`."""
        document = {
            "stage": stage,
            "version": made_of.version,
            "section": made_of.section,
            "inputs": [one.digest for one in made_of.inputs],
            "versions": made_of.versions,
        }
        text = json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False)
        section = json.loads(text)["section"]  # as a record gives it back: lists for tuples
        return cls(stage, hashlib.sha256(text.encode()).hexdigest(), replace(made_of, section=section))


@dataclass(frozen=True)
class StageResult(Generic[A_co]):
    """An artifact of `stage` in the workspace. `digest` is that of its content, an input of later keys.

    `files` maps the name of each file to its sha256, for stages that read some files only.
    """

    stage: str
    artifact: A_co
    digest: str
    files: Mapping[str, str]


@dataclass(frozen=True)
class Context:
    """What a stage works with, besides its own fields.

    Attributes:
        results: of earlier stages; `ctx[stage]` gives that of one stage.
        checkpoint: the folder from which an interrupted training continues.
    """

    targets: BuildContext = field(default_factory=BuildContext)
    progress: Progress = SILENT
    results: Mapping[Stage[Any], StageResult[Any]] = field(default_factory=dict)
    checkpoint: Path = Path("checkpoint")

    def __getitem__(self, stage: Stage[A]) -> StageResult[A]:
        return self.results[stage]

    def artifact(self, stage: Stage[A]) -> A:
        """The artifact of an earlier stage."""
        return self[stage].artifact

    def has(self, *stages: Stage[Any]) -> bool:
        """Whether each of `stages` has a result."""
        return all(stage in self.results for stage in stages)

    def with_result(self, stage: Stage[A], result: StageResult[A]) -> Context:
        """The context of later stages."""
        return replace(self, results={**self.results, stage: result})


@dataclass(frozen=True)
class PlannedRows:
    """The number of rows of each split, and how many training texts have each (estimated) number of tokens."""

    counts: Mapping[Split, int] = field(default_factory=dict)
    texts_by_tokens: Mapping[int, int] = field(default_factory=dict)


class Stage(ABC, Generic[A_co]):
    """One step of a build. Subclasses are frozen dataclasses of recipe values and of the stages that they read.

    Equal stages are one stage: candidates of a search that do not differ in what a stage reads run it once.

    Attributes:
        name: for `--until`, and of the folder of its results.
        version: increased when the same inputs give another result.
        kind: what it makes.
        libraries: distributions that compute the result.
        measures: whether figures depend on this machine.
        recipe_keys: where the values of `decides` come from: a dotted name in them -> the key of the recipe. The
            longest name counts, "" is for all others; without it they keep the stage's name.
        target: of a bundle and of its gate.
    """

    name: ClassVar[str]
    version: ClassVar[int]
    kind: ClassVar[type[Artifact]]
    libraries: ClassVar[Sequence[str]] = ()
    measures: ClassVar[bool] = False
    recipe_keys: ClassVar[Mapping[str, str]] = MappingProxyType({})
    target: str | None = None

    @property
    def needs(self) -> tuple[Stage[Any], ...]:
        """The stages whose results it reads."""
        return ()

    @property
    def any_of(self) -> tuple[Stage[Any], ...]:
        """Stages of which at least one must have a result."""
        return ()

    @abstractmethod
    def decides(self, ctx: Context) -> Any:
        """The recipe values that change the result, in JSON types."""

    def inputs(self, ctx: Context) -> Sequence[Input]:
        """Earlier results and files. Their digests decide; names and numbers of rows only explain."""
        return ()

    def lacking(self, ctx: Context) -> NotRunHere | None:
        """Why it cannot run on this machine; None if it can."""
        return None

    def about(self, rows: PlannedRows) -> str:
        """The work in words, for a plan."""
        return ""

    @abstractmethod
    def run(self, ctx: Context, out: Path) -> A_co:
        """Make the result in the empty folder `out`.

        Raises:
            EdgepackError: it cannot be made; the message names the stage.
        """

    def key(self, ctx: Context) -> Key:
        """The cache key of the result, given the results that it needs."""
        versions = installed_versions(self.libraries) | (this_machine.host_facts() if self.measures else {})
        return Key.of(self.name, MadeOf(self.version, self.decides(ctx), tuple(self.inputs(ctx)), versions))
