"""The page: one file, nothing fetched, nothing run, everything escaped, every figure there."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup
from tests.unit.conftest import beside_one_not_run, dynamic, linears, narrowed_of, pruned_of, ungated_of

from edgepack.artifacts import LedgerRow, Quantization
from edgepack.report import html, plots
from edgepack.report.document import make
from edgepack.report.html import render
from edgepack.report.i18n import MESSAGES
from edgepack.report.plots import pareto
from edgepack_runtime.gate.rows import WHY_NOT

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """Collects what a browser would act on, and checks that tags close in order.

    `words` are those that a reader of `language` sees, "en" or "zh".
    """

    def __init__(self, text: str, language: str = "en") -> None:
        super().__init__()
        self.hidden = {"en": "zh", "zh": "en"}[language]
        self.hiding: list[bool] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
            self.hiding.append(dict(attrs).get("class") == self.hidden)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.hiding.pop()

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if not any(self.hiding):
            self.words += data + " "

    def values(self, attribute: str) -> list[str]:
        return [str(attributes[attribute]) for _, attributes in self.tags if attribute in attributes]


@pytest.fixture
def drawn_plots() -> None:
    """For a test that reads the plots of the page."""


@pytest.fixture(autouse=True)
def _without_plots(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the plots, which take a second, unless the test uses `drawn_plots`."""
    if "drawn_plots" not in request.fixturenames:
        monkeypatch.setattr(html.svg, "inline", lambda name, draw, rows: Markup('<svg id="{}"></svg>').format(name))


@pytest.fixture
def report(built: Any) -> dict[str, Any]:
    return make(built)


def test_a_target_that_could_not_be_run_says_why_and_what_to_type(built: Any) -> None:
    words = " ".join(Page(render(make(beside_one_not_run(built)))).words.split())
    assert "rpi-bookworm : not run here" in words
    assert "it is for aarch64 On the device: python3 b.edgepack gate" in words
    assert "Nothing was measured: it is for aarch64" in words


def test_a_target_that_could_not_be_run_is_gated_nowhere_where_the_recipe_sets_no_gates(built: Any) -> None:
    report = make(beside_one_not_run(built))
    assert "gate install runs the same gates." in _cards(report)
    golden = report["recipe"]["gates"]["golden"]
    report["recipe"]["gates"] = {**dict.fromkeys(report["recipe"]["gates"]), "golden": golden}
    words = _cards(report)
    assert "gate The recipe sets no gates: this command and install measure, and judge nothing." in words
    assert "same gates" not in words
    assert "配方没有设门限：该命令和 install 只作测量，不作判定。" in _cards(report, "zh")


@pytest.mark.usefixtures("drawn_plots")
@pytest.mark.usefixtures("drawn_plots")
@pytest.mark.parametrize(("language", "same", "share"), [
    ("en", "on the same test rows.", "on all test rows; targets were measured on a share of them, of size n."),
    ("zh", "在同一批测试样本上，", "在全部测试样本上的表现；各目标只用其中一部分样本测量，"),
])  # fmt: skip
def test_rows_are_the_same_only_where_targets_saw_all(built: Any, language: str, same: str, share: str) -> None:
    on_all = Page(render(make(built)), language).words
    assert same in on_all and share not in on_all
    row = LedgerRow("on a device", replace(built.ledger[0].score, n=300))
    on_some = Page(render(make(with_last_row(built, row))), language).words
    assert share in on_some and same not in on_some and " 300 " in on_some and " 794 " in on_some


def test_figures_of_gates_stay_in_one_line_on_paper(report: dict[str, Any]) -> None:
    """Of other tables, which have more columns, they may break; the last rule of those that are as specific decides."""
    text = render(report)
    paper = text.partition("@media print {")[2].partition("</style>")[0]
    assert "td.n, td.keep { white-space: normal; }" in paper
    assert ".gates td.n, .gates td.keep { white-space: nowrap; }" in paper
    (table,) = re.findall(r'<table class="gates">.*?</table>', text, flags=re.DOTALL)
    rows = re.findall(r"<tr><td.*?</tr>", table, flags=re.DOTALL)
    assert len(rows) == len(report["targets"][0]["receipt"]["checks"])
    kinds = ["name", "n", "keep", "n", "n", "note"]  # value, interval and limit between name and detail
    assert {tuple(re.findall(r'<td class="(\w+)"', row)) for row in rows} == {tuple(kinds)}


@pytest.mark.usefixtures("drawn_plots")
def test_nothing_is_fetched_or_run(report: dict[str, Any]) -> None:
    text = render(report)
    page = Page(text)
    assert not {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe", "object", "base", "form"}
    assert not page.values("src")
    assert all(value.startswith("#") for name in ("href", "xlink:href") for value in page.values(name))
    assert all(value.startswith("#") for value in re.findall(r"url\(([^)]*)\)", text))
    assert "@import" not in text
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]


@pytest.mark.usefixtures("drawn_plots")
def test_ids_are_unique_and_references_resolve(report: dict[str, Any]) -> None:
    text = render(report)
    page = Page(text)
    ids = page.values("id")
    assert len(ids) == len(set(ids)) > 10
    references = [value[1:] for value in page.values("xlink:href")] + re.findall(r"url\(#([^)]*)\)", text)
    assert references
    assert set(references) <= set(ids)


@pytest.mark.usefixtures("drawn_plots")
def test_the_same_report_gives_the_same_bytes(report: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib as mpl

    first = render(report)
    monkeypatch.setitem(mpl.rcParams, "axes.grid", True)
    monkeypatch.setitem(mpl.rcParams, "font.size", 23.0)
    assert render(report) == first
    assert mpl.rcParams["font.size"] == 23.0


def test_verdicts_come_first_and_every_figure_is_there(report: dict[str, Any]) -> None:
    words = " ".join(Page(render(report)).words.split())
    order = ["Verdict", "Loss ledger", "Gates", "Data", "Bundles", "Provenance"]
    places = [words.index(f"{heading} ") for heading in order]
    assert places == sorted(places)
    for figure in (
        "fail", "? inconclusive", "89.5 %", "[87.2, 91.5]", ">= 88.0 %", "2.02 ms", "[1.95, 2.20]", "187.2 MiB",
        "7.1e-02", "about 3200 rows would decide", "正面: 2", "24.7 MiB", "golden 140 KiB", "28,948,048", "AMD EPYC",
        "this row stands on line 3 already", "INT8 ships",
    ):  # fmt: skip
        assert figure in words, figure


def _cards(report: dict[str, Any], language: str = "en") -> str:
    """The words between the heading of the verdicts and that of the ledger."""
    words = " ".join(Page(render(report), language).words.split())
    begin, end = {"en": ("Verdict", "Loss ledger"), "zh": ("结论", "损失账本")}[language]
    return words[words.index(f"{begin} ") : words.index(f"{end} ")]


def test_a_verdict_names_what_failed_before_what_was_not_decided(report: dict[str, Any]) -> None:
    receipt = report["targets"][0]["receipt"]
    failed = [check["gate"] for check in receipt["checks"] if check["verdict"] == "fail"]
    undecided = [check["gate"] for check in receipt["checks"] if check["verdict"] == "inconclusive"]
    passed = [check["gate"] for check in receipt["checks"] if check["verdict"] == "pass"]
    card = _cards(report)
    places = [card.index(f"{gate} :") for gate in failed + undecided]
    assert failed and undecided and places == sorted(places)
    assert not [gate for gate in passed if f"{gate} :" in card]
    assert "✗ fail latency.p95_ms : 2.02 ms , interval [1.95, 2.20] ; limit <= 1.90 ms" in card
    assert "✗ 未通过 latency.p95_ms ： 2.02 ms ，区间 [1.95, 2.20] ；门限 <= 1.90 ms" in _cards(report, "zh")


def test_a_verdict_names_the_stage_that_lost_it(built: Any) -> None:
    (delivered,) = built.deliveries
    receipt = delivered.gate.receipt
    checks = [{**check, "verdict": "fail", "limit": 0.9} for check in receipt["checks"][:1]]
    gate = replace(delivered.gate, receipt={**receipt, "checks": checks})
    missed = make(replace(built, deliveries=(replace(delivered, gate=gate),)))
    assert "missed by 0.45 points ; lost by stage student: 1.50 points below stage teacher" in _cards(missed)
    assert "与门限相差 0.45 个百分点 ； 由阶段 student 损失：比阶段 teacher 低 1.50 个百分点" in _cards(missed, "zh")


def test_of_many_reasons_a_verdict_has_the_first_and_how_many_more(report: dict[str, Any]) -> None:
    receipt = report["targets"][0]["receipt"]
    failed = next(check for check in receipt["checks"] if check["verdict"] == "fail")
    receipt["checks"] = [{**failed, "gate": f"gate{number}"} for number in range(html.MOST_REASONS + 3)]
    card = _cards(report)
    assert card.count("; limit") == html.MOST_REASONS
    assert "and 3 more, in the table of its gates" in card
    assert "另有 3 项" in _cards(report, "zh")


def test_a_verdict_tells_what_was_not_measured(report: dict[str, Any]) -> None:
    receipt = report["targets"][0]["receipt"]
    receipt |= {"accuracy": None, "classes": None, "latency": None}
    receipt["checks"] = [
        {
            **receipt["checks"][0],
            "verdict": "inconclusive",
            "value": None,
            "low": None,
            "high": None,
            "detail": "why <b>",
        }
    ]
    receipt["unmeasured"] = [
        {"gate": "accuracy.min", "why": "at home", "waived": False},
        {"gate": "accuracy.f1", "why": WHY_NOT, "waived": True},
    ]
    text = " ".join(Page(render(report)).words.split())
    card = _cards(report)
    assert f"? inconclusive {receipt['checks'][0]['gate']} : why <b> ; limit" in card
    assert "accuracy: not measured ; latency: not measured" in card
    for told in ("accuracy.min : not measured : at home", "accuracy.f1 : not measured, waived :"):
        assert told in card
        assert text.count(told) == 2  # in the table of the gates as well
    assert f"未测量，已豁免 ： {WHY_NOT}" in _cards(report, "zh")


def test_a_build_without_gates_has_no_badge_of_one_that_passed(built: Any) -> None:
    report = make(ungated_of(built))
    text = render(report)
    words, chinese = (" ".join(Page(text, language).words.split()) for language in ("en", "zh"))
    assert "hotel-sentiment 1.2.0 no gates text-classification" in words and "未设门限 text-classification" in chinese
    assert "linux-x86_64-cpu : no gates The recipe sets no gates: this was measured" in _cards(report)
    assert "linux-x86_64-cpu ： 未设门限 配方没有设门限：只做了测量" in _cards(report, "zh")
    assert "– no gates The recipe sets no gates." in words
    assert "waived" not in words and "pass" not in _cards(report).replace("A check passes", "")
    assert "✓ 通过" not in chinese


def test_an_interval_with_one_end_keeps_it(report: dict[str, Any]) -> None:
    check = next(check for check in report["targets"][0]["receipt"]["checks"] if check["verdict"] == "fail")
    check |= {"low": 120.0, "high": None, "unit": "percent"}
    assert _cards(report).count("120.0 % or more") == 1
    assert "120.0 % 或更大" in _cards(report, "zh")
    check |= {"low": None, "high": 3.0, "unit": "ms"}
    assert "3.00 ms or less" in _cards(report)


def test_labels_and_what_was_taken_for_what(report: dict[str, Any]) -> None:
    words = " ".join(Page(render(report)).words.split())
    assert words.index("Gates ") < words.index("Labels, the worst first") < words.index("负面 82.1 % 84.1 % 80.2 % 237")
    assert "true \\ answered 正面 负面 正面 521 36 负面 47 190" in words
    assert "macro F1 87.1 %" in words

    told = report["targets"][0]["receipt"]["classes"]
    told["classes"], told["confusion"] = 60, None  # more than a receipt has room for
    words = Page(render(report)).words
    assert "Better ones that are not shown: 58." in words
    assert "Confusion matrix" not in words


def test_candidates_are_there_where_there_were_several(built: Any, selection: Any, report: dict[str, Any]) -> None:
    words = " ".join(Page(render(make(replace(built, selection=selection)))).words.split())
    for figure in (
        "Candidates",
        "model={from: teacher, layers: 4}",
        "90.4 %",
        "[88.2, 92.3]",
        "19,300,000",
        "10.9 MiB",
        "1.10",
        "int8",
        "latency.p95_ms (1.931 > 1.9)",
        "81",
        "✓",
        "the only one of 2 that misses no gate",
        "Failed: model=./pico",
        "Not tried for want of time: model=./deep",
        "looks better there than it is",
    ):
        assert figure in words, figure
    assert words.index("Loss ledger") < words.index("Candidates") < words.index(" Gates ")
    assert "Candidates" not in Page(render(report)).words


@pytest.mark.usefixtures("drawn_plots")
def test_the_plot_of_candidates_numbers_them_and_draws_the_front(built: Any, selection: Any) -> None:
    text = render(make(replace(built, selection=selection)))
    words = _figure(make(replace(built, selection=selection)), "Score of each candidate")
    assert re.search(r"\b1 2 ", words)
    assert "≥ 88.0 %, ≤ 5 ms →" in words
    assert "accuracy, %" in words
    assert text.count('id="candidates-') > 5
    two_threads = make(replace(built, selection=selection))
    two_threads["recipe"]["gates"]["latency"]["threads"] = 2
    assert "5 ms" not in _figure(two_threads, "Score of each candidate")


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


def _figure(report: dict[str, Any], label: str, language: str = "en") -> str:
    """The words of the one figure whose name begins so; empty where there is none."""
    found = [part for part in render(report).split("<figure ")[1:] if f'<span class="en">{label}' in part]
    assert len(found) < 2
    drawn = "".join(f"<p>{part[part.index('</figcaption>') + 13 : part.index('</figure>')]}</p>" for part in found)
    return " ".join(Page(drawn, language).words.split())


def with_last_row(built: Any, row: LedgerRow) -> Any:
    """The build with another row for what its one target measured."""
    (delivered,) = built.deliveries
    return replace(built, deliveries=(replace(delivered, gate=replace(delivered.gate, ledger=row)),))


@pytest.mark.parametrize(("others", "told"), [(0.93, True), (None, False)])
def test_what_else_ran_is_told_where_the_device_tells(report: dict[str, Any], others: float | None, told: bool) -> None:
    latency = report["targets"][0]["receipt"]["latency"]
    latency["contention"] = {"others_cores": others, "cores": None if others is None else 2}
    words = " ".join(Page(render(report)).words.split())
    assert ("Cores used by others meanwhile: 0.93 of 2." in words) is told


@pytest.mark.usefixtures("drawn_plots")
def test_text_from_outside_is_escaped(built: Any) -> None:
    attack = '<script>alert("x")</script>&amp;$a$'
    row = LedgerRow(attack, built.ledger[0].score, model_mib=1.0, note=attack)
    report = make(replace(with_last_row(built, row), data=replace(built.data, warnings=(attack,))))
    classes = report["targets"][0]["receipt"]["classes"]
    classes["scores"][0]["label"] = attack
    classes["confusion"] = {attack: {attack: 3}}
    report["name"] = report["data"]["source"] = report["targets"][0]["receipt"]["conditions"]["cpu_model"] = attack
    page = Page(render(report))
    assert "script" not in {tag for tag, _ in page.tags}
    assert page.words.count(attack) >= 7  # both plots draw the stage's name


@pytest.mark.usefixtures("drawn_plots")
def test_chinese_stage_names_draw_without_a_warning(built: Any) -> None:
    assert "设备" in render(make(with_last_row(built, LedgerRow("设备", built.ledger[0].score))))


@pytest.mark.usefixtures("drawn_plots")
def test_score_against_time_of_the_stages_that_were_timed(report: dict[str, Any]) -> None:
    label = "Score of each timed stage"
    words = _figure(report, label)
    for drawn in ("float ONNX", "INT8 ONNX", "on linux-x86_64-cpu", "≥ 88.0 %, ≤ 5 ms", "p50, ms", "accuracy, %"):
        assert drawn in words, drawn
    assert "teacher" not in words and "→" not in words
    assert _figure(report, label, "zh") == words
    report["recipe"]["gates"] = {**report["recipe"]["gates"], "accuracy": None, "latency": None}
    assert "≤" not in _figure(report, label) and "≥" not in _figure(report, label)
    for row in report["ledger"][:-1]:
        row["p50_ms"] = None
    assert _figure(report, label) == ""


@pytest.mark.usefixtures("drawn_plots")
def test_no_line_to_a_name_is_taken_for_data(report: dict[str, Any]) -> None:
    """Lines of data are drawn through, limits dashed; of points of one height the one furthest right is named first."""
    rows = [{**row, "score": report["ledger"][-1]["score"]} for row in report["ledger"][-3:]]
    for row, p50_ms in zip(rows, (3.0, 9.0, 6.0), strict=True):
        row["p50_ms"] = p50_ms
    report["ledger"][-3:] = rows
    drawn = next(part for part in re.findall(r"<svg.*?</svg>", render(report), flags=re.DOTALL) if 'id="trade-' in part)
    assert len(re.findall(r"stroke-dasharray: 0\.9,2\.7", drawn)) == len(rows)
    heights = {
        row["stage"]: float(re.findall(rf'y="([\d.]+)"[^>]*>{re.escape(row["stage"])}<', drawn)[0]) for row in rows
    }
    assert sorted(heights, key=lambda name: heights[name]) == [rows[1]["stage"], rows[2]["stage"], rows[0]["stage"]]


@pytest.mark.usefixtures("drawn_plots")
def test_a_gate_on_f1_has_its_limit_and_every_stage_in_both_plots(built: Any) -> None:
    gates = built.recipe.gates
    asked = gates.model_copy(update={"accuracy": gates.accuracy.model_copy(update={"metric": "macro_f1"})})
    row = built.deliveries[0].gate.ledger
    judged = with_last_row(built, replace(row, score=replace(row.score, metric="macro_f1")))
    report = make(replace(judged, recipe=built.recipe.model_copy(update={"gates": asked})))
    stages, timed = _figure(report, "Score of each stage"), _figure(report, "Score of each timed stage")
    for words, limit in ((stages, "≥ 88.0 %"), (timed, "≥ 88.0 %")):
        assert limit in words and "INT8 ONNX" in words and "on linux-x86_64-cpu" in words
        assert "macro F1, %" in words and "accuracy" not in words
    words = " ".join(Page(render(report)).words.split())
    assert "dev accuracy" in words and "test accuracy" in words


@pytest.mark.usefixtures("drawn_plots")
def test_how_long_answers_took_and_what_one_is_made_of(report: dict[str, Any]) -> None:
    label, receipt = "How many of the timed answers", report["targets"][0]["receipt"]
    words = _figure(report, label)
    assert "p50 ≤ 5 ms, p95 ≤ 1.9 ms, p99 ≤ 9 ms →" in words
    assert "tokenizer 0.12 ms, model 1.09 ms, label 0.02 ms" in " ".join(Page(render(report)).words.split())
    del receipt["latency"]["distribution"]
    assert _figure(report, label) == ""


@pytest.mark.usefixtures("drawn_plots")
def test_the_axis_of_times_holds_slow_answers_too(report: dict[str, Any]) -> None:
    told = report["targets"][0]["receipt"]["latency"]["distribution"]
    told["max_ms"] = 480.0
    assert " 500 " in _figure(report, "How many of the timed answers")
    told |= dict.fromkeys(told, 2.0)
    assert "p95 ≤ 1.9 ms" in _figure(report, "How many of the timed answers")


@pytest.mark.usefixtures("drawn_plots")
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
    assert drawn == [*map(str, range(1, 8)), "29"]
    words = " ".join(Page(text).words.split())
    assert words.count("that took no longer: 0 % 1.01 ms, 1 % 1.03 ms, 5 % 1.07 ms") == 30 - 1 - 8
    assert "99 % 2.61 ms, 100 % 3.90 ms." in words
    assert len(text.encode()) < 560_000


def test_shares_are_in_order_whatever_the_receipt_s_is() -> None:
    told = {"max_ms": 9.0, "p95_ms": 7.0, "min_ms": 1.0, "p5_ms": 1.0, "p50_ms": 2.0}
    assert plots.shares(told) == [(1.0, 0.0), (1.0, 5.0), (2.0, 50.0), (7.0, 95.0), (9.0, 100.0)]


@pytest.mark.usefixtures("drawn_plots")
def test_size_by_part_has_a_bar_for_each_target(built: Any) -> None:
    words = _figure(make(beside_one_not_run(built)), "Packed size of each bundle")
    assert words.count("24.7") == 2
    for drawn in ("linux-x86_64-cpu", "rpi-bookworm", "site model golden runtime other", "MiB"):
        assert drawn in words.replace(" | ", " "), drawn
    assert _figure(make(replace(built, deliveries=())), "Packed size of each bundle") == ""


@pytest.mark.usefixtures("drawn_plots")
def test_what_int8_costs_each_part_is_drawn_the_worst_first(report: dict[str, Any]) -> None:
    label, int8 = "Divergence of each part", report["quantization"]["int8"]
    words = _figure(report, label)
    assert re.search(r"layers\.3\.down.* head .*words", words)
    assert "≤ 0" in words and "KL, nat" in words
    costs = [{"part": f"layers.{number}.up", "divergence": 1e-4 * number} for number in range(30)]
    int8["parts"] = costs
    words = _figure(report, label)
    assert "layers.29.up" in words and "layers.10.up" in words and "layers.9.up" not in words
    assert "The 20 parts of 30 that cost most." in Page(render(report)).words
    int8["parts"] = [{"part": "head", "divergence": 0.0}]
    assert _figure(report, label) == ""
    int8["parts"] = []
    assert _figure(report, label) == ""


@pytest.mark.usefixtures("drawn_plots")
def test_ranges_of_each_part_are_drawn_the_widest_first(report: dict[str, Any]) -> None:
    words = _figure(report, "Ranges of what each part")
    assert re.search(r"layers\.3\.down.* layers\.0\.query_key_value.* head ", words)
    for drawn in ("0.2", "0.03", "× 17", "× 8", " x ", "max |w|"):
        assert drawn in words, drawn
    told = " ".join(Page(render(report)).words.split())
    assert "The 3 parts of 3 with the widest ranges. x: range of what a part reads, by ptq (hist)" in told
    assert "layers.3.down -0.17 … 50.8 0.2 2 0.1 1.7 17.0" in told
    assert "leaves few of the 255 steps" in told and "of the other ways" not in told


@pytest.mark.usefixtures("drawn_plots")
def test_ranges_of_the_ways_not_taken_stand_beside(built: Any) -> None:
    wider = Quantization("ptq", "abs_max", tuple(replace(one, activation=(-70.0, 9.0)) for one in linears()))
    build = replace(built, scales=replace(built.scales, ways=(*built.scales.ways, wider)))
    told = " ".join(Page(render(make(build))).words.split())
    assert "Line: the widest range of the other ways." in told
    assert "layers.3.down -0.17 … 50.8 0.2 2 0.1 1.7 17.0 -70 … 9" in told


@pytest.mark.usefixtures("drawn_plots")
def test_where_ranges_are_found_in_each_run_the_weights_are_told_alone(built: Any) -> None:
    int8 = replace(built.export.int8, way="dynamic", kept_float=())
    bare = replace(built, export=replace(built.export, int8=int8), scales=replace(built.scales, ways=(dynamic(),)))
    words = _figure(make(bare), "Ranges of what each part")
    assert "× 17" in words and " x " not in words
    told = " ".join(Page(render(make(bare))).words.split())
    assert "dynamic finds ranges in each run." in told and "255 steps" not in told
    assert "layers.3.down 2 0.1 1.7 17.0" in told
    calibrated = replace(bare, scales=built.scales)  # ranges were found, and another way was taken
    words = _figure(make(calibrated), "Ranges of what each part")
    assert " x " in words
    assert "layers.3.down 2 0.1 1.7 17.0 -0.17 … 50.8" in " ".join(Page(render(make(calibrated))).words.split())


@pytest.mark.usefixtures("drawn_plots")
def test_a_weight_of_zeros_is_drawn_too(report: dict[str, Any]) -> None:
    for part in report["quantization"]["parts"]:
        part["weight"] |= {"least": 0.0, "most": 0.0}
    assert "head" in _figure(report, "Ranges of what each part")
    assert "layers.3.down -0.17 … 50.8 0.2 2 0 0 -" in " ".join(Page(render(report)).words.split())


@pytest.mark.parametrize("ways", [(), (Quantization("ptq", "hist", linears()),)])
def test_without_an_int8_model_no_ranges_are_shown(built: Any, ways: tuple[Quantization, ...]) -> None:
    """Nothing was to be quantized, or what the student was exported to was not understood."""
    export = replace(built.export, int8=None, small_model=None, shipped="float32")
    page = render(make(replace(built, export=export, scales=replace(built.scales, ways=ways))))
    assert "Ranges of" not in page
    no_ranges = replace(built, scales=replace(built.scales, ways=()))
    assert "Ranges of" not in render(make(no_ranges))


@pytest.mark.parametrize(("language", "least"), [("en", 30), ("zh", 14)])
def test_every_figure_has_a_name_in_the_language_of_the_page(
    built: Any, selection: Any, language: str, least: int
) -> None:
    text = render(make(replace(built, selection=selection)))
    page = Page(text)
    figures = [attributes for tag, attributes in page.tags if tag == "figure"]
    assert len(figures) == sum(tag == "svg" for tag, _ in page.tags) == 8
    for one in figures:
        assert one["role"] == "img" and "aria-label" not in one  # an attribute has no language of its own
        (name,) = re.findall(rf'<figcaption id="{one["aria-labelledby"]}" class="unseen">(.*?)</figcaption>', text)
        words = Page(name, language).words.strip()
        assert len(words) >= least and bool(re.search("[\u4e00-\u9fff]", words)) is (language == "zh"), words
    assert re.search(r"\.unseen \{[^}]*clip-path", text) and not re.search(r"\.unseen \{[^}]*display: none", text)


@pytest.mark.usefixtures("drawn_plots")
def test_no_name_for_screen_readers_is_in_one_language_alone() -> None:
    for template in Path(html.__file__).parent.glob("*.jinja"):
        assert not re.search(r"aria-label=|\balt=|title=\"(?!\{\{)", template.read_text(encoding="utf-8")), template


@pytest.mark.usefixtures("drawn_plots")
def test_plots_leave_the_page_small(built: Any, selection: Any) -> None:
    assert len(render(make(replace(built, selection=selection))).encode()) < 200_000


@pytest.mark.usefixtures("drawn_plots")
def test_plots_have_the_colours_of_the_light_page_and_are_inverted_on_a_dark_one(report: dict[str, Any]) -> None:
    text = render(report)
    plots = re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)
    assert len(plots) == 7
    light, _, dark = text.partition("prefers-color-scheme: dark")
    for plot in plots:
        assert set(re.findall(r"#[0-9a-f]{6}\b", plot)) <= set(re.findall(r"#[0-9a-f]{6}\b", light))
    assert "figure svg { filter: invert(1) hue-rotate(180deg); }" in dark


def test_a_float16_file_is_named(built: Any) -> None:
    small = replace(built.export.small_model, precision="float16")
    report = make(replace(built, export=replace(built.export, small_model=small, shipped="float16", int8=None)))
    assert report["export"]["onnx_bytes"].keys() == {"float32", "float16"}
    words = Page(render(report)).words
    assert "float16 ships" in words
    assert "Quantization: float16; " in words


@pytest.mark.usefixtures("drawn_plots")
def test_a_build_with_nothing_measured_still_renders(tmp_path: Path, built: Any) -> None:
    """No gates, no latency, no size, no teacher, an empty split."""
    delivered = built.deliveries[0]
    receipt = {**delivered.gate.receipt, "checks": [], "latency": None, "conditions": None, "verdict": "pass"}
    gate = replace(delivered.gate, receipt=receipt, verdict="pass", exit_code=0)
    unmeasured = LedgerRow("float ONNX", built.ledger[0].score)
    (tmp_path / "dev.jsonl").write_text("", encoding="utf-8")
    bare = replace(
        built,
        recipe=built.recipe.model_copy(update={"gates": type(built.recipe.gates)(), "teacher": None}),
        teacher=None,
        export=replace(
            built.export,
            float_model=replace(built.export.float_model, ledger=unmeasured),
            small_model=None,
            shipped="float32",
        ),
        deliveries=(replace(delivered, gate=replace(gate, ledger=unmeasured)),),
    )
    page = Page(render(make(bare)))
    assert "The recipe sets no gates." in page.words
    assert (
        sum(tag == "svg" for tag, _ in page.tags) == 5
    )  # scores, sizes of the stages and of the bundles, costs and ranges of parts
    Page(render(make(replace(bare, deliveries=()))))


def test_a_smaller_width_is_told_with_what_it_cost(built: Any) -> None:
    assert "heads and" not in Page(render(make(built))).words
    words = Page(render(make(replace(built, narrowed=narrowed_of(built))))).words
    assert "Width: 9 of 12 heads and 936 of 1,248 neurons of each layer kept, 9,400,000 parameters left" in words


def test_a_smaller_vocabulary_is_told_with_what_it_cost(built: Any) -> None:
    assert "tokens kept" not in Page(render(make(built))).words
    words = Page(render(make(replace(built, pruned=pruned_of(built))))).words
    assert "3,491 of 18,000 tokens kept, 6,000,000 parameters left" in words
    assert "[UNK] 2.37 % of dev tokens, before 1.38 %" in words


def test_the_checks_of_a_bundle_are_told(built: Any) -> None:
    page = render(make(built))
    for told in (
        "glibc 2.28",
        "ELF 18",
        "onnxruntime-gpu 1.23.0",
        "machine code for sm_87, no PTX",
        "a.so looks for libraries",
    ):
        assert told in page


def test_examples_are_shown_with_their_texts_once_for_each_model(built: Any) -> None:
    page = Page(render(make(beside_one_not_run(built))))
    words = " ".join(page.words.split())
    assert words.count("Answers that are not as the float model has them: 4 of 794; 3 lost, 1 won.") == 1
    assert words.count("床单很<旧>，但是前台很热情") == 1  # as text, not as a tag
    assert "负面 ✓ 负面 正面 0.481" in words
    assert "呵呵，真是“好”酒店 ⁄ 再也不来 负面 正面 正面 0.002" in words
    (item,) = built.deliveries
    other = replace(item, bundle=replace(item.bundle, target="jetpack6", examples=replace(item.bundle.examples, won=0)))
    words = " ".join(Page(render(make(replace(built, deliveries=(item, other))))).words.split())
    assert "3 lost, 1 won." in words and "3 lost, 0 won." in words


def test_a_reader_of_chinese_sees_chinese(built: Any, selection: Any) -> None:
    text = render(make(replace(built, selection=selection)))
    words = " ".join(Page(text, "zh").words.split())
    order = ["结论", "损失账本", "INT8 量化", "候选模型", "门限检查", "样例", "数据", "产物", "来源与版本"]
    places = [words.index(f" {heading} ") for heading in order]
    assert places == sorted(places)
    for figure in (
        "未通过", "? 无法判定", "89.5 %", "text-classification；标签数：2；交付 int8", "混淆矩阵",
        "794 个回答中有 4 个与浮点模型不同：3 个由对变错，1 个由错变对。",
    ):  # fmt: skip
        assert figure in words, figure
    english = [texts["en"] for texts in MESSAGES.values() if len(texts["en"]) > 20 and "{" not in texts["en"]]
    assert [one for one in english if one in words] == []


def in_latin_data(report: dict[str, Any]) -> dict[str, Any]:
    """The same report with data and examples that hold no Chinese, so that what is Chinese in it is the page's."""
    text = re.sub("[\u4e00-\u9fff“”，、]+", "x", json.dumps(report, ensure_ascii=False))
    found: dict[str, Any] = json.loads(text)
    return found


def test_chinese_text_has_chinese_punctuation(built: Any, selection: Any) -> None:
    for build in (replace(built, selection=selection), beside_one_not_run(built), ungated_of(built)):
        words = Page(render(in_latin_data(make(build))), "zh").words
        words = re.sub(r" +(?=[.,;:?!])", "", words.replace("中文", ""))
        found = re.findall(r".{12}[\u4e00-\u9fff][.,;:?!] .{8}|.{12}[.,;:!] +[\u4e00-\u9fff].{8}", words)
        assert found == []


def test_text_of_devices_and_stages_is_quoted_on_the_chinese_page(built: Any) -> None:
    report = make(built)
    words = " ".join(Page(render(report), "zh").words.split())
    for quoted in (
        "英文原文", "交付 int8 ： INT8 has 0.27 x the bytes", "this row stands on line 3 already",
        "about 3200 rows would decide", "CPU 型号 AMD EPYC 7B13", "模拟环境 否",
    ):  # fmt: skip
        assert quoted in words, quoted
    other = " ".join(Page(render(make(beside_one_not_run(built))), "zh").words.split())
    assert "没有测量： it is for aarch64" in other


def test_points_are_in_both_languages(report: dict[str, Any]) -> None:
    check = report["targets"][0]["receipt"]["checks"][0]
    check |= {"unit": "points", "value": 0.25, "low": 0.1, "high": 0.5, "limit": 2.0}
    check["gate"] = "accuracy.max_drop_points"
    english, chinese = (" ".join(Page(render(report), language).words.split()) for language in ("en", "zh"))
    assert "0.25 points" in english and "<= 2.00 points" in english
    assert "0.25 个百分点" in chinese and "<= 2.00 个百分点" in chinese


def test_conditions_are_told_with_all_that_they_are_made_of(report: dict[str, Any]) -> None:
    receipt = report["targets"][0]["receipt"]
    receipt["conditions"]["after"] = {"temperature_c": 61.5, "throttle": {"caps": None, "now": ["heat", "<b>"]}}
    words = " ".join(Page(render(report)).words.split())
    assert "after the measurement temperature, °C 61.5 , throttling caps - , now heat <b> " in words
    assert "governor - " in words and "CPU flags avx2 fma " in words


def test_a_label_of_200_characters_breaks_within_its_column(report: dict[str, Any]) -> None:
    """A label may have that many, without a place to break; the column with it is one whose words may break."""
    long = "a" * 200
    report["data"]["splits"]["train"]["labels"] = {long: 3, "b": 4}
    text = render(report)
    assert re.search(rf'<td class="text">{long}: 3, b: 4</td>', text)
    assert re.search(r"td\.text\b[^{]*\{[^}]*overflow-wrap: anywhere", text)
