"""Which columns are texts, labels, spans or tags."""

from __future__ import annotations

import csv
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgepack.data.choose_columns import choose_columns, labels_not_taken
from edgepack.data.column_counts import Column
from edgepack.data.draft.profile import profile
from edgepack.data.files import format_of, opened
from edgepack.data.record_forms import typed
from edgepack.data.tables import read_rows
from edgepack.data.tagged_tokens import sentences
from edgepack.errors import RecipeInvalidError
from edgepack.recipe.finding_log import FindingLog
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
TITLES: list[object] = [f"第{number}条" for number in range(24)]
WORDS: list[object] = list(TEXTS)


@pytest.mark.parametrize(
    ("columns", "header", "expected"),
    [
        ([WORDS, LABELS], "", ("1", "2")),
        ([IDS, LABELS, WORDS, DATES], "id\tstars\treview\tdate", ("review", "stars")),
        ([IDS, SOURCES, WORDS, LABELS], "id\tsource\t评论\t标签", ("评论", "标签")),  # the name tells
        ([IDS, LABELS, WORDS], "nr\tkind\twords", ("words", "kind")),  # the content tells
        ([WORDS, SOURCES], "Text\tLabel", ("Text", "Label")),
        ([WORDS, TITLES, IDS, DATES, LABELS], "review\theading\tid\tdate\tlabel", ("review", "label")),  # no pair
    ],
)
def test_columns_are_found_by_name_or_content(
    tmp_path: Path, columns: list[list[object]], header: str, expected: tuple[str, str]
) -> None:
    assert chosen(file(tmp_path, *columns, header=header)) == expected


def test_a_table_without_labels_is_refused_with_its_columns(tmp_path: Path) -> None:
    reason = refused(file(tmp_path, IDS, WORDS, header="id\treview"))
    assert reason.startswith("no column seems to hold labels")
    assert "`id` with 24 values of 7 characters" in reason


def test_a_table_of_too_many_columns_is_refused(tmp_path: Path) -> None:
    wide = tmp_path / "wide.csv"
    wide.write_text(f"text{',x' * 5000}\n" * 3, encoding="utf-8")
    assert refused(wide).startswith("this file has 5001 columns; at most 1024 are read")


@pytest.mark.parametrize("name", ["text_pair", "other"])
def test_two_long_texts_are_a_pair(tmp_path: Path, name: str) -> None:
    path = file(tmp_path, WORDS, WORDS[::-1], LABELS, header=f"text\t{name}\tlabel")
    assert choose_columns(profile(path)).wanted == {"text": "text", "text_pair": name, "label": "label"}


def test_the_texts_of_a_pair_keep_their_order(tmp_path: Path) -> None:
    longer: list[object] = [f"{word}，真的" for word in WORDS]
    path = file(tmp_path, IDS, WORDS, longer, LABELS, header="nr\tone\tother\tlabel")
    assert choose_columns(profile(path)).wanted == {"text": "one", "text_pair": "other", "label": "label"}
    path = file(tmp_path, longer, LABELS, WORDS)
    assert choose_columns(profile(path)).wanted == {"text": "1", "text_pair": "3", "label": "2"}


def lines(folder: Path, *records: dict[str, object]) -> Path:
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    return folder / "a.jsonl"


@pytest.mark.parametrize("key", ["spans", "entities", "tags"])
def test_lists_of_spans_are_token_classification(tmp_path: Path, key: str) -> None:
    spans: list[list[object]] = [[], *([{"start": 0, "end": 1, "label": "x"}] for _ in TEXTS[1:])]
    path = lines(tmp_path, *({"text": text, key: found} for text, found in zip(TEXTS, spans, strict=True)))
    assert choose_columns(profile(path)) == Columns(text="text", spans=key)


@pytest.mark.parametrize("keys", [("tokens", "tags"), ("words", "ner_tags"), ("text", "label")])
def test_lists_of_tokens_and_tags_are_token_classification(tmp_path: Path, keys: tuple[str, str]) -> None:
    tags = ["B-x", "I-x", *["O"] * 30]
    path = lines(tmp_path, *({keys[0]: list(text), keys[1]: tags[: len(text)]} for text in TEXTS))
    assert choose_columns(profile(path)) == Columns(tokens=keys[0], tags=keys[1])


def test_tags_by_number_and_spans_of_another_form_are_refused(tmp_path: Path) -> None:
    path = lines(tmp_path, *({"tokens": list(text), "ner_tags": [0] * len(text)} for text in TEXTS))
    assert "`ner_tags` hold neither" in refused(path)
    path = lines(tmp_path, *({"text": text, "entities": [["x", 0, 1]]} for text in TEXTS))
    assert "`entities` hold neither" in refused(path)


def test_spans_in_the_cells_of_a_table_are_found(tmp_path: Path) -> None:
    spans: list[object] = [json.dumps([{"start": 0, "end": 1, "label": "x"}])] * len(TEXTS)
    assert choose_columns(profile(file(tmp_path, WORDS, spans, header="text\tspans"))).task == "token-classification"


def test_lists_of_words_are_any_number_of_labels(tmp_path: Path) -> None:
    made: list[list[str]] = [[], ["价格"], ["价格", "服务"]]
    path = lines(tmp_path, *({"text": text, "topics": made[n % 3]} for n, text in enumerate(TEXTS)))
    assert choose_columns(profile(path)) == Columns(text="text", labels="topics")


@pytest.mark.parametrize("separator", ["|", ";", ","])
def test_labels_with_separators_are_any_number_of_labels(tmp_path: Path, separator: str) -> None:
    cells: list[object] = [separator.join(("价格", "服务", "位置")[: n % 4]) for n in range(24)]
    columns = choose_columns(profile(file(tmp_path, WORDS, cells, header="text\tlabel")))
    assert columns == Columns(text="text", labels="label")


@pytest.mark.parametrize(
    ("values", "separator"),
    [
        ({"a", "b", "a|b"}, "|"),
        ({"a, b", "a, c", "b, c"}, ","),
        ({"rock, hard", "pop"}, None),
        ({"Asia, East", "Asia, West", "Europe"}, None),
        ({"价格、服务", "服务、位置", "位置"}, "、"),
        ({f"{top}/{top}{below}" for top in "体财" for below in range(9)}, None),
        ({"a", "b"}, None),
        ({"时政#体育", "体育", "体育#时政"}, "#"),
        ({"C", "C#", "F#"}, None),
        ({"价格 服务", "服务 位置", "位置 价格"}, " "),
        ({"New York", "York town", "New town"}, None),
        ({"C", "C++", "Q&A"}, None),
    ],
)
def test_what_recurs_between_separators_is_a_label(values: set[str], separator: str | None) -> None:
    assert Column("label", values=values).label_separator == separator


@pytest.mark.parametrize(
    ("values", "measured"),
    [
        ([f"{n * 0.137 - 1:.3f}" for n in range(24)], True),
        ([f"{n}.5" for n in range(24)], True),
        (list(range(24)), False),  # as years or numbers of classes may be
        ([f"{n % 10 / 2}" for n in range(24)], False),  # stars
        ([f"v{n}.{n}" for n in range(24)], False),
    ],
)
def test_measurements_are_no_labels(tmp_path: Path, values: list[object], measured: bool) -> None:
    path = file(tmp_path, [*WORDS], values, header="text\tscore")
    assert choose_columns(profile(path)) == (Columns(value="score") if measured else Columns(label="score"))


def json_lines(folder: Path, *columns: list[object], names: str) -> Path:
    rows = (dict(zip(names.split(), row, strict=True)) for row in zip(*columns, strict=True))
    (folder / "a.json").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder / "a.json"


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([[str(number % 3)] for number in range(24)], Columns(label="label")),
        ([["a", "b"][: number % 3] for number in range(24)], Columns(labels="label")),
        ([{"choices": ["a", "b"]} if number % 2 else "a" for number in range(24)], Columns(labels="label")),
        ([[[0, 2, "a"]] for _ in range(24)], Columns(spans="label")),
        ([{"a": {"第": [[0, 0]]}} for _ in range(24)], Columns(spans="label")),
        ([[{"start_offset": 0, "end_offset": 2, "label": "a"}] for _ in range(24)], Columns(spans="label")),
    ],
)
def test_labels_and_spans_of_tools_are_told_apart(tmp_path: Path, labels: list[object], expected: Columns) -> None:
    assert choose_columns(profile(json_lines(tmp_path, WORDS, labels, names="text label"))) == expected


def test_columns_of_one_and_zero_are_labels_each(tmp_path: Path) -> None:
    flags: list[list[object]] = [[number % divisor == 0 for number in range(24)] for divisor in (2, 3)]
    table = file(
        tmp_path, IDS, WORDS, *[[int(bool(flag)) for flag in column] for column in flags], header="id\ttext\t价格\t服务"
    )
    assert choose_columns(profile(table)) == Columns(labels=("价格", "服务"))
    table = file(tmp_path, WORDS, LABELS, [number % 2 for number in range(24)], header="text\tlabel\tis_new")
    assert choose_columns(profile(table)) == Columns(label="label")


def test_many_whole_numbers_are_measurements(tmp_path: Path) -> None:
    prices: list[object] = [number * 37 for number in range(24)]
    table = file(tmp_path, IDS, WORDS, prices, header="id\ttext\tprice")
    assert refused(table).startswith("`price` holds many different numbers")  # which may be a year, or its length
    table = file(tmp_path, IDS, WORDS, prices, header="id\ttext\tvalue")
    assert choose_columns(profile(table)) == Columns(value="value")
    assert refused(file(tmp_path, prices, WORDS, header="id\ttext")).startswith("no column seems to hold")


def test_columns_of_yes_and_no_are_labels_each(tmp_path: Path) -> None:
    flags: list[list[object]] = [["否" if n % divisor else "是" for n in range(24)] for divisor in (2, 3)]
    assert choose_columns(profile(file(tmp_path, WORDS, *flags, header="text\t价格\t服务"))).labels == ("价格", "服务")


def test_columns_like_the_one_taken_are_named(tmp_path: Path) -> None:
    aspects: list[list[object]] = [[number % divisor - 1 for number in range(24)] for divisor in (3, 2)]
    found = profile(file(tmp_path, WORDS, SOURCES, *aspects, header="text\tsource\tprice\tservice"))
    columns = Columns(label="price")
    assert labels_not_taken(found, columns) == ["service"]
    assert labels_not_taken(found, Columns(label="source")) == []
    named = profile(file(tmp_path, WORDS, *aspects, header="text\tlabel\tservice"))
    assert labels_not_taken(named, choose_columns(named)) == []


def test_a_tag_for_each_character_is_refused_with_a_command_that_converts_it(tmp_path: Path) -> None:
    tags: list[object] = [["B-x", "I-x", *["O"] * (len(text) - 2)] for text in TEXTS]
    path = json_lines(tmp_path, WORDS, tags, names="text labels")
    with pytest.raises(RecipeInvalidError) as error:
        choose_columns(profile(path))
    (finding,) = error.value.findings
    assert "has a tag for each character of `text`" in finding.reason
    if shutil.which("jq"):
        command = finding.fix.removeprefix("convert it: ").partition(", then")[0]
        subprocess.run(command, shell=True, cwd=path.parent, check=True)
        found = profile(path.with_name(f"tokens-{path.stem}.jsonl"))
        assert choose_columns(found) == Columns(tokens="tokens", tags="tags")


def test_ratings_in_the_cells_of_a_table_are_labels(tmp_path: Path) -> None:
    ratings: list[object] = [json.dumps([{"rating": number % 3 + 1}]) for number in range(24)]
    assert chosen(file(tmp_path, WORDS, ratings, header="text\tstars")) == ("text", "stars")


def test_tokens_of_paddlenlps_examples_are_known_by_their_separator(tmp_path: Path) -> None:
    tokens: list[object] = ["\x02".join(text) for text in TEXTS]
    tags: list[object] = ["\x02".join("P-B" if place == 0 else "O" for place, _ in enumerate(text)) for text in TEXTS]
    table = file(tmp_path, tokens, tags, header="text_a\tlabel")
    assert choose_columns(profile(table)) == Columns(tokens="text_a", tags="label")


PATHS: list[object] = [[["吃", "贵"]], [["住", "小"]]]


@pytest.mark.parametrize("is_nested", [False, True])
@pytest.mark.parametrize("is_table", [False, True])
@pytest.mark.parametrize("several", [False, True])
def test_choices_in_trees_are_labels(tmp_path: Path, is_nested: bool, is_table: bool, several: bool) -> None:
    paths = [[["吃", "贵"], ["住"]] if several and number == 0 else PATHS[number % 2] for number in range(24)]
    cells: list[object] = [[{"taxonomy": path}] if is_nested else path for path in paths]
    if is_table:
        path = file(tmp_path, WORDS, [json.dumps(cell) for cell in cells], header="text\ttree")
    else:
        path = json_lines(tmp_path, WORDS, cells, names="text tree")
    assert choose_columns(profile(path)) == (Columns(labels="tree") if several else Columns(label="tree"))


SENTENCES: list[object] = ["你好！", "再见。", "谢谢。"]


@pytest.mark.parametrize(
    ("names", "answers"),
    [
        ("text label", SENTENCES),
        ("text label", [[sentence] for sentence in SENTENCES]),
        ("one other", [[sentence] for sentence in SENTENCES]),
        ("text label", [[sentence, f"啊，{sentence}"] for sentence in SENTENCES]),
        ("text label", [f"{number}位客人来了" for number in range(24)]),
        ("text summary", [f"{number}位客人来了" for number in range(24)]),
        ("en zh", [f"{number}位客人来了" for number in range(24)]),
        ("text label", [f"第{number}位客人来了又走了但是明天还会再来这里一次" for number in range(1200)]),
    ],
)
def test_written_answers_are_no_labels(tmp_path: Path, names: str, answers: list[object]) -> None:
    texts: list[object] = [f"{number} 号：{TEXTS[0]}，{TEXTS[1]}" for number in range(len(answers))]
    path = json_lines(tmp_path, texts, answers, names=names)
    assert "generation of text, which is not served" in refused(path)


@pytest.mark.parametrize(
    "labels",
    [
        ["好评！", "差评！", "好评！"],
        ["sports", "economy", "weather"],
        [["吃", "住", "行"][: 1 + number % 3] for number in range(24)],
        [f"class_{number}" for number in range(12)] * 2,
    ],
)
def test_few_labels_are_no_written_answers(tmp_path: Path, labels: list[object]) -> None:
    columns = choose_columns(profile(json_lines(tmp_path, WORDS[: len(labels)], labels, names="text label")))
    assert "label" in columns.wanted.values()


def test_a_column_called_label_wins_over_lists_of_words(tmp_path: Path) -> None:
    words: list[object] = [[f"词{number % 7}", "词"] for number in range(24)]
    path = json_lines(tmp_path, WORDS, words, LABELS, names="text keyword label")
    assert choose_columns(profile(path)) == Columns(label="label")


def test_tags_between_spaces_are_no_written_answers(tmp_path: Path) -> None:
    tags: list[object] = ["B-x I-x" + " O" * number for number in range(24)]
    assert "holds tags between spaces" in refused(json_lines(tmp_path, WORDS, tags, names="text label"))


def test_columns_of_texts_without_their_labels_are_not_called_generation(tmp_path: Path) -> None:
    texts: list[object] = [[f"{text}。"] for text in TEXTS]
    assert refused(json_lines(tmp_path, texts, texts, names="good bad")).startswith("no column seems to hold")


TAGGED_SENTENCES = [
    [("上海", "B-city"), ("的", "O"), ("雨", "O")],
    [("None", "O"), ("苏", "B-city"), ('州"', "I-city")],
] * 6


@pytest.mark.parametrize("form", ["ids", "first", "blank", "numbered"])
def test_a_table_of_a_token_and_its_tag_is_refused_with_a_command_that_converts_it(tmp_path: Path, form: str) -> None:
    rows: list[list[object]] = [] if form == "blank" else [["Sentence #", "word", "pos", "tag"]]
    if form == "numbered":  # each token in its sentence
        rows = [["index", "Sentence #", "word", "tag"]]
    for number, sentence in enumerate(TAGGED_SENTENCES):
        for place, (token, tag) in enumerate(sentence):
            number_cell = f"s{number}" if form == "ids" or place == 0 else ""
            row = [token, tag] if form == "blank" else [number_cell, token, "N", tag]
            rows.append([place + 1, f"s{number}", token, tag] if form == "numbered" else row)
        rows += [[]] if form == "blank" else []
    path = tmp_path / "its tokens.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows(rows)
    with pytest.raises(RecipeInvalidError) as error:
        choose_columns(profile(path))
    (finding,) = error.value.findings
    assert finding.reason.startswith("each row is one token (`")
    command = finding.fix.removeprefix("convert it: ").partition(", then")[0]
    subprocess.run(command.replace("python3", shlex.quote(sys.executable), 1), shell=True, cwd=tmp_path, check=True)
    log = FindingLog(tmp_path / "tokens-its tokens.conll")
    with opened(log.file, format_of(log.file)) as read:
        found = [list(zip(tokens, tags, strict=True)) for _, tokens, tags in sentences(read, log)]
    assert (found, log.findings()) == (TAGGED_SENTENCES, ())


@pytest.mark.parametrize("labels", [["B-1", "S-2", "E-3"], ["B-1", "S-2", "O"]])
def test_labels_of_whole_texts_that_look_like_tags_are_labels(tmp_path: Path, labels: list[str]) -> None:
    rows = [f"{text},{label}" for text, label in zip(TEXTS, labels * 8, strict=True)]
    (tmp_path / "a.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    columns = choose_columns(profile(tmp_path / "a.csv"))
    assert columns.wanted == {"text": "text", "label": "label"}


def test_a_second_column_that_is_called_as_one_of_labels_is_named(tmp_path: Path) -> None:
    topics: list[object] = [number % 3 for number in range(24)]
    found = profile(file(tmp_path, WORDS, SOURCES, topics, header="评论\t情感\t主题"))
    assert labels_not_taken(found, choose_columns(found)) == ["主题"]


def test_tags_between_spaces_are_refused_with_a_command_that_converts_them(tmp_path: Path) -> None:
    texts = TEXTS[:10]  # without two digits in turn, between which a space is added
    spaced: list[object] = [" ".join(text) for text in texts]
    tags: list[object] = [" ".join(["B-x", *["O"] * (len(text) - 1)]) for text in texts]
    path = file(tmp_path, spaced, tags, header="text\ttags")
    with pytest.raises(RecipeInvalidError) as error:
        choose_columns(profile(path))
    command = error.value.findings[0].fix.removeprefix("convert it: ").partition(", then")[0]
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    rows = list(read_rows(tmp_path / "tokens-a.conll", Columns(spans="spans"), FindingLog(tmp_path)))
    assert [row.text for _, row in rows] == texts


@pytest.mark.parametrize("content", ["北京/ns 很/d 大/a\n他/o 来/o\n", "北/B-c 京/I-c 很/O\n他/O 来/O\n"])
def test_words_with_tags_behind_a_slash_are_refused_with_a_command(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.txt").write_text(content, encoding="utf-8")
    with pytest.raises(RecipeInvalidError) as error:
        profile(tmp_path / "a.txt")
    command = error.value.findings[0].fix.partition(": ")[2]
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    rows = list(read_rows(tmp_path / "tokens-a.conll", Columns(spans="spans"), FindingLog(tmp_path)))
    assert [row.text[:2] for _, row in rows] == ["北京", "他来"]
    assert next(span[:2] for span in rows[0][1].label) == (0, 2)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"image": "a.jpg", "label": "猫"}\n{"image": "b.png", "label": "狗"}\n' * 9, "names images"),
    ],
)
def test_rows_of_other_tasks_are_named(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(RecipeInvalidError) as error:
        choose_columns(profile(path))
    assert words in error.value.findings[0].reason


@pytest.mark.parametrize(
    "content",
    [
        "context,question,answer,answer_start\n" + "文章很长，他也来,谁来,他,5\n" * 9,
        '{"context": "文章很长，他也来", "query": "谁来", "answers": {"text": ["他"], "answer_start": [5]}}\n' * 9,
        '{"data": [{"paragraphs": [{"context": "文章很长", "qas": [{"question": "谁", "answers": []}]}]}]}',
    ],
)
def test_questions_and_their_texts_are_found(tmp_path: Path, content: str) -> None:
    path = tmp_path / ("a.csv" if content.startswith("context") else "a.jsonl")
    path.write_text(content, encoding="utf-8")
    found = choose_columns(profile(path))
    assert found.task == "reading" and found.text_pair == "context"


def test_rows_within_objects_have_a_command_that_flattens_them(tmp_path: Path) -> None:
    if not shutil.which("jq"):
        pytest.skip("no jq")
    rows = [{"data": {"content": text}, "result": {"label": "ab"[number % 2]}} for number, text in enumerate(TEXTS)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    with pytest.raises(RecipeInvalidError) as error:
        choose_columns(profile(tmp_path / "a.jsonl"))
    command = error.value.findings[0].fix.partition("convert it: ")[2].partition(", then")[0]
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert chosen(tmp_path / "flat-a.jsonl") == ("data.content", "result.label")


def test_a_command_writes_to_a_name_that_nothing_has_and_runs_nothing_of_the_folder(tmp_path: Path) -> None:
    rows = "".join(f"{token},{tag}\n" for token, tag in [("北", "B-c"), ("京", "I-c"), ("很", "O")] * 9)
    (tmp_path / "a.csv").write_text(f"word,tag\n{rows}", encoding="utf-8")
    (tmp_path / "tokens-a.conll").symlink_to(tmp_path / "victim")
    (tmp_path / "csv.py").write_text("open('ran', 'w')", encoding="utf-8")
    with pytest.raises(RecipeInvalidError) as error:
        choose_columns(profile(tmp_path / "a.csv"))
    command = error.value.findings[0].fix.removeprefix("convert it: ").partition(", then")[0]
    subprocess.run(command.replace("python3", shlex.quote(sys.executable), 1), shell=True, cwd=tmp_path, check=True)
    assert (tmp_path / "tokens-a-2.conll").read_text("utf-8").startswith("北\tB-c\n")
    assert not (tmp_path / "victim").exists()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["-n.json", "FS=x.json"])
def test_the_name_of_a_file_is_no_option(name: str) -> None:
    assert typed(name) == shlex.quote(f"./{name}")


def test_a_table_of_tokens_without_a_header_loses_none(tmp_path: Path) -> None:
    rows = "".join(f"{token},{tag}\n" for token, tag in [("浙", "B-c"), ("商", "I-c"), ("很", "O")] * 9)
    (tmp_path / "a.csv").write_text(rows, encoding="utf-8")
    with pytest.raises(RecipeInvalidError) as error:
        choose_columns(profile(tmp_path / "a.csv"))
    command = error.value.findings[0].fix.removeprefix("convert it: ").partition(", then")[0]
    subprocess.run(command.replace("python3", shlex.quote(sys.executable), 1), shell=True, cwd=tmp_path, check=True)
    assert (tmp_path / "tokens-a.conll").read_text("utf-8").count("B-c") == 9


@pytest.mark.parametrize(("tags", "first"), [(["B", "M", "E", "S"], "B-word"), (["n", "v", "a", "d"], "B-n")])
def test_tags_without_types_have_a_command(tmp_path: Path, tags: list[str], first: str) -> None:
    content = "\n\n".join(
        "\n".join(f"{token}\t{tag}" for token, tag in zip("在北京很", tags, strict=True)) for _ in "12"
    )
    (tmp_path / "a.txt").write_text(content, encoding="utf-8")
    with pytest.raises(RecipeInvalidError) as error:
        profile(tmp_path / "a.txt")
    subprocess.run(error.value.findings[0].fix.partition(": ")[2], shell=True, cwd=tmp_path, check=True)
    assert (tmp_path / "tokens-a.conll").read_text("utf-8").startswith(f"在\t{first}\n")


def test_lists_of_tags_without_lists_of_tokens_are_refused(tmp_path: Path) -> None:
    tags: list[object] = [json.dumps(["B-x", "O"]) for _ in TEXTS]
    assert "no column the lists of their tokens" in refused(file(tmp_path, WORDS, tags, header="sentence\ttag"))


def test_rows_that_nobody_annotated_are_left_out(tmp_path: Path) -> None:
    labels: list[object] = [[] if number % 5 == 0 else ["ab"[number % 2]] for number in range(24)]
    found = profile(json_lines(tmp_path, WORDS, labels, names="text label"))
    assert choose_columns(found) == Columns()
    log = FindingLog(found.file)
    assert len(list(read_rows(found.file, Columns(), log))) == 19
    assert next(finding.severity for finding in log.findings()) == "warning"
