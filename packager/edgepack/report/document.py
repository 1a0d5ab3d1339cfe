"""JSON document of a build: every decision and measurement, the source of the page and the JUnit file.

It names no path of the machine that built it, so that it can be shared.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from edgepack.artifacts import (
    EXAMPLES_FILE,
    SPLITS,
    CombineArtifact,
    DataArtifact,
    ExportArtifact,
    GateArtifact,
    Int8Choice,
    LedgerRow,
    LinearScales,
    ModelArtifact,
    NarrowedArtifact,
    PrunedArtifact,
    Quantization,
    ScalesArtifact,
    SelectArtifact,
    Split,
    mebibytes,
)
from edgepack.data.recipe_checks import check_built
from edgepack.recipe.model import AnyRecipe, BaseRecipe, CustomRecipe, GivenTextRecipe, LinearRecipe, Recipe, is_builtin
from edgepack.recipe.paths import without_folders
from edgepack.recipe.training import is_local_folder
from edgepack.report.loss_attribution import losses
from edgepack.results import NOT_RUN_HERE, Build, Delivery, NotRunHere
from edgepack.util.hashing import sha256_file
from edgepack.util.text import counted
from edgepack.util.versions import tool_versions
from edgepack_runtime.stats.checks import UNGATED

FORMAT: Final = 1
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


def make(build: Build, file_name: str = "recipe.yaml") -> dict[str, Any]:
    """The document of a build. Units are in the keys (`*_bytes`, `*_mib`, `*_ms`).

    Args:
        file_name: of the recipe, for the command that a warning names.
    """
    recipe = build.recipe
    return {
        "report": FORMAT,
        "name": recipe.name,
        "version": recipe.version,
        "task": recipe.task,
        "verdict": worst([item.verdict for item in build.deliveries]),
        "warnings": list(build.warnings(file_name)),
        "recipe": _recipe(recipe),
        "data": _data_of(build),
        "models": [
            _model(role, model)
            for role, model in (("teacher", build.teacher), ("student", build.student), ("narrowed", build.narrowed))
            if model is not None
        ],
        "selection": None if build.selection is None else selection(build.selection),
        "width": None if build.narrowed is None else _width(build.narrowed),
        "vocabulary": None if build.pruned is None else _vocabulary(build.pruned),
        "quantization": _quantization(None if build.export is None else build.export.int8, build.scales),
        "export": None if build.export is None else _export(build.export),
        "combined": None
        if build.combined is None
        else _combined(build.combined, recipe.gates.metric or build.combined.metric),
        "ledger": [asdict(row) for row in build.ledger],
        "targets": [_target(item, build.ledger_of(item)) for item in build.deliveries],
        "tools": tool_versions(),
    }


def dumps(report: Mapping[str, Any]) -> str:
    """Canonical text of a report: sorted keys, Chinese unescaped, one final newline.

    Raises:
        ValueError: a figure is not finite.
    """
    return json.dumps(report, ensure_ascii=False, indent=1, sort_keys=True, allow_nan=False) + "\n"


def stem(report: Mapping[str, Any], dist: Path) -> str:
    """First part of the names of a report's files in `dist`: NAME-VERSION.

    The targets of its recipe follow if `dist` has the report of an earlier build of this version that has another
    target: both are kept.
    """
    plain, targets = f"{report['name']}-{report['version']}", report["recipe"]["targets"]
    try:
        earlier = json.loads((dist / f"{plain}.report.json").read_bytes())["recipe"]["targets"]
        other = not set(earlier) <= set(targets)
    except (OSError, ValueError, LookupError, TypeError):  # nothing to keep
        other = False
    return "-".join([plain, *targets]) if other else plain


def worst(verdicts: Sequence[str]) -> str:
    """The worst verdict: `fail`, `inconclusive`, `not run here`, `no gates`, `pass`; inconclusive without targets."""
    for verdict in ("fail", "inconclusive", NOT_RUN_HERE, UNGATED):
        if verdict in verdicts:
            return verdict
    return "pass" if verdicts else "inconclusive"


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
    pruning = recipe.student.pruning
    if pruning is not None and pruning.texts is not None:
        document["student"]["vocabulary"]["prune"]["texts"] = Path(pruning.texts).name


def _data_of(build: Build) -> dict[str, Any]:
    """The rows of a build; of a given model the examples."""
    recipe = build.recipe
    if not isinstance(recipe, CustomRecipe):
        assert build.data is not None
        return _data(build.data, recipe)
    assert build.examples is not None
    file = build.examples.folder / EXAMPLES_FILE
    split = {"rows": build.examples.rows, "labels": {}, "characters": None, "sha256": sha256_file(file)}
    return {"source": _name(recipe.examples), "labels": [], "splits": {"examples": split}, "warnings": []}


def _data(data: DataArtifact, recipe: Recipe | LinearRecipe | GivenTextRecipe) -> dict[str, Any]:
    return {
        "source": _name(recipe.data.test if isinstance(recipe, GivenTextRecipe) else recipe.data.train),
        "labels": list(data.labels),
        "splits": {split: _split(data, split) for split in SPLITS if split in data.rows},
        "warnings": [*_warnings(data, recipe), *_cut_texts(data, recipe)],
    }


def _warnings(data: DataArtifact, recipe: BaseRecipe) -> list[str]:
    """Warnings about the data; only their number if the bundle does not carry its rows, because they quote the data."""
    if recipe.gates.golden.carry or not data.warnings:
        return list(data.warnings)
    return [f"{counted(len(data.warnings), 'warning')} about the data, which may quote it: `edgepack check` tells"]


def _cut_texts(data: DataArtifact, recipe: Recipe | LinearRecipe | GivenTextRecipe) -> list[str]:
    return [f"warning: {finding.reason}" for finding in check_built(data, recipe)]


def _split(data: DataArtifact, split: Split) -> dict[str, Any]:
    rows = data.read(split)
    counts = Counter(name for row in rows for name in row.names)
    lengths = sorted(len(row.text) for row in rows)
    return {
        "rows": len(rows),
        "sha256": sha256_file(data.folder / f"{split}.jsonl"),
        "labels": {label: counts[label] for label in data.labels},
        "characters": {"p50": _percentile(lengths, 50), "p95": _percentile(lengths, 95), "max": lengths[-1]}
        if lengths
        else None,
    }


def _model(role: str, model: ModelArtifact) -> dict[str, Any]:
    return {
        "role": role,
        "parameters": model.parameters,
        "max_length": model.max_length,
        "steps": model.steps,
        "train_seconds": model.train_seconds,
        "epochs": model.epochs,
        "best_epoch": model.best_epoch,
        "dev_score": asdict(model.dev_score),
        "test_score": asdict(model.test_score),
        "test_metrics": model.test_metrics,
        "usage": asdict(model.usage),
    }


def _width(narrowed: NarrowedArtifact) -> dict[str, Any]:
    """Heads and neurons that stayed in each layer, and their cost."""
    names = ("heads_before", "heads", "neurons_before", "neurons", "parameters")
    scores = ("dev_score_before", "dev_score", "test_score")
    return {name: getattr(narrowed, name) for name in names} | {
        name: asdict(getattr(narrowed, name)) for name in scores
    }


def _vocabulary(pruned: PrunedArtifact) -> dict[str, Any]:
    """Size of the vocabulary before and after, and the cost. `unknown` are shares (0 to 1) of dev tokens."""
    names = ("tokens_before", "tokens", "parameters", "unknown_before", "unknown", "test_metrics")
    scores = ("dev_score_before", "dev_score", "test_score")
    shape = {name: getattr(pruned, name) for name in names}
    return shape | {name: asdict(getattr(pruned, name)) for name in scores}


def selection(selected: SelectArtifact) -> dict[str, Any]:
    """The candidates with their figures, in the order of the recipe. `left_out` failed."""
    document = asdict(selected)
    del document["folder"]
    return document


def _quantization(int8: Int8Choice | None, scales: ScalesArtifact | None) -> dict[str, Any]:
    """The INT8 search and the quantization ranges, even if no INT8 model ships."""
    return {
        "calibration_rows": 0 if scales is None else scales.calibration_rows,
        "int8": None if int8 is None else asdict(int8),
        "parts": calibrated_parts(() if scales is None else scales.ways, None if int8 is None else int8.way),
    }


def part_of(layer: str) -> str:
    """The part of a model that PaddleNLP's `layer` belongs to; the name of an unknown layer is its part."""
    found = _IN_LAYER.search(layer)
    if found is not None and found[2] in _ROLES:
        return f"layers.{found[1]}.{_ROLES[found[2]]}"
    if layer.endswith(".pooler.dense"):
        return "pooler"
    return "head" if layer == "classifier" else layer


def calibrated_parts(ways: Sequence[Quantization], taken: str | None) -> list[dict[str, Any]]:
    """A row for each part, in the order of calibration; [] without quantization.

    `activation` maps each of `ways` to its static range (`low`, `high`): the union over the inputs of the part, with
    zero. `step` is the uint8 step of the range of the way `taken`, or null. `weight` has the smallest and largest
    magnitude (`least`, `most`) of its `columns`, of the way that was taken or else of the first.
    """
    by_way = {way.name: _by_part(way.linears) for way in ways}
    weights = by_way.get(taken or "") or next(iter(by_way.values()), {})
    return [_calibrated(part, linears, _ranges(part, by_way), taken) for part, linears in weights.items()]


def _calibrated(
    part: str, linears: Sequence[LinearScales], ranges: Mapping[str, Mapping[str, float]], taken: str | None
) -> dict[str, Any]:
    own = ranges.get(taken or "")
    return {
        "part": part,
        "layers": [linear.layer for linear in linears],
        "activation": ranges,
        "step": None if own is None else _rounded((own["high"] - own["low"]) / _STEPS),
        "weight": _columns(linears),
    }


def _by_part(linears: Sequence[LinearScales]) -> dict[str, list[LinearScales]]:
    found: dict[str, list[LinearScales]] = {}
    for linear in linears:
        found.setdefault(part_of(linear.layer), []).append(linear)
    return found


def _ranges(part: str, by_way: Mapping[str, Mapping[str, Sequence[LinearScales]]]) -> dict[str, dict[str, float]]:
    found = {}
    for way, known_parts in by_way.items():
        ends = [linear.activation for linear in known_parts.get(part, ())]
        known = [end for end in ends if end is not None]
        if known and len(known) == len(ends):  # a range of some of its products would be none of the part
            low, high = min(0.0, *(low for low, _ in known)), max(0.0, *(high for _, high in known))
            found[way] = {"low": _rounded(low), "high": _rounded(high)}
    return found


def _columns(linears: Sequence[LinearScales]) -> dict[str, float]:
    magnitudes = [magnitude for linear in linears for magnitude in linear.weight_abs_max]
    return {"columns": len(magnitudes), "least": _rounded(min(magnitudes)), "most": _rounded(max(magnitudes))}


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _export(export: ExportArtifact) -> dict[str, Any]:
    models = [model for model in (export.float_model, export.small_model) if model is not None]
    return {
        "shipped": export.shipped,
        "reason": export.reason,
        "onnx_bytes": {model.precision: model.onnx_bytes for model in models},
        "parity": [
            {"stage": row.stage, "parity": row.parity, "parity_with": row.parity_with}
            for row in (export.static_graph, *(model.ledger for model in export.models))
            if row is not None and row.parity is not None
        ],
        "variations": [
            {"targets": list(one.targets), "precision": one.model.precision, "reason": one.reason}
            for one in export.variations
        ],
    }


def _combined(found: CombineArtifact, metric: str) -> dict[str, Any]:
    return {
        "chosen": found.chosen,
        "why": found.why,
        "gain": found.way("encoder").gains[metric].over("a linear model"),
        "fit": asdict(found.fit),
        "ways": [
            {
                "name": way.name,
                "score": asdict(way.test_scores[metric]),
                "gain": asdict(way.gains[metric]),
                "gain_over_encoder": asdict(way.gains_over_encoder[metric]),
                "dev_value": way.dev_value,
                "on_dev": asdict(way.on_dev),
                "share": way.share,
                "weight_mib": mebibytes(way.weight_bytes),
                "mean_ms": way.mean_ms,
                "p50_ms": way.p50_ms,
                "p95_ms": way.p95_ms,
                "reliability": asdict(way.reliability),
            }
            for way in found.ways
        ],
    }


def _target(item: Delivery, ledger: Sequence[LedgerRow]) -> dict[str, Any]:
    bundle, gate = item.bundle, item.gate
    ran = gate if isinstance(gate, GateArtifact) else None
    return {
        "target": bundle.target,
        "verdict": item.verdict,
        "delivered": item.refused is None,
        "exit_code": ran and ran.exit_code,
        "not_run_here": asdict(gate) if isinstance(gate, NotRunHere) else None,
        "bundle": {
            "file_name": bundle.file_name,
            "bundle_bytes": bundle.bundle_bytes,
            "unpacked_bytes": bundle.unpacked_bytes,
            "manifest_sha256": bundle.manifest_sha256,
            "bytes_by_part": bundle.bytes_by_part,
            "checks": {"passed": [asdict(check) for check in bundle.checks.passed], "notes": list(bundle.checks.notes)},
            "rows_name": bundle.rows_name,
        },
        "examples": bundle.examples and asdict(bundle.examples),
        "receipt": ran and ran.receipt,
        "explained": losses(ran.receipt, ledger) if ran else [],
    }


def _name(source: str) -> str:
    return source if is_builtin(source) else Path(source).name


def _percentile(ordered: Sequence[int], percent: int) -> int:
    """Percentile by nearest rank: the smallest value that at least `percent` % of the values do not exceed."""
    rank = -(-len(ordered) * percent // 100)  # ceiling
    return ordered[max(rank, 1) - 1]
