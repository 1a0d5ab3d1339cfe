"""Reports of several builds side by side: figures of each build, and what changed from one to the next.

Reports may be written by another version of edgepack. Keys that are unknown here are ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, FiniteFloat, ValidationError
from rich.table import Table
from rich.text import Text

from edgepack.differences import differences
from edgepack.errors import UsageError
from edgepack.report import NOTHING, quantity, span
from edgepack.results import Verdict
from edgepack.tables import STYLES, mib_column, one_by_one, shown, table, wide
from edgepack.wording import metric_name, safe

SUFFIX: Final = ".report.json"
_MOST_BYTES: Final = 64 * 2**20
_MOST_CHANGES: Final = 30  # printed for a build; with more of them it is another recipe
_QUIET_CORES: Final = 0.05  # others may use so much of a core while a model is timed


class _Score(BaseModel):
    metric: str
    value: FiniteFloat
    low: FiniteFloat
    high: FiniteFloat
    n: int


class _Contention(BaseModel):
    others_cores: FiniteFloat | None = None


class _Latency(BaseModel):
    p50_ms: FiniteFloat
    p95_ms: FiniteFloat | None = None
    threads: int | None = None
    stable: bool | None = None
    contention: _Contention | None = None

    @property
    def disturbed(self) -> bool:
        """Whether these times may be the machine's rather than the model's."""
        others = self.contention.others_cores if self.contention else None
        return self.stable is False or others is None or others > _QUIET_CORES


class _Receipt(BaseModel):
    accuracy: _Score | None = None
    latency: _Latency | None = None
    conditions: Mapping[str, Any] = {}


class _Bundle(BaseModel):
    bundle_bytes: int


class _Target(BaseModel):
    target: str
    verdict: Verdict
    bundle: _Bundle
    receipt: _Receipt | None


class _Variation(BaseModel):
    targets: tuple[str, ...]


class _Export(BaseModel):
    shipped: str
    onnx_bytes: Mapping[str, int]
    variations: tuple[_Variation, ...] = ()


class _Report(BaseModel):
    name: str
    version: str
    recipe: Mapping[str, Any]
    data: Mapping[str, Any]
    export: _Export
    targets: tuple[_Target, ...]
    tools: Mapping[str, str]


@dataclass(frozen=True)
class Row:
    """Figures of one build on one target; None for what was not measured.

    `disturbed` is whether its times may be the machine's rather than the model's.
    """

    build: str
    target: str
    verdict: str
    metric: str | None
    score: float | None
    low: float | None
    high: float | None
    test_rows: int | None
    p50_ms: float | None
    p95_ms: float | None
    threads: int | None
    disturbed: bool
    cpu: str | None
    onnx_bytes: int | None
    bundle_bytes: int


@dataclass(frozen=True)
class Change:
    """The differences of a build to the build before it: dotted names, each with the old and the new value."""

    before: str
    after: str
    values: Mapping[str, tuple[Any, Any]]


@dataclass(frozen=True)
class Comparison:
    """All builds in the order in which they were given, and the differences of each to the one before."""

    builds: tuple[Row, ...]
    changes: tuple[Change, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def read(paths: Sequence[Path]) -> Comparison:
    """Compare the reports in `paths`: files, or folders with reports, which are ordered by version.

    Raises:
        UsageError: a file is missing or no report, or fewer than two are given.
    """
    files = [file for path in paths for file in _files(path)]
    reports = [_report(file) for file in files]
    if len(reports) < 2:
        raise UsageError(
            "there is nothing to compare",
            why=f"a comparison needs two reports, and {len(reports)} is given",
            fix=f"give two or more NAME-VERSION{SUFFIX}, or folders that hold them",
        )
    names = _names(reports, files)
    rows = [_row(name, report, one) for name, report in zip(names, reports, strict=True) for one in report.targets]
    pairs = zip(names, names[1:], reports, reports[1:], strict=False)
    changes = [Change(before, after, differences(_decided(a), _decided(b))) for before, after, a, b in pairs]
    return Comparison(tuple(rows), tuple(changes))


def tables(found: Comparison, *, live: bool, width: int) -> Iterator[Table | Text]:
    """A row for each build and target, then warnings, then what changed from each build to the next."""
    heads = ("build", "target", "verdict", "score", "n", "p50 ms", "p95 ms", "MiB", "packed MiB")
    rows = [_cells(row) for row in found.builds]
    if wide(heads, rows, live) <= width:
        made = table(live, *heads)
        for build, target, verdict, *figures in rows:
            made.add_row(build, target, Text(verdict, STYLES.get(verdict, "")), *figures)
        yield made
    else:
        titles = [Text(f"{build}, {target}", style="bold") for build, target, *_ in rows]
        yield from one_by_one(titles, heads[2:], [figures for _, _, *figures in rows])
    for warning in _warnings(found.builds):
        yield Text(safe(warning), style="yellow")
    for change in found.changes:
        yield Text(safe(f"{change.before} -> {change.after}"), style="bold")
        if not change.values:
            yield Text("  the same recipe, data and tools")
        for name, (before, after) in list(change.values.items())[:_MOST_CHANGES]:
            yield Text(safe(f"  {name}: {shown(before)} -> {shown(after)}"))
        if len(change.values) > _MOST_CHANGES:
            yield Text(f"  and {len(change.values) - _MOST_CHANGES} more: --json has them all", style="dim")


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(path.glob(f"*{SUFFIX}"), key=lambda file: (_version(file), file.name))
    if not found:
        raise UsageError(f"{path} holds no report", why=f"none of its files ends in {SUFFIX}")
    return found


def _version(file: Path) -> tuple[int, ...]:
    """`1.10.0` of `hotel-1.10.0.report.json` as numbers: it comes after `1.9.0`."""
    version = file.name.removesuffix(SUFFIX).rpartition("-")[2].split(".")
    return tuple(int(part) for part in version) if all(part.isdecimal() for part in version) else ()


def _report(file: Path) -> _Report:
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise UsageError(f"{file} is no report of a build", why=f"it has more than {_MOST_BYTES >> 20} MiB")
        return _Report.model_validate_json(file.read_bytes())
    except OSError as error:
        raise UsageError(f"{file} cannot be read", why=str(error.strerror or error)) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise UsageError(f"{file} is no report of a build", why=f"{where}: {first['msg']}") from error


def _names(reports: Sequence[_Report], files: Sequence[Path]) -> list[str]:
    """A name for each build: its version, with the recipe's name where those differ, with its file where both agree."""
    same_name = len({report.name for report in reports}) == 1
    names = [report.version if same_name else f"{report.name} {report.version}" for report in reports]
    count = Counter(names)
    return [f"{name} ({file})" if count[name] > 1 else name for name, file in zip(names, files, strict=True)]


def _row(build: str, report: _Report, target: _Target) -> Row:
    receipt = target.receipt or _Receipt()
    score, latency = receipt.accuracy, receipt.latency
    varies = any(target.target in one.targets for one in report.export.variations)  # it ships another file
    cpu = receipt.conditions.get("cpu_model")
    return Row(
        build=build,
        target=target.target,
        verdict=target.verdict,
        metric=score.metric if score else None,
        score=score.value if score else None,
        low=score.low if score else None,
        high=score.high if score else None,
        test_rows=score.n if score else None,
        p50_ms=latency.p50_ms if latency else None,
        p95_ms=latency.p95_ms if latency else None,
        threads=latency.threads if latency else None,
        disturbed=latency is not None and latency.disturbed,
        cpu=cpu if isinstance(cpu, str) else None,
        onnx_bytes=None if varies else report.export.onnx_bytes.get(report.export.shipped),
        bundle_bytes=target.bundle.bundle_bytes,
    )


def _decided(report: _Report) -> dict[str, Any]:
    """What decides a build: recipe, data, the file that ships, tools."""
    recipe = {key: value for key, value in report.recipe.items() if key not in ("name", "version")}
    return {"recipe": recipe, "data": report.data.get("splits"), "ships": report.export.shipped, "tools": report.tools}


def _cells(row: Row) -> list[str]:
    score = f"{quantity(row.score, 'fraction')} {span(row.low, row.high, 'fraction')}"
    return [
        safe(row.build),
        safe(row.target),
        row.verdict,
        NOTHING if row.score is None else score,
        NOTHING if row.test_rows is None else str(row.test_rows),
        _time(row.p50_ms, row.disturbed),
        _time(row.p95_ms, row.disturbed),
        NOTHING if row.onnx_bytes is None else mib_column(row.onnx_bytes),
        mib_column(row.bundle_bytes),
    ]


def _time(milliseconds: float | None, disturbed: bool) -> str:
    mark = "*" if disturbed and milliseconds is not None else ""
    return quantity(milliseconds, "ms").removesuffix(" ms") + mark


def _warnings(rows: Sequence[Row]) -> Iterator[str]:
    """Why some of the figures cannot be compared."""
    if any(row.disturbed for row in rows):
        yield "* these times may be the machine's: it was busy or unsteady, or its receipt does not say"
    for words, values in (
        ("times are from different CPUs", {row.cpu for row in rows}),
        ("times are with different numbers of threads", {row.threads for row in rows}),
        ("scores are in different metrics", {row.metric and metric_name(row.metric) for row in rows}),
    ):
        known = sorted(str(value) for value in values if value is not None)
        if len(known) > 1:
            yield f"{words} and cannot be compared: {', '.join(known)}"
