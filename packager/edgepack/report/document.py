"""Makes the report of a build."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, TypeVar

from edgepack.artifacts import (
    EXAMPLES_FILE,
    SPLITS,
    Artifact,
    CombineArtifact,
    CombineMethod,
    DataArtifact,
    ExportArtifact,
    GateArtifact,
    Int8Choice,
    LedgerRow,
    LinearScales,
    Quantization,
    ScalesArtifact,
    SelectArtifact,
    Selection,
    Split,
    mebibytes,
)
from edgepack.data.suitability import LabelledRows, check_suited
from edgepack.messages import message
from edgepack.recipe.model import (
    AnyRecipe,
    BaseRecipe,
    CustomRecipe,
    ImportedData,
    Recipe,
    TextKinds,
    is_builtin,
)
from edgepack.recipe.paths import without_folders
from edgepack.recipe.training import is_local_folder
from edgepack.report.loss_attribution import losses
from edgepack.report.model import (
    FORMAT,
    BundleFigures,
    CalibratedPart,
    Characters,
    Columns,
    Combined,
    Data,
    Export,
    MethodFigures,
    Model,
    Parity,
    QuantizationFigures,
    Range,
    Report,
    Rows,
    Target,
    Variation,
    Vocabulary,
    Width,
)
from edgepack.results import NOT_RUN_HERE, Build, NotRunHere, TargetResult, Verdict
from edgepack.util.hashing import sha256_file
from edgepack.util.versions import tool_versions
from edgepack_runtime.schema.receipt import UNGATED
from edgepack_runtime.stats import intervals
from edgepack_runtime.util.fs import read_regular

T = TypeVar("T")
_STEPS: Final = 255  # of the grid of uint8, between the lowest and the highest value
_DIGITS: Final = 6  # significant ones: more of a float32 is noise
_IN_LAYER: Final = re.compile(r"\.layers\.(\d+)\.([\w.]+)$")
_ROLES: Final[Mapping[str, str]] = {
    "self_attn.q_proj": "query_key_value",
    "self_attn.k_proj": "query_key_value",
    "self_attn.v_proj": "query_key_value",
    "self_attn.out_proj": "output",
    "linear1": "up",
    "linear2": "down",
}


def make(build: Build, file_name: str = "recipe.yaml") -> Report:
    """The report of a build.

    Args:
        file_name: of the recipe, for the command that a warning names.
    """
    recipe = build.recipe
    return Report(
        report=FORMAT,
        name=recipe.name,
        version=recipe.version,
        task=recipe.task,
        verdict=worst([item.verdict for item in build.target_results]),
        warnings=tuple(build.warnings(file_name)),
        recipe=_recipe(recipe),
        data=_data_of(build),
        models=tuple(_copied(Model, model, role=name) for name, model in build.models if model.is_trained),
        selection=None if build.selection is None else selection(build.selection),
        width=None if build.width_pruning is None else _copied(Width, build.width_pruning),
        vocabulary=None if build.vocabulary_trimming is None else _copied(Vocabulary, build.vocabulary_trimming),
        quantization=_quantization(None if build.export is None else build.export.int8, build.scales),
        export=None if build.export is None else _export(build.export),
        combined=None
        if build.combined is None
        else _combined(build.combined, recipe.gates.metric or build.combined.metric),
        ledger=build.ledger,
        targets=tuple(_target(item, build.ledger_of(item)) for item in build.target_results),
        tools=tool_versions(),
    )


def selection(selected: SelectArtifact) -> Selection:
    """The candidates with their figures."""
    return _copied(Selection, selected)


def _copied(kind: type[T], found: Artifact | CombineMethod, **others: Any) -> T:
    """The fields of `kind` from what has them all but the `others`."""
    names = [one.name for one in fields(kind) if one.name not in others]  # type: ignore[arg-type]
    return kind(**{name: getattr(found, name) for name in names}, **others)


def stem(report: Report, dist: Path) -> str:
    """First part of the names of a report's files in `dist`: NAME-VERSION.

    The targets of its recipe follow if `dist` has the report of an earlier build of this version that has another
    target: both are kept.
    """
    plain, targets = f"{report.name}-{report.version}", report.recipe["targets"]
    try:
        earlier = json.loads(read_regular(dist / f"{plain}.report.json"))["recipe"]["targets"]
        other = not set(earlier) <= set(targets)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):  # nothing to keep
        other = False
    return "-".join([plain, *targets]) if other else plain


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """The worst verdict: `fail`, `inconclusive`, `not run here`, `no gates`, `pass`; inconclusive without targets."""
    order: tuple[Verdict, ...] = (intervals.FAIL, intervals.INCONCLUSIVE, NOT_RUN_HERE, UNGATED)
    for verdict in order:
        if verdict in verdicts:
            return verdict
    return intervals.PASS if verdicts else intervals.INCONCLUSIVE


def _recipe(recipe: AnyRecipe) -> dict[str, Any]:
    """The resolved recipe, with names of files and folders instead of paths."""
    document: dict[str, Any] = recipe.model_dump(mode="json", by_alias=True)
    if isinstance(recipe, Recipe):
        _name_sources(document, recipe)
    else:
        document |= without_folders(document)
    document["wheels"] = {target: [Path(file).name for file in files] for target, files in recipe.wheels.items()}
    if recipe.gates.baseline is not None:
        document["gates"]["accuracy"]["baseline"] = recipe.gates.baseline.name
    if recipe.sign is not None:
        document["sign"]["key"] = Path(recipe.sign.key).name
    return document


def _name_sources(document: dict[str, Any], recipe: Recipe) -> None:
    """Replace the paths of data and models in `document` by names."""
    for split in SPLITS:
        value = document["data"][split]
        if value is not None:
            document["data"][split] = _name(value)
    for role, section in (("teacher", recipe.teacher), ("student", recipe.student)):
        if section is not None and is_local_folder(section.model):
            document[role]["model"] = Path(str(section.model)).name
    trimming = recipe.student.trimming
    if trimming is not None and trimming.texts is not None:
        document["student"]["vocabulary"]["trim"]["texts"] = Path(trimming.texts).name


def _data_of(build: Build) -> Data:
    """The rows of a build; of an imported model the examples."""
    recipe = build.recipe
    if not isinstance(recipe, CustomRecipe):
        assert build.data is not None
        return _data(build.data, recipe)
    assert build.examples is not None
    file = build.examples.folder / EXAMPLES_FILE
    split = Rows(build.examples.rows, sha256_file(file), {}, None)
    return Data(_name(recipe.examples), (), {"examples": split}, ())


def _data(data: DataArtifact, recipe: TextKinds) -> Data:
    return Data(
        source=_name(recipe.data.test if isinstance(recipe.data, ImportedData) else recipe.data.train),
        labels=data.labels,
        splits={split: _split(data, split) for split in SPLITS if split in data.rows},
        warnings=(*_warnings(data, recipe), *_cut_texts(data, recipe)),
    )


def _warnings(data: DataArtifact, recipe: BaseRecipe) -> list[str]:
    """Warnings about the data; only their number if the bundle does not carry its rows, because they quote the data."""
    if recipe.gates.golden.carry or not data.warnings:
        return list(data.warnings)
    return [message("warn.of_rows", n=len(data.warnings))]


def _cut_texts(data: DataArtifact, recipe: TextKinds) -> list[str]:
    return [message("warn.of_recipe", reason=finding.reason) for finding in check_suited(recipe, LabelledRows.of(data))]


def _split(data: DataArtifact, split: Split) -> Rows:
    rows = data.read(split)
    counts = Counter(name for row in rows for name in data.text_task.classes_of(row.label))
    lengths = sorted(len(row.text) for row in rows)
    return Rows(
        rows=len(rows),
        sha256=sha256_file(data.file(split)),
        labels={label: counts[label] for label in data.labels},
        characters=Characters(_percentile(lengths, 50), _percentile(lengths, 95), lengths[-1]) if lengths else None,
    )


def _quantization(int8: Int8Choice | None, scales: ScalesArtifact | None) -> QuantizationFigures:
    return QuantizationFigures(
        calibration_rows=0 if scales is None else scales.calibration_rows,
        int8=int8,
        parts=calibrated_parts(() if scales is None else scales.ways, None if int8 is None else int8.method),
    )


def part_of(layer: str) -> str:
    """The part of a model that PaddleNLP's `layer` belongs to; the name of an unknown layer is its part."""
    found = _IN_LAYER.search(layer)
    if found is not None and found[2] in _ROLES:
        return f"layers.{found[1]}.{_ROLES[found[2]]}"
    if layer.endswith(".pooler.dense"):
        return "pooler"
    return "head" if layer == "classifier" else layer


def calibrated_parts(methods: Sequence[Quantization], taken: str | None) -> tuple[CalibratedPart, ...]:
    """A row for each part, in the order of calibration; none without quantization.

    The weights are those of the method that was taken, or else of the first.
    """
    by_method = {method.name: _by_part(method.linears) for method in methods}
    weights = by_method.get(taken or "") or next(iter(by_method.values()), {})
    return tuple(_calibrated(part, linears, _ranges(part, by_method), taken) for part, linears in weights.items())


def _calibrated(
    part: str, linears: Sequence[LinearScales], ranges: Mapping[str, Range], taken: str | None
) -> CalibratedPart:
    own = ranges.get(taken or "")
    return CalibratedPart(
        part=part,
        layers=tuple(linear.layer for linear in linears),
        activation=ranges,
        step=None if own is None else _rounded((own.high - own.low) / _STEPS),
        weight=_columns(linears),
    )


def _by_part(linears: Sequence[LinearScales]) -> dict[str, list[LinearScales]]:
    found: dict[str, list[LinearScales]] = {}
    for linear in linears:
        found.setdefault(part_of(linear.layer), []).append(linear)
    return found


def _ranges(part: str, by_method: Mapping[str, Mapping[str, Sequence[LinearScales]]]) -> dict[str, Range]:
    found = {}
    for method, known_parts in by_method.items():
        ends = [linear.activation for linear in known_parts.get(part, ())]
        known = [end for end in ends if end is not None]
        if known and len(known) == len(ends):  # a range of some of its products would be none of the part
            low, high = min(0.0, *(low for low, _ in known)), max(0.0, *(high for _, high in known))
            found[method] = Range(_rounded(low), _rounded(high))
    return found


def _columns(linears: Sequence[LinearScales]) -> Columns:
    magnitudes = [magnitude for linear in linears for magnitude in linear.weight_abs_max]
    return Columns(len(magnitudes), _rounded(min(magnitudes)), _rounded(max(magnitudes)))


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _export(export: ExportArtifact) -> Export:
    models = [model for model in (export.float_model, export.small_model) if model is not None]
    return Export(
        shipped=export.shipped,
        reason=export.reason,
        onnx_bytes={model.precision: model.onnx_bytes for model in models},
        parity=tuple(
            Parity(row.stage, row.parity, row.parity_with)
            for row in (export.static_graph, *(model.ledger for model in export.models))
            if row is not None and row.parity is not None
        ),
        variations=tuple(Variation(one.targets, one.model.precision, one.reason) for one in export.variations),
    )


def _combined(found: CombineArtifact, metric: str) -> Combined:
    return Combined(
        chosen=found.chosen,
        why=found.why,
        gain=found.method("encoder").gains[metric].over(message("name.it"), message("name.a_linear")),
        fit=found.fit,
        methods=tuple(
            _copied(
                MethodFigures,
                method,
                score=method.test_scores[metric],
                gain=method.gains[metric],
                gain_over_encoder=method.gains_over_encoder[metric],
                weight_mib=mebibytes(method.weight_bytes),
            )
            for method in found.methods
        ),
    )


def _target(item: TargetResult, ledger: Sequence[LedgerRow]) -> Target:
    bundle, gate = item.bundle, item.gate
    ran = gate if isinstance(gate, GateArtifact) else None
    return Target(
        target=bundle.target,
        verdict=item.verdict,
        delivered=item.refused is None,
        exit_code=ran.exit_code if ran else None,
        not_run_here=gate if isinstance(gate, NotRunHere) else None,
        bundle=_copied(BundleFigures, bundle),
        examples=bundle.examples,
        receipt=ran.gated if ran else None,
        explained=losses(ran.gated, ledger) if ran else (),
    )


def _name(source: str) -> str:
    return source if is_builtin(source) else Path(source).name


def _percentile(ordered: Sequence[int], percent: int) -> int:
    """Percentile by nearest rank: the smallest value that at least `percent` % of the values do not exceed."""
    rank = -(-len(ordered) * percent // 100)  # ceiling
    return ordered[max(rank, 1) - 1]
