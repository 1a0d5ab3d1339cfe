"""What is smaller ships where it pays, and where it does not the reason is named."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from edgepack import choice, engines
from edgepack.artifacts import LedgerRow, ModelFile, Precision, Score
from edgepack.graph.parity import Parity
from edgepack.progress import SILENT
from edgepack.quantization import Int8Choice, Tried
from edgepack.recipe.model import EngineChoice, Quantize
from edgepack.targets import carried
from edgepack.targets.supply import Supply
from edgepack_runtime import device


def file(precision: Precision, onnx_bytes: int, p50_ms: float) -> ModelFile:
    row = LedgerRow("x", Score(0.9, 0.8, 0.95, 100, 0.95), p50_ms=p50_ms)
    return ModelFile("folder", precision, onnx_bytes, row, {"accuracy": row.score})


@pytest.mark.parametrize(
    ("onnx_bytes", "p50_ms", "pays"),
    [(900, 0.9, True), (270, 0.3, True), (901, 0.3, False), (270, 0.91, False), (2000, 2.0, False)],
)
@pytest.mark.parametrize(("precision", "title"), [("int8", "INT8"), ("float16", "FP16")])
def test_what_ships_is_a_tenth_smaller_and_faster(
    precision: Precision, title: str, onnx_bytes: int, p50_ms: float, pays: bool
) -> None:
    small = file(precision, onnx_bytes, p50_ms)
    ships, reason = choice.choose(file("float32", 1000, 1.0), small, choice.Doubts(("it rains",)))
    assert (ships == small, ships.precision == "float32") == (pays, not pays)
    assert reason.startswith(f"{title} has {onnx_bytes / 1000:.2f} x the bytes and {p50_ms:.2f} x the p50 of float")
    assert reason.endswith(f": {title} ships" if pays else ": float ships (it rains)")


def test_what_is_refused_does_not_ship_whatever_it_gains() -> None:
    float_model, small = file("float32", 1000, 1.0), file("float16", 500, 0.5)
    ships, reason = choice.choose(float_model, small, choice.Doubts(refusal="it is wrong"))
    assert ships == float_model
    assert reason == "FP16 has 0.50 x the bytes and 0.50 x the p50 of float, and it is wrong: float ships"


def made(*kept: str) -> Int8Choice:
    return Int8Choice((), "ptq (hist)", (), kept, 0.375, 0.5, 800)


def test_what_is_in_the_way_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "int8_flags", list)
    found = choice.doubts_of_int8(Quantize(embeddings="float"), made("head", "layers.3.down"))
    assert found.hindrances == (
        "`quantize.embeddings` keeps the word embedding float",
        "`quantize.max_drop_points` keeps 2 parts float: head, layers.3.down",
        "this CPU has no instructions for INT8 products, as VNNI or SDOT",
    )
    monkeypatch.setattr(device, "int8_flags", lambda: ["avx_vnni"])
    assert choice.doubts_of_int8(Quantize(), made()) == choice.Doubts()


def test_float16_may_lose_no_more_than_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "half_flags", lambda: ["asimdhp"])
    assert choice.doubts_of_float16(Tried("float16", 0.5, 1e-6), 0.5) == choice.Doubts()
    assert choice.doubts_of_float16(Tried("float16", 3.0, 1e-6), math.inf) == choice.Doubts()
    refused = choice.doubts_of_float16(Tried("float16", 0.625, 1e-6), 0.5)
    assert refused.refusal == "it loses 0.62 points on dev, where 0.5 may be lost (`quantize.max_drop_points`)"


def test_a_cpu_without_half_arithmetic_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "half_flags", list)
    found = choice.doubts_of_float16(Tried("float16", 0.0, 1e-6), 0.5)
    assert found == choice.Doubts(("on this CPU the engine computes float16 in float32",))


def test_the_ledger_tells_the_way_and_what_stayed_float() -> None:
    assert choice.note(made()) == "ptq (hist), 0.38 points below float on 800 dev rows"
    assert choice.lost(100.0, 1) == "100.00 points below float on 1 dev row"
    assert choice.note(made("head")).endswith("rows; float: head")
    assert choice.note(made(), reduced=True).startswith("ptq (hist), weights of 7 bits, 0.38 points below")


@pytest.mark.parametrize(
    ("flips", "n", "told"),
    [
        (0, 64, ""),
        (1, 64, "1 of 64 answers differs"),
        (3, 64, "3 of 64 answers differ"),
        (1, 1, "1 of 1 answer differs"),
    ],
)
def test_answers_that_differ_are_counted(flips: int, n: int, told: str) -> None:
    assert choice.differing(Parity(0.1, flips, n)) == told


@pytest.mark.parametrize(
    ("p50_ms", "ships"), [((4.0, 1.0, 4.0, 0.95), "openvino"), ((4.0, 1.0, 4.0, 0.96), "onnxruntime")]
)
def test_another_engine_has_to_be_faster_by_a_twentieth(
    monkeypatch: pytest.MonkeyPatch, p50_ms: tuple[float, ...], ships: str
) -> None:
    monkeypatch.setattr(carried, "site_bytes", lambda target, engine, supply, progress: 2**20)
    chosen = chosen_of(monkeypatch, "auto", p50_ms)
    assert chosen.engine.name == ships
    assert chosen.ships == chosen.small_model
    assert (
        f"OpenVINO takes {p50_ms[3]:.2f} x the p50 of ONNX Runtime ({p50_ms[3]:.2f} against 1.00 ms)" in chosen.reason
    )
    names = {"onnxruntime": ("a", "b"), "openvino": ("c", "d")}
    assert chosen.small_model is not None
    assert (chosen.float_model.folder, chosen.small_model.folder) == names.pop(ships)
    assert tuple(model.folder for model in chosen.others) == next(iter(names.values()))


@pytest.mark.parametrize(
    ("p50_ms", "ships"),
    [
        ((4.0, 3.1, 3.0, 2.95), "c"),  # both INT8 files gain nothing beside OpenVINO's float
        ((4.0, 3.7, 5.0, 3.75), "a"),  # 0.94 of the fastest float is not enough, whatever it is of its own
        ((4.0, 2.6, 3.0, 2.95), "b"),
    ],
)
def test_int8_is_held_against_the_fastest_float_of_all(
    monkeypatch: pytest.MonkeyPatch, p50_ms: tuple[float, ...], ships: str
) -> None:
    monkeypatch.setattr(carried, "site_bytes", lambda target, engine, supply, progress: 2**20)
    chosen = chosen_of(monkeypatch, "auto", p50_ms)
    assert chosen.ships.folder == ships
    if ships == "c":
        assert "0.98 x the p50 of float" in chosen.reason


def test_it_is_said_which_float_that_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carried, "site_bytes", lambda target, engine, supply, progress: 2**20)
    reason = chosen_of(monkeypatch, "auto", (4.0, 2.6, 3.0, 2.95)).reason
    assert "0.87 x the p50 of float on OpenVINO, which is faster: INT8 ships" in reason


def test_wheels_of_both_engines_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"onnxruntime": 80 * 2**20, "openvino": 145 * 2**20}
    monkeypatch.setattr(carried, "site_bytes", lambda target, engine, supply, progress: sizes[engine])
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
        ModelFile(name, precision, size, file(precision, size, ms).ledger, {})
        for ms, (name, precision, size) in zip(p50_ms, forms, strict=False)
    ]
    monkeypatch.setattr(choice, "measured", lambda files, data, progress: models)
    one = choice.Exported("x", Path("x"), "int8", Parity(0.0, 0, 1), "y")
    data: Any = None
    several = [choice.OfEngine(engine, (one, one), made=made()) for engine in engines.wanted(asked)]
    return choice.of_engines(several, "t", data, Supply({}), SILENT)
