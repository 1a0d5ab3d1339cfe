"""The README of a bundle with a handler: commands that its `predict` accepts."""

from __future__ import annotations

import json
import re
import shlex
from argparse import Namespace
from pathlib import Path

import pytest
from tests.unit.runtime.imported_model import write_imported

from edgepack.artifacts import (
    EXAMPLES_FILE,
    SCORES_FILE,
    Checks,
    ExamplesArtifact,
    ExportArtifact,
    LedgerRow,
    ModelFile,
    proportion,
)
from edgepack.binaries import fit
from edgepack.errors import StageFailedError
from edgepack.imported import handler_payload
from edgepack.recipe.model import CustomRecipe
from edgepack.stages import bundle
from edgepack.targets.profile_file import load_profiles
from edgepack_runtime.cli import model_commands
from edgepack_runtime.cli.parser import Context, build_parser


def readme(folder: Path, item: str) -> str:
    write_imported(folder / "onnx-float", item=item)
    (folder / SCORES_FILE).write_text('{"first": 0, "float32": [1.0]}', encoding="utf-8")
    (folder / EXAMPLES_FILE).write_text(json.dumps({"item": "a", "expected": 1}) + "\n", encoding="utf-8")
    row = LedgerRow("float ONNX", proportion(1, 1))
    export = ExportArtifact(folder, None, ModelFile("onnx-float", "float32", 1, row, {}), None, "float32", "imported")
    recipe = CustomRecipe.model_validate({
        "edgepack": 1, "name": "ocr", "version": "1.0.0", "task": "custom", "model": {"graph": "a.onnx"},
        "handler": "a.py", "examples": "e.jsonl",
    })  # fmt: skip
    payload = handler_payload.make(recipe, export, ExamplesArtifact(folder, item, 1))
    needs = fit.SystemRequirements("2.28", (), Checks(), 0)
    return bundle._readme(recipe, load_profiles()["local"], needs, "ocr.edgepack", payload.readme).decode()


def test_scores_of_any_size_are_not_read(tmp_path: Path) -> None:
    with (tmp_path / SCORES_FILE).open("wb") as stream:
        stream.write(b'{"first": 0, "float32": [1.0]}')
        stream.truncate(2**26 + 1)
    row = LedgerRow("float ONNX", proportion(1, 1))
    export = ExportArtifact(tmp_path, None, ModelFile("x", "float32", 1, row, {}), None, "float32", "imported")
    for content, why in ((None, "more than 64 MiB"), (b"{", "Expecting"), (b"[]", "indices"), (b"[" * 99999, "")):
        if content is not None:
            (tmp_path / SCORES_FILE).write_bytes(content)
        with pytest.raises(StageFailedError, match=r"scores\.json of the model cannot be used") as error:
            handler_payload._scores(export)
        assert why in error.value.why


@pytest.mark.parametrize("item", ["text", "json", "file"])
def test_every_command_of_predict_is_one_that_the_model_accepts(tmp_path: Path, item: str) -> None:
    text = readme(tmp_path, item)
    assert "$" not in text and max(map(len, text.splitlines())) <= 100
    halves = text.split("中文说明")
    for half in halves:
        found = re.findall(r"^  .*(?:sh FILE|PREFIX/bin/ocr) (predict.*?)(?: [<>].*|    .*)?$", half, re.MULTILINE)
        assert len(found) == 4, found
        for command in found:
            options = build_parser(Context("ocr", None, tmp_path)).parse_args(shlex.split(command))
            assert isinstance(options, Namespace)
            model_commands._require_plain(options)
            assert not options.column


def test_a_model_of_files_shows_several_files_and_a_pipe(tmp_path: Path) -> None:
    text = readme(tmp_path, "file")
    assert text.count("predict FILE-TO-ANSWER ANOTHER ... > answers.jsonl") == 2
    assert text.count("COMMAND | PREFIX/bin/ocr predict") == 2
    assert "texts.txt" not in text and "one text" not in text
