"""The report's document: plain JSON, complete, and free of this machine's paths."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from markupsafe import escape
from tests.golden import assert_golden
from tests.unit.conftest import beside_one_not_run, having, linear_of, trimmed_of, ungated_of, width_pruned_of
from tests.unit.report.pages import document, junit_of, render

from edgepack.messages import message
from edgepack.messages import render as render_message
from edgepack.recipe.gates import GoldenRows
from edgepack.recipe.model import Recipe
from edgepack.recipe.training import Student
from edgepack.report import model
from edgepack.report.document import make, worst
from edgepack.report.model import Report, parse, schema
from edgepack.report.model import dumps as model_dumps
from edgepack_runtime.schema import gates as schema_gates

GOLDEN = Path(__file__).parents[1] / "golden" / "report.json"


def text_of(report: dict[str, Any]) -> str:
    """The text of the document of a report."""
    return model_dumps(parse(report))


def test_the_document_is_the_golden_file(tmp_path: Path, built: Any) -> None:
    report = document(built)
    assert str(Path.home()) not in text_of(report) and str(tmp_path) not in text_of(report)
    assert report["tools"]["numpy"] == np.__version__
    assert set(report["tools"]) >= {"edgepack", "python", "onnx", "onnxruntime", "numpy"}
    assert_golden(text_of({**report, "tools": {}}), GOLDEN)


def test_a_document_is_as_its_schema_says(report: dict[str, Any]) -> None:
    made = schema()
    Draft202012Validator.check_schema(made)
    Draft202012Validator(made).validate(report)
    assert not Draft202012Validator(made).is_valid({**report, "verdict": "good"})
    assert made["properties"]["targets"]["items"] == {"$ref": "#/$defs/Target"}
    assert set(made["required"]) == {field.name for field in fields(Report)}


def test_of_several_students_all_are_listed_and_the_chosen_one_is_the_student(
    tmp_path: Path, built: Any, selection: Any
) -> None:
    report = document(having(built, select=selection))
    assert report["selection"]["chosen"] == "model={from: teacher, layers: 4}"
    assert report["selection"]["candidates"][0]["missed"] == ["latency.p95_ms (1.931 > 1.9)"]
    assert [one["parameters"] for one in report["selection"]["candidates"]] == [10_569_000, 19_300_000]
    assert report["selection"]["candidates"][1]["dev_score"]["value"] == 0.904
    assert report["selection"]["left_out"] == ["model=./pico"]
    assert str(tmp_path) not in text_of(report)
    assert document(built)["selection"] is None


@pytest.mark.parametrize("gate", [*schema_gates.declared(), "latency.max_tokens_32.p50_ms"])
def test_whatever_gate_was_missed_each_page_has_the_reason(built: Any, gate: str) -> None:
    """Few of the reasons have a figure in them."""
    (item,) = built.target_results
    (missed,) = (check for check in item.gate.receipt["checks"] if check["verdict"] == "fail")
    receipt = {**item.gate.receipt, "checks": [{**missed, "gate": gate}]}
    report = document(replace(built, target_results=(replace(item, gate=replace(item.gate, receipt=receipt)),)))
    (explained,) = report["targets"][0]["explained"]
    assert json.loads(text_of(report))["targets"][0]["explained"] == [explained]
    assert explained["gate"] == gate and explained["why"] in junit_of(report)
    told = model.parse(report).targets[0].explained[0].why
    assert (message("lost.bundle") in told) == (gate in ("size.bundle_mib", "memory.peak_rss_mib", "cold_start.ms"))
    assert str(escape(render_message(told, "zh"))) in render(report)


def test_built_in_data_keep_their_name(built: Any) -> None:
    recipe = Recipe.model_validate({
        **built.recipe.model_dump(by_alias=True),
        "data": {"train": "builtin:reviews-zh"},
        "student": {"model": {"scratch": {"layers": 1, "hidden": 8, "heads": 1}}},
    })  # fmt: skip
    data = replace(built.data, warnings=())
    report = document(replace(having(built, data=data, teacher=None), recipe=recipe))
    assert report["data"]["source"] == report["recipe"]["data"]["train"] == "builtin:reviews-zh"
    assert report["recipe"]["student"]["model"]["scratch"]["hidden"] == 8
    assert [model["role"] for model in report["models"]] == ["student"]


def test_percentiles_are_nearest_rank_and_figures_finite(tmp_path: Path, built: Any) -> None:
    rows = [json.dumps({"text": "字" * length, "label": "正面"}) for length in range(100, 0, -1)]
    (tmp_path / "test.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    assert document(built)["data"]["splits"]["test"]["characters"] == {"p50": 50, "p95": 95, "max": 100}
    with pytest.raises(ValueError, match="not JSON compliant"):
        model_dumps(replace(make(built), recipe={"value": float("nan")}))


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["pass"], "pass"),
        (["pass", "inconclusive"], "inconclusive"),
        (["inconclusive", "fail", "pass"], "fail"),
        ([], "inconclusive"),
        (["pass", "not run here"], "not run here"),
        (["not run here", "inconclusive"], "inconclusive"),
        (["pass", "no gates"], "no gates"),
        (["no gates", "not run here"], "not run here"),
    ],
)
def test_the_worst_verdict_counts(verdicts: list[str], expected: str) -> None:
    assert worst(verdicts) == expected


def test_a_target_that_could_not_be_run_is_neither_passed_nor_failed(built: Any) -> None:
    report = document(beside_one_not_run(built))
    (ran, other) = report["targets"]
    assert (ran["verdict"], ran["not_run_here"]) == ("fail", None)
    assert [one["gate"] for one in ran["explained"]] == ["latency.p95_ms"]  # not those that are inconclusive
    assert other["explained"] == []
    assert (other["target"], other["verdict"], other["exit_code"], other["receipt"]) == (
        "linux-aarch64", "not run here", None, None,
    )  # fmt: skip
    assert other["not_run_here"] == {"why": "it is for aarch64", "command": "python3 b.edgepack gate"}
    assert len(report["ledger"]) == len(built.ledger)
    json.loads(text_of(report))


def test_a_build_without_gates_is_no_build_that_passed(built: Any) -> None:
    report = document(ungated_of(built))
    (target,) = report["targets"]
    assert (report["verdict"], target["verdict"], target["exit_code"]) == ("no gates", "no gates", 0)
    assert target["receipt"]["verdict"] == "pass"  # as the device said, which goes on


def test_width_and_vocabulary_are_listed_with_their_cost(tmp_path: Path, built: Any) -> None:
    assert document(built)["width"] is None
    report = document(having(built, width_pruning=width_pruned_of(built), vocabulary_trimming=trimmed_of(built)))
    width, vocabulary = report["width"], report["vocabulary"]
    assert (width["heads_before"], width["heads"], width["neurons_before"], width["neurons"]) == (12, 9, 1248, 936)
    assert (vocabulary["tokens_before"], vocabulary["tokens"], vocabulary["unknown"]) == (18_000, 3491, 0.0237)
    for cost in (width, vocabulary):
        assert cost["dev_score"]["value"] == cost["dev_score_before"]["value"] == 0.9
    assert [model["role"] for model in report["models"]] == ["teacher", "student", "width-pruned"]
    assert [row["stage"] for row in report["ledger"]][1:4] == ["student", "width-pruned", "trimmed"]
    section = {"trim": {"texts": str(tmp_path / "field.txt")}}
    student = Student.model_validate({"model": "ernie-1.0", "vocabulary": section})
    recipe = built.recipe.model_copy(update={"student": student})
    trimming = document(replace(built, recipe=recipe))["recipe"]["student"]["vocabulary"]["trim"]
    assert trimming == {"min_count": 1, "characters": "none", "texts": "field.txt"}


def test_warnings_that_quote_rows_which_are_not_carried_are_only_counted(built: Any) -> None:
    data = replace(built.data, warnings=("line 7: '张三 ' has white space", "line 9: '李四 ' has"))
    gates = built.recipe.gates.model_copy(update={"golden": GoldenRows(carry=False)})
    recipe = built.recipe.model_copy(update={"gates": gates})
    assert "张三" in text_of(document(having(built, data=data)))
    told = document(replace(having(built, data=data), recipe=recipe))
    assert "张三" not in text_of(told) and "李四" not in text_of(told)
    assert told["data"]["warnings"][0] == "2 warnings about the data, which may quote it: `edgepack check` tells"


def test_a_linear_model_alone_has_no_encoder_in_its_report(built: Any, tmp_path: Path) -> None:
    report = document(linear_of(built))
    assert (report["export"], report["models"], report["combined"], report["quantization"]["int8"]) == (
        None,
        [],
        None,
        None,
    )
    assert [row["stage"] for row in report["ledger"]] == ["linear", "on local"]
    assert str(tmp_path) not in text_of(report)
    [lost] = [one for one in report["targets"][0]["explained"] if one["gate"].startswith("latency.")]
    assert lost["why"].endswith(message("lost.on_device"))
