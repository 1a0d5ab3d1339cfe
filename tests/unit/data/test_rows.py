"""Rows of every task from the values of a record, and what is wrong with them."""

from __future__ import annotations

import csv
import io
import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgepack.artifacts import Row
from edgepack.data.tables import read_rows
from edgepack.recipe.finding_log import FindingLog
from edgepack.recipe.model import Columns
from edgepack_runtime.rows.label_cells import number_in
from edgepack_runtime.util.spans import Span

PAIRS = Columns(text_pair="text_pair")
MANY = Columns(labels="labels")
SPANS = Columns(spans="spans")
TOKENS = Columns(tokens="tokens", tags="tags")
NUMBERS = Columns(value="score")
SLOTS = Columns(intent="intent", slots="slots")


def read(folder: Path, name: str, content: str, columns: Columns, separator: str = "|") -> tuple[list[Row], list[str]]:
    (folder / name).write_text(content, encoding="utf-8", newline="")
    log = FindingLog(folder / name)
    rows = [row for _, row in read_rows(folder / name, columns, log, label_separator=separator)]
    return rows, [f"{finding.line}: {finding.severity}: {finding.reason}" for finding in log.findings()]


def record(folder: Path, columns: Columns, **values: object) -> tuple[list[Row], list[str]]:
    """One line of JSON."""
    return read(folder, "a.jsonl", json.dumps(values, ensure_ascii=False), columns)


def test_pairs_are_read_by_name_and_by_number(tmp_path: Path) -> None:
    expected = [Row("如何还款", "1", "怎么还款")]
    assert read(tmp_path, "a.tsv", "text\ttext_pair\tlabel\n如何还款\t怎么还款\t1\n", PAIRS) == (expected, [])
    numbers = Columns(text="2", text_pair="3", label="1")
    assert read(tmp_path, "a.csv", "1,如何还款,怎么还款\n", numbers) == (expected, [])
    assert record(tmp_path, PAIRS, text="如何还款", text_pair="怎么还款", label=1) == (expected, [])
    assert record(tmp_path, PAIRS, text="好", text_pair="好", label=1) == ([Row("好", "1", "好")], [])


def test_what_a_pair_lacks_is_named(tmp_path: Path) -> None:
    assert record(tmp_path, PAIRS, text="好", text_pair=" ", label=1)[1] == ["1: error: the second text is empty"]
    assert record(tmp_path, PAIRS, text=3, text_pair="好", label=1)[1] == [
        "1: error: the first text is not a JSON string"
    ]
    assert record(tmp_path, PAIRS, text="好", label=1)[1] == [
        "1: error: this line lacks `text_pair`; it has `text`, `label`"
    ]
    found = read(tmp_path, "a.tsv", "text\tlabel\n好\t1\n", PAIRS)[1]
    assert found == ["1: error: the column `text_pair` is not in the header, which is `text`, `label`"]


def test_a_table_of_pairs_without_a_header_has_its_columns_counted(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(
        "如何还款？\t怎么还款呢？\t1\n" * 3 + "如何开通？\t怎么开通？\t0\n", encoding="utf-8"
    )
    log = FindingLog(tmp_path / "a.tsv")
    assert list(read_rows(tmp_path / "a.tsv", PAIRS, log)) == []
    assert '`columns: {text: "1", text_pair: "2", label: "3"}`' in log.findings()[0].fix


@pytest.mark.parametrize(
    ("cell", "labels"),
    [
        ("价格|服务", ("价格", "服务")),
        (" 服务 | 价格 |", ("价格", "服务")),
        ("服务", ("服务",)),
        ("", ()),
        ("服务|服务", ("服务",)),
        ('["价格", "服务"]', ("价格", "服务")),
        ("[价格]", ("[价格]",)),
        ("价格,服务", ("价格,服务",)),
    ],
)
def test_labels_of_a_cell_stand_between_separators(tmp_path: Path, cell: str, labels: tuple[str, ...]) -> None:
    assert read(tmp_path, "a.tsv", f"text\tlabels\n好\t{cell}\n", MANY) == ([Row("好", labels)], [])
    other = cell.replace("|", "、")
    assert read(tmp_path, "a.tsv", f"text\tlabels\n好\t{other}\n", MANY, "、") == ([Row("好", labels)], [])


def test_several_separators_may_separate(tmp_path: Path) -> None:
    log = FindingLog(tmp_path / "a.tsv")
    (tmp_path / "a.tsv").write_text("text\tlabels\n好\t价格，服务、价格/ \n", encoding="utf-8")
    rows = list(read_rows(tmp_path / "a.tsv", MANY, log, label_separator=("，", "、", "/")))
    assert [row for _, row in rows] == [Row("好", ("价格", "服务"))] and not log.findings()


@pytest.mark.parametrize(
    ("value", "labels"),
    [(["b", "a", "b"], ("a", "b")), ([], ()), (None, ()), ([2, 10], ("10", "2")), ("b|a", ("a", "b"))],
)
def test_labels_of_json_are_a_list(tmp_path: Path, value: object, labels: tuple[str, ...]) -> None:
    assert record(tmp_path, MANY, text="好", labels=value) == ([Row("好", labels)], [])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (3, "the labels are neither a JSON list nor text"),
        ({"a": 1}, "the labels are neither a JSON list nor text"),
        ([["a", 1]], "this row has 2 labels, not one"),
        (["a", ""], "the label is empty"),
        (["x" * 201], "the label has 201 characters, and 200 at most make sense"),
    ],
)
def test_labels_that_are_none_are_named(tmp_path: Path, value: object, reason: str) -> None:
    assert record(tmp_path, MANY, text="好", labels=value) == ([], [f"1: error: {reason}"])


@pytest.mark.parametrize(
    ("given", "spans", "warning"),
    [
        ([], (), ""),
        ([(2, 4, "b"), (0, 2, "a")], (Span(0, 2, "a"), Span(2, 4, "b")), ""),  # sorted; they may touch
        ([(0, 2, "a"), (0, 2, "a")], (Span(0, 2, "a"),), ""),
        (
            [(1, 2, "company"), (0, 3, "book")], (Span(0, 3, "book"), Span(1, 2, "company")),
            "the span 0 to 3 (`book`) and the span 1 to 2 (`company`) overlap: only the first is learnt, and both "
            "are asked for",
        ),
        ([(0, 5, "a")], (Span(0, 5, "a"),), "the span 0 to 5 (`a`) has white space at its edges: '北京大学 '"),
    ],
)  # fmt: skip
def test_spans_are_read_from_objects(
    tmp_path: Path, given: list[tuple[int, int, str]], spans: tuple[Span, ...], warning: str
) -> None:
    objects = [{"start": start, "end": end, "label": label, "id": 7} for start, end, label in given]
    found = [f"1: warning: {warning}"] if warning else []
    assert record(tmp_path, SPANS, text="北京大学 很大", spans=objects) == ([Row("北京大学 很大", spans)], found)


def test_spans_in_the_cells_of_a_table(tmp_path: Path) -> None:
    stream = io.StringIO(newline="")
    span = {"start": 0, "end": 2, "label": "a", "text": "北京"}
    csv.writer(stream).writerows([("text", "spans"), ("北京", json.dumps([span]))])
    assert read(tmp_path, "a.csv", stream.getvalue(), SPANS) == ([Row("北京", (Span(0, 2, "a"),))], [])


CITY = (Span(0, 2, "city"),)


@pytest.mark.parametrize(
    ("spans", "read"),
    [
        ([[0, 2, "city"]], CITY),  # doccano
        ([{"id": 1, "label": "city", "start_offset": 0, "end_offset": 2}], CITY),
        ([{"start": 0, "end": 2, "text": "北京", "labels": ["city"]}], CITY),  # Label Studio
        ([{"start_idx": 0, "end_idx": 1, "type": "city", "entity": "北京"}], CITY),  # the last character, not its end
        ({"city": {"北京": [[0, 1]]}}, CITY),  # CLUENER
        ({"city": {"北京": [[0, 1], [4, 5]]}, "b": {"大": [[2, 2]]}}, (*CITY, Span(2, 3, "b"), Span(4, 6, "city"))),
        ({}, ()),
    ],
)
def test_spans_are_read_as_tools_write_them(tmp_path: Path, spans: object, read: tuple[Span, ...]) -> None:
    text = "北京大学北京"
    assert record(tmp_path, SPANS, text=text, spans=spans) == ([Row(text, read)], [])


@pytest.mark.parametrize("form", ["P-B", "B-P", "B_P"])
def test_tokens_of_paddlenlps_examples_have_their_own_separator(tmp_path: Path, form: str) -> None:
    inner = form.replace("B", "I")
    table = f"text_a\tlabel\n北\x02京\x02的\t{form}\x02{inner}\x02O\n京\t{form}\n"
    columns = Columns(tokens="text_a", tags="label")
    assert read(tmp_path, "a.tsv", table, columns) == (
        [Row("北京的", (Span(0, 2, "P"),)), Row("京", (Span(0, 1, "P"),))],
        [],
    )


ONE = Columns()


@pytest.mark.parametrize("value", ["a", ["a"], '["a"]', {"choices": ["a"]}, '{"choices": "a"}', [["a"]]])
def test_one_label_may_be_a_list_of_one(tmp_path: Path, value: object) -> None:
    assert record(tmp_path, ONE, text="好", label=value) == ([Row("好", "a")], [])
    assert record(tmp_path, MANY, text="好", labels=value) == ([Row("好", ("a",))], [])


def test_a_choice_in_a_tree_is_its_path(tmp_path: Path) -> None:
    tree = {"taxonomy": [["财经", "股票"], ["体育"]]}
    for value in (tree, [tree], json.dumps([tree]), [{"taxonomy": [["财经", "股票"]]}, {"choices": "体育"}]):
        assert record(tmp_path, MANY, text="好", labels=value) == ([Row("好", ("体育", "财经/股票"))], [])


def test_a_row_without_an_agreed_label_is_left_out_and_counted(tmp_path: Path) -> None:
    rows, found = read(tmp_path, "a.tsv", "text\tlabel\n好\ta\n坏\t-\n差\t-\n", ONE)
    assert rows == [Row("好", "a")]
    assert len(found) == 1 and found[0].startswith("3: warning: the label is `-`") and "1 more like it" in found[0]


FLAGS = Columns(labels=("价格", "服务"))


def test_a_column_for_each_label_has_one_or_zero(tmp_path: Path) -> None:
    table = "text\t价格\t服务\n好\t1\t0\n坏\t1.0\tTrue\n差\t0\tfalse\n"
    assert read(tmp_path, "a.tsv", table, FLAGS) == (
        [Row("好", ("价格",)), Row("坏", ("价格", "服务")), Row("差", ())],
        [],
    )
    assert record(tmp_path, FLAGS, text="好", 价格=True, 服务=0) == ([Row("好", ("价格",))], [])
    assert record(tmp_path, FLAGS, text="好", 价格=2, 服务=0) == ([], ["1: error: `价格` is `2`, and neither 1 nor 0"])


def test_an_empty_cell_of_a_label_is_a_zero_with_a_warning(tmp_path: Path) -> None:
    rows, found = read(tmp_path, "a.tsv", "text\t价格\t服务\n好\t1\t\n坏\t\tnan\n差\t0\t1\n", FLAGS)
    assert rows == [Row("好", ("价格",)), Row("坏", ()), Row("差", ("服务",))]
    assert len(found) == 1 and found[0].startswith("2: warning: `服务` is empty") and "2 more like it" in found[0]
    assert record(tmp_path, FLAGS, text="好", 价格=None, 服务=1)[0] == [Row("好", ("服务",))]


NO_SPAN = "a span is not an object with `start`, `end` (whole numbers) and `label`"


@pytest.mark.parametrize(
    ("spans", "reason"),
    [
        (
            [{"start": 1, "end": 5, "label": "a"}],
            "the span 1 to 5 (`a`) is not within the text, which has 4 characters",
        ),
        (
            [{"start": -1, "end": 2, "label": "a"}],
            "the span -1 to 2 (`a`) is not within the text, which has 4 characters",
        ),
        ([{"start": 2, "end": 2, "label": "a"}], "the span 2 to 2 (`a`) holds no character"),
        ([{"start": 3, "end": 1, "label": "a"}], "the span 3 to 1 (`a`) holds no character"),
        (
            [{"start": 0, "end": 1, "label": "a", "text": "京"}],
            "the span 0 to 1 (`a`) is '北' in the text, and its own `text` says '京'",
        ),
        ([{"start": 0, "end": 1.0, "label": "a"}], NO_SPAN),
        ([{"start": 0, "end": True, "label": "a"}], NO_SPAN),
        ([[0, 1]], NO_SPAN),
        ([["a", 0, 1]], NO_SPAN),
        ({"a": {"北京": [[0]]}}, "the spans are not a JSON list"),
        ([{"start": 0, "end": 1}], "the label is empty"),
        (None, "the spans are not a JSON list"),
        ("0-1", "the spans are not a JSON list"),
        ("[", "the spans are not a JSON list"),
        ('[{"start": 0, "end": 1, "label": "\\ud83d"}]', "the spans are not a JSON list"),
    ],
)
def test_spans_that_do_not_fit_are_errors(tmp_path: Path, spans: object, reason: str) -> None:
    assert record(tmp_path, SPANS, text="北京大学", spans=spans) == ([], [f"1: error: {reason}"])


def test_tokens_and_tags_make_text_and_spans(tmp_path: Path) -> None:
    tokens, tags = ["IBM", "Corp", "在", "北", "京"], ["B-org", "I-org", "O", "B-city", "E-city"]
    assert record(tmp_path, TOKENS, tokens=tokens, tags=tags) == (
        [Row("IBM Corp在北京", (Span(0, 8, "org"), Span(9, 11, "city")))],
        [],
    )


@pytest.mark.parametrize(
    ("tokens", "tags", "reason"),
    [
        (["北", "京"], ["O"], "there are 2 tokens and 1 tags"),
        (["北"], ["X-x"], "`X-x` is not a tag of BIO, BIOES or BMES"),
        (["北"], [0], "the tags are not a JSON list of strings, each with a character at least"),
        (["北", ""], ["O", "O"], "the tokens are not a JSON list of strings, each with a character at least"),
        ("北京", ["O", "O"], "the tokens are not a JSON list of strings, each with a character at least"),
        ([], [], "the text is empty"),
    ],
)
def test_tokens_and_tags_that_do_not_fit_are_errors(tmp_path: Path, tokens: object, tags: object, reason: str) -> None:
    assert record(tmp_path, TOKENS, tokens=tokens, tags=tags) == ([], [f"1: error: {reason}"])


def test_half_characters_inside_lists_are_errors(tmp_path: Path) -> None:
    for columns, line in (
        (MANY, '{"text": "a", "labels": ["\\ud83d"]}'),
        (SPANS, '{"text": "a", "spans": [{"start": 0, "end": 1, "label": "\\ud83d"}]}'),
        (PAIRS, '{"text": "a", "text_pair": "\\ud83d", "label": 1}'),
    ):
        rows, found = read(tmp_path, "a.jsonl", line, columns)
        assert rows == []
        assert found == ["1: error: an escape such as \\ud83d alone is half a character"]


VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.floats(0, 9) | st.text("北a |[]{}", max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["start", "end", "label", "text"]), inner, max_size=4)
    ),
    max_leaves=8,
)
KEYS = ("text", "text_pair", "label", "labels", "spans", "tokens", "tags")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.fixed_dictionaries(dict.fromkeys(KEYS, VALUE)), st.sampled_from([PAIRS, MANY, SPANS, TOKENS]))
def test_any_values_make_a_row_that_holds_or_a_finding(
    tmp_path: Path, values: dict[str, object], columns: Columns
) -> None:
    rows, found = record(tmp_path, columns, **values)
    errors = [finding for finding in found if "error" in finding]
    assert len(rows) == 1 - bool(errors)
    for row in rows:
        assert row.text.strip()
        assert isinstance(row.label, str) or list(row.label) == sorted(row.label)
        spans = [item for item in row.label if isinstance(item, Span)]
        assert all(0 <= span.start < span.end <= len(row.text) for span in spans)
        assert all(before.end <= after.start for before, after in pairwise(spans))


@pytest.mark.parametrize("nothing", ["nan", "NaN", "<NA>", "None", "NULL", r"\N"])
@pytest.mark.parametrize("columns", [Columns(), MANY])
def test_what_pandas_and_mysql_write_for_nothing_is_no_label(tmp_path: Path, nothing: str, columns: Columns) -> None:
    name = columns.answer
    rows, found = read(tmp_path, "a.tsv", f"text\t{name}\n好\t{nothing}\n坏\t NONE \n差\tnone\n", columns)
    assert [row.label for row in rows] in (["NONE", "none"], [("NONE",), ("none",)])
    assert found == [f"2: warning: the row has no label: it is written as `{nothing}`, and left out"]


def test_mysql_writes_nothing_between_escaped_quotes(tmp_path: Path) -> None:
    lines = ['"text","label"', r'"说\"好\"",\N', r'"N,\N",N', r'"\N","a"']
    rows, found = read(tmp_path, "a.csv", "\n".join(lines) + "\n", Columns())
    assert [(row.text, row.label) for row in rows][-1:] == [("N", "a")]
    assert [row.label for row in rows] == ["N", "a"]
    assert found == [r"2: warning: the row has no label: it is written as `\N`, and left out"]


@pytest.mark.parametrize(
    ("cell", "labels"),
    [("['房间', '价格']", ("价格", "房间")), ("""["it's", 'b']""", ("b", "it's")), ("['房间']", ("房间",)), ("[]", ())],
)
def test_a_list_of_python_is_a_list(tmp_path: Path, cell: str, labels: tuple[str, ...]) -> None:
    assert record(tmp_path, MANY, text="好", labels=cell) == ([Row("好", labels)], [])
    if len(labels) == 1:
        assert record(tmp_path, Columns(), text="好", label=cell) == ([Row("好", labels[0])], [])


def test_a_row_that_its_annotator_refused_is_left_out(tmp_path: Path) -> None:
    columns = Columns(label="label")
    refused = record(tmp_path, columns, text="好", label="a", answer="reject", _input_hash=1)
    assert refused == ([], ['1: warning: the annotator answered "reject": the row is left out'])
    assert record(tmp_path, columns, text="好", label="a", answer="accept", _input_hash=1) == ([Row("好", "a")], [])
    assert record(tmp_path, columns, text="好", label="a", answer="reject") == ([Row("好", "a")], [])


@pytest.mark.parametrize(
    ("cell", "number"),
    [("3.5", 3.5), (" -2 ", -2.0), ("1e3", 1000.0), (".5", 0.5), ("+4.", 4.0), (4, 4.0), (0.25, 0.25), ([3], 3.0)],
)
def test_numbers_are_read(tmp_path: Path, cell: object, number: float) -> None:
    assert record(tmp_path, NUMBERS, text="好", score=cell) == ([Row("好", number)], [])


@pytest.mark.parametrize("cell", ["三", "1,5", "80%", "1_000", "nan nan", True, "1e10", 1e300, [1, 2], {"a": 1}])
def test_what_is_no_number_is_an_error(tmp_path: Path, cell: object) -> None:
    rows, [finding] = record(tmp_path, NUMBERS, text="好", score=cell)
    assert rows == [] and finding.startswith("1: error: ")


@pytest.mark.parametrize("cell", ["", "nan", "NULL", None, []])
def test_a_row_without_a_number_is_left_out(tmp_path: Path, cell: object) -> None:
    assert record(tmp_path, NUMBERS, text="好", score=cell) == ([], ["1: warning: the row has no number: left out"])


@pytest.mark.parametrize(("cell", "number"), [('{"rating": 4}', 4.0), ('{"number": 2.5}', 2.5)])
def test_numbers_of_label_studio_are_read(tmp_path: Path, cell: str, number: float) -> None:
    content = f"text\tscore\n好\t{cell}\n"
    assert read(tmp_path, "a.tsv", content, NUMBERS) == ([Row("好", number)], [])


@given(st.floats(-1e9, 1e9))
def test_any_number_comes_back_as_it_was_written(value: float) -> None:
    assert number_in(repr(value)) == number_in(json.dumps(value)) == number_in(value) == value


@pytest.mark.parametrize(
    ("slots", "expected"),
    [
        ({}, ()),
        (None, ()),
        ({"song": "晴天"}, (Span(1, 3, "song"),)),
        ({"song": "晴天", "singer": None, "room": ""}, (Span(1, 3, "song"),)),
        ({"song": "晴天", "word": "天"}, (Span(1, 3, "song"), Span(4, 5, "word"))),  # the first free one
        ({"word": ["天", "天"]}, (Span(2, 3, "word"), Span(4, 5, "word"))),
        ([{"start": 3, "end": 5, "label": "song"}], (Span(3, 5, "song"),)),
        ('{"song": "放"}', (Span(0, 1, "song"),)),
    ],
)
def test_intents_and_slots_are_read(tmp_path: Path, slots: object, expected: tuple[Span, ...]) -> None:
    row = Row("放晴天晴天", ("intent=播放", *expected))
    assert record(tmp_path, SLOTS, text="放晴天晴天", intent="播放", slots=slots) == ([row], [])


def test_slots_by_the_thousand_are_found_in_one_pass(tmp_path: Path) -> None:
    """Each compared with those before it, they would take the better part of an hour."""
    [row], found = record(tmp_path, SLOTS, text="好" * 12_810, intent="a", slots={"x": ["好"] * 6_400, "y": "好好"})
    assert found == [] and len(row.label) == 6_402 and row.label[-1] == Span(6_400, 6_402, "y")


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (
            {"intent": "a", "slots": [{"start": 0, "end": 1, "label": "intent=x"}]},
            "the slot `intent=x` begins with `intent=`, as intents do in reports",
        ),
        ({"intent": "a", "slots": {"song": "雨天"}}, "the slot `song` is `雨天`, which is not in the text"),
        ({"intent": "", "slots": {}}, "the label is empty"),
        ({"intent": "a", "slots": {"song": 3}}, "a slot holds neither a text nor a list of texts"),
        ({"intent": "a", "slots": "song"}, "the spans are not a JSON list"),
        (
            {"intent": "a", "slots": {"intent=x": "晴"}},
            "the slot `intent=x` begins with `intent=`, as intents do in reports",
        ),
    ],
)
def test_what_an_intent_lacks_is_named(tmp_path: Path, values: dict[str, object], reason: str) -> None:
    assert record(tmp_path, SLOTS, text="放晴天", **values)[1] == [f"1: error: {reason}"]
