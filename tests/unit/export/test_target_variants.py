"""What ships to targets that compute otherwise than this machine: which form, and that it says the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from tests.unit.conftest import interval, scored
from tests.unit.onnx_graph.ernie_graphs import VOCABULARY, random_encoder, scales_of

from edgepack import evaluation
from edgepack.artifacts import (
    DataArtifact,
    ExportArtifact,
    Int8Choice,
    LedgerRow,
    ModelArtifact,
    ModelFile,
    Precision,
    Trial,
    Usage,
    Variation,
)
from edgepack.export import target_variants
from edgepack.export.model_folder import ModelWriter
from edgepack.export.target_variants import Variant, VariantSource
from edgepack.onnx_graph.graph_writer import compose
from edgepack.onnx_graph.int8_ranges import with_ranges
from edgepack.progress import SILENT
from edgepack.recipe.model import Quantize
from edgepack.targets.profiles import Cuda, Profile
from edgepack_runtime.bundle import model_config
from edgepack_runtime.bundle.model_config import CUDA, TokenizerConfig

LABELS = ("a", "b", "c")
TEXTS = ("房间很大", "服务不好", "脏", "很吵也脏")
CHARACTERS = "房间很大服务不好也脏吵"
PTQ, NONE, FP16 = Quantize(), Quantize(method="none"), Quantize(method="fp16")


def target(
    name: str = "t", *, gpu: bool = False, machine: str = "x86_64", isa: tuple[str, ...] | None = None
) -> Profile:
    return Profile(
        name=name,
        summary="for tests",
        machines=(machine,),
        interpreter="host",
        cuda=Cuda("12.6", ("87",)) if gpu else None,
        isa=isa,
    )


@pytest.mark.parametrize(
    ("profile", "section", "expected"),
    [
        (target(), PTQ, None),
        (target(isa=()), PTQ, ("7-bits", "int8")),
        (target(isa=("avx2",)), PTQ, ("7-bits", "int8")),
        (target(isa=("avx512_vnni",)), PTQ, None),
        (target(isa=(), machine="aarch64"), PTQ, None),
        (target(isa=()), NONE, None),
        (target(isa=()), FP16, None),
        (target(isa=()), Quantize(reduced_range=True), None),
        (target(gpu=True), PTQ, ("cuda", "float16")),
        (target(gpu=True), FP16, ("cuda", "float16")),
        (target(gpu=True), NONE, ("cuda", "float32")),
    ],
)
def test_what_a_target_decides(profile: Profile, section: Quantize, expected: tuple[str, str] | None) -> None:
    found = target_variants.variant_of(profile, section)
    assert (found and (found.name, found.precision)) == expected


def test_targets_that_want_the_same_share_it() -> None:
    profiles = [target("one"), target("two", gpu=True), target("three", isa=()), target("four", gpu=True)]
    found = {variant.name: names for variant, names in target_variants.wanted(profiles, PTQ).items()}
    assert found == {"cuda": ("two", "four"), "7-bits": ("three",)}


@pytest.fixture
def writer(tmp_path: Path) -> ModelWriter:
    """Of a student whose vocabulary is that of the random encoder; its data are made of that vocabulary too."""
    folder = tmp_path / "student"
    folder.mkdir()
    words = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]", *CHARACTERS]
    assert len(words) == VOCABULARY
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    rows = [{"text": text, "label": LABELS[number % 3]} for number, text in enumerate(TEXTS * 3)]
    for split in ("dev", "test"):
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    data = DataArtifact(tmp_path, LABELS, {"dev": 12, "test": 12}, ())
    usage = Usage("cpu", "fp32", 1.0, 0.0, 1.0, 1)
    student = ModelArtifact(
        folder,
        LABELS,
        16,
        1,
        1,
        1,
        1.0,
        interval(0.9),
        interval(0.9),
        scored(0.9),
        epochs=1,
        best_epoch=1,
        usage=usage,
        calibration=None,
    )
    return ModelWriter(student, data, TokenizerConfig())


@pytest.fixture
def source(tmp_path: Path, writer: ModelWriter) -> VariantSource:
    encoder = random_encoder()
    ranged = with_ranges(encoder, scales_of(encoder), embeddings=True)
    graph = compose(encoder, writer.layout)
    writer.write(tmp_path / "onnx-float", graph, "float32")
    made = Int8Choice((Trial("ptq", 0.0, 0.0),), "ptq", (), (), 0.0, 0.5, 12)
    return VariantSource(writer, tmp_path / "onnx-float", graph, encoder, ranged, made, "int8")


def made_of(variant: Variant, source: VariantSource, section: Quantize = PTQ) -> Variation | None:
    out, rows = source.float_folder.parent, source.writer.data.read("dev")
    float_logits = evaluation.logits(evaluation.opened(source.float_folder), rows)
    return target_variants.make(variant, ("t",), source, section, rows, float_logits, out, SILENT)


def variant(profile: Profile, section: Quantize = PTQ) -> Variant:
    found = target_variants.variant_of(profile, section)
    assert found is not None
    return found


def stored(folder: Path) -> set[int]:
    return {item.data_type for item in onnx.load(str(folder / "model.onnx")).graph.initializer}


ANYTHING = Quantize(max_drop_points=None)


def test_for_cuda_it_is_float16(source: VariantSource) -> None:
    found = made_of(variant(target(gpu=True)), source, ANYTHING)
    assert found is not None
    folder = source.float_folder.parent / found.model.folder
    config = model_config.load(folder)
    assert (found.model.precision, config.precision) == ("float16", "float16")
    assert (config.engine.provider, config.engine.disabled_optimizers) == (CUDA, ())
    assert TensorProto.FLOAT16 in stored(folder)
    assert TensorProto.INT8 not in stored(folder)
    assert found.model.ledger.parity is not None
    assert 0 < found.model.ledger.parity < 0.05
    assert found.model.ledger.p50_ms is None
    assert "scored on this machine's CPU" in found.model.ledger.note


def test_a_gpu_runs_texts_of_all_lengths_at_once_and_a_cpu_each_length_by_itself(source: VariantSource) -> None:
    found = made_of(variant(target(gpu=True)), source, ANYTHING)
    assert found is not None
    folder = source.float_folder.parent / found.model.folder
    assert model_config.load(folder).hides_padding
    assert not model_config.load(source.float_folder).hides_padding
    model, texts = evaluation.opened(folder), ["好", "差差店店", "店很好，"]
    encoder = model.text_model.encoder
    assert encoder is not None
    with mock.patch.object(encoder, "run", wraps=encoder.run) as run:
        together = model.logits(texts)
    assert run.call_count == 1
    assert np.allclose(together, [model.logits([text])[0] for text in texts], atol=0.01)


def test_without_vnni_weights_have_seven_bits(source: VariantSource) -> None:
    found = made_of(variant(target(isa=())), source, ANYTHING)
    assert found is not None
    model = onnx.load(str(source.float_folder.parent / found.model.folder / "model.onnx"))
    weights = [onnx.numpy_helper.to_array(item) for item in model.graph.initializer if item.name.endswith(".int8")]
    products = [weight for weight in weights if weight.shape[0] != VOCABULARY]
    assert {int(np.abs(weight).max()) for weight in products} == {63}
    assert "weights of 7 bits" in found.reason


def test_where_float_ships_there_is_nothing_to_reduce(source: VariantSource) -> None:
    assert made_of(variant(target(isa=())), replace(source, shipped="float32")) is None


def test_what_cannot_be_quantized_or_understood_is_float32(source: VariantSource) -> None:
    unquantized = made_of(variant(target(isa=())), replace(source, made=None, ranged=None))
    assert unquantized is not None
    assert unquantized.model.precision == "float32"


def test_a_graph_that_was_not_understood_goes_as_it_is(source: VariantSource) -> None:
    found = made_of(variant(target(gpu=True)), replace(source, encoder=None, ranged=None, made=None))
    assert found is not None
    folder = source.float_folder.parent / found.model.folder
    assert onnx.load(str(folder / "model.onnx")) == source.graph
    assert model_config.load(folder).engine.provider == CUDA


def test_what_ships_to_a_target_is_its_own(tmp_path: Path) -> None:
    row = LedgerRow("x", interval(0.9))

    def file(folder: str, precision: Precision) -> ModelFile:
        return ModelFile(folder, precision, 1000, row, scored(0.9))

    small = Variation(("gpu",), file("onnx-cuda", "float16"), "why")
    plain = Variation(("other",), file("onnx-7-bits", "float32"), "why")
    made = ExportArtifact(
        tmp_path, row, file("a", "float32"), file("b", "int8"), "int8", "r", variations=(small, plain)
    )
    assert made.for_target("cpu") is made
    gpu = made.for_target("gpu")
    assert (gpu.shipped_model.folder, gpu.shipped) == ("onnx-cuda", "float16")
    assert gpu.float_model.folder == "a"
    assert made.for_target("other").shipped_model.folder == "onnx-7-bits"
