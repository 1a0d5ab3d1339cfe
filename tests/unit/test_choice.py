"""INT8 ships where it pays, and where it does not the reason is named."""

from __future__ import annotations

import pytest

from edgepack import choice
from edgepack.artifacts import LedgerRow, ModelFile, Precision, Score
from edgepack.quantization import Int8Choice
from edgepack.recipe.model import Quantize
from edgepack_runtime import doctor


def file(precision: Precision, onnx_bytes: int, p50_ms: float) -> ModelFile:
    return ModelFile("folder", precision, onnx_bytes, LedgerRow("x", Score(0.9, 0.8, 0.95, 100, 0.95), p50_ms=p50_ms))


@pytest.mark.parametrize(
    ("onnx_bytes", "p50_ms", "ships"),
    [(900, 0.9, "int8"), (270, 0.3, "int8"), (901, 0.3, "float32"), (270, 0.91, "float32"), (2000, 2.0, "float32")],
)
def test_int8_has_to_be_a_tenth_smaller_and_faster(onnx_bytes: int, p50_ms: float, ships: str) -> None:
    shipped, reason = choice.choose(file("float32", 1000, 1.0), file("int8", onnx_bytes, p50_ms), ["it rains"])
    assert shipped == ships
    assert f"{onnx_bytes / 1000:.2f} x the bytes and {p50_ms:.2f} x the p50" in reason
    assert ("(it rains)" in reason) == (ships == "float32")


def made(*kept: str) -> Int8Choice:
    return Int8Choice((), "ptq (hist)", (), kept, 0.375, 0.5, 800)


def test_what_is_in_the_way_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "int8_flags", list)
    found = choice.hindrances(Quantize(embeddings="float"), made("head", "layers.3.down"))
    assert found == [
        "`quantize.embeddings` keeps the word embedding float",
        "`quantize.max_drop_points` keeps 2 parts float: head, layers.3.down",
        "this CPU has no instructions for INT8 products, as VNNI or SDOT",
    ]
    monkeypatch.setattr(doctor, "int8_flags", lambda: ["avx_vnni"])
    assert choice.hindrances(Quantize(), made()) == []


def test_the_ledger_tells_the_way_and_what_stayed_float() -> None:
    assert choice.note(made()) == "ptq (hist), 0.38 points below float on 800 dev rows"
    assert choice.note(made("head")).endswith("rows; float: head")
