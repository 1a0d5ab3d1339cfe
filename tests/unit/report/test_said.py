"""Details of checks and notes in Chinese: every form that the sources of the device have, and nothing else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import edgepack_runtime
from edgepack.report.said import FORMS, in_chinese, said
from edgepack_runtime.contention import Contention
from edgepack_runtime.throttling import Throttle, reasons

DEVICE = Path(edgepack_runtime.__file__).parent
PLACE = re.compile(r"\{[n*]?\}")
# What clauses of details are put together by, besides the functions that have a `detail`.
HELPERS = {
    "gate.py": {"_size_checks"},
    "gate_accuracy.py": {"checks", "_of_what", "_on_what", "repeats", "_more_rows"},
    "gate_classes.py": {"_told", "_more"},
    "gate_latency.py": {"_lengths", "refuse_if_emulated"},
    "gate_limits.py": {"would_decide"},
    "open_loop.py": {"_why_not"},
    "contention.py": {"told"},
    "throttling.py": {"reasons"},
    "device.py": {"emulation"},
}
# Of these functions, what is no part of a detail.
NO_DETAIL = {"the golden rows do not say what the earlier release answered", "build the bundle again"}


def functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    """All that make a detail, or a part of one, with the names of their files."""
    for file in sorted(DEVICE.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and (
                node.name in HELPERS.get(file.name, ()) or any(map(makes_detail, ast.walk(node)))
            ):
                yield file.name, node


def makes_detail(node: ast.AST) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
    return any(isinstance(name, ast.Name) and name.id == "detail" for name in targets)


def clauses(function: ast.FunctionDef) -> Iterator[str]:
    """What a function says with words in it, a figure or a name in each place that is filled in."""
    inside = {id(part) for node in ast.walk(function) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(ast.Module(function.body[ast.get_docstring(function) is not None :], [])):
        if isinstance(node, ast.JoinedStr):
            text = "".join(part.value if isinstance(part, ast.Constant) else "7" for part in node.values)  # type: ignore[misc]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            text = PLACE.sub("7", node.value)
        else:
            continue
        for clause in text.split("; "):
            if re.search(r"[a-z] |[a-z]{3,}.* [a-z]", clause) and clause not in NO_DETAIL:
                yield clause.strip(", ")


FOUND = sorted({(file, clause) for file, function in functions() for clause in clauses(function)})


def test_the_functions_that_make_details_were_found() -> None:
    found = {(file, function.name) for file, function in functions()}
    assert {("gate_process.py", "memory_check"), ("open_loop.py", "_check"), ("contention.py", "told")} <= found
    assert {(file, name) for file, names in HELPERS.items() for name in names} <= found
    assert len(FOUND) > 45


@pytest.mark.parametrize(("file", "clause"), FOUND)
def test_every_form_of_the_device_is_known_in_chinese(file: str, clause: str) -> None:
    """A part of a form that is put together elsewhere has to stand in one."""
    part_of = any(clause in PLACE.sub("7", form) for form in FORMS)
    assert part_of or in_chinese(clause) != clause, f"{file} says {clause!r}: add its form to said.toml"


def test_no_form_is_left_of_what_nobody_says() -> None:
    """Each form has words that the sources of the device or of the build have."""
    build = Path(__file__).parents[3] / "packager" / "edgepack"
    files = [*DEVICE.glob("*.py"), *build.glob("*.py"), *build.glob("stages/*.py")]
    sources = "".join(file.read_text(encoding="utf-8") for file in files)
    for form in FORMS:
        longest = max(re.split(r"\{[n*]?\}|; |: |, | of ", form), key=len).strip()
        assert longest in sources, form


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("text in to label out, batch 1, 1 to 32 tokens", "从文本到标签，批大小 1，1 至 32 个词元"),
        ("差 评: 3 right of 237 that are there; and 5 more of 10 classes; about 3200 rows of 差 评 would decide",
         "差 评：实有的 237 个中答对 3 个；10 个类别中还有 5 个；约需 3200 个“差 评”的样本才能判定"),
        ("macro_f1; 3 rows lost against the float model, 5 won",
         "macro_f1；对比浮点模型：3 个样本由对变错，5 个由错变对"),
        ("ptq (hist), weights of 7 bits, 0.13 points below float on 781 dev rows; float: head, pooler",
         "ptq (hist)，7 位权重，在 781 个 dev 样本上比浮点低 0.13 个百分点；浮点：head, pooler"),
        ("model.onnx", "model.onnx"),
        ("a word of a later runtime; 3 of 4 rows right", "a word of a later runtime；4 个样本中答对 3 个"),
    ],
)  # fmt: skip
def test_details_in_chinese(english: str, chinese: str) -> None:
    assert in_chinese(english) == chinese


def test_names_stay_as_they_are() -> None:
    """Also those that a form could be made of."""
    assert in_chinese("samples: 3 right of 4 answers") == "samples：给出的 4 个回答中答对 3 个"


def test_what_else_ran_is_told_in_chinese_with_every_figure() -> None:
    figures: Any = {"wall_ms": 1000.0, "own_cpu_ms": 900.0, "cores": 2, "others_ms": 900.0, "stolen_ms": 300.0}
    told = Contention(**figures, waited_ms=630.0, quota_ms=510.0, faults=7).told()
    chinese = in_chinese(f"{told}: measure on an idle machine")
    assert re.findall(r"[\d.]+", chinese) == ["2", "0.90", "0.30", "63", "51", "7"]
    assert not re.search("[a-z]{2,}", chinese)


def test_what_slowed_a_device_down_is_told_in_chinese() -> None:
    told = ", ".join(reasons(Throttle(1, 0, 0, 1.0), Throttle(4, 2, 1, 0.8)))
    assert (
        in_chinese(told) == "3 次降频，散热装置的状态由 0 变为 2，固件报告欠压或过热（0x1），时钟被限制在最高频率的 80%"
    )


def test_what_was_said_is_escaped_in_both_languages() -> None:
    assert said("<b>") == "&lt;b&gt;"
    assert said("emulated (<b>)") == (
        '<span class="en">emulated (&lt;b&gt;)</span><span class="zh" lang="zh">模拟环境（&lt;b&gt;）</span>'
    )


@given(st.text())
def test_no_text_breaks_it(text: str) -> None:
    assert isinstance(in_chinese(text), str)
    assert "<" not in re.sub(r"</?span[^<>]*>", "", said(text))


def test_forms_fill_in_all_that_they_take() -> None:
    for english, chinese in FORMS.items():
        places = list(range(len(PLACE.findall(english))))
        assert sorted(map(int, re.findall(r"\{(\d)\}", chinese))) == places, english


def test_a_detail_is_in_chinese_on_the_page(built: Any) -> None:
    from edgepack.report.document import make
    from edgepack.report.html import render

    page = render(make(built))
    assert '<span class="zh" lang="zh">the interval holds the limit；约需 3200 个样本才能判定</span>' in page
    assert "学生模型的权重，未再次测量" in page
