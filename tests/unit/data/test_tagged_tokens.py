"""Tokens and tags: joined with their offsets, and read from CoNLL files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack.artifacts import Row
from edgepack.data.tables import read_rows
from edgepack.recipe.finding_log import FindingLog
from edgepack.recipe.model import Columns
from edgepack.tasks.labelled_spans import join
from edgepack.tasks.tags import TagReader, is_tag
from edgepack_runtime.util.spans import Span, tags_of_spans
from edgepack_runtime.util.texts import is_unseen


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (["北", "京"], "北京"),
        (["Barack", "Obama", "在", "WTO", "2024", "，", "ok"], "Barack Obama在WTO 2024，ok"),
        (["Müller", "é", "a"], "Mülleréa"),  # only ASCII letters and digits take a space
        (["New York", "City"], "New York City"),
        ([], ""),
    ],
)
def test_words_of_ascii_take_a_space_and_others_none(tokens: list[str], text: str) -> None:
    joined, offsets = join(tokens)
    assert joined == text
    assert [joined[start:end] for start, end in offsets] == tokens


@given(st.lists(st.text(min_size=1, max_size=4), max_size=12))
def test_offsets_give_the_tokens_back(tokens: list[str]) -> None:
    joined, offsets = join(tokens)
    assert [joined[start:end] for start, end in offsets] == tokens
    assert len(joined) - sum(map(len, tokens)) <= max(0, len(tokens) - 1)


@pytest.mark.parametrize(
    ("tags", "read"),
    [
        (["O", "B-x", "I-a-b", "E-x", "S-地址"], ["O", "B-x", "I-a-b", "E-x", "S-地址"]),
        (["B-x", "M-x", "E-x"], ["B-x", "I-x", "E-x"]),
        (["U-x", "L-x", "W-x"], ["S-x", "E-x", "S-x"]),
        (["B_P", "I_P", "O"], ["B-P", "I-P", "O"]),
        (["P-B", "A1-I", "a_b-E"], ["B-P", "I-A1", "E-a_b"]),
        (["地址_B", "S-B"], ["B-地址", "B-S"]),  # the first tag tells the side
    ],
)
def test_tags_of_all_dialects_are_read(tags: list[str], read: list[str]) -> None:
    reader = TagReader()
    assert [reader.read(tag) for tag in tags] == [(tag, None) for tag in read]
    assert all(map(is_tag, tags))


@pytest.mark.parametrize("tag", ["B-", "B", "o", "", "0", "X-x", "-B"])
def test_other_tags_are_named(tag: str) -> None:
    read, problem = TagReader().read(tag)
    assert read == "" and not is_tag(tag)
    assert problem is not None and f"`{tag}` is not a tag" in problem[0]


def test_forms_are_on_one_side_in_a_file() -> None:
    for first, other in (("B-x", "x-B"), ("x-B", "I-x")):
        reader = TagReader()
        reader.read(first)
        _, problem = reader.read(other)
        assert problem is not None and f"`{other}` and `{first}`" in problem[0]


def read(folder: Path, content: str, name: str = "a.conll") -> tuple[list[tuple[int, Row]], list[str]]:
    (folder / name).write_text(content, encoding="utf-8")
    log = FindingLog(folder / name)
    rows = list(read_rows(folder / name, Columns(spans="spans"), log))
    return rows, [f"{finding.line}: {finding.severity}: {finding.reason}" for finding in log.findings()]


@pytest.mark.parametrize("name", ["a.conll", "a.BIO"])
@pytest.mark.parametrize("separator", ["\t", " "])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_sentence_is_a_row(tmp_path: Path, name: str, separator: str, end: str) -> None:
    lines = ["-DOCSTART- O", "", "北 B-city", "京 I-city", "有 O", "", "", "IBM B-org", "PC S-thing", "很 O"]
    rows, found = read(tmp_path, end.join(lines).replace(" ", separator), name)
    assert found == []
    assert rows == [
        (3, Row("北京有", (Span(0, 2, "city"),))),
        (8, Row("IBM PC很", (Span(0, 3, "org"), Span(4, 6, "thing")))),
    ]


def test_columns_between_token_and_tag_are_passed_over(tmp_path: Path) -> None:
    rows, found = read(tmp_path, "EU NNP B-NP B-ORG\nrejects VBZ B-VP O\n")
    assert (rows, found) == ([(1, Row("EU rejects", (Span(0, 2, "ORG"),)))], [])


def test_broken_sequences_are_read_as_conlleval_does(tmp_path: Path) -> None:
    rows, found = read(tmp_path, "甲 O\n乙 I-x\n丙 I-y\n丁 E-y\n")
    assert (rows, found) == ([(1, Row("甲乙丙丁", (Span(1, 2, "x"), Span(2, 4, "y"))))], [])


def test_a_line_that_is_wrong_is_named_and_its_sentence_left_out(tmp_path: Path) -> None:
    rows, found = read(tmp_path, "甲 O\n乙\n\n丙 X-x\n丁 O\n\n戊 O\n\n\t\tO\n")
    assert rows == [(7, Row("戊", ()))]
    assert found == [
        "2: error: this line has 1 field, and a token and its tag are wanted",
        "9: error: this line has 1 field, and a token and its tag are wanted",
        "4: error: `X-x` is not a tag of BIO, BIOES or BMES",
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [("", "is empty"), (" \r", "is empty")],
)
def test_a_file_that_cannot_be_read_is_a_finding(tmp_path: Path, content: str, reason: str) -> None:
    assert read(tmp_path, content) == ([], [f"None: error: this file {reason}"])


# A text of characters that nobody sees is a finding, and no row.
_CHARACTERS = st.characters(exclude_categories=["Cs", "Cc", "Cf", "Z"], exclude_characters="\ufffd")  # that one warns
TOKEN = st.text(_CHARACTERS, min_size=1, max_size=3).filter(lambda token: not is_unseen(token))
NAME = st.sampled_from(["x", "y", "b-c"])
CHUNKS = st.lists(st.tuples(st.lists(TOKEN, min_size=1, max_size=3), st.none() | NAME), min_size=1, max_size=6)


@given(CHUNKS, st.sampled_from(["BIO", "BIOES"]))
def test_spans_survive_being_written_as_tags(tmp_path_factory: pytest.TempPathFactory, chunks, scheme) -> None:  # type: ignore[no-untyped-def]
    text, offsets = join([token for tokens, _ in chunks for token in tokens])
    spans, first = [], 0
    for tokens, name in chunks:
        last = first + len(tokens) - 1
        if name is not None:
            spans.append(Span(offsets[first][0], offsets[last][1], name))
        first = last + 1
    tags = tags_of_spans(spans, offsets, scheme)
    lines = "\n".join(f"{text[start:end]}\t{tag}" for (start, end), tag in zip(offsets, tags, strict=True))
    assert read(tmp_path_factory.mktemp("conll"), lines) == ([(1, Row(text, tuple(spans)))], [])


@given(st.text("甲乙a1 \t\n\rOBIES-x", max_size=60))
def test_anything_gets_an_answer(tmp_path_factory: pytest.TempPathFactory, content: str) -> None:
    rows, found = read(tmp_path_factory.mktemp("conll"), content)
    assert rows or found or not content.strip().replace("-DOCSTART-", "")
    for _, row in rows:
        assert all(isinstance(span, Span) and row.text[span.start : span.end].strip() for span in row.label)


def test_a_sentence_without_an_end_is_not_held_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgepack.data.tagged_tokens.MAX_LINE_BYTES", 100)
    (tmp_path / "a.conll").write_text("北\tO\n\n" + "北\tO\n" * 1000, encoding="utf-8")
    log = FindingLog(tmp_path / "a.conll")
    rows = list(read_rows(tmp_path / "a.conll", Columns(spans="spans"), log))
    assert len(rows) == 1 and log.ended
    [finding] = log.findings()
    assert (finding.severity, finding.line) == ("error", 3)


@pytest.mark.parametrize("first", [0, 1])
def test_a_column_that_numbers_the_tokens_is_not_the_token(tmp_path: Path, first: int) -> None:
    tagged = enumerate(zip("在北京", ["O", "B-c", "I-c"], strict=True), first)
    sentence = "".join(f"{place}\t{token}\tN\t{tag}\n" for place, (token, tag) in tagged)
    rows, said = read(tmp_path, f"# sent_id = 1\n{sentence}\n#\tsource [2005]\n{sentence}\n{first}\t1\tN\tO\n")
    assert [row.text for _, row in rows] == ["在北京", "在北京", "1"]
    assert rows[0][1].label == (Span(1, 3, "c"),)
    assert not said


def test_tokens_that_are_numbers_are_tokens(tmp_path: Path) -> None:
    rows, _ = read(tmp_path, "1\tN\tO\n2\tN\tO\n3\tN\tO\n\n北\tN\tB-c\n#\tN\tO\n")
    assert [row.text for _, row in rows] == ["1 2 3", "北#"]


def test_a_second_column_of_tags_is_named(tmp_path: Path) -> None:
    rows, said = read(tmp_path, "北\tB-outer\tB-inner\n京\tI-outer\tO\n")
    assert rows[0][1].label == (Span(0, 1, "inner"),)
    assert len(said) == 1
    assert "`B-outer` before it is not" in said[0]
