"""What is smaller ships where it pays, and where it does not the reason is named."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from edgepack.artifacts import Int8Choice, LedgerRow, ModelFile, Precision, Score, Trial
from edgepack.export import selection
from edgepack.onnx_graph.parity import Parity
from edgepack.progress import SILENT
from edgepack.recipe.model import Quantize
from edgepack_runtime.device import info


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
    ships, reason = selection.choose(file("float32", 1000, 1.0), small, selection.Caveats(("it rains",)))
    assert (ships == small, ships.precision == "float32") == (pays, not pays)
    size = f"{onnx_bytes / 1000:.{3 if onnx_bytes == 901 else 2}f}"  # 0.90 would look allowed
    assert reason.startswith(f"{title} has {size} x the bytes and {p50_ms:.2f} x the p50 of float")
    assert reason.endswith(f": {title} ships" if pays else ": float ships (it rains)")


def test_what_is_refused_does_not_ship_whatever_it_gains() -> None:
    float_model, small = file("float32", 1000, 1.0), file("float16", 500, 0.5)
    ships, reason = selection.choose(float_model, small, selection.Caveats(refusal="it is wrong"))
    assert ships == float_model
    assert reason == "FP16 has 0.50 x the bytes and 0.50 x the p50 of float, and it is wrong: float ships"


def made(*kept: str) -> Int8Choice:
    return Int8Choice((), "ptq (hist)", (), kept, 0.375, 0.5, 800)


def test_what_is_in_the_way_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(info, "int8_flags", list)
    found = selection.caveats_of_int8(Quantize(embeddings="float"), made("head", "layers.3.down"))
    assert found.hindrances == (
        "`quantize.embeddings` keeps the word embedding float",
        "`quantize.max_drop_points` keeps 2 parts float: head, layers.3.down",
        "this CPU has no instructions for INT8 products, as VNNI or SDOT",
    )
    monkeypatch.setattr(info, "int8_flags", lambda: ["avx_vnni"])
    assert selection.caveats_of_int8(Quantize(), made()) == selection.Caveats()


def test_float16_may_lose_no_more_than_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(info, "half_flags", lambda: ["asimdhp"])
    assert selection.caveats_of_float16(Trial("float16", 0.5, 1e-6), 0.5) == selection.Caveats()
    assert selection.caveats_of_float16(Trial("float16", 3.0, 1e-6), math.inf) == selection.Caveats()
    refused = selection.caveats_of_float16(Trial("float16", 0.625, 1e-6), 0.5)
    assert refused.refusal == "it loses 0.62 points on dev, where 0.5 may be lost (`quantize.max_drop_points`)"


def test_a_cpu_without_half_arithmetic_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(info, "half_flags", list)
    found = selection.caveats_of_float16(Trial("float16", 0.0, 1e-6), 0.5)
    assert found == selection.Caveats(("on this CPU ONNX Runtime computes float16 in float32",))


def test_the_ledger_tells_the_way_and_what_stayed_float() -> None:
    assert selection.describe_choice(made()) == "ptq (hist), 0.38 points below float on 800 dev rows"
    assert selection.describe_drop(100.0, 1) == "100.00 points below float on 1 dev row"
    assert selection.describe_drop(-0.494, 206) == "0.49 points above float on 206 dev rows"
    assert selection.describe_choice(made("head")).endswith("rows; float: head")
    assert selection.describe_choice(made(), reduced=True).startswith(
        "ptq (hist), weights of 7 bits, 0.38 points below"
    )


@pytest.mark.parametrize(
    ("flips", "n", "message"),
    [
        (0, 64, ""),
        (1, 64, "1 of 64 answers differs"),
        (3, 64, "3 of 64 answers differ"),
        (1, 1, "1 of 1 answer differs"),
    ],
)
def test_answers_that_differ_are_counted(flips: int, n: int, message: str) -> None:
    assert selection.differing(Parity(0.1, flips, n)) == message


def of_files(monkeypatch: pytest.MonkeyPatch, *precisions: Precision) -> selection.Selection:
    """Of measured files of these precisions: float is slower and larger than all others."""
    models = [file(one, 1000, 4.0) if one == "float32" else file(one, 270, 1.0) for one in precisions]
    monkeypatch.setattr(selection, "measured", lambda files, data, progress: models)
    exported = [selection.Exported("x", Path("x"), one, Parity(0.0, 0, 1), "y") for one in precisions]
    data: Any = None
    return selection.measure_and_choose(
        exported[0], exported[1] if exported[1:] else None, selection.Caveats(), data, SILENT
    )


def test_the_small_file_ships_where_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = of_files(monkeypatch, "float32", "int8")
    assert chosen.ships == chosen.small_model != chosen.float_model
    assert chosen.reason == "INT8 has 0.27 x the bytes and 0.25 x the p50 of float: INT8 ships"


def test_float_alone_ships_without_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = of_files(monkeypatch, "float32")
    assert (chosen.ships, chosen.small_model, chosen.reason) == (chosen.float_model, None, "")
