"""The page with its plots: nothing fetched, nothing run, everything escaped; what each plot draws."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.conftest import dynamic, having, linears
from tests.unit.report.pages import Page, document, figure_of, render, with_last_row, words_of

from edgepack.artifacts import LedgerRow, Quantization
from edgepack.report import plots
from edgepack.report.plots import pareto


@pytest.mark.parametrize(("language", "same", "share"), [
    ("en", "on the same test rows.", "on all test rows; targets were measured on a share of them, of size n."),
    ("zh", "在同一批测试样本上，", "在全部测试样本上的表现；各目标只用其中一部分样本测量，"),
])  # fmt: skip
def test_rows_are_the_same_only_where_targets_saw_all(built: Any, language: str, same: str, share: str) -> None:
    on_all = Page(render(document(built)), language).words
    assert same in on_all and share not in on_all
    row = LedgerRow("on a device", replace(built.ledger[0].score, n=300))
    on_some = Page(render(document(with_last_row(built, row))), language).words
    assert share in on_some and same not in on_some and " 300 " in on_some and " 794 " in on_some


def test_nothing_is_fetched_or_run(report: dict[str, Any]) -> None:
    text = render(report)
    page = Page(text)
    assert not {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe", "object", "base", "form"}
    assert not page.values("src")
    assert all(value.startswith("#") for name in ("href", "xlink:href") for value in page.values(name))
    assert all(value.startswith("#") for value in re.findall(r"url\(([^)]*)\)", text))
    assert "@import" not in text
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]


def test_ids_are_unique_and_references_resolve(report: dict[str, Any]) -> None:
    text = render(report)
    page = Page(text)
    ids = page.values("id")
    assert len(ids) == len(set(ids)) >= 5
    assert set(page.values("aria-labelledby")) <= set(ids)


def test_the_same_report_gives_the_same_bytes(report: dict[str, Any]) -> None:
    assert render(report) == render(report)


def test_the_plot_of_candidates_numbers_them_and_draws_the_front(built: Any, selection: Any) -> None:
    report = document(having(built, select=selection))
    words = figure_of(report, "Score of each candidate")
    assert re.search(r"\b1 2 ", words)
    assert "≥ 88.0 %, ≤ 5 ms →" in words
    assert "accuracy, %" in words
    report["recipe"]["gates"]["latency"]["threads"] = 2
    assert "5 ms" not in figure_of(report, "Score of each candidate")


@pytest.mark.parametrize(
    ("points", "front"),
    [
        ([(2.0, 90.0)], [(2.0, 90.0)]),
        ([(2.0, 90.0), (1.0, 80.0), (3.0, 89.0), (1.0, 70.0), (2.5, 90.0)], [(1.0, 80.0), (2.0, 90.0)]),
        ([(1.0, 90.0), (2.0, 80.0)], [(1.0, 90.0)]),
        ([(3.0, 90.0), (1.0, 90.0), (1.0, 90.0), (2.0, 90.0)], [(1.0, 90.0)]),
        ([(3.1, 100 * 558 / 794), (5.6, 100 * 0.702771), (7.2, 100 * 558 / 794)], [(3.1, 100 * 558 / 794)]),
        ([(1.0, 90.0), (2.0, 90.001)], [(1.0, 90.0), (2.0, 90.001)]),
    ],
)
def test_the_front_is_what_no_other_beats(points: list[tuple[float, float]], front: list[tuple[float, float]]) -> None:
    assert pareto(points) == front


def test_text_from_outside_is_escaped_and_chinese_is_drawn_without_a_warning(built: Any) -> None:
    attack = '<script>alert("x")</script>&amp;$a$'
    row = LedgerRow(attack, built.ledger[0].score, model_mib=1.0, note=attack)
    report = document(having(with_last_row(built, row), data=replace(built.data, warnings=(attack,))))
    classes = report["targets"][0]["receipt"]["classes"]
    classes["scores"][0]["label"] = attack
    classes["confusion"] = {attack: {attack: 3}}
    report["name"] = report["data"]["source"] = report["targets"][0]["receipt"]["conditions"]["cpu_model"] = attack
    page = Page(render(report))
    assert "script" not in {tag for tag, _ in page.tags}
    assert page.words.count(attack) >= 6
    assert "设备" in render(document(with_last_row(built, LedgerRow("设备", built.ledger[0].score))))


def test_a_gate_on_f1_has_its_limit_and_every_stage_in_the_plot(built: Any) -> None:
    gates = built.recipe.gates
    asked = gates.model_copy(update={"accuracy": gates.accuracy.model_copy(update={"metric": "macro_f1"})})
    row = built.target_results[0].gate.ledger
    judged = with_last_row(built, replace(row, score=replace(row.score, metric="macro_f1")))
    report = document(replace(judged, recipe=built.recipe.model_copy(update={"gates": asked})))
    words = figure_of(report, "Score of each stage")
    assert "≥ 88.0 %" in words and "INT8 ONNX" in words and "on local" in words
    assert "macro F1, %" in words and "accuracy" not in words
    words = words_of(report)
    assert "dev accuracy" in words and "test accuracy" in words


def test_how_long_answers_took_and_what_one_is_made_of(report: dict[str, Any]) -> None:
    label, receipt = "How many of the timed answers", report["targets"][0]["receipt"]
    words = figure_of(report, label)
    assert "p50 ≤ 5 ms, p95 ≤ 1.9 ms, p99 ≤ 9 ms →" in words
    assert "tokenizer 0.12 ms, model 1.09 ms, label 0.02 ms" in words_of(report)
    del receipt["latency"]["distribution"]
    assert figure_of(report, label) == ""


def test_the_axis_of_times_holds_slow_answers_too(report: dict[str, Any]) -> None:
    told = report["targets"][0]["receipt"]["latency"]["distribution"]
    told["max_ms"] = 480.0
    assert " 500 " in figure_of(report, "How many of the timed answers")
    told |= dict.fromkeys(told, 2.0)
    assert "p95 ≤ 1.9 ms" in figure_of(report, "How many of the timed answers")


def test_of_many_targets_those_that_are_too_slow_have_a_plot_and_the_others_figures(report: dict[str, Any]) -> None:
    (target,) = report["targets"]
    checks = [{**check, "verdict": "pass"} for check in target["receipt"]["checks"]]
    quick = {**target, "receipt": {**target["receipt"], "checks": checks}}
    untold = {**quick, "receipt": {**quick["receipt"], "latency": None}}
    report["targets"] = [
        {**one, "target": f"board-{number}"} for number, one in enumerate([untold, *[quick] * 28, target])
    ]
    text = render(report)
    drawn = re.findall(r"How many of the timed answers took how long on board-(\d+),", text)
    assert drawn == ["29"]
    words = " ".join(Page(text).words.split())
    assert words.count("that took no longer: 0 % 1.01 ms , 1 % 1.03 ms , 5 % 1.07 ms") == 30 - 1 - 1
    assert "99 % 2.61 ms , 100 % 3.90 ms ." in words
    assert len(text.encode()) < 500_000


def test_shares_are_in_order_whatever_the_receipt_s_is() -> None:
    told = {"max_ms": 9.0, "p95_ms": 7.0, "min_ms": 1.0, "p5_ms": 1.0, "p50_ms": 2.0}
    assert plots.shares(told) == [(1.0, 0.0), (1.0, 5.0), (2.0, 50.0), (7.0, 95.0), (9.0, 100.0)]


def test_what_int8_costs_each_part_is_drawn_the_worst_first(report: dict[str, Any]) -> None:
    label, int8 = "Divergence of each part", report["quantization"]["int8"]
    words = figure_of(report, label)
    assert re.search(r"layers\.3\.down.* head .*words", words)
    assert "≤ 0" in words and "KL, nat" in words
    costs = [{"part": f"layers.{number}.up", "divergence": 1e-4 * number} for number in range(30)]
    int8["parts"] = costs
    words = figure_of(report, label)
    assert "layers.29.up" in words and "layers.10.up" in words and "layers.9.up" not in words
    assert "The 20 parts of 30 that cost most." in Page(render(report)).words
    int8["parts"] = [{"part": "head", "divergence": 0.0}]
    assert figure_of(report, label) == ""
    int8["parts"] = []
    assert figure_of(report, label) == ""


def test_ranges_of_each_part_are_a_table(report: dict[str, Any]) -> None:
    told = words_of(report)
    assert "ptq (hist): range of what a part reads, calibration rows: " in told
    assert "layers.3.down -0.17 … 50.8 0.2 2 0.1 1.7 17.0" in told
    assert "leaves few of the 255 steps" in told


def test_ranges_of_the_ways_not_taken_stand_beside(built: Any) -> None:
    wider = Quantization("ptq", "abs_max", tuple(replace(one, activation=(-70.0, 9.0)) for one in linears()))
    build = having(built, quantize=replace(built.scales, ways=(*built.scales.ways, wider)))
    assert "layers.3.down -0.17 … 50.8 0.2 2 0.1 1.7 17.0 -70 … 9" in words_of(document(build))


def test_where_ranges_are_found_in_each_run_the_weights_are_shown_alone(built: Any) -> None:
    int8 = replace(built.export.int8, method="dynamic", kept_float=())
    bare = having(built, export=replace(built.export, int8=int8), quantize=replace(built.scales, ways=(dynamic(),)))
    told = words_of(document(bare))
    assert "dynamic finds ranges in each run." in told and "255 steps" not in told
    assert "layers.3.down 2 0.1 1.7 17.0" in told
    calibrated = having(bare, quantize=built.scales)  # ranges were found, and another way was taken
    assert "layers.3.down 2 0.1 1.7 17.0 -0.17 … 50.8" in words_of(document(calibrated))


def test_a_weight_of_zeros_has_no_ratio(report: dict[str, Any]) -> None:
    for part in report["quantization"]["parts"]:
        part["weight"] |= {"least": 0.0, "most": 0.0}
    assert "layers.3.down -0.17 … 50.8 0.2 2 0 0 -" in words_of(report)


@pytest.mark.parametrize("ways", [(), (Quantization("ptq", "hist", linears()),)])
def test_without_an_int8_model_no_ranges_are_shown(built: Any, ways: tuple[Quantization, ...]) -> None:
    """Nothing was to be quantized, or what the student was exported to was not understood."""
    export = replace(built.export, int8=None, small_model=None, shipped="float32")
    page = render(document(having(built, export=export, quantize=replace(built.scales, ways=ways))))
    assert "Ranges of" not in page
    no_ranges = having(built, quantize=replace(built.scales, ways=()))
    assert "Ranges of" not in render(document(no_ranges))


def test_plots_leave_the_page_small_and_have_its_colours(report: dict[str, Any]) -> None:
    text = render(report)
    assert len(text.encode()) < 150_000
    plots = re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)
    assert len(plots) == 4  # the ledger is drawn for a phone, too
    for plot in plots:
        assert not re.search(r"#[0-9a-f]{3}|style=|fill=|stroke=", plot)


def test_a_build_with_nothing_measured_still_renders(tmp_path: Path, built: Any) -> None:
    """No gates, no latency, no size, no teacher, an empty split."""
    item = built.target_results[0]
    receipt = {**item.gate.receipt, "checks": [], "latency": None, "conditions": None, "verdict": "pass"}
    gate = replace(item.gate, receipt=receipt, verdict="pass", exit_code=0)
    unmeasured = LedgerRow("float ONNX", built.ledger[0].score)
    (tmp_path / "dev.jsonl").write_text("", encoding="utf-8")
    float_model = replace(built.export.float_model, ledger=unmeasured)
    export = replace(built.export, float_model=float_model, small_model=None, shipped="float32")
    bare = replace(
        having(built, teacher=None, export=export),
        recipe=built.recipe.model_copy(update={"gates": type(built.recipe.gates)(), "teacher": None}),
        target_results=(replace(item, gate=replace(gate, ledger=unmeasured)),),
    )
    page = Page(render(document(bare)))
    assert "The recipe sets no gates." in page.words
    assert sum(tag == "svg" for tag, _ in page.tags) == 3  # scores, also for a phone, and what each part costs
    Page(render(document(replace(bare, target_results=()))))
