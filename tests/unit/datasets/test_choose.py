"""Which columns are text and label; what data are of a task that is not there yet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgepack.datasets.choose import choose_columns
from edgepack.datasets.profile import profile
from edgepack.errors import RecipeInvalidError
from edgepack.recipe.model import Columns

TEXTS = [f"第{number}位客人说房间很{'大' if number % 2 else '小'}，早餐也还可以" for number in range(24)]


def file(folder: Path, *columns: list[object], header: str = "") -> Path:
    """A TSV with these columns."""
    rows = ["\t".join(map(str, row)) for row in zip(*columns, strict=True)]
    (folder / "a.tsv").write_text("\n".join([*([header] if header else []), *rows]) + "\n", encoding="utf-8")
    return folder / "a.tsv"


def chosen(path: Path) -> tuple[str, str]:
    columns: Columns = choose_columns(profile(path))
    return columns.text, columns.label


def refused(path: Path) -> str:
    with pytest.raises(RecipeInvalidError) as error:
        choose_columns(profile(path))
    (finding,) = error.value.findings
    return finding.reason


IDS: list[object] = [f"r-{number:05}" for number in range(24)]
DATES: list[object] = [f"2024-05-{number + 1:02} 12:00:00" for number in range(24)]
LABELS: list[object] = [number % 3 for number in range(24)]
SOURCES: list[object] = ["web" if number % 2 else "app" for number in range(24)]
WORDS: list[object] = list(TEXTS)


@pytest.mark.parametrize(
    ("columns", "header", "expected"),
    [
        ([WORDS, LABELS], "", ("1", "2")),
        ([IDS, LABELS, WORDS, DATES], "id\tstars\treview\tdate", ("review", "stars")),
        ([IDS, SOURCES, WORDS, LABELS], "id\tsource\t评论\t标签", ("评论", "标签")),  # the name tells
        ([IDS, LABELS, WORDS], "nr\tkind\twords", ("words", "kind")),  # the content tells
        ([WORDS, SOURCES], "Text\tLabel", ("Text", "Label")),
    ],
)
def test_columns_are_found_by_name_or_content(
    tmp_path: Path, columns: list[list[object]], header: str, expected: tuple[str, str]
) -> None:
    assert chosen(file(tmp_path, *columns, header=header)) == expected


def test_keys_of_json_objects_are_columns(tmp_path: Path) -> None:
    lines = [json.dumps({"id": i, "review": text, "score": i % 2, "tags": None}) for i, text in enumerate(TEXTS)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert chosen(tmp_path / "a.jsonl") == ("review", "score")


def test_nothing_to_choose_from_is_said_with_what_there_is(tmp_path: Path) -> None:
    reason = refused(file(tmp_path, IDS, WORDS, header="id\treview"))
    assert reason.startswith("no column seems to hold labels")
    assert "`id` with 24 values of 7 characters" in reason


@pytest.mark.parametrize("name", ["text_pair", "other"])
def test_two_long_texts_are_a_pair(tmp_path: Path, name: str) -> None:
    path = file(tmp_path, WORDS, WORDS[::-1], LABELS, header=f"text\t{name}\tlabel")
    assert refused(path).startswith(f"this looks like pairs of texts (`text` and `{name}`)")


def test_titles_ids_and_dates_make_no_pair(tmp_path: Path) -> None:
    titles: list[object] = [f"第{number}条" for number in range(24)]
    path = file(tmp_path, WORDS, titles, IDS, DATES, LABELS, header="review\theading\tid\tdate\tlabel")
    assert chosen(path) == ("review", "label")


@pytest.mark.parametrize("key", ["spans", "entities", "tags"])
def test_lists_of_tags_are_token_classification(tmp_path: Path, key: str) -> None:
    lines = [json.dumps({"text": text, key: [{"start": 0, "end": 1, "label": "x"}]}) for text in TEXTS]
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert "token classification" in refused(tmp_path / "a.jsonl")


def test_a_tag_on_each_line_is_token_classification(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("北 B-city\n京 I-city\n很 O\n\n大 O\n", encoding="utf-8")
    assert "token classification" in refused(tmp_path / "a.txt")
