"""What artifacts tell beside their fields."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from edgepack.artifacts import (
    DataArtifact,
    ExportArtifact,
    LedgerRow,
    ModelFile,
    Precision,
    Row,
    load,
    proportion,
    save,
)
from edgepack_runtime.tasks.registry import ONE_TEXT, TOKENS, TaskName, task_by_name
from edgepack_runtime.util.spans import Span


@pytest.mark.parametrize(
    ("task", "texts", "expected"),
    [
        ("text-classification", [("很好",)], '"很好"'),
        (
            "text-classification", [('说"好"',), ("$HOME 好",), ("`ls`",), ("a\\b",), ("好!",), ("两\n行",), ("很好",)],
            '"很好"',
        ),
        ("text-classification", [("很" * 100,)], f'"{"很" * 24}"'),
        ("text-classification", [('"',)], '"你好"'),
        ("text-pair-classification", [("好", "不$错"), ("好" * 30, "不错")], f'"{"好" * 24}" "不错"'),
    ],
)  # fmt: skip
def test_an_example_can_be_typed_between_double_quotes(
    tmp_path: Path, task: TaskName, texts: list[tuple[str, ...]], expected: str
) -> None:
    rows = [dict(zip(("text", "text_pair"), row)) | {"label": "x"} for row in texts]  # noqa: B905 (one text, or two)
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert DataArtifact(tmp_path, ("x", "y"), {"test": len(texts)}, (), task=task).example() == expected


ROWS: list[tuple[Row, str | None, str]] = [
    (Row("好", "1"), "label", '{"text": "好", "label": "1"}'),
    (Row("好", "1", "不错"), "label", '{"text": "好", "text_pair": "不错", "label": "1"}'),
    (Row("好", ("a", "b")), "labels", '{"text": "好", "labels": ["a", "b"]}'),
    (Row("好", ()), "labels", '{"text": "好", "labels": []}'),
    (Row("北京", (Span(0, 2, "x"),)), "spans", '{"text": "北京", "spans": [[0, 2, "x"]]}'),
    (Row("北京", ()), "spans", '{"text": "北京", "spans": []}'),
    (Row("好", ()), None, '{"text": "好"}'),
    (Row("好", (), "不错"), None, '{"text": "好", "text_pair": "不错"}'),
]


@pytest.mark.parametrize(("row", "key", "written"), ROWS)
def test_rows_come_back_from_json(row: Row, key: str | None, written: str) -> None:
    assert json.dumps(row.document(key), ensure_ascii=False) == written
    tasks = [task_by_name(ONE_TEXT), task_by_name(ONE_TEXT, multi_label=True), task_by_name(TOKENS)]
    task = next((task for task in tasks if task.answer_key == key), tasks[0])
    assert Row.from_document(json.loads(written), task) == row


@pytest.mark.parametrize(
    ("task", "multi_label", "answer", "labels"),
    [
        ("text-classification", False, "label", ("x", "y")),
        ("text-pair-classification", False, "label", ("x", "y")),
        ("text-classification", True, "labels", ("x", "y")),
        ("token-classification", False, "spans", ("O", "B-x", "I-x", "B-y", "I-y")),
    ],
)
def test_what_a_model_answers_with(
    tmp_path: Path, task: TaskName, multi_label: bool, answer: str, labels: tuple[str, ...]
) -> None:
    data = DataArtifact(tmp_path, ("x", "y"), {}, "x", (), task=task, multi_label=multi_label)
    assert (data.text_task.answer_key, data.model_labels) == (answer, labels)


@pytest.mark.parametrize("name", ["/etc", "..", "a/../b", "a/b", "", "a\n"])
def test_a_model_lies_in_a_folder_of_its_artifact(name: str) -> None:
    row = LedgerRow("x", proportion(18, 20))
    assert TypeAdapter(ModelFile).validate_python({**asdict(ModelFile("onnx-int8", "int8", 1, row, {}))})
    with pytest.raises(ValidationError):
        TypeAdapter(ModelFile).validate_python(asdict(ModelFile(name, "int8", 1, row, {})))


@pytest.mark.parametrize("small", ["int8", "float16"])
def test_the_model_that_ships_is_the_one_of_its_precision(tmp_path: Path, small: Precision) -> None:
    row = LedgerRow("x", proportion(18, 20))

    def file(folder: str, precision: Precision) -> ModelFile:
        return ModelFile(folder, precision, 1000, row, {})

    made = ExportArtifact(tmp_path, row, file("a", "float32"), file("b", small), small, "")
    assert [model.folder for model in made.models] == ["a", "b"]
    assert made.shipped_model.folder == "b"
    assert replace(made, shipped="float32").shipped_model.folder == "a"
    save(made)
    assert load(ExportArtifact, tmp_path) == made
