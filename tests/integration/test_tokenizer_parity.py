"""The device's tokenizer against PaddleNLP's own: the same ids for every text, whatever is in it."""

from __future__ import annotations

import json
import shutil
import unicodedata
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.sweeps import examples, sample

from edgepack_runtime.bundle.model_config import TokenizerConfig
from edgepack_runtime.inference.tokenizer import ErnieTokenizer

pytestmark = pytest.mark.integration

SHARED = Path(__file__).parents[3] / "shared"
VOCABULARIES = ("ernie-1.0-vocab.txt", "ernie-3.0-vocab.txt")
# What takes seconds is tried with one vocabulary; `make test-all` tries it with the other, too.
LONG = pytest.mark.parametrize(
    "both", [pytest.param(VOCABULARIES[0], marks=pytest.mark.sweep), VOCABULARIES[1]], indirect=True
)
MAX_LENGTH = 256
# PaddleNLP sees the character tables of the Python it runs on; the device's tokenizer has those of Unicode 14.0.
SAME_TABLES = unicodedata.unidata_version == "14.0.0"

HARD = [
    "", " ", "\t\r\n", "\u3000", "\x00", "\ufffd", "\u200b\u200d\ufeff", "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g",
    "ＡＢＣ１２３，。！？（）：；“”‘’「」『』【】《》〈〉…—～·",
    "\"double\" 'single' `back` «guillemets» „low“ ‚low‘", "😀😀😀👍🏽👍🏿❤️❤",
    "👨‍👩‍👧‍👦家👩🏻‍💻", "🇨🇳🇺🇸", "1️⃣2️⃣#️⃣", "☺️✨★★☆☆～～￥￥$$€€££¥¥", "＋＋－－×÷±≠≤≥∞√∑∫", "^^^___```|||~~~",
    "---===+++///\\\\\\", "→→←←↑↓⇒⇔", "①②③⑴⒈ⅠⅡⅢⅳ㈠㊣㎡㎏℃℉", "é e\u0301 ñ n\u0303 ü Å Å ﬁ ß ẞ İ ı Ǆ ǆ ﬀ",
    "Ä\u0323\u0307 q\u0307\u0323", "naïve café résumé Ünïcödé",
    "한국어 한 텍스트", "ひらがな カタカナ ｶﾀｶﾅ が か\u3099",
    "Ελληνικά ΣΑΣ ς Русский ЁЖИК ёжик", "עִבְרִית עברית العَرَبِيَّة ١٢٣", "ไทย หมู่ ทำ", "हिन्दी क्षि",
    "தமிழ் నేను", "iPhone14ProMax 5G WiFi6 4K120fps", "abc123def456 2021-10-01 12:30:45 3.14159 1,000,000 50%",
    "user@example.com https://www.example.com/a?b=c&d=e#f", "C++ C# .NET F# R&D AT&T", "a" * 99, "a" * 100,
    "a" * 101, "a" * 1000, "中" * 500, "啊" * 101 + "b" * 101 + "，",
    "supercalifragilisticexpialidocious antidisestablishmentarianism", "\ue000\uf8ff\U000f0000\U0010fffd私用",
    "\u302e\u1b44", "a\u302e\u034f\u1b44b\u0327\U0001d165",
    "\U0001d15e\U0001d16d\u0327≠\u1b44", "a\U00011938b",
    "\ud800", "a\udfffb", "[SE\ud800P]好[\udfffUNK]", "[SEP]\ud800[CLS]",
    "\ud83d\ude00", "\ud800\ud800中\udc00", "〇〇七 二〇二〇年〇〇",
    "²º〇µØŋƱ a²b aºb aµb aØb aŋb aƱb", "\xad软\xad连字符", "〡〢〣〤〥〦〧〨〩", "々〻〱ゝヽ",
    "\U00020000\U0002a6df\U0002a700\U0002b740\U0002b820\U0002b91f\U0002ceaf\U0002f800\U00030000",
    "豈更\ufa0e\ufa29", "[CLS]", "[SEP]好[SEP]", "[PAD][PAD]", "[UNK]a[MASK]b", "[cls]", "[ CLS ]", "[[SEP]]",
    "[CLS", "CLS]", "##a ##", "# # [unused1]", "$ $$ a$b", "\u0300\u0301好", "好\u0300\u20e3",
    "\u0378\u0379\U0001ffff", "\U000e0041\U000e007f", "a\u0600b\u06ddc\u070fd", "\u1734\u1715", "\u180e\u180b",
    "ʼʻˈˌ", "\ufe0f\ufe0e", "﹏﹋﹌﹍", "｛｝｜￣￤￠￡￢￣￦", "⺀⻳⼀⿕⿰⿱", "\ua4d0\ua4fe ꓐ ꓽ꓾", "ꀀꀁ꒐",
]  # fmt: skip

# Real lines hold more than letters: they are mixed from what people type, and from all of Unicode.
usual = st.sampled_from(
    "的一是了我不在人，。！？～~★☆…—“”'\" \t\u3000abcXYZ0129%$#@()（）[]【】<>《》:：;；/\\^_`|￥€"
    "😀❤\ufe0f👍🏽\u200d²〇éÉñ\u0301\u3099ⅣⅡ①ＡＢ１"
)
typed = st.text(usual, max_size=80)
# Where the tables differ, only what was assigned long ago is sure to be the same in both.
settled = st.characters().filter(lambda character: unicodedata.ucd_3_2_0.category(character) != "Cn")
anything = st.text(st.characters(codec=None) if SAME_TABLES else settled, max_size=80)
words = st.text(st.sampled_from("abcdefghijklmnopqrstuvwxyz0123456789"), max_size=110)
specials = st.sampled_from(["[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]", "[sep]", "好", "a", " "])
mixed = st.lists(typed | anything | words | specials, max_size=4).map("".join)


class Both:
    """The two tokenizers with one vocabulary."""

    def __init__(self, vocab: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PaddleNLP and what it imports warn of their own affairs
            from paddlenlp.transformers import ErnieTokenizer as Reference

            self.reference: Any = Reference.from_pretrained(str(vocab.parent))
        self.device = ErnieTokenizer(vocab, TokenizerConfig())

    def pair_differences(self, pairs: list[tuple[str, str]], max_length: int = MAX_LENGTH) -> list[tuple[str, str]]:
        """The pairs whose ids or types differ when they are cut to `max_length`."""
        firsts, seconds = [first for first, _ in pairs], [second for _, second in pairs]
        rows, firsts_of_rows = self.device.encode_pairs(firsts, seconds, max_length)
        found = []
        for pair, row, n_first in zip(pairs, rows, firsts_of_rows, strict=True):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that it does not return what it cut off
                wanted = self.reference(*pair, max_length=max_length, truncation=True)
            types = [0] * n_first + [1] * (len(row) - n_first)
            if (row, types) != (wanted["input_ids"], wanted["token_type_ids"]):
                found.append(pair)
        return found

    def differences(self, texts: list[str]) -> list[tuple[str, list[int], list[int]]]:
        """The texts whose ids differ, with PaddleNLP's ids and ours."""
        found = []
        for text in texts:
            wanted = self.reference(text, max_length=MAX_LENGTH, truncation=True)
            [ids] = self.device.encode([text], MAX_LENGTH)
            if ids != wanted["input_ids"] or any(wanted["token_type_ids"]):
                found.append((text, wanted["input_ids"], ids))
        return found


@pytest.fixture(scope="module", params=VOCABULARIES)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    source = SHARED / "data" / "vocab" / request.param
    if not source.is_file():
        pytest.skip(f"no {source}")
    folder = tmp_path_factory.mktemp("ernie")
    shutil.copyfile(source, folder / "vocab.txt")
    config = {"do_lower_case": True, "tokenizer_class": "ErnieTokenizer", "model_max_length": 512}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return Both(folder / "vocab.txt")


def test_hard_cases(both: Both) -> None:
    assert both.differences(HARD) == []


def test_hard_cases_next_to_each_other(both: Both) -> None:
    pairs = [first[:30] + glue + second[:30] for first in HARD for second in HARD for glue in ("", "a")]
    assert both.differences(sample(pairs, 5)) == []


def test_hard_pairs(both: Both) -> None:
    for distance in (0, 1, 7, 40):
        pairs = list(zip(HARD, HARD[distance:] + HARD[:distance], strict=True))
        for max_length in (3, 4, 5, 16, 17, MAX_LENGTH):
            assert both.pair_differences(pairs, max_length) == [], (distance, max_length)


def test_pairs_of_all_lengths(both: Both) -> None:
    """Which of the two loses how many tokens depends on both lengths and on the room."""
    pairs = [("中" * first, "文" * second) for first in range(12) for second in range(12)]
    for max_length in range(3, 24):
        assert both.pair_differences(pairs, max_length) == [], max_length


def test_real_pairs(both: Both) -> None:
    file = SHARED / "data" / "question-pairs" / "train.tsv"
    if not file.is_file():
        pytest.skip(f"no {file}")
    lines = file.read_text(encoding="utf-8").splitlines()[1:]
    pairs = [(fields[0], fields[1]) for fields in (line.split("\t") for line in lines[:: max(len(lines) // 2000, 1)])]
    for max_length in (24, 64):
        assert both.pair_differences(pairs, max_length) == []


# Unicode ends its assigned characters in plane 3, but for the tags and variation selectors of plane 14.
ASSIGNED = [range(0x34000), range(0xE0000, 0xE0200)]
UNASSIGNED = [range(0x34000, 0xE0000), range(0xE0200, 0x110000)]


@LONG
@pytest.mark.skipif(not SAME_TABLES, reason="PaddleNLP sees another Unicode version on this Python")
@pytest.mark.parametrize(
    "planes",
    [pytest.param(ASSIGNED, id="assigned"), pytest.param(UNASSIGNED, id="unassigned", marks=pytest.mark.sweep)],
)
def test_every_character(both: Both, planes: list[range]) -> None:
    """All of Unicode, each character between letters."""
    different = []
    for plane in planes:
        for start in plane[::64]:
            codes = list(range(start, start + 64))
            if both.differences([" ".join(f"a{chr(code)}b" for code in part) for part in (codes[:32], codes[32:])]):
                different += [code for code in codes if both.differences([f"a{chr(code)}b"])]
    assert [f"U+{code:04X}" for code in different] == []


def real_texts() -> list[str]:
    texts = []
    for file in sorted((SHARED / "data").glob("*/*")):
        if file.suffix == ".tsv":
            lines = file.read_text(encoding="utf-8").splitlines()[1:]
            texts += [field for line in lines for field in line.split("\t")[:-1]]
        elif file.suffix == ".jsonl":
            rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
            texts += [row[key] for row in rows for key in ("text", "query") if key in row]
    return texts


@LONG
def test_real_texts(both: Both) -> None:
    texts = real_texts()
    if not texts:
        pytest.skip("no shared data")
    assert both.differences(sample(texts[:: max(len(texts) // 20_000, 1)], 5)) == []


@LONG
@given(text=mixed)
@settings(max_examples=examples(3000), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_generated_texts(both: Both, text: str) -> None:
    assert both.differences([text]) == []


@LONG
@given(pair=st.tuples(mixed, mixed), max_length=st.integers(3, 48))
@settings(max_examples=examples(1500), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_generated_pairs(both: Both, pair: tuple[str, str], max_length: int) -> None:
    assert both.pair_differences([pair], max_length) == []


@LONG
@given(text=mixed)
@settings(max_examples=examples(1500), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_tokens_stand_where_their_offsets_say(both: Both, text: str) -> None:
    """A text that ends where a word ends gives the tokens up to there: nothing more is in front of it, nothing less."""
    [ids], [offsets] = both.device.encode_with_offsets([text], MAX_LENGTH)
    assert len(offsets) == len(ids)
    tokens = [both.reference.convert_ids_to_tokens(number) for number in ids]
    for place, (start, end) in enumerate(offsets[1:-1], start=1):
        assert start < end
        if not tokens[place + 1].startswith("##"):
            [upto] = both.device.encode([text[:end]], MAX_LENGTH)
            assert upto[:-1] == ids[: place + 1], (text, end)
