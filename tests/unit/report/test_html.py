"""The words of the page: every figure there, in two languages."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.unit.conftest import (
    EXAMPLES,
    beside_one_not_run,
    combined_of,
    having,
    linear_of,
    trimmed_of,
    ungated_of,
    width_pruned_of,
)
from tests.unit.report.pages import Page, cards_of, document, junit_of, many, render, words_of

from edgepack.messages import TEMPLATES, message
from edgepack.messages import render as render_message
from edgepack.report import html, model
from edgepack.results import NotRunHere
from edgepack_runtime.gate.rows import WHY_NOT


def test_a_target_that_was_not_run_has_its_reason_and_what_to_type(built: Any) -> None:
    report = document(beside_one_not_run(built))
    words = words_of(report)
    assert "linux-aarch64 : not run here" in words
    assert "it is for aarch64 On the device: python3 b.edgepack gate" in words
    assert "Nothing was measured: it is for aarch64" in words
    assert "gate install runs the same gates." in cards_of(report)
    golden = report["recipe"]["gates"]["golden"]
    report["recipe"]["gates"] = {**dict.fromkeys(report["recipe"]["gates"]), "golden": golden}
    words = cards_of(report)
    assert "gate The recipe sets no gates: this command and install measure, and judge nothing." in words
    assert "same gates" not in words
    assert "配方没有设门限：该命令和 install 只作测量，不作判定。" in cards_of(report, "zh")


def test_long_lists_are_on_the_screen_and_paper_has_their_first_rows(report: dict[str, Any]) -> None:
    shown = html.ON_PAPER
    text = render(many(report, 15))
    hidden = " ".join(re.findall(r'<(?:tr|li|span) class="screen">(.*?)</(?:tr|li|span)>', text, re.DOTALL))
    for kind, most in (("changed", "PAPER_EXAMPLES"), ("wrong", "PAPER_EXAMPLES"), ("warning", "PAPER_WARNINGS")):
        assert f"{kind}14" in hidden
        assert [number for number in range(15) if f">{kind}{number}<" not in text] == []
        assert sorted(re.findall(rf"\b{kind}(\d+)\b", hidden), key=int) == list(map(str, range(shown[most], 15)))
    assert "Confusion matrix of 15 labels: see the page on the screen." in words_of(report)
    for language, line in (("en", "The first {} of 15; the page on the screen has all."), ("zh", "15 项中的前 {} 项")):
        words = Page(text, language).words
        for name in ("LABELS", "EXAMPLES", "WARNINGS"):
            assert line.format(shown[f"PAPER_{name}"]) in words
    short = many(report, min(shown.values()))
    assert 'class="screen"><td' not in render(short) and "has all" not in words_of(short)
    assert "Confusion matrix of" not in words_of(short)


def test_paper_has_the_candidate_that_was_chosen(built: Any, selection: Any) -> None:
    first, chosen = selection.candidates
    others = tuple(replace(first, name=f"other{number}") for number in range(20))
    text = render(document(having(built, select=replace(selection, candidates=(*others, chosen)))))
    rows = re.findall(r"<tr( class=\"screen\")?><td class=\"n\">(\d+)</td><td class=\"note\">", text)
    most = html.ON_PAPER["PAPER_CANDIDATES"]
    assert [int(number) for hidden, number in rows if not hidden] == [*range(1, most + 1), 21]


def test_verdicts_come_first_and_every_figure_is_there(report: dict[str, Any]) -> None:
    words = words_of(report)
    order = ["Verdict", "Ledger", "Gates", "Data", "Bundles", "Provenance"]
    places = [words.index(f"{heading} ") for heading in order]
    assert places == sorted(places)
    for figure in (
        "fail", "? inconclusive", "89.5 %", "[87.2, 91.5]", ">= 88.0 %", "2.02 ms", "[1.95, 2.20]", "187.2 MiB",
        "7.1e-02", "about 3200 rows would decide", "正面 : 2", "24.7 MiB", "golden 140 KiB", "28,948,048", "AMD EPYC",
        "this train row repeats line 3", "encoder (int8) : ", "glibc 2.28", "ELF 18", "onnxruntime-gpu 1.23.0",
        "machine code for sm_87, no PTX", "a.so looks for libraries",
    ):  # fmt: skip
        assert figure in words, figure


def test_a_verdict_names_what_failed_before_what_was_not_decided(report: dict[str, Any]) -> None:
    card = cards_of(report)
    found = re.findall(r"([a-z0-9_]+\.[a-z0-9_.]+) :", card)
    assert found == ["latency.p95_ms", "accuracy.min", "latency.p99_ms"]  # the first failed
    assert "✗ fail latency.p95_ms : 2.02 ms , interval [1.95, 2.20] ; limit <= 1.90 ms" in card
    assert "✗ 未通过 latency.p95_ms ： 2.02 ms ，区间 [1.95, 2.20] ；门限 <= 1.90 ms" in cards_of(report, "zh")


def test_a_verdict_names_the_stage_that_lost_it(built: Any) -> None:
    (item,) = built.target_results
    receipt = item.gate.receipt
    checks = [{**check, "verdict": "fail", "limit": 0.9} for check in receipt["checks"][:1]]
    gate = replace(item.gate, receipt={**receipt, "checks": checks})
    missed = document(replace(built, target_results=(replace(item, gate=gate),)))
    assert "missed by 0.45 points; lost by stage student: 1.50 points below stage teacher" in cards_of(missed)
    lost = "与门限相差 0.45 个百分点；“学生模型”阶段使准确率下降：比“教师模型”低 1.50 个百分点"
    assert lost in cards_of(missed, "zh")


def test_of_many_reasons_a_verdict_has_the_first_and_how_many_more(report: dict[str, Any]) -> None:
    receipt = report["targets"][0]["receipt"]
    failed = next(check for check in receipt["checks"] if check["verdict"] == "fail")
    receipt["checks"] = [{**failed, "gate": f"gate{number}"} for number in range(html.MOST_REASONS + 3)]
    card = cards_of(report)
    assert card.count("; limit") == html.MOST_REASONS
    assert "and 3 more, in the table of its gates" in card
    assert "另有 3 项" in cards_of(report, "zh")


def test_a_verdict_names_what_was_not_measured(report: dict[str, Any]) -> None:
    receipt = report["targets"][0]["receipt"]
    receipt |= {"accuracy": None, "classes": None, "latency": None}
    nothing = {"verdict": "inconclusive", "value": None, "low": None, "high": None, "detail": "why <b>"}
    receipt["checks"] = [receipt["checks"][0] | nothing]
    receipt["unmeasured"] = [
        {"gate": "accuracy.min", "why": "no rows", "waived": False},
        {"gate": "accuracy.f1", "why": WHY_NOT, "waived": True},
    ]
    text, card = words_of(report), cards_of(report)
    assert f"? inconclusive {receipt['checks'][0]['gate']} : why <b> ; limit" in card
    assert "accuracy: not measured ; latency: not measured" in card
    for told in ("accuracy.min : not measured : no rows", "accuracy.f1 : not measured, waived :"):
        assert told in card
        assert text.count(told) == 2  # in the table of the gates as well
    assert f"未测量，已豁免 ： {render_message(WHY_NOT, 'zh')}" in cards_of(report, "zh")


def test_a_page_opens_in_the_language_of_its_reader(built: Any) -> None:
    report = model.parse(document(built))
    for language in ("en", "zh"):
        text = html.render(report, language)
        assert f'<html lang="{language}">' in text
        assert re.findall(r'id="(..)" checked', text) == [language]


def test_a_build_without_gates_has_no_badge_of_one_that_passed(built: Any) -> None:
    report = document(ungated_of(built))
    words, chinese = words_of(report), words_of(report, "zh")
    assert "hotel-sentiment 1.2.0 no gates text-classification" in words and "未设门限 text-classification" in chinese
    cards = cards_of(report)
    assert (
        "local : no gates About 90 of 100 answers are right (87 to 91) , 24.7 MiB , 1.25 ms : nothing was judged."
        in cards
    )
    assert "judged. The recipe sets no gates: this was measured" in cards
    assert "没有作判定。 配方没有设门限：只做了测量" in cards_of(report, "zh")
    assert "– no gates The recipe sets no gates." in words
    assert "waived" not in words and "pass" not in cards_of(report).replace("A check passes", "")
    assert "✓ 通过" not in chinese


def test_warnings_stand_beside_the_verdict(built: Any) -> None:
    built = combined_of(built)
    poor = replace(built.teacher.test_score, value=0.1, low=0.08, high=0.12)
    built = having(built, teacher=replace(built.teacher, test_score=poor))
    report = document(built)
    assert report["warnings"][0].startswith("the teacher (10.0 %) is below the linear model")
    [warning] = built.warnings("recipe.yaml")
    assert report["warnings"] == [warning] and render_message(warning, "zh") in cards_of(report, "zh")
    for warning in report["warnings"]:
        assert warning in cards_of(report)
        assert any(one.get("value") == warning for one in ElementTree.fromstring(junit_of(report)).iter("property"))


def test_a_verdict_without_a_limit_on_accuracy_says_so(report: dict[str, Any]) -> None:
    assert "not gated" not in cards_of(report)
    receipt = report["targets"][0]["receipt"]
    receipt["checks"] = [check for check in receipt["checks"] if not check["gate"].startswith("accuracy.")]
    assert "Accuracy is not gated: the recipe sets no limit for it." in cards_of(report)
    assert "准确率没有门限" in cards_of(report, "zh")


def test_intervals_of_one_end_and_points_are_in_both_languages(report: dict[str, Any]) -> None:
    check = next(check for check in report["targets"][0]["receipt"]["checks"] if check["verdict"] == "fail")
    check |= {"low": 120.0, "high": None, "unit": "percent"}
    assert cards_of(report).count("120.0 % or more") == 1
    assert "120.0 % 或更大" in cards_of(report, "zh")
    check |= {"low": None, "high": 3.0, "unit": "ms"}
    assert "3.00 ms or less" in cards_of(report)
    check |= {"gate": "accuracy.max_drop_points", "unit": "points", "value": 2.25, "low": 2.1, "high": 2.5, "limit": 2}
    assert "2.25 points" in cards_of(report) and "<= 2.00 points" in cards_of(report)
    assert "2.25 个百分点" in cards_of(report, "zh") and "<= 2.00 个百分点" in cards_of(report, "zh")


def test_labels_and_what_was_taken_for_what(report: dict[str, Any]) -> None:
    words = words_of(report)
    assert words.index("Gates ") < words.index("Labels, the worst first") < words.index("负面 82.1 % 84.1 % 80.2 % 237")
    assert "true \\ answered 正面 负面 正面 521 36 负面 47 190" in words
    assert "macro F1 87.1 %" in words

    told = report["targets"][0]["receipt"]["classes"]
    told["classes"], told["confusion"] = 60, None  # more than a receipt has room for
    words = Page(render(report)).words
    assert "Better ones that are not shown: 58." in words
    assert "Confusion matrix" not in words


def test_candidates_are_there_where_there_were_several(built: Any, selection: Any, report: dict[str, Any]) -> None:
    words = words_of(document(having(built, select=selection)))
    for figure in (
        "Candidates", "model={from: teacher, layers: 4}", "90.4 %", "[88.2, 92.3]", "19,300,000", "10.9 MiB", "1.10",
        "int8", "latency.p95_ms (1.931 > 1.9)", "81", "✓", "the only one of 2 that misses no gate",
        "Failed: model=./pico", "looks better there than it is",
    ):  # fmt: skip
        assert figure in words, figure
    assert words.index("Ledger") < words.index("Candidates") < words.index(" Gates ")
    assert "Candidates" not in Page(render(report)).words


@pytest.mark.parametrize(("language", "least"), [("en", 30), ("zh", 14)])
def test_every_figure_has_a_name_in_the_language_of_the_page(
    built: Any, selection: Any, language: str, least: int
) -> None:
    text = render(document(having(built, select=selection)))
    page = Page(text)
    figures = [attributes for tag, attributes in page.tags if tag == "figure"]
    assert len(figures) == 4
    assert sum(tag == "svg" for tag, _ in page.tags) == 5  # the ledger is drawn for a phone, too
    for one in figures:
        assert one["role"] == "img" and "aria-label" not in one  # an attribute has no language of its own
        (name,) = re.findall(rf'<figcaption id="{one["aria-labelledby"]}" class="unseen">(.*?)</figcaption>', text)
        words = Page(name, language).words.strip()
        assert len(words) >= least and bool(re.search("[\u4e00-\u9fff]", words)) is (language == "zh"), words
    for template in Path(html.__file__).parent.glob("*.jinja"):
        assert not re.search(r"aria-label=|\balt=|title=\"(?!\{\{)", template.read_text(encoding="utf-8")), template
    assert re.search(r"\.unseen \{[^}]*clip-path", text) and not re.search(r"\.unseen \{[^}]*display: none", text)


def test_a_float16_file_is_named(built: Any) -> None:
    small = replace(built.export.small_model, precision="float16")
    report = document(having(built, export=replace(built.export, small_model=small, shipped="float16", int8=None)))
    assert report["export"]["onnx_bytes"].keys() == {"float32", "float16"}
    words = Page(render(report)).words
    assert "encoder (float16) : " in words
    assert "Quantization: float16; " in words


def test_a_smaller_width_and_vocabulary_are_shown_with_their_cost(built: Any) -> None:
    words = words_of(document(built))
    assert "heads and" not in words and "tokens kept" not in words
    made = having(built, width_pruning=width_pruned_of(built), vocabulary_trimming=trimmed_of(built))
    words = words_of(document(made))
    assert "Width: 9 of 12 heads and 936 of 1,248 neurons of each layer kept, 9,400,000 parameters left" in words
    assert "3,491 of 18,000 tokens kept, 6,000,000 parameters left" in words
    assert "[UNK] 2.37 % of dev tokens, before 1.38 %" in words


def test_examples_are_shown_with_their_texts_once_for_each_model(built: Any) -> None:
    page = Page(render(document(beside_one_not_run(built))))
    words = " ".join(page.words.split())
    assert words.count("Answers that are not as the float model has them: 4 of 794; 3 lost, 1 won.") == 1
    assert words.count("床单很<旧>，但是前台很热情") == 1  # as text, not as a tag
    assert "负面 ✓ 负面 正面 0.481" in words
    assert "呵呵，真是“好”酒店 ⁄ 再也不来 负面 正面 正面 0.002" in words
    (item,) = built.target_results
    other = replace(item, bundle=replace(item.bundle, target="jetpack6", examples=replace(item.bundle.examples, won=0)))
    words = words_of(document(replace(built, target_results=(item, other))))
    assert "3 lost, 1 won." in words and "3 lost, 0 won." in words


def test_a_reader_of_chinese_sees_chinese(built: Any, selection: Any) -> None:
    words = words_of(document(having(built, select=selection)), "zh")
    order = ["结论", "账本", "INT8 量化", "候选模型", "门禁", "样例", "数据", "部署包", "来源与版本"]
    places = [words.index(f" {heading} ") for heading in order]
    assert places == sorted(places)
    for figure in (
        "未通过", "? 无法判定", "89.5 %", "text-classification；标签数：2；交付 int8", "混淆矩阵",
        "794 个预测中有 4 个与浮点模型不同：3 个由对变错，1 个由错变对。",
    ):  # fmt: skip
        assert figure in words, figure
    english = [english for english, _ in TEMPLATES.values() if len(english) > 20 and "{" not in english]
    assert [one for one in english if one in words] == []


def in_latin_data(report: dict[str, Any]) -> dict[str, Any]:
    """The same report with data and examples that hold no Chinese, so that what is Chinese in it is the page's."""
    text = re.sub("[\u4e00-\u9fff“”，、]+", "x", json.dumps(report, ensure_ascii=False))
    found: dict[str, Any] = json.loads(text)
    return found


def test_chinese_text_has_chinese_punctuation(built: Any, selection: Any) -> None:
    for build in (having(built, select=selection), beside_one_not_run(built), ungated_of(built)):
        words = Page(render(in_latin_data(document(build))), "zh").words
        words = re.sub(r" +(?=[.,;:?!])", "", words.replace("中文", ""))
        found = re.findall(r".{12}[\u4e00-\u9fff][.,;:?!] .{8}|.{12}[.,;:!] +[\u4e00-\u9fff].{8}", words)
        assert found == []


def test_text_of_devices_and_stages_is_chinese_on_the_chinese_page(built: Any) -> None:
    words = words_of(document(built), "zh")
    for told in (
        "编码器（int8） ： INT8 的大小是浮点的 0.27 倍", "train 的这个样本与第 3 行重复",
        "CPU 型号 AMD EPYC 7B13", "模拟环境 否",
    ):  # fmt: skip
        assert told in words, told
    quoted = "about 3200 rows would decide"  # of a receipt that lists no messages, as of another version
    assert quoted in words


def test_the_chinese_page_has_no_english_sentence(built: Any, selection: Any) -> None:
    """Of a build with every stage, another target, a warning, and a device that is emulated."""
    full = having(
        combined_of(built), select=selection, width_pruning=width_pruned_of(built), vocabulary=trimmed_of(built)
    )
    note, why = message("note.differs", flips=1, n=64), message("here.machine", machines=["arm"], here="Linux x86_64")
    int8 = replace(full.export.small_model, ledger=replace(full.export.small_model.ledger, note=note))
    full = having(full, export=replace(full.export, small_model=int8))
    gated, other = beside_one_not_run(full).target_results
    receipt = gated.gate.receipt
    receipt = {
        **receipt,
        "checks": [{**check, "detail": message("gate.in_interval")} for check in receipt["checks"]],
        "unmeasured": [{"gate": "accuracy.f1", "why": WHY_NOT, "waived": True}],
        "conditions": {
            **receipt["conditions"],
            "emulated_why": message("emulated.cpu", cpu="x86", machine="aarch64"),
        },
    }
    gated = replace(gated, gate=replace(gated.gate, receipt=receipt))
    full = replace(full, target_results=(gated, replace(other, gate=NotRunHere(why, "sh FILE"))))
    for build in (full, ungated_of(built), linear_of(full)):
        texts = Page(render(document(build)), "zh").texts
        assert [text for text in texts if re.search(r"[A-Za-z'-]+(?:[ ,]+[A-Za-z'-]+){2,}", text)] == []


def test_conditions_and_the_load_of_others_are_shown(report: dict[str, Any]) -> None:
    receipt = report["targets"][0]["receipt"]
    receipt["latency"]["contention"] = {"others_cores": None, "cores": None}
    assert "Cores used by others" not in words_of(report)
    receipt["latency"]["contention"] = {"others_cores": 0.93, "cores": 2}
    receipt["conditions"]["after"] = {"temperature_c": 61.5, "throttle": {"caps": None, "now": ["heat", "<b>"]}}
    words = words_of(report)
    assert "after the measurement temperature, °C 61.5 , throttling caps - , now heat <b> " in words
    assert "Cores used by others meanwhile: 0.93 of 2." in words
    assert "governor" not in words and "CPU flags avx2 fma " in words  # which is not known


def test_a_label_of_200_characters_breaks_within_its_column(report: dict[str, Any]) -> None:
    """A label may have that many, without a place to break; the column with it is one whose words may break."""
    long = "a" * 200
    report["data"]["splits"]["train"]["labels"] = {long: 3, "b": 4}
    text = render(report)
    assert f'<td class="text"><span>{long}<' in text and f"{long} : 3 , b : 4 " in words_of(report)
    assert re.search(r"td\.text\b[^{]*\{[^}]*overflow-wrap: anywhere", text)


def test_the_page_of_a_model_with_a_handler_speaks_of_no_texts(report: dict[str, Any]) -> None:
    page = render({**report, "task": "custom"})
    for words in ("characters of a text", "difference of a logit", "tokenizer ", "encoder (", "分词", "文本字数"):
        assert words in render(report), words
        assert words not in page, words
    assert "largest absolute difference of an output" in page and "model (int8)" in page


def test_the_page_of_a_linear_model_alone_names_no_encoder(built: Any) -> None:
    built = linear_of(built)
    [item] = built.target_results
    examples = replace(EXAMPLES, compared=False, changed=(), wrong=(replace(EXAMPLES.wrong[0], float_answer=None),))
    alone = replace(built, target_results=(replace(item, bundle=replace(item.bundle, examples=examples)),))
    words = words_of(document(alone))
    assert "linear model" in words
    assert not re.search("encoder|float model|None", words)
