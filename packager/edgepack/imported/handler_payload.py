"""The payload of a bundle with a handler: model folder, golden examples, manifest facts and README."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from edgepack.artifacts import EXAMPLES_FILE, SCORES_FILE, ExamplesArtifact, ExportArtifact, Members
from edgepack.errors import StageFailedError
from edgepack.packages import sbom
from edgepack.recipe.model import CustomRecipe
from edgepack.stages.bundle import Payload
from edgepack.util.hashing import sha256_file
from edgepack_runtime.bundle import golden as names
from edgepack_runtime.bundle.handler_examples import FILES_FOLDER, SELFTEST_EXAMPLES
from edgepack_runtime.bundle.model_config import CONFIG_NAME, FILE, HANDLER_NAME, JSON, TEXT
from edgepack_runtime.util.fs import read_regular

LEAST_TOLERANCE: Final = 0.05  # of the mean score in the self-test
# An example item as an argument of `predict`, by the kind of item.
EXAMPLE_ARGUMENTS: Final = {TEXT: '"你好"', JSON: "'JSON'", FILE: "FILE-TO-ANSWER"}
_ASK: Final = {
    TEXT: """-H 'Content-Type: application/json' -d '{"text": "TEXT"}'""",
    JSON: """-H 'Content-Type: application/json' -d '{"item": JSON}'""",
    FILE: "--data-binary @FILE-TO-ANSWER",
}
_SEVERAL: Final = {
    TEXT: """\
  PREFIX/bin/{name} predict "TEXT" "TEXT" > answers.jsonl
  PREFIX/bin/{name} predict < texts.txt > answers.jsonl    one text a line
""",
    JSON: """\
  PREFIX/bin/{name} predict 'JSON' 'JSON' > answers.jsonl
  PREFIX/bin/{name} predict < items.jsonl > answers.jsonl    one JSON value a line
""",
    FILE: """\
  PREFIX/bin/{name} predict FILE-TO-ANSWER ANOTHER ... > answers.jsonl
  COMMAND | PREFIX/bin/{name} predict    one file, from the output of another program
""",
}
_SEVERAL_ZH: Final = {
    TEXT: """\
  PREFIX/bin/{name} predict "文本" "文本" > answers.jsonl
  PREFIX/bin/{name} predict < texts.txt > answers.jsonl    每行一条文本
""",
    JSON: """\
  PREFIX/bin/{name} predict 'JSON' 'JSON' > answers.jsonl
  PREFIX/bin/{name} predict < items.jsonl > answers.jsonl    每行一个 JSON 值
""",
    FILE: """\
  PREFIX/bin/{name} predict FILE-TO-ANSWER ANOTHER ... > answers.jsonl
  COMMAND | PREFIX/bin/{name} predict    一个文件，来自另一个程序的输出
""",
}


def make(recipe: CustomRecipe, export: ExportArtifact, examples: ExamplesArtifact) -> Payload:
    """What a bundle ships."""
    folder = export.folder / export.shipped_model.folder
    first, shipped, reference = _scores(export)
    rows = examples.read()[first:]  # those that calibrated INT8 are not scored
    lines: list[str] = []
    golden: Members = {}
    for index in _chosen(rows, recipe.gates.golden.rows):
        row = dict(rows[index], score=shipped[index], float_score=reference[index])
        if "file" in row:
            name = f"{FILES_FOLDER}/{Path(row['file']).name}"
            golden[name] = examples.folder / row["file"]
            row["file"] = name
        lines.append(json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n")
    golden[names.ROWS_FILE] = "".join(lines).encode()
    gates: dict[str, Any] = recipe.gates.model_dump(mode="json")
    return Payload(
        model={f"{names.MODEL_FOLDER}/{name}": folder / name for name in _model_files(recipe)},
        golden=golden,
        kept_rows=None,
        facts={
            "precision": export.shipped_model.precision,
            "onnx_bytes": export.shipped_model.onnx_bytes,
            "float_onnx_bytes": export.float_model.onnx_bytes,
            "golden_tolerance": _tolerance(len(lines)),
        },
        gates=gates,
        described=_described(recipe, export, examples, folder),
        examples=None,
        readme={
            "example": EXAMPLE_ARGUMENTS[examples.item],
            "kind": "model",
            "kind_zh": "模型",
            "ask": _ASK[examples.item],
            "several": _SEVERAL[examples.item].format(name=recipe.name),
            "several_zh": _SEVERAL_ZH[examples.item].format(name=recipe.name),
            "reads": "",
            "reads_zh": "",
        },
    )


def _model_files(recipe: CustomRecipe) -> list[str]:
    graphs = (f"{name}.onnx" for name in recipe.model.graphs)
    return sorted([*graphs, *(Path(file).name for file in recipe.model.files), HANDLER_NAME, CONFIG_NAME])


def _scores(export: ExportArtifact) -> tuple[int, list[float], list[float]]:
    """The number of the first example that was scored; the scores of the shipped model, and those in float.

    Raises:
        StageFailedError: they are none, or very many.
    """
    try:
        scores = json.loads(read_regular(export.folder / SCORES_FILE))
        return int(scores["first"]), list(scores[export.shipped]), list(scores["float32"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise StageFailedError(f"bundle: {SCORES_FILE} of the model cannot be used", why=str(error)[:500]) from error


def _chosen(rows: Sequence[Any], limit: int) -> list[int]:
    """At most `limit` places, evenly spaced over the examples."""
    if len(rows) <= limit:
        return list(range(len(rows)))
    return [number * len(rows) // limit for number in range(limit)]


def _tolerance(rows: int) -> float:
    """How much lower the mean score of the self-test may be: a twentieth, and at least one example."""
    return round(max(LEAST_TOLERANCE, 1 / min(rows, SELFTEST_EXAMPLES)), 6)


def _described(recipe: CustomRecipe, export: ExportArtifact, examples: ExamplesArtifact, folder: Path) -> sbom.Model:
    """The model, for the bill of materials; several graphs by the first of them."""
    graph = sorted(folder.glob("*.onnx"))[0]
    return sbom.Model(
        name=recipe.name,
        version=recipe.version,
        sha256=sha256_file(graph),
        task=recipe.task,
        architecture=sbom.Architecture(f"ONNX, {export.shipped}"),
        labels=(),
        score=export.shipped_model.ledger.score,
        float_score=None if export.shipped == "float32" else export.float_model.ledger.score,
        datasets=(sbom.Dataset("examples", examples.rows, sha256_file(examples.folder / EXAMPLES_FILE)),),
    )
