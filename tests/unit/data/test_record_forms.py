"""Records as annotation tools nest them, and those of other tasks."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from edgepack.artifacts import Row
from edgepack.data.choose_columns import choose_columns
from edgepack.data.draft.profile import profile
from edgepack.data.record_forms import Annotated, records
from edgepack.data.tables import read_rows
from edgepack.errors import RecipeInvalidError
from edgepack.recipe.finding_log import FindingLog
from edgepack.recipe.model import Columns
from edgepack_runtime.rows.formats import BY_SUFFIX
from edgepack_runtime.rows.reader import Rows
from edgepack_runtime.util import json_levels
from edgepack_runtime.util.spans import Span


def annotated(*results: dict[str, Any], data: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"id": 1, "data": data or {"text": "北京很大"}, "annotations": [{"result": list(results)}]}


def result(name: str, **value: Any) -> dict[str, Any]:
    return {"from_name": name, "to_name": "text", "value": value}


CHOICE = result("sentiment", choices=["正面"])
REGION = result("ner", start=0, end=2, text="北京", labels=["地名"])


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"text": "好", "label": "a"}, {"text": "好", "label": "a"}),
        (annotated(CHOICE), {"text": "北京很大", "sentiment": ["正面"]}),
        (
            annotated(result("topic", taxonomy=[["财经", "股票"]]), CHOICE),
            {"text": "北京很大", "topic": [["财经", "股票"]], "sentiment": ["正面"]},
        ),
        (annotated(REGION), {"text": "北京很大", "ner": [{"start": 0, "end": 2, "label": "地名"}]}),
        (annotated(CHOICE, data={"sentiment": "好"}), {"sentiment": "好", "sentiment_1": ["正面"]}),
        ({"data": {"text": "好"}, "annotations": []}, {"text": "好"}),
        ({"data": {"text": "好"}, "annotations": [{"was_cancelled": True, "result": [CHOICE]}]}, {"text": "好"}),
        ({"data": {"text": "好"}, "annotations": [{"result": [None, {"value": 1}]}]}, {"text": "好"}),
        (annotated(result("label", choices="正面")), {"text": "北京很大", "label": ["正面"]}),
        (annotated(result("label", choices=5)), {"text": "北京很大", "label": []}),
        (
            annotated(CHOICE, data={"sentiment": "好", "sentiment_1": "x"}),
            {"sentiment": "好", "sentiment_1": "x", "sentiment_2": ["正面"]},
        ),
        (annotated(result("stars", rating=4)), {"text": "北京很大", "stars": ["4"]}),
        (annotated(result("note", start=0, end=2, text=["好"])), {"text": "北京很大", "note": []}),
    ],
)
def test_tasks_of_label_studio_have_a_key_for_each_tag(record: dict[str, Any], expected: dict[str, Any]) -> None:
    raw = io.BufferedReader(io.BytesIO(json.dumps(record).encode()))
    assert list(records(Rows(raw, "a.jsonl", BY_SUFFIX[".jsonl"]), Path("a.jsonl"))) == [(1, expected)]


def test_the_questions_of_squads_form_are_rows_with_their_text(tmp_path: Path) -> None:
    questions = [{"question": f"第{n}问", "id": n, "answers": [{"text": "北京", "answer_start": 2}]} for n in range(2)]
    file = tmp_path / "a.json"
    for document in (
        {"version": "1", "data": [{"title": "x", "paragraphs": [{"context": "我在北京", "qas": questions}]}]},
        [{"paragraphs": [{"context": "我在北京", "qas": questions}]}],
        [{"context": "我在北京", "qas": questions}],
        [{"context": "我在北京", **one} for one in questions],
    ):
        file.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
        log = FindingLog(file)
        columns = Columns(text="question", text_pair="context", answers="answers")
        answer = (Span(2, 4, "北京"),)
        rows = [row for _, row in read_rows(file, columns, log)]
        assert rows == [Row("第0问", answer, "我在北京"), Row("第1问", answer, "我在北京")]
        assert log.findings() == ()


def test_a_text_with_very_many_questions_is_refused(tmp_path: Path) -> None:
    """A megabyte would become a terabyte of rows."""
    questions = [{"question": f"q{n}", "answers": ["x"]} for n in range(20_000)]
    file = tmp_path / "a.json"
    file.write_text(json.dumps([{"context": "x" * 100_000, "qas": questions}]), encoding="utf-8")
    log = FindingLog(file)
    rows = list(read_rows(file, Columns(text="question", text_pair="context", answers="answers"), log))
    assert log.ended and 100 < len(rows) < 2_000


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"content": "北京", "prompt": "地名", "result_list": []}, "UIE"),
        ({"instruction": "写诗", "input": "", "output": "好"}, "generation"),
        ({"content": "他#idiom#地走了", "candidates": ["匆匆忙忙"]}, "ChID"),
        ({"text": "他来了", "target": {"span1_text": "他", "span2_text": "我"}, "label": "true"}, "WSC"),
        ({"question": "谁?", "choice": ["我", "他"], "answer": "他"}, "C3"),
    ],
)
def test_records_of_other_tasks_are_refused_by_name(tmp_path: Path, record: dict[str, Any], words: str) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps([record]), encoding="utf-8")
    log = FindingLog(file)
    assert list(read_rows(file, Columns(), log)) == [] and log.ended
    [said] = log.findings()
    assert words in said.reason and said.line == 1
    with pytest.raises(RecipeInvalidError) as error:
        profile(file)
    assert list(error.value.findings) == [said]


@pytest.mark.parametrize("indent", [None, 2])
def test_one_list_of_objects_is_read_as_lines_of_objects_are(tmp_path: Path, indent: int | None) -> None:
    records = [annotated(REGION, CHOICE) for _ in range(3)]
    file = tmp_path / "a.json"
    file.write_text(json.dumps(records, indent=indent, ensure_ascii=False), encoding="utf-8")
    columns = choose_columns(profile(file))
    assert columns == Columns(spans="ner")
    rows = list(read_rows(file, columns, FindingLog(file)))
    assert [row for _, row in rows] == [Row("北京很大", (Span(0, 2, "地名"),))] * 3
    assert [line for line, _ in rows] == ([1, 2, 3] if indent is None else [2, 35, 68])


@pytest.mark.parametrize(("key", "value"), [("relations", [{"type": "在"}]), ("cats", ["订票"]), ("intent", "订票")])
def test_what_is_not_learnt_beside_spans_is_left_out_with_a_warning(tmp_path: Path, key: str, value: object) -> None:
    file = tmp_path / "a.jsonl"
    record = {"text": "北京", "entities": [[0, 2, "地名"]], key: value}
    file.write_text(f"{json.dumps(record)}\n" * 2, encoding="utf-8")
    log = FindingLog(file)
    assert len(list(read_rows(file, Columns(spans="entities"), log))) == 2
    (finding,) = log.findings()
    assert finding.severity == "warning" and finding.reason.startswith(f"`{key}`") and "1 more" in finding.reason


@pytest.mark.parametrize("indent", [None, 1])
def test_lists_of_lists_of_c3_are_refused_by_name(tmp_path: Path, indent: int | None) -> None:
    made = [[["甲：你好。"], [{"question": "谁?", "choice": ["我", "他"], "answer": "他"}], "1-1"]]
    (tmp_path / "a.json").write_text(json.dumps(made, indent=indent), encoding="utf-8")
    with pytest.raises(RecipeInvalidError) as error:
        profile(tmp_path / "a.json")
    assert "C3" in error.value.findings[0].reason


MOODS = ("正面", "负面")
WORDS = [f"第{number}位客人说了什么" for number in range(24)]


def drafted(folder: Path, *tasks: dict[str, Any]) -> tuple[Columns, list[Row], list[str]]:
    """Columns, rows and reasons of warnings of an export of Label Studio."""
    file = folder / "a.json"
    file.write_text(json.dumps(tasks), encoding="utf-8")
    columns, log = choose_columns(profile(file)), FindingLog(file)
    rows = [row for _, row in read_rows(file, columns, log)]
    assert {finding.severity for finding in log.findings()} <= {"warning"}
    return columns, rows, [finding.reason for finding in log.findings()]


def mood(number: int) -> dict[str, Any]:
    return result("mood", choices=[MOODS[number % 2]])


def test_results_win_over_lists_and_labels_in_the_data(tmp_path: Path) -> None:
    data: list[dict[str, Any]] = [
        {"text": text, "keywords": [["吃", "住"], ["行"]][n % 2], "label": str(n % 3)} for n, text in enumerate(WORDS)
    ]
    columns, rows, warnings = drafted(tmp_path, *(annotated(mood(n), data=one) for n, one in enumerate(data)))
    assert columns == Columns(label="mood") and [row.label for row in rows[:2]] == [*MOODS] and not warnings


@pytest.mark.parametrize(
    ("taken", "left"),
    [
        (result("sentiment", choices=["好"]), "aspect"),  # a usual name
        (result("place", start=0, end=2, labels=["地名"]), "aspect"),  # regions before choices
        (result("topics", choices=["好", "贵"]), "aspect"),  # several labels before one
    ],
)
def test_of_several_tags_one_is_read_and_the_others_are_named(tmp_path: Path, taken: dict[str, Any], left: str) -> None:
    other = result("sentiment", choices=["坏"]) if taken["from_name"] == "sentiment" else taken
    aspects = [result("aspect", choices=[["住"], ["吃"]][n % 2]) for n in range(24)]
    tasks = [annotated(aspects[n], taken if n % 2 else other, data={"text": text}) for n, text in enumerate(WORDS)]
    columns, rows, (warning,) = drafted(tmp_path, *tasks)
    assert taken["from_name"] in columns.wanted.values() and len(rows) == 24
    assert warning.startswith(f"`{left}`, results of another tag") and "23 more" in warning


def test_relations_between_regions_are_named(tmp_path: Path) -> None:
    relation = {"type": "relation", "from_id": "a", "to_id": "b", "labels": ["在"]}
    columns, _, (warning,) = drafted(tmp_path, annotated(REGION, relation))
    assert columns == Columns(spans="ner") and warning.startswith("`relations`, relations between spans")


def test_each_label_of_a_region_is_a_span(tmp_path: Path) -> None:
    _, [row], [warning] = drafted(tmp_path, annotated(result("ner", start=0, end=2, labels=["地名", "首都"])))
    assert row.label == (Span(0, 2, "地名"), Span(0, 2, "首都"))
    assert "`地名`" in warning and "`首都`" in warning and "only the first is learnt" in warning


@pytest.mark.parametrize(
    ("second", "cancelled", "warned"),
    [("负面", False, True), ("正面", False, False), ("负面", True, False), (None, False, True)],
)
def test_annotators_who_disagree_are_counted(tmp_path: Path, second: str | None, cancelled: bool, warned: bool) -> None:
    tasks = [annotated(mood(n), data={"text": text}) for n, text in enumerate(WORDS)]
    results = [] if second is None else [result("mood", choices=[second])]
    tasks[0]["annotations"].append({"result": results, "was_cancelled": cancelled})
    _, rows, warnings = drafted(tmp_path, *tasks)
    assert rows[0].label == "正面" and len(warnings) == warned
    assert all(warning.startswith("the annotators disagree on `mood`") for warning in warnings)


def test_a_tag_called_as_a_kind_of_error_hides_none(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    kind = "rows without a label"
    tasks = [annotated(CHOICE, result(kind, choices=["x"])), annotated(result("sentiment", choices=[""]))]
    file.write_text(json.dumps(tasks), encoding="utf-8")
    log = FindingLog(file)
    list(read_rows(file, Columns(label="sentiment"), log))
    assert [finding.severity for finding in log.findings()] == ["warning", "error"]


def test_what_annotators_write_is_no_label(tmp_path: Path) -> None:
    with pytest.raises(RecipeInvalidError) as error:
        drafted(tmp_path, *(annotated(result("summary", text=[f"{text}。"])) for text in WORDS))
    assert "generation" in error.value.findings[0].reason


def test_many_annotations_are_each_looked_at_once() -> None:
    looks = []

    class Region:
        def __repr__(self) -> str:
            looks.append(self)
            return "region"

    annotations: list[dict[str, list[Any]]] = [{f"k{n}": [Region()]} for n in range(300)]
    assert len(Annotated({}, annotations).disputed) == len(looks) == 300


def test_many_keys_of_the_data_are_not_listed_for_each_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    data = {f"k{n}": 0 for n in range(5000)}
    line = json.dumps(annotated(*(result(f"f{n}", choices=["好"]) for n in range(20)), data=data)).encode()
    rows = Rows(io.BufferedReader(io.BytesIO(line)), "a.jsonl", BY_SUFFIX[".jsonl"])
    calls = []
    monkeypatch.setattr(json_levels, "require_flat", lambda found, brackets: None)  # looks at each value once
    sys.setprofile(lambda frame, event, argument: calls.append(event))
    try:
        [(_, record)] = records(rows, Path("a.jsonl"))
    finally:
        sys.setprofile(None)
    assert isinstance(record, Annotated)
    assert len(calls) < len(data)
