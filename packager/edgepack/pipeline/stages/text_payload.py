"""The payload of a bundle with a text model: model folder, golden files, manifest facts and README."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from edgepack.artifacts import SPLITS, DataArtifact, ExportArtifact, ModelFile, Precision, Score
from edgepack.bundle import baseline, golden, sbom
from edgepack.bundle.archive import Members
from edgepack.errors import StageFailedError
from edgepack.export.model_folder import write_wide
from edgepack.pipeline.stages.bundle import Payload
from edgepack.progress import Progress
from edgepack.recipe.model import BaseRecipe, Recipe
from edgepack.recipe.training import is_local_folder
from edgepack.util.hashing import sha256_file
from edgepack_runtime.bundle import golden as names
from edgepack_runtime.bundle.model_config import (
    CONFIG_NAME,
    LINEAR_NAME,
    MODEL_NAME,
    ONLY,
    PAIR,
    VOCAB_NAME,
    WideConfig,
    load,
)


@dataclass(frozen=True)
class Beside:
    """A linear model that ships: its file, how it answers, and the test score of the whole."""

    linear: Path
    config: WideConfig
    score: Score


def make(
    recipe: BaseRecipe,
    export: ExportArtifact,
    beside: Beside | None,
    data: DataArtifact,
    ancestors: tuple[str, ...],
    scratch: Path,
    progress: Progress,
) -> Payload:
    """What a bundle ships.

    Args:
        beside: the linear model that ships; None for the encoder alone.
        ancestors: names of the pretrained models that it was trained from.

    Raises:
        StageFailedError: a model folder is invalid, or there are no test rows.
    """
    carried = recipe.gates.golden.carry
    shipped, reference = (
        _model_folder(export, model, beside, scratch) for model in (export.shipped_model, export.float_model)
    )
    encoder = export.folder / export.float_model.folder
    expected = _golden(recipe, (shipped, reference, encoder), export.shipped, data, progress)
    config = load(shipped)
    cuts = config.task != PAIR and config.needs_encoder
    return Payload(
        model=_model(shipped),
        engine=config.needs_encoder,
        golden={names.GOLDEN_FILE: expected.golden_jsonl, **_rows(expected)},
        kept_rows=None if carried else expected.rows_jsonl,
        facts=_shipped(export, expected),
        gates=_gates(recipe, expected),
        described=_described(recipe, export, beside, data, ancestors),
        examples=expected.examples,
        readme={
            "example": data.example(own=carried),
            "kind": "text classifier",
            "kind_zh": "文本分类器",
            "ask": """-H 'Content-Type: application/json' -d '{"text": "TEXT"}'""",
            "several": _SEVERAL.format(name=recipe.name),
            "several_zh": _SEVERAL_ZH.format(name=recipe.name),
            "reads": _READS.format(config.max_length) if cuts else "",
            "reads_zh": _READS_ZH.format(config.max_length) if cuts else "",
        },
    )


_SEVERAL: Final = """\
  PREFIX/bin/{name} predict --input texts.txt --output labels.csv
  PREFIX/bin/{name} predict --input table.csv --column NAME --encoding gb18030 --output labels.csv
                                  a table from Excel; --resume goes on after an interruption;
                                  --label-column NAME: how many answers are right
"""
_SEVERAL_ZH: Final = """\
  PREFIX/bin/{name} predict --input texts.txt --output labels.csv
  PREFIX/bin/{name} predict --input table.csv --column 列名 --encoding gb18030 --output labels.csv
                                  Excel 导出的表格；中断后加 --resume 继续；
                                  --label-column 列名：统计答对了多少
"""
_READS: Final = """The model reads the first {} tokens of a text; a Chinese character is one. When
a text is longer, `predict` prints a note; `--long windows` reads all of it.

"""
_READS_ZH: Final = """模型只读取文本的前 {} 个词元，一个汉字算一个。文本更长时 `predict` 会提示，
`--long windows` 则读取全文。

"""


def _model_folder(export: ExportArtifact, model: ModelFile, beside: Beside | None, scratch: Path) -> Path:
    """The folder of an exported model, with the linear model that ships."""
    exported = export.folder / model.folder
    if beside is None:
        return exported
    folder = scratch / "models" / model.folder
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        write_wide(exported, beside.linear, beside.config, folder)
    return folder


def _model(folder: Path) -> Members:
    config = load(folder)
    wanted = {CONFIG_NAME, VOCAB_NAME}
    wanted |= {MODEL_NAME} if config.needs_encoder else set()
    wanted |= {LINEAR_NAME} if config.wide is not None else set()
    missing = [name for name in sorted(wanted) if not (folder / name).is_file()]
    if missing:
        raise StageFailedError(f"bundle: {folder} lacks {', '.join(missing)}", fix="build again")
    return {f"{names.MODEL_FOLDER}/{name}": folder / name for name in wanted}


def _golden(
    recipe: BaseRecipe, models: tuple[Path, Path, Path], precision: Precision, data: DataArtifact, progress: Progress
) -> golden.Golden:
    rows = data.read("test")
    if not rows:
        raise StageFailedError("bundle: the test split is empty", fix="give `data.test` rows for the gates")
    return golden.make(
        *models,
        precision,
        rows,
        data.answer,
        progress,
        wanted=recipe.gates.golden,
        baseline_bundle=recipe.gates.baseline,
    )


def _rows(expected: golden.Golden) -> Members:
    """The labelled rows, or the texts alone if the rows are kept out of the bundle."""
    if expected.texts_jsonl is None:
        return {names.ROWS_FILE: expected.rows_jsonl}
    return {names.TEXTS_FILE: expected.texts_jsonl}


def _shipped(export: ExportArtifact, expected: golden.Golden) -> dict[str, Any]:
    """`model` of the manifest."""
    return {
        "precision": export.shipped_model.precision,
        "onnx_bytes": export.shipped_model.onnx_bytes,
        "float_onnx_bytes": export.float_model.onnx_bytes,
        "golden_tolerance": expected.tolerance,
    }


def _described(
    recipe: BaseRecipe,
    export: ExportArtifact,
    beside: Beside | None,
    data: DataArtifact,
    ancestors: tuple[str, ...],
) -> sbom.Model:
    """The shipped model, for the bill of materials."""
    shipped = export.shipped_model
    weights = export.folder / shipped.folder / MODEL_NAME
    if beside is not None and beside.config.mode == ONLY:
        weights = beside.linear
    return sbom.Model(
        name=recipe.name,
        version=recipe.version,
        sha256=sha256_file(weights),
        task=data.task,
        precision=shipped.precision,
        labels=data.labels,
        score=shipped.ledger.score if beside is None else beside.score,
        float_score=export.float_model.ledger.score,
        datasets=tuple(
            sbom.Dataset(split, data.rows[split], sha256_file(data.folder / f"{split}.jsonl"))
            for split in SPLITS
            if split in data.rows
        ),
        ancestors=ancestors,
    )


def ancestors_of(recipe: Recipe) -> tuple[str, ...]:
    """Names of the pretrained models of student and teacher; of local folders the last part."""
    sections = [section for section in (recipe.student, recipe.teacher) if section is not None]
    named = [section.model for section in sections if isinstance(section.model, str)]
    return tuple(dict.fromkeys(Path(name).name if is_local_folder(name) else name for name in named))


def _gates(recipe: BaseRecipe, expected: golden.Golden) -> dict[str, Any]:
    """The recipe's gates, with the facts of the baseline, and the digest of golden rows that are not carried.

    A useless model passes no gate, whatever the recipe: each bundle is compared with the most frequent answer.
    """
    gates: dict[str, Any] = recipe.gates.model_dump(mode="json")
    gates["accuracy"] = {**(gates["accuracy"] or {}), "above_majority": True}
    if not recipe.gates.golden.carry:
        gates["golden"]["sha256"] = hashlib.sha256(expected.rows_jsonl).hexdigest()
    if recipe.gates.baseline is not None:
        gates["accuracy"]["baseline"] = baseline.facts(recipe.gates.baseline)
    return gates
