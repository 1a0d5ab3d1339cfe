"""Imported graphs: files as they are, and weights beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from tests.unit.runtime.imported_model import write_graph

from edgepack.artifacts import ExportArtifact, LedgerRow, ModelFile, proportion
from edgepack.errors import StageFailedError
from edgepack.export.handler_answers import Run
from edgepack.imported import conversion
from edgepack.progress import SILENT
from edgepack.training.models import paddle_graph


def test_weights_in_another_file_are_put_into_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = onnx.load(str(write_graph(tmp_path / "plain.onnx")))
    (tmp_path / "given").mkdir()
    onnx.save(model, str(tmp_path / "given/a.onnx"), save_as_external_data=True, location="a.data", size_threshold=0)
    monkeypatch.chdir(tmp_path)  # not the folder of the graph
    assert [file.name for file in conversion.files("given/a.onnx")] == ["a.onnx", "a.data"]
    assert conversion.write("given/a.onnx", tmp_path / "one.onnx", SILENT) is None
    (tmp_path / "given/a.data").unlink()
    x = np.ones((1, 4), np.float32)
    assert onnxruntime.InferenceSession(str(tmp_path / "one.onnx")).run(None, {"x": x})[0].tolist() == [[3, 3, 3, 3]]
    with pytest.raises(StageFailedError, match=r"a\.onnx is not a valid ONNX model"):
        conversion.write("given/a.onnx", tmp_path / "two.onnx", SILENT)


def test_a_graph_of_one_file_is_copied_as_it_is(tmp_path: Path) -> None:
    source = write_graph(tmp_path / "plain.onnx")
    conversion.write(str(source), tmp_path / "copy.onnx", SILENT)
    assert (tmp_path / "copy.onnx").read_bytes() == source.read_bytes()
    (tmp_path / "bad.onnx").write_bytes(b"no graph")
    with pytest.raises(StageFailedError, match=r"bad\.onnx is not a valid ONNX model"):
        conversion.files(str(tmp_path / "bad.onnx"))
    with pytest.raises(StageFailedError, match=r"bad\.onnx is not a valid ONNX model"):
        conversion.write(str(tmp_path / "bad.onnx"), tmp_path / "copy.onnx", SILENT)


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        ([2.0, 4.0], 0.0),
        ([2.0, 4.4], 0.1),
        ([2.0, float("nan")], float("inf")),  # `max` passes over it
        ([[2.0, 4.0]], float("inf")),  # of another shape, which would be broadcast
    ],
)
def test_a_difference_is_relative_and_never_hidden(ours: list[float], expected: float) -> None:
    found = conversion.difference(np.array([2.0, 4.0], np.float32), np.array(ours, np.float32))
    assert found == pytest.approx(expected, abs=1e-6)


def test_a_converted_graph_that_lost_a_scale_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As paddle2onnx converts some normalizations of Paddle 3: without their scale and bias (Paddle2ONNX 1644)."""
    x = np.array([[1, 2, 3, 4]], np.float32)
    lost = (x - x.mean()) / x.std()
    monkeypatch.setattr(paddle_graph, "outputs", lambda *_: [lost * np.array([1, 2, 1, 1], np.float32)])
    source = conversion.PaddleFiles(tmp_path / "model.json", tmp_path / "model.pdiparams")
    with pytest.raises(StageFailedError, match=r"model\.json is not shown to equal Paddle Inference"):
        conversion.parity(source, [Run({"x": x}, {"y": lost})])
    monkeypatch.setattr(paddle_graph, "outputs", lambda *_: [lost])
    assert conversion.parity(source, [Run({"x": x}, {"y": lost})]) == 0


@pytest.mark.parametrize("precisions", [["float32"], ["float32", "float16"]])
def test_only_the_models_that_were_asked_for_are_taken(tmp_path: Path, precisions: list[Any]) -> None:
    """The process that made them may have been taken over."""
    made, out = tmp_path / "made", tmp_path / "out"
    for folder in ("onnx-float", "onnx-int8"):
        (made / folder).mkdir(parents=True)
        (made / folder / "model.onnx").write_bytes(b"x")
    out.mkdir()
    row = LedgerRow("float ONNX", proportion(1, 1))

    def export(names: list[Any], shipped: Any) -> ExportArtifact:
        models = [ModelFile("elsewhere", name, 10**9, row, {}) for name in names] + [None]
        return ExportArtifact(made, None, *models[:2], shipped, "")  # type: ignore[arg-type]

    with pytest.raises(StageFailedError, match="returned the models"):
        conversion.taken(export(precisions, "float32"), made, out)
    with pytest.raises(StageFailedError, match="returned the models"):
        conversion.taken(export(["float32", "int8"], "float16"), made, out)
    found = conversion.taken(export(["float32", "int8"], "int8"), made, out)
    assert [(model.folder, model.onnx_bytes) for model in found.models] == [("onnx-float", 1), ("onnx-int8", 1)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
