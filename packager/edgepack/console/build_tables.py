"""Tables of builds: ledger, candidates, contents and differences of bundles, comparison of builds."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from edgepack.bundle.archive import BUNDLE_SUFFIX
from edgepack.console.tables import (
    COLUMN_GAP,
    STYLES,
    column_head,
    mib_column,
    named_facts,
    one_by_one,
    safe,
    score_head,
    shown,
    table,
    table_width,
    verdict_name,
)
from edgepack.errors import UsageError
from edgepack.messages import joined, message
from edgepack.report.i18n import metric
from edgepack.report.i18n import part as part_name
from edgepack.report.i18n import stage as stage_name
from edgepack.report.model import Report, Target, to_json
from edgepack.report.model import parse as parse_report
from edgepack.util.text import differences, duration, metric_name, mib
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.bundle.manifest import BUNDLED, HOST, parse
from edgepack_runtime.bundle.verify import read_signed_manifest
from edgepack_runtime.schema.figures import NOTHING, quantity, span
from edgepack_runtime.schema.receipt import GateLatency
from edgepack_runtime.stats.metrics import METRICS, SCORE, metric_of
from edgepack_runtime.util.fs import open_regular

if TYPE_CHECKING:
    from edgepack.artifacts import LedgerRow, Score, SelectArtifact
    from edgepack.oci.image import WrittenImage


LEAST_NOTE: Final = 30  # columns for notes that wrap beside the figures of the ledger
MOST_NOTE_LINES: Final = 4  # longest note beside the figures


def ledger(rows: Sequence[LedgerRow], *, live: bool, width: int) -> Iterator[Table | Text]:
    """The ledger: accuracy, MiB and ms after each stage.

    Notes are beside the figures if `width` columns leave room, else below the table. If the figures do not fit either,
    each stage has several lines.
    """
    bases, metrics = {_basis(row.score) for row in rows}, sorted({row.score.metric for row in rows})
    heads = ("stage", score_head(metrics), "MiB", "mean ms", "p95 ms", "parity")
    figures = [_figures(row, metric=len(metrics) > 1, basis=len(bases) > 1) for row in rows]
    stages = [safe(stage_name(row.stage)) for row in rows]
    to = [_parity_to(row, before) for row, before in zip(rows, ("", *(row.stage for row in rows)), strict=False)]
    notes = [safe(_remark(row)) for row in rows]
    beside = [[*cells[:-1], f"{cells[-1]}{other and f' ({other})'}"] for cells, other in zip(figures, to, strict=True)]
    room = width - table_width(heads, beside) - COLUMN_GAP
    longest = max(map(cell_len, (column_head("note"), *notes)))
    fits = longest <= (MOST_NOTE_LINES if room >= LEAST_NOTE else 1) * room
    if fits:
        yield _table((*heads, "note"), [[*cells, note] for cells, note in zip(beside, notes, strict=True)], live)
    elif table_width(heads, figures) <= width:
        yield _table(heads, figures, live)
    else:
        yield from one_by_one([Text(stage, style="bold") for stage in stages], heads[1:], [row[1:] for row in figures])
    basis = message("say.basis", basis=bases.pop()) if len(bases) == 1 else ""
    what = message("say.an_output" if metrics == [SCORE] else "say.a_logit")
    names = message("say.or", names=list(map(metric, metrics)))
    yield Text(safe(message("say.parity_of", metric=names, basis=basis, what=what)), style="dim")
    for stage, other, note in zip(stages, to, notes, strict=True):
        text = joined(message("say.parity", other=other) if other else "", note)
        if text and not fits:
            yield Text(safe(message("say.stage", stage=stage, text=text)))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], live: bool) -> Table:
    made = table(live, *heads)
    for cells in rows:
        made.add_row(*cells)
    return made


def selection(selected: SelectArtifact, *, live: bool) -> Iterator[Table | Text]:
    """The candidates with dev score, latency and size of their shipped models, and why one was chosen."""
    first = selected.candidates[0].dev_score
    heads = ("p50 ms", "MiB", "precision", "chosen", "candidate")
    made = table(live, message("say.dev_score", metric=metric(first.metric)), *heads)
    for one in selected.candidates:
        score = one.dev_score
        made.add_row(
            f"{quantity(score.value, score.unit)} {span(score.low, score.high, score.unit)}",
            quantity(one.p50_ms, "ms", with_unit=False),
            mib_column(one.onnx_bytes),
            one.precision,
            safe(message("figure.yes")) if one.name == selected.chosen else "",
            safe(joined(one.name, *(message("say.misses", gate=gate) for gate in one.missed))),
        )
    yield made
    yield Text(safe(message("say.chosen", name=selected.chosen, why=selected.why)))
    caveat = message("candidates.chosen_on_dev")
    yield Text(f"{safe(message('say.on_dev', caveat=caveat, basis=_basis(first)))}\n", style="dim")


def _basis(score: Score) -> str:
    return f"{100 * score.confidence:.4g} %, n={score.n}"


def _figures(row: LedgerRow, *, metric: bool, basis: bool) -> list[str]:
    """The cells of a row from stage to parity. Metric, n and confidence are beside the score if they differ."""
    unit = row.score.unit
    score = f"{quantity(row.score.value, unit)} {span(row.score.low, row.score.high, unit)}"
    name = metric_name(row.score.metric) if metric else ""
    return [
        safe(stage_name(row.stage)),
        " ".join(part for part in (name, score, _basis(row.score) if basis else "") if part),
        quantity(row.model_mib, "MiB", with_unit=False),
        *(quantity(ms, "ms", with_unit=False) for ms in (row.mean_ms, row.p95_ms)),
        NOTHING if row.parity is None else f"{row.parity:.1e}",
    ]


def _remark(row: LedgerRow) -> str:
    return row.note if row.seconds is None else joined(row.note, duration(row.seconds), by="list.comma")


def _parity_to(row: LedgerRow, before: str) -> str:
    """The row of the parity, if it is not the row before."""
    if row.parity is None or row.parity_with is None or row.parity_with == before:
        return ""
    return safe(message("say.parity_to", stage=stage_name(row.parity_with)))


def _host_needs(target: Mapping[str, Any]) -> str:
    if target["interpreter"] == BUNDLED:
        return message("inspect.carried")
    return message("inspect.host" if target["interpreter"] == HOST else "inspect.glibc", libc=target["libc_min"])


def image(written: WrittenImage, *, live: bool) -> Table:
    """The layers of an image, for each platform."""
    layers = table(live, "platform", "layer", "packed MiB", "unpacked MiB", "digest")
    for one in written.images:
        for name, layer in one.layers.items():
            sizes = mib_column(layer.blob.size), mib_column(layer.unpacked_bytes)
            layers.add_row(one.platform, name, *sizes, layer.blob.digest[:19])
        packed = sum(layer.blob.size for layer in one.layers.values())
        unpacked = sum(layer.unpacked_bytes for layer in one.layers.values())
        layers.add_row(
            one.platform,
            safe(message("inspect.in_all")),
            mib_column(packed),
            mib_column(unpacked),
            one.manifest.digest[:19],
        )
    return layers


def inspection(found: Mapping[str, Any], *, live: bool) -> Iterator[Table | Text]:
    """The result of `edgepack.bundle.inspect.inspect` as tables."""
    target, model = found["target"], found["model"]
    about = {"name": found["name"], "version": found["version"], "release": found["release_id"]}
    yield Text(safe(message("inspect.head", **about, target=target["profile"])), style="bold")
    labels, handler, precision = found["labels"], found["handler"], model["precision"]
    if handler is None:
        task = message("inspect.labelled", task=found["task"], n=len(labels), labels=", ".join(labels))
        most = found["max_length"]
        reads = message("inspect.linear" if most is None else "inspect.cuts", precision=precision, n=most)
    else:
        task = message("inspect.handled", task=found["task"], item=handler["item"])
        names = handler["graphs"]
        reads = message("inspect.graphs", precision=precision, n=len(names), names=list(names))
    machines = list(target["machines"])
    yield from named_facts(
        {
            "task": task,
            "model": reads,
            "needs": message("inspect.linux", machines=machines, host=_host_needs(target), provider=target["provider"]),
            "sequence": found["sequence"],
            "tools": ", ".join(f"{name} {version}" for name, version in sorted(found["tools"].items())),
            "recipe": f"sha256 {found['recipe_sha256']}",
            "signed_by": found["signed_by"] or message("inspect.nobody"),
        }
    )
    yield Text("")
    sizes = table(live, "part", "packed MiB", "on the device MiB")
    for part, size in found["parts"].items():
        sizes.add_row(safe(part_name(part)), mib_column(size["packed"]), mib_column(size["unpacked"]))
    sizes.add_row(
        safe(message("inspect.in_all")), mib_column(found["bundle_bytes"]), mib_column(found["unpacked_bytes"])
    )
    yield sizes
    packages = [f"{name} {mib(size)}" for name, size in found["packages"].items()]
    yield Text(safe(message("inspect.packages", parts=packages)))
    yield Text("")
    gates = table(live, "gate", "limits")
    for name, limits in found["gates"].items():
        if limits is not None:
            gates.add_row(safe(name), safe(limits if isinstance(limits, str) else _limits(limits)))
    yield gates
    yield Text("")
    metrics = sorted({safe(row["score"]["metric"]) for row in found["ledger"]})
    rows = table(live, "stage", score_head(metrics), "MiB", "parity", "note")
    for row in found["ledger"]:
        name = f"{metric_name(row['score']['metric'])} " if len(metrics) > 1 else ""
        rows.add_row(
            safe(stage_name(row["stage"])),
            safe(name) + quantity(row["score"]["value"], metric_of(row["score"]["metric"]).unit),
            quantity(row["model_mib"], "MiB", with_unit=False),
            NOTHING if row["parity"] is None else f"{row['parity']:.1e}",
            safe(row["note"]),
        )
    yield rows


def comparison(found: Mapping[str, Any], *, live: bool) -> Iterator[Table | Text]:
    """The result of `edgepack.bundle.inspect.compare` as tables."""
    if not found["values"] and not found["files"]:
        yield Text(safe(message("inspect.same")))
        return
    values = table(live, "what", "before", "after", "change")
    for name, (before, after) in found["values"].items():
        row = _difference(name, before, after)
        if row[0] != row[1]:  # or they differ by some bytes alone
            values.add_row(safe(name), *row)
    yield values
    for part, kinds in found["files"].items():
        counts = [message(f"inspect.{kind}", n=len(paths)) for kind, paths in kinds.items()]
        few = [path for paths in kinds.values() for path in paths][:3]
        few = [*few, "..."] if len(few) == 3 else few
        yield Text(safe(message("inspect.files", part=part_name(part), counts=counts, few=few)))
    yield Text(safe(message("inspect.times")))


def _difference(name: str, before: Any, after: Any) -> tuple[str, str, str]:
    """A value before and after, and the change: of a score in points, of a size as a ratio."""
    kind = name.rpartition(".")[2]
    both = [value for value in (before, after) if isinstance(value, int | float)]
    if kind in METRICS and both:
        _, unit, more_is_better = metric_of(kind)
        first, second = (shown(None) if value is None else quantity(value, unit) for value in (before, after))
        if len(both) < 2:
            return first, second, ""
        change = after - before
        points = safe(message("figure.points", value=f"{100 * change:+.1f}"))
        return first, second, points if more_is_better else f"{change:+.3g}"
    if len(both) < 2:
        return shown(before), shown(after), ""
    ratio = f"{after / before:.2f} x" if before else ""
    if kind.endswith("_bytes") or name.startswith("parts."):
        return mib(before), mib(after), ratio
    return shown(before), shown(after), ratio if kind == "model_mib" else ""


def _limits(limits: Mapping[str, Any]) -> str:
    """The gates that are set: `p95_ms 15.0, sustained (seconds 60.0, max_slowdown_percent 15.0)`."""
    parts = []
    for key, value in sorted(limits.items(), key=lambda item: isinstance(item[1], Mapping)):  # short ones first
        if isinstance(value, Mapping):
            parts.append(f"{key} ({_limits(value)})")
        elif isinstance(value, list):
            parts += [f"{key} ({_limits(one) if isinstance(one, Mapping) else one})" for one in value]
        elif value is not None:
            parts.append(f"{key} {value}")
    return ", ".join(parts)


SUFFIX: Final = ".report.json"
_MOST_BYTES: Final = 64 * 2**20
_MOST_CHANGES: Final = 30  # differences to print for a build


@dataclass(frozen=True)
class TableRow:
    """Figures of one build on one target; None if not measured.

    `disturbed`: other processes may have disturbed its times.
    """

    build: str
    target: str
    verdict: str
    metric: str | None
    score: float | None
    low: float | None
    high: float | None
    test_rows: int | None
    mean_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    threads: int | None
    disturbed: bool
    cpu: str | None
    model_mib: float | None
    bundle_bytes: int


@dataclass(frozen=True)
class Change:
    """Differences of a build to the build before: dotted names with old and new value."""

    before: str
    after: str
    values: Mapping[str, tuple[Any, Any]]


@dataclass(frozen=True)
class Comparison:
    """All builds in order, and the differences of each to the one before."""

    builds: tuple[TableRow, ...]
    changes: tuple[Change, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def read(paths: Sequence[Path]) -> Comparison:
    """Compare the reports in `paths`: files, bundles beside their reports, or folders, ordered by version.

    Raises:
        UsageError: a file is missing or is not a report.
        BundleInvalidError: a bundle is damaged.
    """
    files = [file for path in paths for file in _files(path)]
    reports = [_report(file) for file in files]
    names = _names(reports, files)
    rows = [_row(name, report, one) for name, report in zip(names, reports, strict=True) for one in report.targets]
    pairs = zip(names, names[1:], reports, reports[1:], strict=False)
    changes = [Change(before, after, differences(_decided(a), _decided(b))) for before, after, a, b in pairs]
    return Comparison(tuple(rows), tuple(changes))


def tables(found: Comparison, *, live: bool, width: int) -> Iterator[Table | Text]:
    """A row for each build and target, then warnings, then the changes between builds."""
    heads = ("build", "target", "verdict", "score", "n", "mean ms", "p50 ms", "p95 ms", "MiB", "packed MiB")
    rows = [_cells(row) for row in found.builds]
    if table_width(heads, rows) <= width:
        made = table(live, *heads)
        for build, target, verdict, *figures in rows:
            made.add_row(build, target, Text(verdict_name(verdict), STYLES.get(verdict, "")), *figures)
        yield made
    else:
        titles = [Text(f"{build}, {target}", style="bold") for build, target, *_ in rows]
        yield from one_by_one(titles, heads[2:], [[verdict_name(word), *figures] for _, _, word, *figures in rows])
    for warning in _warnings(found.builds):
        yield Text(safe(warning), style="yellow")
    for change in found.changes:
        yield Text(safe(f"{change.before} -> {change.after}"), style="bold")
        if not change.values:
            yield Text(safe(message("say.line", text=message("compared.same"))))
        for name, (before, after) in list(change.values.items())[:_MOST_CHANGES]:
            yield Text(safe(f"  {name}: {shown(before)} -> {shown(after)}"))
        if len(change.values) > _MOST_CHANGES:
            more = message("compared.more", n=len(change.values) - _MOST_CHANGES)
            yield Text(safe(message("say.line", text=more)), style="dim")


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [_beside(path) if path.suffix == BUNDLE_SUFFIX else path]
    found = sorted(path.glob(f"*{SUFFIX}"), key=lambda file: (_version(file), file.name))
    if not found:
        raise UsageError(f"{path} holds no report", why=f"none of its files ends in {SUFFIX}")
    return found


def _beside(bundle: Path) -> Path:
    """The report of the build that made the bundle: in its folder, or in `dist` beside the workspace that keeps it."""
    with Archive(bundle) as archive:
        raw, _ = read_signed_manifest(archive)
    manifest = parse(raw)
    stem = f"{manifest.name}-{manifest.version}"
    plain = bundle.with_name(f"{stem}{SUFFIX}")
    # A refused bundle stays in WORKSPACE/bundle/DIGEST. A build of other targets has its report beside the plain one.
    folders = [bundle.parent, *(above.parent / "dist" for above in bundle.absolute().parents[2:3])]
    every = [file for folder in folders for file in (folder / plain.name, *sorted(folder.glob(f"{stem}-*{SUFFIX}")))]
    files = [file for file in every if file.is_file()]
    if not files:
        raise UsageError(
            f"the report of {bundle} is missing",
            why=f"there is no {plain}",
            fix=f"give the report itself: edgepack report DIST/{plain.name}; `edgepack diff OLD NEW` needs none",
        )
    digest = hashlib.sha256(raw).hexdigest()
    for file in files:
        if digest in [one.bundle.manifest_sha256 for one in _report(file).targets]:
            return file
    names = ", ".join(map(str, files))
    raise UsageError(
        f"{names} is not the report of {bundle}",
        why="a later build of the same version wrote it, or that of the bundle went to another folder (--dist)",
        fix=f"give the report itself: edgepack report DIST/{plain.name}",
    )


def _version(file: Path) -> tuple[int, ...]:
    """The version in a file name as numbers, so that `hotel-1.10.0.report.json` comes after `1.9.0`."""
    parts = (part.split(".") for part in reversed(file.name.removesuffix(SUFFIX).split("-")))
    return next((tuple(map(int, part)) for part in parts if len(part) == 3 and all(map(str.isdecimal, part))), ())


def _report(file: Path) -> Report:
    try:
        with open_regular(file) as stream:
            raw = stream.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise UsageError(f"{file} is not a report of a build", why=f"it has more than {_MOST_BYTES >> 20} MiB")
        return parse_report(json.loads(raw))
    except OSError as error:
        raise UsageError(f"{file} cannot be read", why=str(error.strerror or error)) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is not a report of a build", why=str(error)) from error


def _names(reports: Sequence[Report], files: Sequence[Path]) -> list[str]:
    """A name for each build: its version; with the recipe's name if names differ, with its file if both agree."""
    same_name = len({report.name for report in reports}) == 1
    names = [report.version if same_name else f"{report.name} {report.version}" for report in reports]
    count = Counter(names)
    return [f"{name} ({file})" if count[name] > 1 else name for name, file in zip(names, files, strict=True)]


def _row(build: str, report: Report, target: Target) -> TableRow:
    receipt = target.receipt
    score, latency = (None, None) if receipt is None else (receipt.accuracy, receipt.latency)
    return TableRow(
        build=build,
        target=target.target,
        verdict=target.verdict,
        metric=score.metric if score else None,
        score=score.value if score else None,
        low=score.low if score else None,
        high=score.high if score else None,
        test_rows=score.n if score else None,
        mean_ms=latency.mean_ms if latency else None,
        p50_ms=latency.p50_ms if latency else None,
        p95_ms=latency.p95_ms if latency else None,
        threads=latency.threads if latency else None,
        disturbed=latency is not None and _is_disturbed(latency),
        cpu=receipt.where.cpu_model if receipt else None,
        model_mib=report.model_mib(target.target),
        bundle_bytes=target.bundle.bundle_bytes,
    )


def _is_disturbed(latency: GateLatency) -> bool:
    """Whether other processes may have disturbed these times."""
    return latency.stable is False or latency.contention is None or latency.contention.disturbed is not False


def _decided(report: Report) -> dict[str, Any]:
    """The inputs of a build: recipe, data, shipped model, tools."""
    recipe = {key: value for key, value in report.recipe.items() if key not in ("name", "version")}
    return {"recipe": recipe, "data": to_json(report)["data"]["splits"], "ships": report.ships, "tools": report.tools}


def _cells(row: TableRow) -> list[str]:
    unit = metric_of(row.metric or "").unit
    score = f"{quantity(row.score, unit)} {span(row.low, row.high, unit)}"
    return [
        safe(row.build),
        safe(row.target),
        row.verdict,
        NOTHING if row.score is None else score,
        NOTHING if row.test_rows is None else str(row.test_rows),
        _time(row.mean_ms, row.disturbed),
        _time(row.p50_ms, row.disturbed),
        _time(row.p95_ms, row.disturbed),
        quantity(row.model_mib, "MiB", with_unit=False),
        mib_column(row.bundle_bytes),
    ]


def _time(milliseconds: float | None, disturbed: bool) -> str:
    mark = "*" if disturbed and milliseconds is not None else ""
    return quantity(milliseconds, "ms", with_unit=False) + mark


def _warnings(rows: Sequence[TableRow]) -> Iterator[str]:
    """Reasons why some figures cannot be compared."""
    if any(row.disturbed for row in rows):
        yield message("compared.disturbed")
    for name, values in (
        ("compared.cpus", {row.cpu for row in rows}),
        ("compared.threads", {row.threads for row in rows}),
        ("compared.metrics", {row.metric and metric_name(row.metric) for row in rows}),
    ):
        known = sorted(str(value) for value in values if value is not None)
        if len(known) > 1:
            yield message(name, names=known)
