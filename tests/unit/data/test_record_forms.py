"""Records as annotation tools nest them, and those of other tasks."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from edgepack.artifacts import Row
from edgepack.data.choose_columns import choose_columns
from edgepack.data.draft.profile import profile
from edgepack.data.record_forms import records
from edgepack.data.tables import read_rows
from edgepack.errors import RecipeInvalidError
from edgepack.recipe.finding_log import FindingLog
from edgepack.recipe.model import Columns
from edgepack_runtime.rows.formats import BY_SUFFIX
from edgepack_runtime.rows.reader import Rows
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
        (annotated(CHOICE, data={"sentiment": "好", "sentiment_1": "x"}), {"sentiment": "好", "sentiment_1": "x"}),
    ],
)
def test_tasks_of_label_studio_have_a_key_for_each_tag(record: dict[str, Any], expected: dict[str, Any]) -> None:
    raw = io.BufferedReader(io.BytesIO(json.dumps(record).encode()))
    assert list(records(Rows(raw, "a.jsonl", BY_SUFFIX[".jsonl"]))) == [(1, expected)]


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"title": "", "paragraphs": []}, "reading comprehension"),
        ({"context": "北京", "question": "?", "answers": {}}, "reading comprehension"),
        ({"content": "北京", "prompt": "地名", "result_list": []}, "UIE"),
        ({"instruction": "写诗", "input": "", "output": "好"}, "generation"),
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
