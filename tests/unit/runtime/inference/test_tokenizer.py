from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import threading
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.interpreters import required_python
from tests.unit.runtime import all_of_unicode
from tests.unit.runtime.tiny_model import VOCAB

import edgepack_runtime
from edgepack_runtime.bundle.model_config import TokenizerConfig
from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.inference import tokenizer as module
from edgepack_runtime.inference.tokenizer import ErnieTokenizer, _cut, _cut_as_bert

ID = {token: number for number, token in enumerate(VOCAB)}
# Digests of the words that every character of Unicode gives, and of Unicode 14.0's data about it.
ALL_OF_UNICODE = "0508ca81fe0d735262ceea66aa30c7329049f3ba0271bced5e50a45366ee6c38"
UNICODE_14 = "b367aa82392968c2d86e7f43525b9073ff1882c50670b9a3e67cbee840b5daa9"

# Assigned in Unicode 3.2 already: every Python agrees on those. And some newer ones that people use.
settled = st.characters(exclude_categories=("Cs", "Cn")).filter(lambda c: unicodedata.ucd_3_2_0.category(c) != "Cn")
often = st.sampled_from("好差店很，！ok ～★〇12\u200d\ufe0f😀👨🇨\u0301ÉİẞΣΐ한가①ⅣＡ　\t\r\n\x0b\x85\u2028")
moving = st.sampled_from("a\u302e\u1b44\U0001d15e\U0001d165\U0001d16d\u034f\u0344\u0327≠")  # put in order by NFD


def write_vocab(folder: Path, text: str) -> Path:
    path = folder / "vocab.txt"
    path.write_bytes(text.encode())
    return path


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ErnieTokenizer:
    return ErnieTokenizer(write_vocab(tmp_path_factory.mktemp("vocab"), "\n".join(VOCAB)), TokenizerConfig())


def tokens(tokenizer: ErnieTokenizer, text: str, max_length: int = 64) -> list[str]:
    """The tokens of `text` without [CLS] and [SEP]."""
    [ids] = tokenizer.encode([text], max_length)
    found = [VOCAB[number] for number in ids]
    assert found[0] == "[CLS]" and found[-1] == "[SEP]"
    return found[1:-1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("很好", "很 好"),
        ("", ""),
        (" \t\u3000\u2028\n", ""),
        ("OK okay OK1 12", "ok ok ##ay [UNK] 1 ##2"),  # WordPiece: longest first, and all of a word or nothing
        ("店！！", "店 ！ ！"),  # punctuation stands alone
        ("～～★★", "～ ～ ★ ★"),  # so do symbols, in runs too
        ("〇〇ok", "〇 〇 ok"),  # a numeral to Unicode, a symbol to PaddleNLP
        ("o\u0301k Ó", "ok [UNK]"),  # combining marks go; o alone is not in the vocabulary
        ("o\x00\x07\u200b\ufffd\ue000k", "ok"),  # control, format, private use and U+FFFD vanish
        ("\u0378o\U0001fae8k", "ok"),  # unassigned, and assigned after Unicode 14.0
        ("o\U0001fae0k", "[UNK] [UNK] [UNK]"),  # 14.0 itself is in
        ("ｏｋ１", "[UNK]"),  # full-width letters are not folded
        ("好[SEP]差[PAD][MASK][UNK]", "好 [SEP] 差 [PAD] [MASK] [UNK]"),  # as ErnieTokenizer.from_pretrained
        ("[sep]", "[UNK] [UNK] [UNK]"),
    ],
)
def test_tokens_are_those_of_ernie(tokenizer: ErnieTokenizer, text: str, expected: str) -> None:
    assert tokens(tokenizer, text) == expected.split()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("～12", "[UNK]"),  # one word, and the vocabulary has no ##12 behind ～
        ("★好★", "★ 好 ★"),
        ("〇ok", "[UNK]"),
        ("o$k，12", "[UNK] [UNK] [UNK] ， 1 ##2"),  # symbols of ASCII are words, as all punctuation
        ("O\u0301K", "ok"),
    ],
)
def test_tokens_are_those_of_bert(tmp_path: Path, text: str, expected: str) -> None:
    bert = ErnieTokenizer(write_vocab(tmp_path, "\n".join(VOCAB)), TokenizerConfig("bert-wordpiece"))
    assert tokens(bert, text) == expected.split()


@pytest.mark.parametrize(
    ("lengths", "room", "left"),
    [
        ((3, 4), 7, (3, 4)),
        ((3, 60), 9, (3, 6)),
        ((60, 3), 9, (6, 3)),
        ((60, 5), 9, (5, 4)),  # both are cut: the longer one keeps the odd token
        ((5, 60), 9, (4, 5)),
        ((60, 60), 9, (4, 5)),  # of one length: the second
        ((60, 60), 8, (4, 4)),
    ],
)
def test_pairs_are_cut_as_bert_cuts_them(lengths: tuple[int, int], room: int, left: tuple[int, int]) -> None:
    assert _cut_as_bert(*lengths, room) == left


def test_of_two_long_texts_the_longer_keeps_one_token_more(tmp_path: Path) -> None:
    bert = ErnieTokenizer(write_vocab(tmp_path, "\n".join(VOCAB)), TokenizerConfig("bert-wordpiece"))
    _, n_first = bert.encode_pairs(["好" * 300, "好" * 200], ["好" * 200, "好" * 300], 12)
    assert n_first == [7, 6]  # with [CLS] and [SEP]; nine tokens are left for both texts


def test_a_word_of_more_than_100_characters_is_unknown(tokenizer: ErnieTokenizer) -> None:
    assert tokens(tokenizer, "好1" + "2" * 99, 128) == ["好", "1", *["##2"] * 99]
    assert tokens(tokenizer, "好1" + "2" * 100, 128) == ["好", "[UNK]"]


def test_lone_surrogates_are_dropped(tokenizer: ErnieTokenizer) -> None:
    assert tokens(tokenizer, "o\ud800k\udfff好") == ["ok", "好"]
    assert tokens(tokenizer, "[SEP]\ud800[SE\ud800P]") == ["[SEP]", "[UNK]", "[UNK]", "[UNK]"]
    assert tokenizer.encode(["好", "\ud83d", "差"], 8) == [[1, ID["好"], 2], [1, 2], [1, ID["差"], 2]]


def test_the_tokenizer_cuts_texts(tokenizer: ErnieTokenizer) -> None:
    rows = tokenizer.encode(["好差店", "很", "好" * 90], 6)
    assert rows == [[1, ID["好"], ID["差"], ID["店"], 2], [1, ID["很"], 2], [1, *[ID["好"]] * 4, 2]]
    assert tokenizer.encode([], 8) == []


# --- pairs ----------------------------------------------------------------------------------------------------


def test_a_pair_is_one_row_of_two_types(tokenizer: ErnieTokenizer) -> None:
    rows, n_first = tokenizer.encode_pairs(["好差", "", "很"], ["店", "很店", ""], 16)
    good, bad, shop, very = (ID[token] for token in "好差店很")
    assert rows == [[1, good, bad, 2, shop, 2], [1, 2, very, shop, 2], [1, very, 2, 2]]
    assert n_first == [4, 2, 3]
    assert tokenizer.encode_pairs([], [], 8) == ([], [])
    [ids], [first] = tokenizer.encode_pairs(["好[SEP]差"], ["店"], 16)  # a [SEP] in a text does not end it
    assert (ids[2], len(ids), first) == (2, 7, 5)


@pytest.mark.parametrize(("first", "second"), [(["好"], []), ([], ["好"]), (["好"], ["差", "店"])])
def test_half_a_pair_is_refused(tokenizer: ErnieTokenizer, first: list[str], second: list[str]) -> None:
    with pytest.raises(ValueError, match="make no pairs"):
        tokenizer.encode_pairs(first, second, 8)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 30))
def test_the_longer_text_loses_its_end_first(n_first: int, n_second: int, room: int) -> None:
    expected = n_first, n_second
    while sum(expected) > room:  # as PaddleNLP does it, token by token
        expected = (expected[0] - 1, expected[1]) if expected[0] > expected[1] else (expected[0], expected[1] - 1)
    assert _cut(n_first, n_second, room) == expected


@given(st.lists(st.tuples(st.text(max_size=12), st.text(max_size=12)), max_size=4), st.integers(3, 20))
def test_a_pair_is_made_of_its_texts(tokenizer: ErnieTokenizer, pairs: list[tuple[str, str]], max_length: int) -> None:
    firsts, seconds = [first for first, _ in pairs], [second for _, second in pairs]
    rows, firsts_of_rows = tokenizer.encode_pairs(firsts, seconds, max_length)
    alone = tokenizer.encode(firsts, 99), tokenizer.encode(seconds, 99)
    for first, second, row, n_first in zip(*alone, rows, firsts_of_rows, strict=True):
        left, second_left = _cut(len(first) - 2, len(second) - 2, max_length - 3)
        assert row == [*first[: left + 1], 2, *second[1 : second_left + 1], 2]
        assert n_first == left + 2 and len(row) <= max_length


# --- offsets --------------------------------------------------------------------------------------------------


def slices(tokenizer: ErnieTokenizer, text: str, max_length: int = 64) -> list[tuple[str, str]]:
    """The tokens of `text` without [CLS] and [SEP], and the characters that each stands for."""
    [ids], [offsets] = tokenizer.encode_with_offsets([text], max_length)
    assert [ids] == tokenizer.encode([text], max_length)
    assert len(offsets) == len(ids) and offsets[0] == offsets[-1] == (0, 0)
    return [(VOCAB[number], text[start:end]) for number, (start, end) in zip(ids[1:-1], offsets[1:-1], strict=True)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("很好", ["很", "好"]),
        ("", []),
        (" \t好\u3000 差\n", ["好", "差"]),
        ("OKay 12，", ["OK", "ay", "1", "2", "，"]),
        ("店\x00\u200b好", ["店", "好"]),  # what is dropped between words belongs to neither
        ("o\u200bk", ["o\u200bk"]),  # and inside a word to it
        ("e\u0301好", ["e\u0301", "好"]),  # a mark belongs to what it stands on
        ("é好\ufe0f\u0301 \u0301差", ["é", "好\ufe0f\u0301", "差"]),  # and to nothing where it stands on nothing
        ("가好", ["가", "好"]),  # two code points for the model
        ("\u0344\U0001d165\u0327好", ["\U0001d165\u0327", "好"]),  # a mark that the model sees, between others
        ("\U00020bb7\U0001f600店", ["\U00020bb7", "\U0001f600", "店"]),  # one index each, unlike in UTF-16
        ("\ud83d店\udc00\udc00o\ud800k好\ud83d", ["店", "o\ud800k", "好"]),  # halves of pairs count
        ("好[SEP]差", ["好", "[SEP]", "差"]),
        ("x" * 101 + "好", ["x" * 101, "好"]),
    ],
)
def test_offsets_are_indices_of_the_text(tokenizer: ErnieTokenizer, text: str, expected: list[str]) -> None:
    assert [found for _, found in slices(tokenizer, text)] == expected


def test_offsets_are_cut_with_their_tokens(tokenizer: ErnieTokenizer) -> None:
    rows, offsets = tokenizer.encode_with_offsets(["好差店很", "", "很 好"], 5)
    assert [len(row) for row in rows] == [5, 2, 4]
    assert offsets == [[(0, 0), (0, 1), (1, 2), (2, 3), (0, 0)], [(0, 0), (0, 0)], [(0, 0), (0, 1), (2, 3), (0, 0)]]
    assert tokenizer.encode_with_offsets([], 5) == ([], [])


plain = st.text(st.sampled_from("好差店很，！～★〇1２ok OKAY12 \t\u3000一丁七\U00020000"), max_size=40)


@given(plain)
def test_the_slices_of_plain_text_are_its_tokens(tokenizer: ErnieTokenizer, text: str) -> None:
    found = slices(tokenizer, text)
    for token, slice_ in found:
        assert token == "[UNK]" or slice_.lower() == token.replace("##", "")
    assert "".join(slice_ for _, slice_ in found) == "".join(text.split())


@given(st.lists(st.text(st.characters() | often, max_size=30), max_size=4), st.integers(3, 20))
def test_offsets_are_in_order_and_within_any_text(tokenizer: ErnieTokenizer, texts: list[str], max_length: int) -> None:
    rows, offsets = tokenizer.encode_with_offsets(texts, max_length)
    assert rows == tokenizer.encode(texts, max_length)
    for text, row, places in zip(texts, rows, offsets, strict=True):
        assert len(row) == len(places) and row[-1] == 2
        inner = places[1:-1]
        for start, end in inner:
            assert 0 <= start < end <= len(text)
            assert not text[start].isspace() and not text[end - 1].isspace()
        for (_, end), (later, _) in itertools.pairwise(inner):
            # Code points that one character is decomposed into share its place; others do not overlap.
            assert end <= later or later == end - 1


def test_without_lower_casing_nothing_is_folded(tmp_path: Path) -> None:
    vocab = write_vocab(tmp_path, "\n".join([*VOCAB, "OK", "É"]))
    cased = ErnieTokenizer(vocab, TokenizerConfig(lower_case=False))
    assert cased.encode(["OK ok É"], 8) == [[1, len(VOCAB), ID["ok"], len(VOCAB) + 1, 2]]


def test_without_lower_casing_marks_are_part_of_words(tmp_path: Path) -> None:
    cased = ErnieTokenizer(write_vocab(tmp_path, "\n".join(VOCAB)), TokenizerConfig(lower_case=False))
    for max_length in (3, 16):  # where the next token is cut off, its mark stays with it
        rows, offsets = cased.encode_with_offsets(["[SEP]\u0301o"], max_length)
        assert offsets[0][1:-1] == [(0, 5), (5, 7)][: max_length - 2] and len(rows[0]) == len(offsets[0])


def test_an_entry_that_stands_twice_has_its_last_id(tmp_path: Path) -> None:
    vocab = write_vocab(tmp_path, "[PAD]\n$\n[CLS]\n[SEP]\n$\n[UNK]")
    assert ErnieTokenizer(vocab, TokenizerConfig()).encode(["$?"], 8) == [[2, 4, 5, 3]]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_ends_do_not_matter(tmp_path: Path, end: str) -> None:
    # U+2028 is a line end to str.splitlines and an entry like any other to PaddleNLP.
    vocab = write_vocab(tmp_path, end.join(["[PAD]", "[CLS]", "[SEP]", "\u2028", "", "ok", "[UNK]", ""]))
    tokenizer = ErnieTokenizer(vocab, TokenizerConfig())
    assert tokenizer.encode(["ok x"], 8) == [[1, 5, 6, 2]]


def test_a_vocabulary_that_is_missing_or_no_text_or_lacks_a_special_token_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleInvalidError):
        ErnieTokenizer(tmp_path / "vocab.txt", TokenizerConfig())
    with pytest.raises(BundleInvalidError, match=r"vocab\.txt") as caught:
        ErnieTokenizer(write_vocab(tmp_path, "[PAD]\n[CLS]\n[UNK]\n"), TokenizerConfig())
    assert "[SEP]" in caught.value.why
    (tmp_path / "vocab.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(BundleInvalidError):
        ErnieTokenizer(tmp_path / "vocab.txt", TokenizerConfig())


def test_every_character_is_treated_as_in_unicode_14() -> None:
    assert all_of_unicode.words_digest() == ALL_OF_UNICODE
    assert all_of_unicode.data_digest() == UNICODE_14


@pytest.mark.parametrize(
    "python", ["3.8", "3.14", *(pytest.param(f"3.{minor}", marks=pytest.mark.sweep) for minor in range(9, 14))]
)
def test_every_character_is_treated_alike_by_all_pythons(python: str) -> None:
    # Without site-packages: the tokenizer needs the standard library alone.
    command = [str(required_python(python)), "-S", "-W", "error", all_of_unicode.__file__]
    environment = {**os.environ, "PYTHONPATH": str(Path(edgepack_runtime.__file__).parents[1])}
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == [ALL_OF_UNICODE, UNICODE_14]


@pytest.mark.skipif(unicodedata.unidata_version != "14.0.0", reason="this Python has another version of Unicode")
def test_the_tables_agree_with_unicode_14(monkeypatch: pytest.MonkeyPatch) -> None:
    data = all_of_unicode.unicode_data
    monkeypatch.setattr(data, "category", unicodedata.category)
    monkeypatch.setattr(data, "combining", unicodedata.combining)
    monkeypatch.setattr(data, "lower", str.lower)
    monkeypatch.setattr(data, "decomposed", lambda character: unicodedata.normalize("NFD", character))
    assert all_of_unicode.data_digest() == UNICODE_14


def paddlenlp_words(text: str) -> list[str]:
    """PaddleNLP's BasicTokenizer, written down once more."""
    text = "".join(character.lower() for character in text)
    out = []
    for character in text:
        if character in "\t\n\r" or unicodedata.category(character) == "Zs":
            out.append(" ")
        elif character != "\ufffd" and not unicodedata.category(character).startswith("C"):
            out.append(f" {character} " if is_ideograph(ord(character)) else character)
    words = []
    for word in "".join(out).split():
        bare = "".join(c for c in unicodedata.normalize("NFD", word) if unicodedata.category(c) != "Mn")
        words += "".join(f" {c} " if stands_alone(c) else c for c in bare).split()
    return words


def is_ideograph(code: int) -> bool:
    blocks = "3400-4DBF 4E00-9FFF F900-FAFF 20000-2A6DF 2A700-2B73F 2B740-2B81F 2B820-2CEAF 2F800-2FA1F"
    return any(int(first, 16) <= code <= int(last, 16) for first, last in (b.split("-") for b in blocks.split()))


def stands_alone(character: str) -> bool:
    return (
        unicodedata.category(character)[0] in "PS"
        or character in "²º〇µØŋƱ"
        or re.match(r"[!-/:-@\[-`{-~]", character) is not None
    )


@pytest.fixture(scope="module")
def words() -> all_of_unicode.Words:
    return all_of_unicode.Words()


@given(st.text(settled | often, max_size=30) | st.text(moving, max_size=30))
def test_words_are_those_of_paddlenlp(words: all_of_unicode.Words, text: str) -> None:
    assert words(text) == paddlenlp_words(text)


SPECIAL = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
# Words of few letters, which are cut into pieces in many ways; some have more than 100 letters.
letters = st.text("abÉ\u0301\ud800", max_size=6) | st.integers(95, 105).map("a".__mul__)
sentences = st.lists(letters | st.sampled_from([*SPECIAL, "[", "SEP]", "[sep]", "好", "，", " ", "\u200b"]), max_size=8)
entries = st.lists(
    st.text("abe", min_size=1, max_size=3).flatmap(lambda x: st.sampled_from([x, "##" + x])), max_size=12
)


def paddlenlp_ids(text: str, vocabulary: list[str]) -> list[int]:
    """All steps, as plainly as they can be written."""
    ids = {entry: number for number, entry in enumerate(vocabulary)}
    found: list[int] = []
    for part in re.split(r"(\[(?:UNK|CLS|SEP|PAD|MASK)\])", text):
        for word in [part] if part in SPECIAL else paddlenlp_words(part):
            pieces: list[int] | None = []
            rest = word
            while rest and pieces is not None:
                begins = [rest[:n] for n in range(len(rest), 0, -1) if rest[:n] in ids]
                pieces = [*pieces, ids[begins[0]]] if begins else None
                rest = "##" + rest[len(begins[0]) :] if begins and begins[0] != rest else ""
            found += [ids["[UNK]"]] if pieces is None or len(word) > 100 else pieces
    return found


@given(entries, sentences.map("".join), st.integers(2, 30))
def test_ids_are_those_of_paddlenlp(
    tmp_path_factory: pytest.TempPathFactory, entries: list[str], text: str, max_length: int
) -> None:
    vocabulary = [*SPECIAL, "好", "[", "a", "##a", *entries]
    tokenizer = ErnieTokenizer(write_vocab(tmp_path_factory.getbasetemp(), "\n".join(vocabulary)), TokenizerConfig())
    [ids] = tokenizer.encode([text], max_length)
    assert ids[1:-1] == paddlenlp_ids(text, vocabulary)[: max_length - 2]


@given(st.lists(st.text(st.characters(), max_size=40), max_size=5), st.integers(3, 20))
def test_any_texts_give_ids_of_the_vocabulary(tokenizer: ErnieTokenizer, texts: list[str], max_length: int) -> None:
    rows = tokenizer.encode(texts, max_length)
    for text, row in zip(texts, rows, strict=True):
        assert len(row) <= max_length and set(row) <= set(range(tokenizer.vocab_size))
        assert [row] == tokenizer.encode([text], max_length)  # a batch is the texts one by one


PIECES = st.sampled_from(
    ["好", "差店", " ", "\n", "ok", "okay", "x" * 60, "\u0301", "e\u0301", "ΑΣ", "[SEP]", "[", "SEP]", "\ud83d",
     "\u200b" * 40, " " * 50, "ﬁ", "～", "\t", "1", "2" * 30, "\ufffd", "한글", "々", "𠀀",
     ",", ";,", "=", "😀", "👍\U0001f3fd", "\u200d", "=\u0338", "，", "#", "##", "]", "'s", "a.b"]
)  # fmt: skip


@given(st.lists(st.lists(PIECES, max_size=40).map("".join), max_size=3), st.integers(3, 8))
def test_the_unread_rest_of_a_long_text_makes_no_difference(
    tokenizer: ErnieTokenizer, texts: list[str], max_length: int
) -> None:
    room = max_length - 2
    rows, offsets = tokenizer.encode_with_offsets(texts, 2**53)
    expected = [[*row[:-1][: room + 1], 2] for row in rows], [[*row[:-1][: room + 1], (0, 0)] for row in offsets]
    assert tokenizer.encode_with_offsets(texts, max_length) == expected
    assert tokenizer.encode(texts, max_length) == expected[0]


@pytest.mark.parametrize("text", ["好", "😀", '{"a":1}', "!", "]", "[", "]a", "ok ", "好ok", "[SEP]", "\u0301好"])
def test_a_text_far_longer_than_the_model_reads_is_not_read_to_its_end(
    tokenizer: ErnieTokenizer, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = 0
    parts = tokenizer._parts

    def counted(text: str, room: int) -> Iterator[tuple[int, int, list[int | str | None]]]:
        nonlocal read
        for part in parts(text, room):
            read += len(part[2])
            yield part

    monkeypatch.setattr(tokenizer, "_parts", counted)
    text *= 100_000
    assert [len(row) for row in tokenizer.encode([text], 16)] == [16]
    assert [len(row) for row in tokenizer.encode_with_offsets([text], 16)[0]] == [16]
    assert read < 200


def test_blanks_at_the_beginning_take_no_room(tokenizer: ErnieTokenizer) -> None:
    blanks = " " * 100_000 + "好" * 20
    assert tokenizer.encode([blanks], 16) == tokenizer.encode(["好" * 20], 16)


def test_a_special_token_is_whole_wherever_it_stands(tokenizer: ErnieTokenizer) -> None:
    for before in range(40):
        for max_length in (16, 20, 64):
            assert tokens(tokenizer, " " * before + "[MASK]好[SEP]", max_length) == ["[MASK]", "好", "[SEP]"]


def test_one_special_token_may_begin_with_another(tmp_path: Path) -> None:
    vocab = write_vocab(tmp_path, "<s>\n<s>2\n</s>\n<pad>\na")
    config = TokenizerConfig(unk_token="<pad>", cls_token="<s>", sep_token="</s>", pad_token="<s>2")
    assert ErnieTokenizer(vocab, config).encode(["a<s>2<s>a</s>"], 9) == [[0, 4, 1, 0, 4, 2, 2]]


def test_kept_tokens_are_whole_wherever_they_stand(tmp_path: Path) -> None:
    vocab = write_vocab(tmp_path, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n酒\n店\nb\n##rand\n酒店\n[Brand]")
    config = TokenizerConfig(kept_tokens=("酒店", "[Brand]"))
    texts = ["酒酒店店", "brand[Brand]", "[brand]"]
    assert ErnieTokenizer(vocab, config).encode(texts, 9) == [[2, 4, 8, 5, 3], [2, 6, 7, 9, 3], [2, 1, 6, 7, 1, 3]]
    with pytest.raises(BundleInvalidError, match=r"lacks the special token '\[X\]'"):
        ErnieTokenizer(vocab, TokenizerConfig(kept_tokens=("[X]",)))


def test_a_kept_token_that_begins_with_another_is_not_cut_by_a_part(tmp_path: Path) -> None:
    vocab = write_vocab(tmp_path, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n好\n糖尿\n糖尿病人")
    tokenizer = ErnieTokenizer(vocab, TokenizerConfig(kept_tokens=("糖尿", "糖尿病人")))
    for before in range(40):
        for max_length in (3, 4, 8, 64):
            whole = [2, *[4] * before, 6, 6]
            found = tokenizer.encode(["好" * before + "糖尿病人糖尿病人"], max_length)[0]
            assert found[:-1] == whole[: max_length - 1]


# --- memory ---------------------------------------------------------------------------------------------------


def test_what_is_remembered_is_bounded(tokenizer: ErnieTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{chr(0x4E00 + number)}ok{number} {'x' * number}é" for number in range(200)]
    expected = tokenizer.encode_with_offsets(texts, 64)
    monkeypatch.setattr(module, "_REMEMBERED", 8)
    tokenizer._items.clear()
    tokenizer._words.clear()
    for _ in range(2):
        assert tokenizer.encode_with_offsets(texts, 64) == expected
        assert tokenizer.encode(texts, 64) == expected[0]
    assert len(tokenizer._items) <= 8 and len(tokenizer._words) <= 8
    assert all(len(word) <= 32 for word in tokenizer._words)


def test_threads_share_a_tokenizer(tokenizer: ErnieTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{chr(0x4E00 + number)}ok{number}，[SEP]É好" for number in range(100)]
    expected = tokenizer.encode_with_offsets(texts, 16)
    monkeypatch.setattr(module, "_REMEMBERED", 8)  # they empty each other's memory
    found: list[bool] = []

    def work() -> None:
        found.extend(tokenizer.encode_with_offsets(texts, 16) == expected for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert found == [True] * 80
