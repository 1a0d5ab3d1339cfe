"""What the reports of several builds tell side by side: figures of each, and what changed from one to the next.

Reports come from elsewhere, perhaps from another version of edgepack: what is no report is an error by name, and what a
newer one says besides is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from edgepack.differences import differences
from edgepack.errors import UsageError
from edgepack.outcome import Verdict
from edgepack_runtime.contention import Contention

SUFFIX: Final = ".report.json"
_MOST_BYTES: Final = 64 * 2**20
_LEFT_OUT: Final = ("name", "version")  # of the recipe: they are the build's own


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Score(_Part):
    """A metric on `n` rows, from 0 to 1."""

    metric: str
    value: FiniteFloat = Field(ge=0, le=1)
    low: FiniteFloat = Field(ge=0, le=1)
    high: FiniteFloat = Field(ge=0, le=1)
    n: int = Field(ge=1)


class _Contention(_Part):
    """What a device tells of it, as `edgepack_runtime.contention.Contention` has it."""

    wall_ms: FiniteFloat = Field(gt=0)
    own_cpu_ms: FiniteFloat = 0.0
    cores: int | None = None
    others_ms: FiniteFloat | None = None
    stolen_ms: FiniteFloat | None = None
    waited_ms: FiniteFloat | None = None
    quota_ms: FiniteFloat | None = None
    stalled_ms: FiniteFloat | None = None
    faults: int | None = None

    def of_runtime(self) -> Contention:
        return Contention(**self.model_dump())


class _Latency(_Part):
    p50_ms: FiniteFloat
    p95_ms: FiniteFloat | None = None
    threads: int | None = None
    stable: bool | None = None
    window_p50_ms: tuple[FiniteFloat, ...] = Field((), max_length=100)
    contention: _Contention | None = None

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why these times may tell of the machine rather than of the model, in words of receipts."""
        beside = self.contention.of_runtime() if self.contention else None
        found = ["its receipt does not tell what else ran"] if beside is None else []
        if beside is not None and not beside.quiet:
            found.append(beside.told())
        if self.stable is False:
            medians = " ".join(f"{median:.2f}" for median in self.window_p50_ms)
            found.append(f"unstable, medians of its windows in ms: {medians or 'not told'}")
        return tuple(found)


class _Receipt(_Part):
    accuracy: Score | None = None
    latency: _Latency | None = None
    conditions: Mapping[str, Any] = {}


class _Bundle(_Part):
    file_name: str
    bundle_bytes: int = Field(ge=0)


class Target(_Part):
    """The bundle of one target; `receipt` is None where it was not gated."""

    target: str
    verdict: Verdict
    bundle: _Bundle
    receipt: _Receipt | None


class _Variation(_Part):
    targets: tuple[str, ...]


class _Export(_Part):
    shipped: str
    onnx_bytes: Mapping[str, int]
    variations: tuple[_Variation, ...] = ()


class _Split(_Part):
    rows: int
    sha256: str | None = None


class _Data(_Part):
    splits: Mapping[str, _Split]


class Build(_Part):
    """One report."""

    report: int
    name: str
    version: str
    verdict: Verdict
    recipe: Mapping[str, Any]
    data: _Data
    export: _Export
    targets: tuple[Target, ...]
    tools: Mapping[str, str]


@dataclass(frozen=True)
class Row:
    """Figures of one build on one target. What was not measured is None; `cpu` says on what it was.

    `others_cores` is how many of `cores` others used while it was timed; `doubts` say why its times may tell of the
    machine rather than of the model. `same_rows` is whether its score is of the same test rows as that of the build
    before on this target; None where there is none, or one of them does not tell.
    """

    build: str
    target: str
    verdict: str
    score: Score | None
    same_rows: bool | None
    p50_ms: float | None
    p95_ms: float | None
    threads: int | None
    others_cores: float | None
    cores: int | None
    doubts: tuple[str, ...]
    cpu: str | None
    onnx_bytes: int | None
    bundle_bytes: int


@dataclass(frozen=True)
class Change:
    """What is otherwise in a build than in the one before it: dotted names, each with what it was and what it is."""

    before: str
    after: str
    values: Mapping[str, tuple[Any, Any]]


@dataclass(frozen=True)
class History:
    """All builds in the order in which they were given, and how each differs from the one before."""

    rows: tuple[Row, ...]
    changes: tuple[Change, ...]


def read(paths: Sequence[Path]) -> History:
    """The history that reports tell: files, or folders with reports of builds, which are taken by version.

    Raises:
        UsageError: there is no such file, one is no report, or fewer than two are given.
    """
    files = reports(paths)
    builds = [(file, _report(file)) for file in files]
    if len(builds) < 2:
        raise UsageError(
            "there is nothing to compare",
            why=f"{len(builds)} report was found, and it takes two" if builds else "no report was found",
            fix=f"give two or more NAME-VERSION{SUFFIX}, or folders that hold them",
        )
    names = _names([build for _, build in builds], files)
    rows: list[Row] = []
    before: dict[str, _Rows] = {}
    for name, (_, build) in zip(names, builds, strict=True):
        for target in build.targets:
            rows.append(_row(name, build, target, before.get(target.target)))
            if (scored := _rows(build, target)) is not None:
                before[target.target] = scored
    pairs = zip(names, names[1:], builds, builds[1:], strict=False)
    changes = [Change(one, two, differences(_told(a), _told(b))) for one, two, (_, a), (_, b) in pairs]
    return History(tuple(rows), tuple(changes))


def reports(paths: Sequence[Path]) -> list[Path]:
    """The files that `read` reads.

    Raises:
        UsageError: a folder holds none.
    """
    return [file for path in paths for file in _files(path)]


def document(found: History) -> dict[str, Any]:
    """All of it as plain JSON values: `builds` and `changes`."""
    rows = [{**vars(row), "score": row.score and row.score.model_dump()} for row in found.rows]
    return {"builds": rows, "changes": [asdict(change) for change in found.changes]}


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(path.glob(f"*{SUFFIX}"), key=lambda file: (_version(file), file.name))
    if not found:
        raise UsageError(f"{path} holds no report", why=f"none of its files ends in {SUFFIX}")
    return found


def _version(file: Path) -> tuple[int, ...]:
    """`1.10.0` of `hotel-1.10.0.report.json`, so that it comes after `1.9.0`."""
    version = file.name.removesuffix(SUFFIX).rpartition("-")[2].split(".")
    return tuple(int(part) for part in version) if all(part.isdecimal() for part in version) else ()


def _report(file: Path) -> Build:
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES >> 20} MiB")
        return Build.model_validate_json(file.read_bytes())
    except OSError as error:
        raise UsageError(f"{file} cannot be read", why=str(error.strerror or error)) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise UsageError(f"{file} is no report of a build", why=f"{where}: {first['msg']}") from error
    except ValueError as error:
        raise UsageError(f"{file} is no report of a build", why=str(error)) from error


def _names(builds: Sequence[Build], files: Sequence[Path]) -> list[str]:
    """What to call each: its version, with the name where that differs, and where both are the same what of the paths
    differs.
    """
    same_name = len({build.name for build in builds}) == 1
    names = [build.version if same_name else f"{build.name} {build.version}" for build in builds]
    for name in [name for name, count in Counter(names).items() if count > 1]:
        places = [place for place, other in enumerate(names) if other == name]
        for place, told in zip(places, _apart([files[place] for place in places]), strict=True):
            names[place] = f"{name} ({told})"
    return names


def _apart(files: Sequence[Path]) -> list[str]:
    """The middle of each path, without the folders that all begin with and what all end in.

    A path that has nothing else, and one that is there twice, is told by its place in line.
    """
    parts = [file.absolute().parts for file in files]
    begun = _alike(parts)
    parts = [one[begun:] for one in parts]
    ended = _alike([one[::-1] for one in parts])
    told = ["/".join(one[: len(one) - ended]).removesuffix(SUFFIX) for one in parts]
    return [text if text and told.count(text) == 1 else f"#{number}" for number, text in enumerate(told, 1)]


def _alike(several: Sequence[Sequence[str]]) -> int:
    """How many parts all of them begin with."""
    together = zip(*several, strict=False)
    return sum(1 for _ in takewhile(lambda beside: len(set(beside)) == 1, together))


class _Rows(NamedTuple):
    """Which rows a score is of: a share of the test split, drawn evenly, that its length tells."""

    n: int
    test_sha256: str | None


def _rows(build: Build, target: Target) -> _Rows | None:
    score = target.receipt.accuracy if target.receipt else None
    split = build.data.splits.get("test")
    return None if score is None else _Rows(score.n, split.sha256 if split else None)


def _are_same(rows: _Rows | None, before: _Rows | None) -> bool | None:
    if rows is None or before is None:
        return None
    if rows.n != before.n:
        return False
    return None if None in (rows.test_sha256, before.test_sha256) else rows.test_sha256 == before.test_sha256


def _row(name: str, build: Build, target: Target, before: _Rows | None) -> Row:
    """`before`: the rows that the last score on this target was of."""
    receipt = target.receipt or _Receipt()
    latency = receipt.latency
    beside = latency.contention.of_runtime() if latency and latency.contention else None
    varies = any(target.target in one.targets for one in build.export.variations)  # a file that is not told of here
    cpu = receipt.conditions.get("cpu_model")
    return Row(
        build=name,
        target=target.target,
        verdict=target.verdict,
        score=receipt.accuracy,
        same_rows=_are_same(_rows(build, target), before),
        p50_ms=latency.p50_ms if latency else None,
        p95_ms=latency.p95_ms if latency else None,
        threads=latency.threads if latency else None,
        others_cores=beside.others_cores if beside else None,
        cores=beside.cores if beside else None,
        doubts=latency.doubts if latency else (),
        cpu=cpu if isinstance(cpu, str) else None,
        onnx_bytes=None if varies else build.export.onnx_bytes.get(build.export.shipped),
        bundle_bytes=target.bundle.bundle_bytes,
    )


def _told(build: Build) -> dict[str, Any]:
    """What a person compares: recipe, data, what ships, tools."""
    recipe = {key: value for key, value in build.recipe.items() if key not in _LEFT_OUT}
    data = {name: split.model_dump() for name, split in build.data.splits.items()}
    return {"recipe": recipe, "rows of data": data, "ships": build.export.shipped, "tools": dict(build.tools)}
