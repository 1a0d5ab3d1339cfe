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

import edgepack
import edgepack_runtime
from edgepack.artifacts import Row, Score
from edgepack.datasets.gates import check_gate
from edgepack.recipe.gates import AccuracyGate
from edgepack.report.said import (
    CONDITIONS,
    FORMS,
    WARNED,
    Forms,
    condition,
    in_chinese,
    said,
    warned,
    warning_in_chinese,
)
from edgepack.selection import Compared
from edgepack.stages import select
from edgepack_runtime import conditions
from edgepack_runtime.contention import Contention
from edgepack_runtime.throttling import Throttle, reasons

DEVICE = Path(edgepack_runtime.__file__).parent
BUILD = Path(edgepack.__file__).parent
PLACE = re.compile(r"\{[n*]?\}")
# What clauses of details are put together by, besides the functions that have a `detail`.
HELPERS = {
    "gate.py": {"_size_checks"},
    "gate_accuracy.py": {"checks", "_of_what", "_on_what", "repeats", "_more_rows"},
    "gate_classes.py": {"_told", "_more"},
    "gate_latency.py": {"_lengths", "refuse_if_emulated"},
    "gate_limits.py": {"would_decide"},
    "gate_process.py": {"cold_start_check"},
    "open_loop.py": {"_why_not"},
    "phases.py": {"told"},
    "contention.py": {"told"},
    "throttling.py": {"reasons"},
    "device.py": {"emulation"},
}
# Of these functions, what is no part of a detail.
NO_DETAIL = {"the golden rows do not say what the earlier release answered", "build the bundle again"}
OF_ERRORS = {
    "there is nothing to learn", "a model that always says so would pass the gate", "labels that train lacks",
    "the label `7` (7) is not in the train split, so no model can give it", "correct the label, or add rows to train",
    "the 7 split has 7; it takes 7 at least", "add rows", "7 rows, the first here",
    "filled in when the recipe was loaded",
    "a quote opens a field of 7 lines, up to line 7: they look like rows", "broken CSV",
    "remove the stray quotes, there and where the field ends; if it is one text, write it as .jsonl",
    "the 7 is no JSON string", "texts that are no strings", "write the text in quotes", "rows without a text",
    "give it a text, or remove the row", "the spans are no JSON list", "spans of another kind", "spans that do not fit",
    'write a list, empty where there are none: [{"start": 0, "end": 2, "label": "city"}]',
    'write it as {"start": 0, "end": 2, "label": "city"}',
    "a span is no object with `start`, `end` (whole numbers) and `label`",
    "the file holds no text that can be used", "add texts, or remove the key",
    # kinds of which there is one finding in a file
    "one label", "one label a row", "labels that test lacks", "leak from 7", "near leak from 7",
    "texts that dev or test hold",
}  # fmt: skip
# What reasons of builds are put together by, and what of that only puts together.
REASONS = {
    "choice.py": {"_carried", "_faster", "choose", "doubts_of_int8", "doubts_of_float16", "note", "lost"},
    "report/blame.py": {"_loss", "_lost_by", "_lost_on_device", "_timed", "_lost_latency", "_lost_accuracy"},
    "stages/export.py": {"_rewritten"},
    "stages/select.py": {"choose", "_cheapest", "_the_best", "_nothing_fits", "not_judged"},
    "targets/here.py": {"runner", "_lacks_gpu"},
    "targets/checks.py": {"_check_licenses", "_gpu_checks"},
    "targets/gpu.py": {"check", "told"},
    "targets/loading.py": {"check_search_paths", "_untold", "check_needed", "check_flags"},
}
PUT_TOGETHER = {  # by what, `test_why_a_candidate_was_chosen_is_in_chinese` tells
    "7 of 7 7 7 (7)", "7 and 7", "within 7 7 of", "it must have at most 7 x of both: float ships7", "7 (of 7)",
    "7 missed gates", "7 of 7 that miss no gate7", "7, where all 7 miss a gate: 7", "dev 7 7, 7", "no other is 7 it",
    "the 7 of the 7 7", "the best on dev of the 7 7 and 7",
}  # fmt: skip
# Functions with warnings, and what in them is about errors, which end a build before there is a report.
WARN = {
    "datasets/check.py": {"_check_size", "uniform", "_check_separated", "_check_balance", "_check_labels",
                          "_check_repeats", "_check_leak", "_examples", "_share"},
    "datasets/choose.py": {"measurements"},
    "datasets/tables.py": {"_is_filled"},
    "datasets/quotes.py": {"hold", "_suspect"},
    "datasets/rows.py": {"_text", "_warn_of_lost_characters", "_spans", "_span", "_named"},
    "datasets/variants.py": {"check_variants", "_difference"},
    "datasets/unlabelled.py": {"count"},
    "datasets/suited.py": {"_samples"},
    "datasets/gates.py": {"check_gate", "_unseen", "_check_classes", "_short", "_fix"},
    "datasets/lengths.py": {"check_lengths"},
    "datasets/log.py": {"findings"},
    "report/document.py": {"_warnings"},
}  # fmt: skip


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
    """The clauses that a function says with words in them."""
    for text in texts(function):
        for clause in text.split("; "):
            if re.search(r"[a-z] |[a-z]{3,}.* [a-z]", clause) and clause not in NO_DETAIL:
                yield clause.strip(", ")


def texts(function: ast.FunctionDef) -> Iterator[str]:
    """What a function says, a figure or a name in each place that is filled in; not what it raises."""
    inside = {id(part) for node in ast.walk(function) if isinstance(node, ast.JoinedStr) for part in node.values}
    inside |= {id(part) for node in ast.walk(function) if isinstance(node, ast.Raise) for part in ast.walk(node)}
    for node in ast.walk(ast.Module(function.body[ast.get_docstring(function) is not None :], [])):
        if isinstance(node, ast.JoinedStr) and id(node) not in inside:
            text = "".join(part.value if isinstance(part, ast.Constant) else "7" for part in node.values)  # type: ignore[misc]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            text = PLACE.sub("7", node.value)
        else:
            continue
        yield text


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


def of_build(asked: dict[str, set[str]]) -> Iterator[tuple[str, ast.FunctionDef]]:
    for name, functions in asked.items():
        for node in ast.walk(ast.parse((BUILD / name).read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name in functions:
                yield name, node


SAID_OF_BUILDS = sorted({(file, text) for file, function in of_build(REASONS) for text in clauses(function)})


def test_the_functions_that_give_reasons_were_found() -> None:
    for asked in (REASONS, WARN):
        found = {(file, function.name) for file, function in of_build(asked)}
        assert found == {(file, name) for file, names in asked.items() for name in names}
    assert len(SAID_OF_BUILDS) > 30


@pytest.mark.parametrize(("file", "clause"), SAID_OF_BUILDS)
def test_every_reason_of_a_build_is_known_in_chinese(file: str, clause: str) -> None:
    part_of = any(clause in PLACE.sub("7", form) for form in FORMS)
    known = part_of or in_chinese(clause) != clause or clause in PUT_TOGETHER
    assert known, f"{file} says {clause!r}: add its form to said_of_builds.toml"


def why_a_graph_is_left() -> Iterator[tuple[str, str, bool]]:
    """Of every reason: its file, its words with a figure or a name in each place, whether they tell what was due."""
    for path in sorted(BUILD.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
            if name in ("unlike", "Unrecognised"):
                yield path.name, spelled(node.args[-1]), name == "unlike"  # type: ignore[attr-defined]


def spelled(node: ast.expr) -> str:
    """A text of the sources, filled in."""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(spelled, node.values))
    if isinstance(node, ast.FormattedValue):
        return spelled(node.value) if isinstance(node.value, ast.Call) else "7"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "counted":
        noun, *plural = [str(ast.literal_eval(part)) for part in node.args[1:]]
        return f"7 {plural[0] if plural else f'{noun}s'}"
    return str(node.value) if isinstance(node, ast.Constant) else "7"


WHY_LEFT = sorted(set(why_a_graph_is_left()))


def test_the_reasons_to_leave_a_graph_were_found() -> None:
    assert {file for file, _, _ in WHY_LEFT} == {"patterns.py", "recognise.py", "rewrite.py"}
    assert len(WHY_LEFT) > 30
    assert ("patterns.py", "the exact GELU", True) in WHY_LEFT
    assert ("patterns.py", "the tensor 7, 7, is not 7", False) in WHY_LEFT


@pytest.mark.parametrize(("file", "words", "was_due"), WHY_LEFT)
@pytest.mark.parametrize("found", ["made by Add", "a constant or an input"])
def test_why_a_graph_is_left_as_it_is_is_in_chinese_as_a_whole(
    file: str, words: str, was_due: bool, found: str
) -> None:
    reason = f"the tensor linear_0.tmp_1, {found}, is not {words}" if was_due else words
    chinese = in_chinese(f"the exported graph is not rewritten, and has no smaller form: {reason}")
    names = r"linear_0.tmp_1|Add|LayerNorm|GELU|ERNIE|logit|softmax|float32"
    left = re.search("[A-Za-z]{2,}", re.sub(names, "", chinese))
    assert chinese.startswith("导出的图没有改写，也没有更小的形式：") and left is None, (
        f"{file} says {words!r}: {chinese}"
    )


def test_what_makes_a_tensor_is_said_in_one_of_these_ways() -> None:
    """`found` above: the two that `Patterns.unlike` knows."""
    source = (BUILD / "graph" / "patterns.py").read_text(encoding="utf-8")
    assert 'found = f"made by {maker.op_type}" if maker is not None else "a constant or an input"' in source


WORDS = re.compile(r"[a-z]{2,} .*[a-z]{2}|[a-z]{3,}; ")
WARNINGS = sorted({
    (file, text) for file, function in of_build(WARN) for text in texts(function)
    if WORDS.search(text) and text not in OF_ERRORS
})  # fmt: skip


@pytest.mark.parametrize(("file", "text"), WARNINGS)
def test_every_warning_about_data_is_known_in_chinese(file: str, text: str) -> None:
    part_of = any(text in PLACE.sub("7", form) for form in WARNED)
    assert part_of or warning_in_chinese(text) != text, f"{file} says {text!r}: add its form to warned.toml"


def test_every_function_that_warns_is_looked_at() -> None:
    for path in sorted((BUILD / "datasets").glob("*.py")):
        name = f"datasets/{path.name}"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            warns = isinstance(node, ast.FunctionDef) and any(
                isinstance(part, ast.Constant) and part.value == "warning" for part in ast.walk(node)
            )
            if warns and node.name not in {"_check_measured", "check_suited", "_left_out"}:  # type: ignore[attr-defined]
                assert node.name in WARN.get(name, ()), f"{name} warns in {node.name}"  # type: ignore[attr-defined]


def test_every_condition_of_a_receipt_has_a_chinese_name() -> None:
    known = {*conditions.collect(threads=1, engine="e", providers=[]), *Throttle._fields, "after"}
    assert known == set(CONDITIONS)
    assert condition("of a later runtime") == "of a later runtime"


def test_no_form_is_left_of_what_nobody_says() -> None:
    """Each form has words that the sources of the device or of the build have."""
    files = [*DEVICE.glob("*.py"), *BUILD.glob("*.py")]
    files += [
        file for part in ("stages", "targets", "datasets", "report", "graph") for file in (BUILD / part).glob("*.py")
    ]
    sources = "".join(file.read_text(encoding="utf-8") for file in files)
    sources = re.sub(r'"\n\s+f?"', "", sources)  # texts that go on in the next line
    for form in (*FORMS, *WARNED):
        longest = max(re.split(r"\{[n*]?\}|; |: |, | of | or | and | within ", form), key=len).strip(" )")
        assert longest in sources or any(longest == f"{noun}s" for noun in re.findall(r"\w+ ?\w+", sources)), form


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("text in to label out, batch 1, 1 to 32 tokens", "从文本到标签，批大小 1，1 至 32 个词元"),
        ("差 评: 3 right of 237 that are there; and 5 more of 10 classes; about 3200 rows of 差 评 would decide",
         "差 评：实有的 237 个中答对 3 个；10 个类别中还有 5 个；约需 3200 个“差 评”的样本才能判定"),
        ("macro_f1; 3 rows lost against the float model, 5 won",
         "macro_f1；对比浮点模型：3 个样本由对变错，5 个由错变对"),
        ("3 rows lost against quickstart, 5 won", "对比 quickstart：3 个样本由对变错，5 个由错变对"),
        ("3 rows lost against the earlier release, 5 won", "对比之前的版本：3 个样本由对变错，5 个由错变对"),
        ("ptq (hist), weights of 7 bits, 0.13 points below float on 781 dev rows; float: head, pooler",
         "ptq (hist)，7 位权重，在 781 个 dev 样本上比浮点低 0.13 个百分点；浮点：head, pooler"),
        ("model.onnx", "model.onnx"),
        ("the exported graph is not rewritten, and has no smaller form: the tensor add_3, made by Add, is not "
         "a constant of 1 axis; float: head",
         "导出的图没有改写，也没有更小的形式：张量 add_3（由 Add 算出的）不是有 1 个轴的常量；浮点：head"),
        ("is not rewritten, and has no smaller form: the tensor add_3, a constant or an input, is not 2 heads of 8",
         "没有改写，也没有更小的形式：张量 add_3（常量或输入）不是共 2 个宽为 8 的注意力头"),
        ("is not rewritten, and has no smaller form: its embeddings have no positions and no types",
         "没有改写，也没有更小的形式：它的嵌入没有 positions，也没有 types"),
        ("is not rewritten, and has no smaller form: it cannot be read: KeyError: 'x.y'",
         "没有改写，也没有更小的形式：无法读取：KeyError：'x.y'"),
        ("missed by 5.00 ms; texts wait for each other, 20 texts a second on average, busy 80% of the time; one takes "
         "p50 of no stage",
         "与门限相差 5.00 ms；文本互相等待，平均每秒 20 个文本，80% 的时间在工作；单个文本的 p50：没有阶段测过"),
        ("missed by 5.00 ms; the ledger has no texts of that length; of all texts it has p95 INT8 1.21 ms",
         "与门限相差 5.00 ms；损失账本没有该长度的文本；全部文本的 p95：INT8 1.21 ms"),
        ("lost on a-board: 2.00 points below stage INT8 ONNX",
         "在目标 a-board 上损失：比阶段 INT8 ONNX 低 2.00 个百分点"),
        ("1 of 64 answers differs", "64 个回答中有 1 个不同"),
        ("3 of 64 answers differ", "64 个回答中有 3 个不同"),
        ("1 of 1 row right", "1 个样本中答对 1 个"),
        ("others used 0.20 of 1 core while it was measured", "测量期间其他进程占用了 1 个核中的 0.20 个"),
        ("1 text a second on average, busy 1% of the time", "平均每秒 1 个文本，1% 的时间在工作"),
        ("in the long run, by how long the model works on the texts of 1 row",
         "长期来看，按模型处理 1 个样本的文本所用的时间推算"),
        ("1 quarter of a second, too few or too different to tell", "1 段四分之一秒的测量太少，或相差太大，无法判定"),
        ("ptq (hist), 9.00 points below float on 1 dev row", "ptq (hist)，在 1 个 dev 样本上比浮点低 9.00 个百分点"),
        ("1.2 M weights, 1 step; 2 -> 1 head, 8 -> 4 neurons a layer",
         "1.2 M 权重，1 步；每层 2 -> 1 个注意力头、8 -> 4 个神经元"),
        ("cudnn 9.1 shows machine code for sm_80, sm_90, no PTX; what it has for sm_87 cannot be read",
         "cudnn 9.1 可见 sm_80, sm_90 的机器码，没有 PTX；其中给 sm_87 的内容无法读取"),
        ("no machine code, PTX of compute_50, code that is still to be linked",
         "没有机器码，compute_50 的 PTX，尚待链接的代码"),
        ("a/b.so needs libx.so.1, liby.so: the target has no GPU, that part of it will not load",
         "a/b.so 需要 libx.so.1, liby.so：目标没有 GPU，这一部分不会加载"),
        ("for sm_80, sm_87", "用于 sm_80, sm_87"),
        ("a word of a later runtime; 3 of 4 rows right", "a word of a later runtime；4 个样本中答对 3 个"),
    ],
)  # fmt: skip
def test_details_in_chinese(english: str, chinese: str) -> None:
    assert in_chinese(english) == chinese


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("train.tsv:3: warning: the same text has the label `a; b` on line 2\n    fix: decide on one label",
         "train.tsv:3：警告：同样的文本在第 2 行的标签是 `a; b`\n    处理：确定一个标签"),
        ("warning: about 29.4% of the train texts are longer than 128 tokens (`student.max_length`) and would be cut; "
         "99% have at most 669",
         "警告：约 29.4% 的 train 文本超过 128 个词元（`student.max_length`），会被截断；99% 的文本不超过 669 个"),
        ("test.tsv: warning: 3 of 100 test rows (3.00%) are in train too; at most 1% may be: line 3 is train.tsv:5, "
         "line 4 is train.tsv:9\n    fix: remove them from train",
         "test.tsv：警告：test 的 100 个样本中有 3 个（3.00%）也在 train 中，最多允许 1%：第 3 行即 train.tsv:5，"
         "第 4 行即 train.tsv:9\n    处理：从 train 中删除它们"),
        ("2 warnings about the data, which may quote it: `edgepack check` tells",
         "2 条警告关于数据，可能引用其内容：用 `edgepack check` 查看"),
        ("a: warning: of a later version\n    fix: remove it", "a：警告：of a later version\n    处理：删除它"),
    ],
)  # fmt: skip
def test_warnings_in_chinese(english: str, chinese: str) -> None:
    assert warning_in_chinese(english) == chinese
    assert str(warned(english)).count("lang=") == 1


CANDIDATES = [
    Compared("deep", Score(0.91, 0.9, 0.92, 800, 0.95, "accuracy"), 1, 1, 1.0, "int8", 9 << 20, 4.0, 5.0),
    Compared("wide", Score(0.908, 0.9, 0.92, 800, 0.95, "accuracy"), 1, 1, 1.0, "int8", 3 << 20, 2.0, 5.0),
    Compared("flat", Score(0.909, 0.9, 0.92, 800, 0.95, "accuracy"), 1, 1, 1.0, "int8", 3 << 20, 2.01, 5.0),
    Compared("tiny", Score(0.8, 0.7, 0.9, 800, 0.95, "accuracy"), 1, 1, 1.0, "int8", 1 << 20, 2.02, 5.0),
    Compared(
        "late", Score(0.9, 0.7, 0.9, 800, 0.95, "accuracy"), 1, 1, 1.0, "int8", 1 << 20, 9.0, 5.0, ("size (2 > 1)",)
    ),
]


@pytest.mark.parametrize(
    "names",
    [
        "deep",
        "late",
        "deep late",
        "late late",
        "deep tiny",
        "deep wide",
        "wide deep flat",
        "deep wide flat tiny",
        "deep wide late",
        "deep wide flat tiny late late",
    ],
)
@pytest.mark.parametrize("tolerance", [None, 0.5, 1.0, 0.01])
@pytest.mark.parametrize("prefer", ["latency", "size"])
def test_why_a_candidate_was_chosen_is_in_chinese(names: str, tolerance: float | None, prefer: Any) -> None:
    by_name = {one.name: one for one in CANDIDATES}
    _, why = select.choose([by_name[name] for name in names.split()], tolerance, prefer)
    left = re.sub(r"deep|wide|flat|tiny|late|size|dev|accuracy|p50|ms|MiB", "", in_chinese(why))
    assert not re.search("[a-z]{2,}", left), why


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


@pytest.mark.parametrize("forms", [FORMS, WARNED], ids=["said", "warned"])
def test_no_form_is_taken_for_another(forms: dict[str, str]) -> None:
    known = Forms(forms)._forms
    for english, chinese in forms.items():
        clause = re.sub(r"\{(n|\*|)\}", lambda place: {"n": "7", "*": "some words", "": "a name"}[place[1]], english)
        first = next(form for form in known if form.english.fullmatch(clause))
        assert first.chinese == chinese, clause


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


@pytest.mark.parametrize("figure", ["recall", "f1"])
@pytest.mark.parametrize("named", [{}, {"类3": 0.9}, {"类3": 0.9, "类4": 0.95}])
@pytest.mark.parametrize("seen", [0, 2])
def test_floors_that_cannot_be_shown_are_told_in_chinese_as_a_whole(
    figure: str, named: dict[str, float], seen: int
) -> None:
    gate = AccuracyGate.model_validate({"metric": "accuracy", "per_class": {figure: 0.97, f"{figure}_of": named}})
    labels = [f"类{number}" for number in range(7)]
    rows = [Row(f"第{n}条", label) for label in labels[: 7 if seen else 3] for n in range(seen or 2)]
    [(reason, fix)] = check_gate(gate, len(rows), lambda: rows, labels)
    for text in (reason, fix):
        chinese = warning_in_chinese(text)
        assert not re.search(r"[a-z]{2,} [a-z]{2,}", chinese), chinese
