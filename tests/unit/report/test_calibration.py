"""What calibration decided, part by part: names, ranges of each way, steps, columns."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.conftest import dynamic, linears

from edgepack.artifacts import LinearScales, Quantization
from edgepack.report.document import calibrated_parts, part_of
from edgepack.report.html import spread
from edgepack.report.model import Columns, Range

HIST = Quantization("ptq", "hist", linears())


@pytest.mark.parametrize(
    ("layer", "part"),
    [
        ("ernie.encoder.layers.0.self_attn.q_proj", "layers.0.query_key_value"),
        ("ernie.encoder.layers.11.self_attn.k_proj", "layers.11.query_key_value"),
        ("bert.encoder.layers.3.self_attn.v_proj", "layers.3.query_key_value"),
        ("ernie.encoder.layers.3.self_attn.out_proj", "layers.3.output"),
        ("ernie.encoder.layers.3.linear1", "layers.3.up"),
        ("ernie.encoder.layers.3.linear2", "layers.3.down"),
        ("ernie.pooler.dense", "pooler"),
        ("classifier", "head"),
        ("decoder.layers.3.mixer", "decoder.layers.3.mixer"),
        ("projection", "projection"),
    ],
)
def test_a_layer_has_the_name_of_its_part(layer: str, part: str) -> None:
    assert part_of(layer) == part


def test_a_part_has_the_union_of_what_its_products_read_and_zero() -> None:
    together, down, head = calibrated_parts((HIST,), "ptq (hist)")
    assert [one.part for one in (together, down, head)] == ["layers.0.query_key_value", "layers.3.down", "head"]
    assert [name.rpartition(".")[2] for name in together.layers] == ["q_proj", "k_proj", "v_proj"]
    assert together.activation == {"ptq (hist)": Range(-3.25, 4.5)}
    assert head.activation == {"ptq (hist)": Range(0.0, 0.85)}  # 0 lies on every grid
    assert together.weight == Columns(6, 0.0625, 0.5)
    assert down.step == 0.2  # 51 over 255


def test_every_way_has_its_ranges_and_the_step_is_that_of_the_one_taken() -> None:
    narrower = Quantization("ptq", "kl", tuple(replace(one, activation=(-1.0, 1.55)) for one in linears()))
    told = calibrated_parts((HIST, narrower, dynamic()), "ptq (kl)")
    assert {tuple(one.activation) for one in told} == {("ptq (hist)", "ptq (kl)")}
    assert {one.step for one in told} == {0.01}


@pytest.mark.parametrize("taken", ["dynamic", None])
def test_ranges_found_in_each_run_have_no_step(taken: str | None) -> None:
    told = calibrated_parts((HIST, dynamic()), taken)
    assert [one.step for one in told] == [None] * 3
    assert {tuple(one.activation) for one in told} == {("ptq (hist)",)}
    alone = calibrated_parts((dynamic(),), taken)
    assert [one.activation for one in alone] == [{}] * 3
    assert [one.weight for one in alone] == [one.weight for one in told]


def test_a_range_of_some_of_its_products_is_none_of_a_part() -> None:
    query, *others = linears()
    told = calibrated_parts((Quantization("qat", "lsq", (replace(query, activation=None), *others)),), "qat (lsq)")
    assert (told[0].activation, told[0].step) == ({}, None)
    assert told[1].step == 0.2
    assert calibrated_parts((), None) == calibrated_parts((Quantization("ptq", "hist", ()),), "ptq (hist)") == ()


def test_figures_are_as_long_as_they_mean_something_and_zeros_have_no_ratio() -> None:
    way = Quantization("ptq", "hist", (LinearScales("classifier", "e" * 64, (-1 / 3, 2 / 3), (1 / 7,)),))
    (told,) = calibrated_parts((way,), "ptq (hist)")
    assert told.activation["ptq (hist)"] == Range(-0.333333, 0.666667)
    assert (told.weight.least, told.step) == (0.142857, 0.00392157)
    way = Quantization("dynamic", None, (LinearScales("classifier", "e" * 64, None, (0.0, 0.5)),))
    (told,) = calibrated_parts((way,), "dynamic")
    assert (told.weight.least, spread(told)) == (0.0, None)


def test_the_ratio_of_columns() -> None:
    assert [spread(one) for one in calibrated_parts((dynamic(),), "dynamic")] == pytest.approx(
        [8.0, 17.0, 1.111], abs=1e-3
    )
