from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from tests.unit.onnx_graph.ernie_graphs import NAMES, exported, random_encoder, scales_of

from edgepack.errors import StageFailedError
from edgepack.onnx_graph.float16 import half
from edgepack.onnx_graph.graph_writer import compose, fastest
from edgepack.onnx_graph.int8_operators import Form, OrtCpuForm
from edgepack.onnx_graph.int8_ranges import with_ranges
from edgepack.packages import opsets
from edgepack.packages.opsets import FormatVersions
from edgepack.packages.site_packages import Package
from edgepack.targets import package_data

LOCKS = sorted((Path(package_data.__file__).parent / "locks").glob("*.txt"))
# Also of the profiles to come: Python 3.8 ends at 1.19.2.
PINS = {
    "1.19.2",
    *(pin for lock in LOCKS for pin in re.findall(r"^onnxruntime(?:-gpu)?==([^ ]+)", lock.read_text(), re.M)),
}


def written(form: Form | None = None) -> onnx.ModelProto:
    encoder = random_encoder()
    ranged = encoder if form is None else with_ranges(encoder, scales_of(encoder), embeddings=True)
    return compose(ranged, fastest(pairs=False), form)


WRITTEN: dict[str, Callable[[], onnx.ModelProto]] = {
    "float": written,
    "half": lambda: half(written()),
    "ort": lambda: written(OrtCpuForm()),
    "ort, 7 bits": lambda: written(OrtCpuForm(reduced=True)),
}


def package(name: str, version: str) -> Package:
    return Package(name, version, f"{name}.whl", "0" * 64, "MIT", (), 1, 1, 1)


@pytest.fixture
def make_file(tmp_path: Path) -> Callable[..., Path]:
    def make(opset: int, ir: int, domain: str = "") -> Path:
        tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", tensors[:1], tensors[1:])
        asked = [helper.make_opsetid("com.microsoft", 1), helper.make_opsetid(domain, opset)]
        file = tmp_path / "model.onnx"
        onnx.save(helper.make_model(graph, opset_imports=asked, ir_version=ir), str(file))
        return file

    return make


def test_a_release_is_like_the_newest_known_one_before_it() -> None:
    assert opsets.readable_by("1.19.2") == opsets.readable_by("1.22.0") == FormatVersions(21, 10)
    assert opsets.readable_by("1.23.2") == FormatVersions(23, 11)
    assert opsets.readable_by("1.31.1") == FormatVersions(26, 13)
    assert opsets.readable_by("1.9.0") is None


def test_what_a_model_asks_for_is_read(tmp_path: Path, make_file: Callable[..., Path]) -> None:
    assert opsets.needed_by(make_file(17, 8)) == opsets.needed_by(make_file(17, 8, "ai.onnx")) == FormatVersions(17, 8)
    file = tmp_path / "model.onnx"
    file.write_bytes(b"\xff" * 50)
    with pytest.raises(StageFailedError, match=r"model\.onnx is not an ONNX model"):
        opsets.needed_by(file)


def test_the_onnxruntime_that_is_carried_decides(make_file: Callable[..., Path]) -> None:
    model = make_file(21, 10)
    found = opsets.check(model, [package("numpy", "1.24.4"), package("onnxruntime", "1.19.2")])
    assert found is not None
    assert (found.found, found.allowed) == ("21", "<= 21")
    assert opsets.check(model, [package("numpy", "1.24.4")]) is None
    assert opsets.check(model, [package("onnxruntime-gpu", "1.11.0")]) is None


@pytest.mark.parametrize(("opset", "ir"), [(22, 10), (21, 11)])
def test_a_model_that_is_too_new_is_refused(make_file: Callable[..., Path], opset: int, ir: int) -> None:
    with pytest.raises(StageFailedError) as caught:
        opsets.check(make_file(opset, ir), [package("onnxruntime-gpu", "1.19.2")])
    assert caught.value.what == "onnxruntime-gpu 1.19.2 does not read model.onnx"
    assert f"opset {opset} IR {ir}" in caught.value.why


def test_every_onnxruntime_of_the_locks_is_known() -> None:
    assert PINS
    assert not [version for version in PINS if opsets.readable_by(version) is None]


@pytest.mark.parametrize("model", [*WRITTEN, *NAMES])
def test_the_oldest_onnxruntime_of_the_locks_reads_what_the_export_writes(model: str, tmp_path: Path) -> None:
    """Our own graphs, and those of paddle2onnx, which ship where they cannot be rewritten."""
    limits = [limits for version in PINS if (limits := opsets.readable_by(version))]
    onnx.save(exported(model) if model in NAMES else WRITTEN[model](), str(tmp_path / "model.onnx"))
    asked = opsets.needed_by(tmp_path / "model.onnx")
    assert 17 <= asked.opset <= min(limit.opset for limit in limits)
    assert 8 <= asked.ir <= min(limit.ir for limit in limits)
