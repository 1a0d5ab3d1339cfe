"""INT8 ships where it pays, and where it does not the reason is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgepack import choice, engines
from edgepack.artifacts import LedgerRow, ModelFile, Precision, Score
from edgepack.graph.parity import Parity
from edgepack.progress import SILENT
from edgepack.quantization import Int8Choice
from edgepack.recipe.model import EngineChoice, Quantize
from edgepack.targets import carried
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


@pytest.mark.parametrize(
    ("p50_ms", "ships"), [((4.0, 1.0, 4.0, 0.95), "openvino"), ((4.0, 1.0, 4.0, 0.96), "onnxruntime")]
)
def test_another_engine_has_to_be_faster_by_a_twentieth(
    monkeypatch: pytest.MonkeyPatch, p50_ms: tuple[float, ...], ships: str
) -> None:
    monkeypatch.setattr(carried, "site_bytes", lambda target, engine, progress: 2**20)
    chosen = chosen_of(monkeypatch, "auto", p50_ms)
    assert chosen.engine.name == ships
    assert chosen.shipped == "int8"
    assert (
        f"OpenVINO takes {p50_ms[3]:.2f} x the p50 of ONNX Runtime ({p50_ms[3]:.2f} against 1.00 ms)" in chosen.reason
    )
    names = {"onnxruntime": ("a", "b"), "openvino": ("c", "d")}
    assert chosen.int8_model is not None
    assert (chosen.float_model.folder, chosen.int8_model.folder) == names.pop(ships)
    assert tuple(model.folder for model in chosen.others) == next(iter(names.values()))


def test_wheels_of_both_engines_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"onnxruntime": 80 * 2**20, "openvino": 145 * 2**20}
    monkeypatch.setattr(carried, "site_bytes", lambda target, engine, progress: sizes[engine])
    reason = chosen_of(monkeypatch, "auto", (4.0, 1.0, 4.0, 0.5)).reason
    assert "wheels on the device: ONNX Runtime 80.0 MiB, OpenVINO 145.0 MiB" in reason


def test_one_engine_is_compared_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = chosen_of(monkeypatch, "openvino", (4.0, 1.0))
    assert (chosen.engine.name, chosen.others) == ("openvino", ())
    assert "ONNX Runtime" not in chosen.reason


def chosen_of(monkeypatch: pytest.MonkeyPatch, asked: EngineChoice, p50_ms: tuple[float, ...]) -> choice.Chosen:
    """Of float and INT8 for each engine, in folders a, b, c and d, whose latencies are these."""
    forms: list[tuple[str, Precision, int]] = [
        ("a", "float32", 1000), ("b", "int8", 270), ("c", "float32", 1000), ("d", "int8", 270),
    ]  # fmt: skip
    models = [
        ModelFile(name, precision, size, file(precision, size, ms).ledger)
        for ms, (name, precision, size) in zip(p50_ms, forms, strict=False)
    ]
    monkeypatch.setattr(choice, "measured", lambda files, data, progress: models)
    one = choice.Exported("x", Path("x"), "int8", Parity(0.0, 0, 1), "y")
    data: Any = None
    several = [choice.OfEngine(engine, (one, one), made()) for engine in engines.wanted(asked)]
    return choice.of_engines(several, Quantize(), "t", data, SILENT)
