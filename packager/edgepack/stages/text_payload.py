"""The payload of a bundle with a text model: model folder, golden files, manifest facts and README."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from edgepack import evaluation
from edgepack.artifacts import SPLITS, DataArtifact, ExportArtifact, LinearArtifact, Members, Precision, Row, Score
from edgepack.bundle import baseline, golden
from edgepack.errors import GateInconclusiveError, StageFailedError
from edgepack.export.linear_folder import write_combined, write_linear
from edgepack.gating import on_rows
from edgepack.gating.on_rows import Judge
from edgepack.packages import sbom
from edgepack.progress import Progress
from edgepack.recipe.gates import Gates
from edgepack.recipe.model import BaseRecipe, EncoderRecipe, FolderRecipe, ImportedTextRecipe
from edgepack.recipe.training import is_local_folder
from edgepack.sandbox import runner as sandbox
from edgepack.stages.bundle import Payload
from edgepack.util.hashing import sha256_file
from edgepack_runtime.bundle import golden as names
from edgepack_runtime.bundle.model_config import (
    CONFIG_NAME,
    LINEAR_NAME,
    MODEL_NAME,
    VOCAB_NAME,
    LinearConfig,
    load,
)
from edgepack_runtime.stats import intervals
from edgepack_runtime.stats.metrics import Answer

T = TypeVar("T")


@dataclass(frozen=True)
class LinearPart:
    """A linear model that ships beside an encoder: its file, how it answers, and the test score of the whole."""

    file: Path
    config: LinearConfig
    score: Score


@dataclass(frozen=True)
class TextModel:
    """A model that ships, for `make`.

    Attributes:
        folders: writes model folders into a folder for temporary files, and returns those that `golden.make` reads:
            what ships, the same in float, and the float encoder alone (None without an encoder).
        weights: the file that stands for the model in the bill of materials.
        precision: of what ships.
        facts: `model` of the manifest, without the tolerance.
        architecture: family and name of the model card.
        score, float_score: on the test rows; the float one is None where nothing is converted.
        ancestors: names of the pretrained models that it was trained from.
    """

    folders: Callable[[DataArtifact, Path], golden.Models]
    weights: Path
    precision: Precision
    facts: Mapping[str, Any]
    architecture: sbom.Architecture
    score: Score
    float_score: Score | None
    ancestors: tuple[str, ...] = ()


def text_model_of_export(
    export: ExportArtifact, linear: LinearPart | None = None, ancestors: tuple[str, ...] = ()
) -> TextModel:
    """An exported encoder, with the linear model that ships beside it; None for the encoder alone."""
    shipped, reference = export.shipped_model, export.float_model

    def folders(data: DataArtifact, scratch: Path) -> golden.Models:
        encoder = export.folder / reference.folder
        if linear is None:
            return golden.Models(export.folder / shipped.folder, encoder, encoder)
        made = {}
        (scratch / "models").mkdir()
        for folder in {shipped.folder, reference.folder}:
            made[folder] = scratch / "models" / folder
            write_combined(export.folder / folder, linear.file, linear.config, made[folder])
        return golden.Models(made[shipped.folder], made[reference.folder], encoder)

    return TextModel(
        folders,
        export.folder / shipped.folder / MODEL_NAME,
        shipped.precision,
        {
            "precision": shipped.precision,
            "onnx_bytes": shipped.onnx_bytes,
            "float_onnx_bytes": reference.onnx_bytes,
        },
        sbom.Architecture(f"ERNIE, {shipped.precision}", "transformer"),
        shipped.ledger.score if linear is None else linear.score,
        reference.ledger.score if shipped.precision != "float32" else None,
        ancestors,
    )


def text_model_of_linear(model: LinearArtifact, metric: str | None) -> TextModel:
    """A linear model alone. `metric`: of the accuracy gate; None for that of the build."""
    file = model.folder / LINEAR_NAME

    def folders(data: DataArtifact, scratch: Path) -> golden.Models:
        folder = scratch / "linear"
        write_linear(file, data.text_task, data.model_labels, folder)
        return golden.Models(folder, folder, None)

    return TextModel(
        folders,
        file,
        "float32",
        {"precision": "float32", "linear_bytes": model.file_bytes},
        sbom.Architecture("linear model on characters and pairs of characters"),
        model.test_score if metric is None else model.test_scores[metric],
        None,
    )


def make(recipe: BaseRecipe, model: TextModel, data: DataArtifact, scratch: Path, progress: Progress) -> Payload:
    """What a bundle ships.

    Raises:
        StageFailedError: a model folder is invalid, or there are no test rows.
        GateInconclusiveError: the rows stay at home, and there is no evidence that the model beats one answer to all.
    """
    carried = recipe.gates.golden.carry
    folders = model.folders(data, scratch)
    ask = functools.partial(_asked, recipe, folders, scratch, progress)
    expected = _golden(recipe, folders, model.precision, data, ask, progress)
    if not carried:
        _require_floor(recipe, folders.shipped, data, ask, progress)
    config = load(folders.shipped)
    cuts = not config.takes_pairs and config.needs_encoder
    return Payload(
        model=_model(folders.shipped),
        golden={names.GOLDEN_FILE: expected.golden_jsonl, **_rows(expected)},
        kept_rows=None if carried else expected.rows_jsonl,
        facts={**model.facts, "golden_tolerance": expected.tolerance},
        gates=_gates(recipe, expected),
        described=_described(recipe, model, data),
        examples=expected.examples,
        readme={
            "example": data.example(from_test_rows=carried),
            "kind": "text classifier",
            "kind_zh": "文本分类器",
            "ask": f"-H 'Content-Type: application/json' -d '{_ASKED_PAIR if config.takes_pairs else _ASKED}'",
            "several": _SEVERAL.format(name=recipe.name),
            "several_zh": _SEVERAL_ZH.format(name=recipe.name),
            "reads": _READS.format(config.max_length) if cuts else "",
            "reads_zh": _READS_ZH.format(config.max_length) if cuts else "",
        },
    )


_ASKED: Final = '{"text": "TEXT"}'
_ASKED_PAIR: Final = '{"text": "TEXT", "text_pair": "TEXT"}'
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


def _model(folder: Path) -> Members:
    config = load(folder)
    wanted = {CONFIG_NAME}
    wanted |= {MODEL_NAME, VOCAB_NAME} if config.needs_encoder else set()
    wanted |= {LINEAR_NAME} if config.linear is not None else set()
    missing = [name for name in sorted(wanted) if not (folder / name).is_file()]
    if missing:
        raise StageFailedError(f"bundle: {folder} lacks {', '.join(missing)}", fix="build again")
    return {f"{names.MODEL_FOLDER}/{name}": folder / name for name in wanted}


def _asked(
    recipe: BaseRecipe, models: golden.Models, scratch: Path, progress: Progress, job: Callable[..., T], returns: Any
) -> T:
    """Call `job`, which runs the models: in a sandbox if this build did not train them."""
    if not isinstance(recipe, ImportedTextRecipe):
        return job(progress=progress)
    reads = list({folder for folder in models if folder is not None})
    found: T = sandbox.run(job, returns, scratch / "sandbox", progress, stage="bundle", reads=reads)
    return found


def _golden(
    recipe: BaseRecipe,
    models: golden.Models,
    precision: Precision,
    data: DataArtifact,
    ask: Callable[..., Any],
    progress: Progress,
) -> golden.Golden:
    rows, gates = data.read("test"), recipe.gates
    if not rows:
        raise StageFailedError("bundle: the test split is empty", fix="give `data.test` rows for the gates")
    earlier = None
    if gates.baseline is not None:
        chosen = golden.stratified(rows, gates.golden.rows, data.text_task)
        earlier = baseline.answers(gates.baseline, chosen, progress)
    return golden.make(
        models, precision, rows, data.text_task, progress, wanted=gates.golden, baseline_answers=earlier, ask=ask
    )


def _answers(folder: Path, rows: Sequence[Row], progress: Progress) -> list[Answer]:
    return evaluation.answers(evaluation.opened(folder), rows, "test", progress)


def _require_floor(
    recipe: BaseRecipe, shipped: Path, data: DataArtifact, ask: Callable[..., Any], progress: Progress
) -> None:
    """The one floor of every release, where a device could not show it: the labelled rows do not travel."""
    rows = data.read("test")
    judge = Judge.of(Gates(), data, rows, None, progress)
    judge = replace(judge, metric=recipe.gates.metric or judge.metric)
    task = data.text_task
    answers = [task.answer_of(answer) for answer in ask(functools.partial(_answers, shipped, rows), list[Answer])]
    if judge(answers, against_float=False).verdict != intervals.PASS:
        raise GateInconclusiveError(
            "bundle: no evidence that the model beats the most frequent answer to every row",
            why="the test rows stay at home (`gates.golden.carry: false`), so no device could show it either",
            fix="give more test rows, or train a better model",
        )


def _rows(expected: golden.Golden) -> Members:
    """The labelled rows, or the texts alone if the rows are kept out of the bundle."""
    if expected.timing_texts_jsonl is None:
        return {names.ROWS_FILE: expected.rows_jsonl}
    return {names.TEXTS_FILE: expected.timing_texts_jsonl}


def _described(recipe: BaseRecipe, model: TextModel, data: DataArtifact) -> sbom.Model:
    """The shipped model, for the bill of materials."""
    return sbom.Model(
        name=recipe.name,
        version=recipe.version,
        sha256=sha256_file(model.weights),
        task=data.task,
        architecture=model.architecture,
        labels=data.labels,
        score=model.score,
        float_score=model.float_score,
        datasets=tuple(
            sbom.Dataset(split, data.rows[split], sha256_file(data.file(split)))
            for split in SPLITS
            if split in data.rows
        ),
        ancestors=model.ancestors,
    )


def ancestors_of(recipe: EncoderRecipe) -> tuple[str, ...]:
    """Names of the models that student and teacher start from, or of the given one; of local folders the last part."""
    if isinstance(recipe, FolderRecipe):
        return (Path(recipe.model.folder).name,)
    sections = [section for section in (recipe.student, recipe.teacher) if section is not None]
    named = [section.model for section in sections if isinstance(section.model, str)]
    return tuple(dict.fromkeys(Path(name).name if is_local_folder(name) else name for name in named))


def _gates(recipe: BaseRecipe, expected: golden.Golden) -> dict[str, Any]:
    """The recipe's gates, as `on_rows.manifest_accuracy`, and the digest of golden rows that are not carried."""
    gates: dict[str, Any] = recipe.gates.model_dump(mode="json")
    gates["accuracy"] = on_rows.manifest_accuracy(recipe.gates)
    if not recipe.gates.golden.carry:
        gates["golden"]["sha256"] = hashlib.sha256(expected.rows_jsonl).hexdigest()
    return gates
