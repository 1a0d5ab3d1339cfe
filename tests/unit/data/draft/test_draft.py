"""Recipes drafted from data: what is written passes the checks, and nothing else happens."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.golden import assert_golden

from edgepack.data.draft.draft import Drafted, draft
from edgepack.data.splits import Splits, load_splits
from edgepack.data.suitability import LabelledRows, check_suited
from edgepack.errors import EdgepackError, EnvironmentUnfitError, RecipeInvalidError, UsageError
from edgepack.progress import SILENT
from edgepack.recipe.findings import errors
from edgepack.recipe.loader import load_recipe
from edgepack.recipe.model import SPLIT_NAMES, Recipe, SplitName

WORDS = ("房间很大", "早餐不错", "服务热情", "位置方便", "价格公道", "有点吵")
ROWS = [(f"{WORDS[n % 6]}，第 {n} 次来{WORDS[n // 6 % 6]}", "正面" if n % 3 else "负面") for n in range(120)]
GOLDENS = Path(__file__).parents[2] / "golden"


def table(file: Path, separator: str = "\t", encoding: str = "utf-8", header: bool = True) -> Path:
    with file.open("w", encoding=encoding, newline="") as stream:
        writer = csv.writer(stream, delimiter=separator, lineterminator="\n")
        writer.writerows([("text", "label")] * header + ROWS)
    return file


def json_lines(file: Path) -> Path:
    lines = [json.dumps({"review": f"{text}\n完", "stars": label}, ensure_ascii=False) for text, label in ROWS]
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def made(recipe: Path) -> tuple[Recipe, Splits]:
    """As `edgepack check` reads them."""
    loaded = load_recipe(recipe, {"local"})
    return loaded, load_splits(loaded.data)


def drafted(data: Path, recipe: Path) -> Drafted:
    return draft({"train": data}, recipe, SILENT)


@pytest.mark.parametrize(("locale", "golden"), [("en_US.UTF-8", "draft.yaml"), ("zh_CN.UTF-8", "draft.zh.yaml")])
def test_a_draft_is_the_golden_recipe(
    locale: str, golden: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", locale)
    (tmp_path / "hotel").mkdir()
    drafted(table(tmp_path / "hotel" / "reviews.tsv"), tmp_path / "recipe.yaml")
    made(tmp_path / "recipe.yaml")
    assert_golden((tmp_path / "recipe.yaml").read_text(encoding="utf-8"), GOLDENS / golden)


@pytest.mark.parametrize(
    ("name", "separator", "encoding", "header"),
    [
        ("a.tsv", "\t", "utf-8", True),
        ("a.csv", ",", "utf-8-sig", True),
        ("a.csv", ";", "gb18030", True),
        ("a.csv", "\t", "utf-16", True),
        ("a.txt", "\t", "gb18030", False),
        ("数据 $HOME.tsv", "|", "utf-8", False),
    ],
)
def test_tables_of_any_form_are_split(tmp_path: Path, name: str, separator: str, encoding: str, header: bool) -> None:
    done = drafted(table(tmp_path / name, separator, encoding, header), tmp_path / "recipe.yaml")
    assert [file.name for file in done.files] == ["recipe.yaml", "train.tsv", "dev.tsv", "test.tsv"]
    loaded, splits = made(tmp_path / "recipe.yaml")
    assert loaded.student.max_length == 16
    assert [len(rows) for rows in splits.rows.values()] == [66, 18, 36]
    assert not splits.warnings
    read = sorted((row.text, row.label) for rows in splits.rows.values() for row in rows)
    assert read == sorted(ROWS)


def test_json_lines_are_split_and_line_ends_become_spaces(tmp_path: Path) -> None:
    done = drafted(json_lines(tmp_path / "a.jsonl"), tmp_path / "recipe.yaml")
    assert "Tabs and line ends in 120 texts became spaces, which are the same to the model." in done.description
    splits = made(tmp_path / "recipe.yaml")[1]
    assert sorted(row.text for rows in splits.rows.values() for row in rows) == sorted(f"{text} 完" for text, _ in ROWS)


@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl"])
def test_three_files_that_can_be_read_are_named_as_they_are(tmp_path: Path, suffix: str) -> None:
    files = {name: tmp_path / "data" / f"{name}.{suffix}" for name in ("train", "dev", "test")}
    (tmp_path / "data").mkdir()
    for number, (name, file) in enumerate(files.items()):
        rows = [(f"{name}: {text}", label) for text, label in ROWS[40 * number : 40 * number + 40]]
        if suffix == "jsonl":
            file.write_text("\n".join(json.dumps({"评论": t, "好坏": label}) for t, label in rows), encoding="utf-8")
        else:
            with file.open("w", encoding="utf-8", newline="") as stream:
                csv.writer(stream, delimiter="\t" if suffix == "tsv" else ",").writerows([("评论", "好坏"), *rows])
    before = {file: file.read_bytes() for file in files.values()}
    done = draft(files, tmp_path / "recipe.yaml", SILENT)  # type: ignore[arg-type]
    assert done.files == (tmp_path / "recipe.yaml",)
    assert {file: file.read_bytes() for file in before} == before
    loaded, splits = made(tmp_path / "recipe.yaml")
    assert (loaded.data.columns.text, loaded.data.columns.label) == ("评论", "好坏")
    assert f"train: data/train.{suffix}\n" in (tmp_path / "recipe.yaml").read_text(encoding="utf-8")
    assert [len(rows) for rows in splits.rows.values()] == [40, 40, 40]


def test_rows_that_a_given_test_file_holds_are_left_out(tmp_path: Path) -> None:
    held = [f"{text}！\t{label}" for text, label in ROWS[:9]]
    (tmp_path / "held.tsv").write_text("\n".join(["text\tlabel", *held]), encoding="utf-8")
    given = {"train": table(tmp_path / "a.csv", ","), "test": tmp_path / "held.tsv"}
    done = draft(given, tmp_path / "recipe.yaml", SILENT)  # type: ignore[arg-type]
    assert "120 of 129 usable rows remain: 9 are in dev or test too, or nearly so." in done.description
    splits = made(tmp_path / "recipe.yaml")[1]
    assert {name: len(rows) for name, rows in splits.rows.items()} == {"train": 94, "dev": 17, "test": 9}
    assert not splits.warnings
    assert [finding.file.name for finding in done.findings if "9 test rows are too few" in finding.reason] == [
        "held.tsv"
    ]


@pytest.mark.parametrize("split", [False, True], ids=["one file", "three files"])
def test_repeated_rows_are_counted_in_one_line_and_the_commands_find_none_in_what_is_written(
    tmp_path: Path, split: bool
) -> None:
    lines = [f"{text}\t{label}" for text, label in ROWS]
    parts = {"train": lines[:80] + lines[:7], "dev": lines[80:100], "test": lines[100:]}
    files: dict[SplitName, Path] = {"train": tmp_path / "a.tsv"}
    if split:
        files |= {"dev": tmp_path / "b.tsv", "test": tmp_path / "c.tsv"}
    else:
        parts["train"] += parts["dev"] + parts["test"]
    for name, file in files.items():
        file.write_text("\n".join(["text\tlabel", *parts[name], ""]), encoding="utf-8")
    done = draft(files, tmp_path / "recipe.yaml", SILENT)
    assert (
        "120 of 127 usable rows remain: 7 repeat the text and the answer of an earlier training row."
        in done.description
    )
    splits = made(tmp_path / "recipe.yaml")[1]
    assert sum(map(len, splits.rows.values())) == 120
    assert len(splits.warnings) == split
    assert files["train"].read_text(encoding="utf-8").count("\n") == 88 + 40 * (not split)  # as it was


def test_rows_that_cannot_be_used_are_left_out_with_a_warning(tmp_path: Path) -> None:
    file = table(tmp_path / "a.tsv")
    file.write_text(file.read_text(encoding="utf-8") + "\t正面\n一\t二\t三\n" + 7 * "\t负面\n", encoding="utf-8")
    done = drafted(file, tmp_path / "recipe.yaml")
    found = [finding for finding in done.findings if finding.line is not None]
    assert [f"{finding.line}: {finding.severity}: {finding.reason}" for finding in found] == [
        "122: warning: the text is empty; left out; 7 more like it: lines 124, 125, 126, 127, ...",
        "123: warning: this row has 3 fields, and the header has 2; left out",
    ]
    made(tmp_path / "recipe.yaml")


def test_nothing_is_overwritten_unless_asked_for(tmp_path: Path) -> None:
    file = table(tmp_path / "a.tsv")
    drafted(file, tmp_path / "recipe.yaml")
    with pytest.raises(UsageError, match=r"recipe\.yaml exists"):
        drafted(file, tmp_path / "recipe.yaml")
    with pytest.raises(UsageError, match=r"train\.tsv exists"):
        drafted(file, tmp_path / "other.yaml")
    assert not (tmp_path / "other.yaml").exists()
    draft({"train": file}, tmp_path / "recipe.yaml", SILENT, force=True)


def test_a_draft_is_not_written_through_planted_links(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    data = table(tmp_path / "data" / "reviews.tsv")
    (tmp_path / "victim").write_text("mine")
    for planted in (".recipe.yaml.part", ".train.tsv.part", ".dev.tsv.part", ".test.tsv.part"):
        (tmp_path / planted).symlink_to(tmp_path / "victim")
    drafted(data, tmp_path / "recipe.yaml")
    assert (tmp_path / "victim").read_text() == "mine"


@pytest.mark.parametrize("name", ["train.tsv", "test.tsv", "recipe.yaml"])
def test_the_data_are_never_overwritten(tmp_path: Path, name: str) -> None:
    file = table(tmp_path / name)
    before = file.read_bytes()
    with pytest.raises(UsageError, match="one of the files to read"):
        draft({"train": file}, tmp_path / "recipe.yaml", SILENT, force=True)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "this file is empty"),
        ("just\nlines\n", "is not a row of a table"),
        ("text,label\n", "the file has a header (`text`, `label`) and no rows below it"),
        ("text,price\n" + "".join(f"第{n}条文本,{n * 7}\n" for n in range(60)), "these look like measurements"),
        ("text,label\n" + '很好,正\n太吵,负\n"不错,正\n' + "一般,负\n很小,正\n" * 9 + '位置",负\n', "look like rows"),
        ("text\tlabel\tlabel\n很好\t1\t1\n太吵\t0\t0\n", "duplicate column"),
        ("text,label\n" + "很好,1\n太吵,0\n" * 3 + '"不错,1\n一般,0\n', "broken CSV"),
    ],
)
def test_data_that_cannot_be_used_leave_nothing_behind(tmp_path: Path, content: str, reason: str) -> None:
    file = tmp_path / "a.csv"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(RecipeInvalidError) as error:
        drafted(file, tmp_path / "recipe.yaml")
    assert any(reason in finding.reason for finding in error.value.findings)
    assert all(finding.file == file for finding in error.value.findings)
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            "text\tlabel\n" + "".join(f"文本{n}\t好\n" for n in range(40)),
            "every row of the train split has the label `好`",
        ),
        ("text\tlabel\n很好\t1\n太吵\t0\n", "the test split has 0 rows"),
        ("text\tlabel\n" + "很好\t1\n太吵\t0\n" * 50, "the dev split has 0 rows"),
    ],
)
def test_a_recipe_is_written_for_rows_that_cannot_train(tmp_path: Path, content: str, reason: str) -> None:
    file = tmp_path / "a.tsv"
    file.write_text(content, encoding="utf-8")
    found = drafted(file, tmp_path / "recipe.yaml")
    assert any(reason in finding.reason for finding in found.findings if finding.severity == "error")
    with pytest.raises(RecipeInvalidError, match="the data cannot be used"):  # the recipe itself is valid
        made(tmp_path / "recipe.yaml")


def test_a_missing_folder_is_made_and_one_that_cannot_be_is_an_error(tmp_path: Path) -> None:
    data = table(tmp_path / "a.tsv")
    made(drafted(data, tmp_path / "new" / "folder" / "recipe.yaml").files[0])
    with pytest.raises(EnvironmentUnfitError, match="cannot be written"):
        drafted(data, data / "recipe.yaml")


@pytest.mark.parametrize(
    ("content", "fix"),
    [
        ("__label__a 很好\n__label__b 太吵\n", "awk "),
        ('{\n "text": "好",\n "label": "a"\n}\n{\n "text": "坏",\n "label": "b"\n}\n', "jq -c . "),
    ],
)
def test_a_form_that_is_not_read_has_a_command_that_converts_it(tmp_path: Path, content: str, fix: str) -> None:
    (tmp_path / "a.txt").write_text(content, encoding="utf-8")
    with pytest.raises(RecipeInvalidError) as error:
        drafted(tmp_path / "a.txt", tmp_path / "recipe.yaml")
    assert fix in error.value.findings[0].fix


@pytest.mark.parametrize(
    "nested",
    [
        {key: {str(n): row[place] for n, row in enumerate(ROWS)} for place, key in enumerate(("text", "label"))},
        {"columns": ["text", "label"], "index": [*range(len(ROWS))], "data": ROWS},
        {f"r{n}": {"text": text, "label": label} for n, (text, label) in enumerate(ROWS)},
        {"RECORDS": [{"text": text, "label": label} for text, label in ROWS]},
        {"text": [text for text, _ in ROWS], "label": [label for _, label in ROWS]},
        {label: [text for text, its in ROWS if its == label] for label in ("正面", "负面", "中性")},
        "\n".join(f"__label__{label} __label__{'单双'[n % 2]} {text}" for n, (text, label) in enumerate(ROWS)),
        {"code": 0, "data": {"total": 3, "list": [{"text": text, "label": label} for text, label in ROWS]}},
        ROWS,
        [[text, {"entities": [[0, 2, label]]}] for text, label in ROWS],
        "\n".join(f"{n}_!_{label}_!_{text}" for n, (text, label) in enumerate(ROWS)),
        [{"id": n, "abst": text, "keyword": ["早餐", "房间"], "label": label} for n, (text, label) in enumerate(ROWS)],
        [
            {
                "text_a": text,
                "text_b": "",
                "question": "",
                "choices": ["负面", "正面"],
                "labels": [int(label == "正面")],
            }
            for text, label in ROWS
        ],
    ],
)
def test_the_command_for_a_nested_table_writes_its_rows(tmp_path: Path, nested: object) -> None:
    if not shutil.which("jq"):
        pytest.skip("no jq")
    content = nested if isinstance(nested, str) else json.dumps(nested, ensure_ascii=False)
    (tmp_path / "its rows.json").write_text(content, encoding="utf-8")
    with pytest.raises(RecipeInvalidError) as error:
        drafted(tmp_path / "its rows.json", tmp_path / "recipe.yaml")
    command = error.value.findings[0].fix.partition(": ")[2]
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    [rows] = tmp_path.glob("rows*")
    drafted(rows, tmp_path / "recipe.yaml")
    assert sum(map(len, made(tmp_path / "recipe.yaml")[1].rows.values())) == len(ROWS)


def test_the_command_for_an_object_of_splits_writes_each(tmp_path: Path) -> None:
    if not shutil.which("jq"):
        pytest.skip("no jq")
    rows = [{"text": text, "label": label} for text, label in ROWS]
    nested = {"train": rows[:-30], "dev": rows[-30:-15], "test/1": rows[-15:]}
    (tmp_path / "a.json").write_text(json.dumps(nested, ensure_ascii=False), encoding="utf-8")
    with pytest.raises(RecipeInvalidError) as error:
        drafted(tmp_path / "a.json", tmp_path / "recipe.yaml")
    subprocess.run(error.value.findings[0].fix.partition(": ")[2], shell=True, cwd=tmp_path, check=True)
    written = [(tmp_path / f"{name}-a.jsonl").read_text("utf-8").splitlines() for name in ("train", "dev", "test-1")]
    assert [json.loads(line) for lines in written for line in lines] == rows


def test_texts_with_line_ends_between_tabs_are_read_as_a_csv_alone(tmp_path: Path) -> None:
    rows = [f'"{text}\n完"\t{label}' for text, label in ROWS]
    for name in ("a.tsv", "a.csv"):
        (tmp_path / name).write_text("text\tlabel\n" + "\n".join(rows) + "\n", encoding="utf-8")
    with pytest.raises(RecipeInvalidError) as error:
        drafted(tmp_path / "a.tsv", tmp_path / "recipe.yaml")
    assert error.value.findings[0].fix.endswith("mv a.tsv a.csv")
    drafted(tmp_path / "a.csv", tmp_path / "recipe.yaml")
    splits = made(tmp_path / "recipe.yaml")[1]
    assert sorted(row.text for rows in splits.rows.values() for row in rows) == sorted(f"{text} 完" for text, _ in ROWS)


def test_a_json_list_without_objects_is_named(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text('["a"]', encoding="utf-8")
    with pytest.raises(RecipeInvalidError) as error:
        drafted(tmp_path / "list.json", tmp_path / "recipe.yaml")
    assert "a JSON list" in error.value.findings[0].reason


def test_traditional_chinese_in_big5_is_converted(tmp_path: Path) -> None:
    rows = [f"房間很大，早餐也不錯，第 {n} 次來,{'正面' if n % 3 else '負面'}\n" for n in range(60)]
    (tmp_path / "a.csv").write_text("".join(["text,label\n", *rows]), encoding="big5")
    done = drafted(tmp_path / "a.csv", tmp_path / "recipe.yaml")
    assert done.description[0].startswith(f"{tmp_path / 'a.csv'}: Big5, separated by commas")
    assert set(made(tmp_path / "recipe.yaml")[1].labels["train"]) == {"正面", "負面"}


SHIFT_JIS, EUC_KR = "部屋は広くて朝ごはんもおいしかったです", "방이 넓고 직원들도 아주 친절했습니다"


@pytest.mark.parametrize(
    ("text", "encoding", "cut", "words"),
    [
        (SHIFT_JIS, "cp932", 0, "probably Shift_JIS"),
        (EUC_KR, "euc_kr", 0, "probably EUC-KR"),
        ("das Frühstück war schön", "latin-1", 0, "may be Windows-1252 (Latin-1) or Windows-1250"),
        ("номер большой и чистый", "cp1251", 0, "this line is not UTF-8"),
        ("房间很大\t好", "utf-8", 1, "ends in the middle of a character"),
    ],
)
def test_other_encodings_and_utf8_that_was_cut_are_refused(
    tmp_path: Path, text: str, encoding: str, cut: int, words: str
) -> None:
    rows = "\n".join(["text\tlabel", *(f"{text} {n}\t{n % 2}" for n in range(60)), text]).encode(encoding)
    (tmp_path / "a.tsv").write_bytes(rows[: len(rows) - cut])
    with pytest.raises(RecipeInvalidError) as error:
        drafted(tmp_path / "a.tsv", tmp_path / "recipe.yaml")
    assert words in error.value.findings[0].reason
    assert [path.name for path in tmp_path.iterdir()] == ["a.tsv"]


def many(file: Path, rows: int) -> Path:
    """As many different rows."""
    lines = [f"{WORDS[n % 6]}，第 {n} 次来{WORDS[n // 6 % 6]}\t{'正面' if n % 3 else '负面'}\n" for n in range(rows)]
    file.write_text("".join(["text\tlabel\n", *lines]), encoding="utf-8")
    return file


@pytest.mark.parametrize(("rows", "points"), [(120, None), (1200, None), (2000, 5.0), (4000, 3.0), (7000, 2.0)])
def test_a_draft_has_only_limits_that_its_test_rows_show(tmp_path: Path, rows: int, points: float | None) -> None:
    done = drafted(many(tmp_path / "a.tsv", rows), tmp_path / "recipe.yaml")
    loaded, splits = made(tmp_path / "recipe.yaml")
    text = (tmp_path / "recipe.yaml").read_text(encoding="utf-8")
    assert f"calibration: {{from: train, rows: {min(256, len(splits.rows['train']))}}}" in text
    too_few = [line for line in done.description if "cannot show a limit" in line]
    assert ("test rows show it to about ±" in text) is (points is not None)
    assert loaded.gates.accuracy is not None and loaded.gates.accuracy.min is not None
    assert loaded.gates.accuracy.min == 0.67  # above 66.7 %, and no higher
    assert loaded.gates.model_fields_set == {"accuracy"}  # no limit that nobody asked for
    assert loaded.gates.accuracy.max_drop_points == points
    assert len(too_few) == (points is None)
    labels = list(splits.labels["train"])
    facts = LabelledRows(labels, splits.lengths, len(splits.rows["train"]), splits.rows.__getitem__)
    found = [*check_suited(loaded, facts), *done.findings]
    assert ["are too few to show that a good model" in finding.reason for finding in found] == [True, True] * (
        rows < 200
    )


def test_a_gate_of_spans_counts_texts(tmp_path: Path) -> None:
    rows = ["北 B-city\n京 I-city\n" * 8 + "".join(f"{c} O\n" for c in f"的第{n}家") for n in range(2000)]
    (tmp_path / "a.conll").write_text("\n".join(rows), encoding="utf-8")
    drafted(tmp_path / "a.conll", tmp_path / "recipe.yaml")
    gate = made(tmp_path / "recipe.yaml")[0].gates.accuracy
    assert gate is not None
    assert (gate.metric, gate.min, gate.max_drop_points) == ("entity_f1", 0.01, 5.0)


def tagged(file: Path, name: str, tags: tuple[str, str] = ("B-city", "I-city")) -> Path:
    rows = [f"北 {tags[0]}\n京 {tags[1]}\n" + "".join(f"{c} O\n" for c in f"{name}的第{n}家") for n in range(20)]
    file.write_text("\n".join(rows), encoding="utf-8")
    return file


def test_three_tagged_files_are_named_as_they_are(tmp_path: Path) -> None:
    given: dict[SplitName, Path] = {name: tagged(tmp_path / f"{name}.conll", name) for name in SPLIT_NAMES}
    assert draft(given, tmp_path / "recipe.yaml", SILENT).files == (tmp_path / "recipe.yaml",)
    loaded, splits = made(tmp_path / "recipe.yaml")
    assert loaded.task == "token-classification"
    assert [len(rows) for rows in splits.rows.values()] == [20, 20, 20]
    assert "metric: entity_f1" in (tmp_path / "recipe.yaml").read_text(encoding="utf-8")


def test_tagged_lines_are_written_as_spans(tmp_path: Path) -> None:
    drafted(tagged(tmp_path / "a.txt", "a"), tmp_path / "recipe.yaml")
    first = json.loads((tmp_path / "train.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert first["text"].startswith("北京a的第")
    assert first["spans"] == [{"start": 0, "end": 2, "label": "city"}]
    assert made(tmp_path / "recipe.yaml")[1].labels["train"] == {"city": 11}


TOPICS = ((), ("服务",), ("价格", "服务"), ("服务", "价格", "房间"))


def test_tokens_and_tags_are_written_as_they_are_read(tmp_path: Path) -> None:
    texts = [text.replace(" ", "") for text, _ in ROWS]
    lists = [{"tokens": list(text), "tags": ["B-x", "I-x", *["O"] * (len(text) - 2)]} for text in texts]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(one) for one in lists), encoding="utf-8")
    table = ["text_a\tlabel", *("\t".join("\x02".join(one[key]) for key in ("tokens", "tags")) for one in lists)]
    (tmp_path / "b.tsv").write_text("\n".join(table), encoding="utf-8")
    for name in ("a.jsonl", "b.tsv"):
        drafted(tmp_path / name, tmp_path / name[0] / "recipe.yaml")
        recipe, splits = made(tmp_path / name[0] / "recipe.yaml")
        assert (recipe.data.columns.task, sum(map(len, splits.rows.values()))) == ("token-classification", 120)


@pytest.mark.parametrize("separator", [";", "、", "，", "；", "/", "#", "+", "&", " "])
def test_labels_with_another_separator_are_named_as_they_are(tmp_path: Path, separator: str) -> None:
    given: dict[SplitName, Path] = {name: tmp_path / f"{name}.csv" for name in SPLIT_NAMES}
    for name, file in given.items():
        rows = [f"{name} 的第 {n} 条,{separator.join(TOPICS[n % 4])}" for n in range(40)]
        file.write_text("\n".join(["text,topics", *rows]), encoding="utf-8")
    draft(given, tmp_path / "recipe.yaml", SILENT)
    loaded, splits = made(tmp_path / "recipe.yaml")
    assert (loaded.data.columns.labels, loaded.data.label_separator) == ("topics", separator)
    assert splits.labels["train"] == {"服务": 30, "价格": 20, "房间": 10}


def test_files_of_two_tasks_are_refused(tmp_path: Path) -> None:
    given: dict[SplitName, Path] = {"train": table(tmp_path / "a.tsv"), "test": tagged(tmp_path / "b.conll", "b")}
    with pytest.raises(RecipeInvalidError) as error:
        draft(given, tmp_path / "recipe.yaml", SILENT)
    assert [finding.reason for finding in error.value.findings] == [
        "it seems to be for token-classification by `spans`, and a.tsv for text-classification by `label`"
    ]


SAME_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
CONTENT = st.one_of(
    st.binary(max_size=200),
    st.text('text\tlabel\n,;|"{}[]: 01好坏的很。\ufeff\x00', max_size=200).map(lambda text: text.encode()),
)


@SAME_FOLDER
@given(CONTENT, st.sampled_from(["a.tsv", "a.csv", "a.jsonl", "a.txt"]))
def test_any_bytes_end_in_a_recipe_or_in_findings(tmp_path: Path, raw: bytes, name: str) -> None:
    (tmp_path / name).write_bytes(raw)
    try:
        found = draft({"train": tmp_path / name}, tmp_path / "recipe.yaml", SILENT, force=True)
    except RecipeInvalidError as error:
        assert error.findings
    except EdgepackError:
        pytest.fail("data that cannot be used are findings")
    else:
        if not errors(list(found.findings)):
            made(tmp_path / "recipe.yaml")


def test_too_few_rows_are_drafted_with_errors(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("0;\n!;!", encoding="utf-8")
    found = draft({"train": tmp_path / "a.tsv"}, tmp_path / "recipe.yaml", SILENT)
    assert [str(finding).partition("\n")[0].rpartition(": ")[2] for finding in errors(list(found.findings))] == [
        f"the {name} split has {rows}; it takes 2 at least"
        for name, rows in (("train", "1 row"), ("dev", "0 rows"), ("test", "0 rows"))
    ]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rows.csv")
    with pytest.raises(RecipeInvalidError, match="is not a regular file"):
        drafted(tmp_path / "rows.csv", tmp_path / "recipe.yaml")


def test_numbers_become_a_recipe_for_numbers(tmp_path: Path) -> None:
    """Measurements beside texts, in whatever unit; without splits, which are made."""
    lines = [f"{text}\t{place / 7:.2f}" for place, (text, _) in enumerate(ROWS)]
    (tmp_path / "prices.tsv").write_text("\n".join(["text\tprice", *lines]) + "\n", encoding="utf-8")
    said = drafted(tmp_path / "prices.tsv", tmp_path / "recipe.yaml")
    loaded, splits = made(tmp_path / "recipe.yaml")
    assert (loaded.task, loaded.data.columns.wanted) == ("text-regression", {"text": "text", "value": "value"})
    assert loaded.gates.accuracy is not None and loaded.gates.accuracy.metric == "spearman"
    assert sum(map(len, splits.rows.values())) == len(ROWS) and not said.findings
    assert all(isinstance(row.label, float) for row in splits.rows["test"])


@pytest.mark.parametrize(("grades", "task"), [(6, "text-pair-regression"), (3, "text-pair-classification")])
def test_grades_of_pairs_are_numbers_and_few_of_them_are_classes(tmp_path: Path, grades: int, task: str) -> None:
    lines = [f"{text}，很好。\t{ROWS[-place][0]}，不错。\t{place % grades}" for place, (text, _) in enumerate(ROWS)]
    (tmp_path / "sts.tsv").write_text("\n".join(["text_a\ttext_b\tscore", *lines]) + "\n", encoding="utf-8")
    drafted(tmp_path / "sts.tsv", tmp_path / "recipe.yaml")
    assert made(tmp_path / "recipe.yaml")[0].task == task


def test_intents_with_slots_become_a_recipe_for_them(tmp_path: Path) -> None:
    lines = [
        json.dumps({"text": text, "intent": label, "slots": {"place": text[:2]}}, ensure_ascii=False)
        for text, label in ROWS
    ]
    (tmp_path / "commands.jsonl").write_text("\n".join(lines), encoding="utf-8")
    drafted(tmp_path / "commands.jsonl", tmp_path / "recipe.yaml")
    loaded, splits = made(tmp_path / "recipe.yaml")
    assert loaded.task == "intent-slots" and set(loaded.data.columns.wanted) == {"text", "intent", "slots"}
    assert {row.label[0] for row in splits.rows["test"]} == {"intent=正面", "intent=负面"}
    assert all(len(row.label) == 2 for row in splits.rows["train"])
